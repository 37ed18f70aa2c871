"""Unfinished runs that nobody is at work on: which are due, what the others wait for, how a claim is given back.

Whoever takes runs up by itself asks here, inside of its claim: of many who look at one file, one takes a run.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import apsw

from paykit_settle.endpoint import ProcessorIdentity
from paykit_settle.errors import RunInProgress
from paykit_settle.lifecycle import UNFINISHED, Event, State
from paykit_settle.store.accounts import account_of
from paykit_settle.store.queries import load_queries
from paykit_settle.store.rows import one
from paykit_settle.store.runs import Run, move, run_by_number
from paykit_settle.window import EPOCH

_SQL = load_queries("runs.sql")


class RunWaiting(RunInProgress):
    """The run is not for whoever takes runs up by itself, or not yet; nothing has changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taker:
    """Who takes runs up by itself: its processor, its clock, and whether it sees somebody at work on a run.

    `processor_moved`: a person has said that every run may go on at this processor.
    """

    processor: ProcessorIdentity
    now_ms: int
    is_held: Callable[[Run], bool]
    processor_moved: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Why a run is not taken up: a sentence, and the one thing that it waits for, where there is one."""

    text: str
    until_ms: int | None = None
    processor: ProcessorIdentity | None = None
    needs_person: bool = False
    is_held: bool = False

    @property
    def until(self) -> str | None:
        """When the run is due, in UTC."""
        return None if self.until_ms is None else utc_text(self.until_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """With what a claim is given back. Without an error the work was only stopped: the run is due at once."""

    error: tuple[str, str] | None = None
    retry_at_ms: int | None = None
    needs_person: bool = False


def wait_of(connection: apsw.Connection, run: Run, taker: Taker) -> Wait | None:
    """Why this taker leaves an unfinished run alone; None when it is due."""
    if taker.is_held(run):
        return Wait(text="is in progress in a process that is alive", is_held=True)
    if run.needs_person:
        reason = f": {run.error_detail}" if run.error_detail else ""
        return Wait(text=f"waits for a person{reason}", needs_person=True)
    processor = run.processor
    if processor is None and (account := account_of(connection, run.account)) is not None:
        processor = account.processor
    if processor not in (None, taker.processor) and not taker.processor_moved:
        return Wait(text=f"waits for a process that is configured for {processor}", processor=processor)
    if run.retry_at_ms is not None and run.retry_at_ms > taker.now_ms:
        return Wait(text=f"waits until {utc_text(run.retry_at_ms)}", until_ms=run.retry_at_ms)
    return None


def check_due(connection: apsw.Connection, run: Run | None, taker: Taker) -> None:
    """Pass when the run is unfinished and due for this taker; `RunWaiting` says why not."""
    if run is None or run.state not in UNFINISHED:
        raise RunWaiting("there is nothing to go on with any more")
    if (wait := wait_of(connection, run, taker)) is not None:
        raise RunWaiting(f"{run.id} {wait.text}")


def next_retry_ms(connection: apsw.Connection, *, now_ms: int) -> int | None:
    """When the next run is due that waits for nothing but its time."""
    found = one(connection, _SQL["next_retry"], now_ms=now_ms)
    return None if found is None else found["at_ms"]


def give_back(connection: apsw.Connection, number: int, ending: Ending, *, owner: str, now_ms: int) -> Run:
    """The run, as it is left: no longer this owner's.

    Of a run that is pulling nothing was sent: with an error it has failed. A frozen one stays as it is, to be gone on
    with. What the owner holds no more, because it was given back or taken over, is left alone.
    """
    run = run_by_number(connection, number)
    if run.owner != owner:
        return run
    has_failed = run.state is State.PULLING and ending.error is not None
    return move(
        connection,
        run,
        Event.FAIL if has_failed else Event.GIVE_BACK,
        now_ms=now_ms,
        error=ending.error,
        release=True,
        retry_at_ms=ending.retry_at_ms,
        needs_person=ending.needs_person and not has_failed,
        is_due_at_once=ending.error is None,
    )


def utc_text(at_ms: int) -> str:
    """A moment in whole seconds of UTC, rounded up: by then it has come."""
    return (EPOCH + timedelta(seconds=-(-at_ms // 1000))).strftime("%Y-%m-%dT%H:%M:%SZ")
