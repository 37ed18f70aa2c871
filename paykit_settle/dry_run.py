"""What a run would do with a day, found out by a run: on a copy of the database, with a client that only asks.

The real runner claims, pulls, freezes, looks up, "sends" and books, so a dry run and the run cannot differ. A day that
would be sent counts as posted for the days after it, as it will when they are run.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

import apsw

from paykit_settle.claiming import Asked
from paykit_settle.errors import InvariantViolated, WindowOpen
from paykit_settle.gets_only import GetsOnly, Unsent
from paykit_settle.lifecycle import State
from paykit_settle.models import PostedSettlement
from paykit_settle.report import settlement_json
from paykit_settle.run import RunOptions
from paykit_settle.run_request import RunRequest
from paykit_settle.runner import Runner
from paykit_settle.store.runs import Attempt, Run, attempt_of, current_attempt, run_by_day
from paykit_settle.store.store import Store
from paykit_settle.strict_json import loads
from paykit_settle.window import StillOpen


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """What `run` would do with a day.

    `settled` is its answer on the copy, `attempt` what it froze there, or had frozen. `before` is the run as it stands,
    None for a day that has none; `was_frozen`: its settlement is fixed already. `is_sent`: the bytes would go out.
    `window_open` is why `run` would refuse now: the day has not ended.
    """

    settled: PostedSettlement
    attempt: Attempt
    before: Run | None
    was_frozen: bool
    is_sent: bool
    window_open: str | None

    @property
    def would(self) -> str:
        """`post`, `post again` (what is frozen, as it is), `book` (the processor has it), or `nothing`."""
        if self.settled.replayed:
            return "nothing"
        if not self.is_sent:
            return "book"
        return "post again" if self.was_frozen else "post"


class Clock:
    """The time of a dry run: now, or the end of a day that is looked at before it has ended. It never goes back."""

    def __init__(self) -> None:
        self._at_least = datetime.now(UTC)

    def now(self) -> datetime:
        return max(datetime.now(UTC), self._at_least)

    def move_to(self, moment: datetime) -> None:
        self._at_least = max(moment, self._at_least)


async def look(
    runner: Runner, store: Store, gets: GetsOnly, wanted: RunRequest, how: Asked, *, clock: Clock, options: RunOptions
) -> Looked:
    """Return what `run` would do with that day; raises what it would raise.

    `store` is a copy that is thrown away, `gets` what the runner's client sends through, and `clock` the runner's: a
    day that has not ended is looked at as if it just had.
    """
    before, was_frozen = await store.read(partial(_state_of, wanted=wanted))
    gets.take()
    try:
        settled = await runner.run_as(wanted, how)
    except StillOpen as error:
        clock.move_to(error.closes)
        settled = await runner.run_as(wanted, how)
    attempt = await store.read(partial(_attempt_of, wanted=wanted))
    unsent = gets.take()
    if unsent not in ([], [Unsent(idempotency_key=attempt.idempotency_key, body=attempt.body)]):
        raise InvariantViolated(f"{wanted.account} on {wanted.date}: what would be sent is not what was frozen")
    return Looked(
        settled=settled,
        attempt=attempt,
        before=before,
        was_frozen=was_frozen,
        is_sent=bool(unsent),
        window_open=_window_open(settled, options),
    )


def looked_json(looked: Looked) -> Mapping[str, object]:
    """What `run --dry-run --json` prints of a day."""
    settled, attempt = looked.settled, looked.attempt
    return {
        "dry_run": True,
        "would": looked.would,
        "state": looked.before.state if looked.before is not None else None,
        "run_id": settled.run_id,
        "settlement_id": None if looked.is_sent else settled.settlement_id,
        "idempotency_key": attempt.idempotency_key,
        "body_sha256": attempt.body_sha256,
        "payload": loads(attempt.body),
        **settlement_json(settled.settlement),
        "window_open": looked.window_open,
        "warnings": list(settled.warnings),
    }


def _state_of(connection: apsw.Connection, wanted: RunRequest) -> tuple[Run | None, bool]:
    run = run_by_day(connection, wanted.account, wanted.date)
    if run is None or run.state in (State.PULLING, State.REJECTED):
        return run, False
    return run, attempt_of(connection, run.number, run.attempt) is not None


def _attempt_of(connection: apsw.Connection, wanted: RunRequest) -> Attempt:
    run = run_by_day(connection, wanted.account, wanted.date)
    if run is None:
        raise InvariantViolated(f"{wanted.account} on {wanted.date} was looked at and has no run")
    return current_attempt(connection, run)


def _window_open(settled: PostedSettlement, options: RunOptions) -> str | None:
    try:
        settled.settlement.window.check_closed(datetime.now(UTC), grace=timedelta(seconds=options.grace_s))
    except WindowOpen as error:
        return str(error)
    return None
