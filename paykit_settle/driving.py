"""What goes on by itself: the runs that a dead process, an unknown outcome or a database without room has left.

Of many drivers on one file each run is taken by one, through its claim, when its time has come. A change of a run's
state is said once; that it was tried again in vain is not.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace

import apsw

from paykit_settle.claiming import Asked
from paykit_settle.errors import Interrupted, InvariantViolated, SettleError
from paykit_settle.models import PostedSettlement
from paykit_settle.report import warnings_of
from paykit_settle.retry import PAUSE_MIN_S
from paykit_settle.run_request import RunRequest
from paykit_settle.store.runs import Run, run_by_number, unfinished_runs
from paykit_settle.store.store import Store
from paykit_settle.store.waiting import RunWaiting, Taker, next_retry_ms, wait_of

LOOK_EVERY_S = 60
"""How often a driver looks for what nobody has told it of, such as a process that died."""
Outcome = PostedSettlement | SettleError
RunAs = Callable[[RunRequest, Asked], Awaitable[PostedSettlement]]

logger = logging.getLogger(__name__)


async def resume_due(
    store: Store,
    run_as: RunAs,
    how: Asked,
    *,
    taker: Callable[[], Taker],
    is_stopped: Callable[[], bool],
) -> list[tuple[Run, Outcome]]:
    """Goes on with every run that is due, in order of day; what came of each that was taken up.

    Each goes on with the terms that it was begun on. Ends early when it `is_stopped`.
    """

    def due(connection: apsw.Connection) -> list[Run]:
        mine = taker()
        return [run for run in unfinished_runs(connection) if wait_of(connection, run, mine) is None]

    outcomes: list[tuple[Run, Outcome]] = []
    for run in await store.read(due):
        if is_stopped():
            break
        try:
            outcomes.append((run, await run_as(request_of(run), replace(how, only_due=True))))
        except RunWaiting:  # somebody else was quicker
            continue
        except SettleError as error:
            outcomes.append((run, error))
        except Exception as error:  # one run's bug must not keep the others from their end
            logger.exception("resuming %s failed", run.id)
            outcomes.append((run, InvariantViolated(f"{run.id}: {error!r:.200}")))
    return outcomes


def request_of(run: Run) -> RunRequest:
    """Return what the run was asked for."""
    return RunRequest(account=run.account, date=run.date, settlement_currency=run.settlement_currency)


class Driver:
    """The background task of a service: resumes at its start, then whenever a run is due, until it is cancelled."""

    def __init__(
        self,
        resume: Callable[[], Awaitable[list[tuple[Run, Outcome]]]],
        store: Store,
        *,
        now_ms: Callable[[], int],
    ) -> None:
        self._resume = resume
        self._store = store
        self._now_ms = now_ms
        self._said: dict[int, str] = {}
        self._trouble: str | None = None

    async def drive(self) -> None:
        """Never ends by itself."""
        wait_s = await self.look()
        while True:
            await asyncio.sleep(wait_s)
            wait_s = await self.look()

    async def look(self) -> int:
        """Resumes what is due, once; the seconds until there may be more."""
        now_ms = self._now_ms()
        try:
            for run, outcome in await self._resume():
                await self._say(run, outcome)
            due_ms = await self._store.read(lambda connection: next_retry_ms(connection, now_ms=now_ms))
        except Exception as error:  # the next look may find the database in order again
            if self._trouble != str(error):
                self._trouble = str(error)
                logger.warning("unfinished runs cannot be looked for: %s", error)
            return LOOK_EVERY_S
        self._trouble = None
        if due_ms is None:
            return LOOK_EVERY_S
        return max(PAUSE_MIN_S, min(LOOK_EVERY_S, -((self._now_ms() - due_ms) // 1000)))

    async def _say(self, before: Run, outcome: Outcome) -> None:
        """One line for a change of state, or for what was not said yet about a run that could not be taken up."""
        name = f"{before.id} of {before.account} on {before.date}"
        if isinstance(outcome, PostedSettlement):
            self._said.pop(before.number, None)
            notes = "".join(f"; {warning}" for warning in outcome.warnings)
            logger.warning("resumed %s: posted as %s%s", name, outcome.settlement_id, notes)
            return
        after = await self._store.read(lambda connection: run_by_number(connection, before.number))
        said = f"{after.state}: {outcome.code}"
        is_as_before = (after.state, after.error_code) == (before.state, before.error_code)
        if is_as_before and (after.error_code == outcome.code or self._said.get(before.number) == said):
            logger.info("%s is still %s: %s", name, after.state, outcome)
            return
        self._said[before.number] = said
        if not isinstance(outcome, Interrupted):
            notes = "".join(f"; {warning}" for warning in warnings_of(outcome))
            logger.warning("resumed %s: it is %s: %s%s", name, after.state, outcome, notes)
