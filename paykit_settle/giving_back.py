"""How this process gives its claims back: after every end of a run but the good one, whatever ended it.

What cannot be written now is remembered, counts as free, and is written as soon as the database takes writes again. A
claim that is remembered is nobody's work: a new run of the same day goes before it.
"""

import asyncio
import logging
from collections.abc import Callable
from datetime import date as Date
from functools import partial

from paykit_settle.day_reader import AtStep
from paykit_settle.errors import InvariantViolated, SettleError
from paykit_settle.lifecycle import Step
from paykit_settle.store.runs import Run
from paykit_settle.store.store import Store
from paykit_settle.store.waiting import Ending, give_back

TRY_EVERY_S = 5
"""How often a claim is tried to be given back while the database takes no writes."""

Day = tuple[str, Date]
"""An account and a date."""

logger = logging.getLogger(__name__)


class ClaimsToGiveBack:
    """Gives back the claims of one owner. `is_working` says whether a run of that day is at work in this process."""

    def __init__(
        self,
        store: Store,
        *,
        owner: str,
        at_step: AtStep,
        now_ms: Callable[[], int],
        is_working: Callable[[Day], bool],
    ) -> None:
        self._store = store
        self._owner = owner
        self._at_step = at_step
        self._now_ms = now_ms
        self._is_working = is_working
        self._left: dict[Day, tuple[Run, Ending]] = {}
        self._trying: asyncio.Task[None] | None = None

    async def give_back(self, run: Run, error: BaseException) -> None:
        """Gives the run's claim back with the error, unless that is done already; never raises for the database's sake.

        A cancellation waits until it is written or remembered.
        """
        self._at_step(Step.BEFORE_GIVE_BACK)
        ending = ending_of(error)
        writing = asyncio.ensure_future(self._write(run, ending))
        try:
            failure = await asyncio.shield(writing)
        except asyncio.CancelledError:
            self._note(run, ending, await writing)
            raise
        self._note(run, ending, failure)
        self._at_step(Step.GIVEN_BACK)

    def forget(self, run: Run) -> None:
        """The run is claimed anew: what became of its last claim is of no account any more."""
        self._left.pop((run.account, run.date), None)

    async def close(self) -> None:
        """Tries once more. What is left then is a dead owner's, and due at once."""
        if self._trying is not None:
            self._trying.cancel()
            await asyncio.gather(self._trying, return_exceptions=True)
        await self._try_all()

    def _note(self, run: Run, ending: Ending, failure: SettleError | None) -> None:
        if failure is None:
            return
        logger.warning("%s is given back as soon as the database takes writes: %s", run.id, failure)
        self._left[run.account, run.date] = (run, ending)
        if self._trying is None or self._trying.done():
            self._trying = asyncio.create_task(self._keep_trying())

    async def _keep_trying(self) -> None:
        while self._left:
            await asyncio.sleep(TRY_EVERY_S)
            await self._try_all()

    async def _try_all(self) -> None:
        for day, (run, ending) in list(self._left.items()):
            # A run of the day that begins after this look has its claim written after what is written here.
            if self._is_working(day) or await self._write(run, ending) is not None:
                continue
            if self._left.get(day) == (run, ending):
                del self._left[day]
                logger.info("%s is given back", run.id)

    async def _write(self, run: Run, ending: Ending) -> SettleError | None:
        """None once it is written, else what is wrong with the database."""
        work = partial(give_back, number=run.number, ending=ending, owner=self._owner, now_ms=self._now_ms())
        try:
            await self._store.write(work)
        except SettleError as error:
            return error
        except Exception as error:  # such as memory: a claim that cannot be given back must not stay for ever
            return InvariantViolated(f"{error!r:.200}")
        return None


def ending_of(error: BaseException) -> Ending:
    """With what a claim is given back after that error; one that nobody foresaw is a bug, and said as one."""
    if isinstance(error, asyncio.CancelledError):
        return Ending()
    if isinstance(error, SettleError):
        said = (error.code, str(error))
        return Ending(error=said, retry_at_ms=error.retry_at_ms, needs_person=error.needs_person)
    return Ending(error=(InvariantViolated.code, f"{error!r:.200}"))
