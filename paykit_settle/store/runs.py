"""Runs in the database: records and changes of state, each one statement or one transaction.

Every change is conditional on the owner and the state that its caller believes in, and goes through the table of
allowed transitions. How a run is claimed is in `claims.py`. Functions here take the connection of a unit of work; they
know nothing of the processor.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date as Date

import apsw
import msgspec

from paykit_settle.endpoint import ProcessorIdentity, known_processor
from paykit_settle.errors import InvariantViolated, RunInProgress
from paykit_settle.lifecycle import UNFINISHED, Event, State, next_state
from paykit_settle.models import Settlement
from paykit_settle.person import Person
from paykit_settle.retry import next_try_ms
from paykit_settle.store.changes import note
from paykit_settle.store.queries import load_queries
from paykit_settle.store.rows import change, rows
from paykit_settle.window import Window

_SQL = load_queries("runs.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One account's day, as the database has it. `number` is shown as `run_000001`."""

    number: int
    account: str
    date: Date
    tenant: str
    state: State
    settlement_currency: str
    zone: str
    window_start_s: int
    window_end_s: int
    attempt: int
    pull: int
    pull_started_at_ms: int
    owner: str | None
    requested_by: str
    settlement_id: str | None
    error_code: str | None
    error_detail: str | None
    created_at_ms: int
    changed_at_ms: int
    processor_url: str | None = None
    key_mode: str | None = None
    terms: str | None = None
    rates_given: bytes | None = None
    indexed_pull: int | None = None
    retry_at_ms: int | None = None
    tries: int = 0
    needs_person: int = 0
    attention: str | None = None
    covers: str | None = None
    principal: str | None = None

    @property
    def id(self) -> str:
        return f"run_{self.number:06d}"

    @property
    def asker(self) -> Person:
        """Who asked for it last, and by which way."""
        return Person(principal=self.principal or "", channel=self.requested_by)

    @property
    def window(self) -> Window:
        return Window.of_span(self.window_start_s, self.window_end_s)

    @property
    def processor(self) -> ProcessorIdentity | None:
        """Which processor it was last claimed for; None in runs of older versions."""
        return known_processor(self.processor_url, self.key_mode)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What one attempt froze, and what became of it. Digests are hex, `scales` and `rates_body` as used."""

    number: int
    pull: int
    idempotency_key: str
    body: bytes
    body_sha256: str
    settlement: Settlement
    rates_body: bytes | None
    scales: Mapping[str, int]
    evidence_sha256: str
    program: str
    frozen_at_ms: int
    sent_at_ms: int | None
    ended_at_ms: int | None
    outcome: str | None
    detail: str | None
    settlement_id: str | None
    status: str | None
    key_spent_at_ms: int | None = None
    first_empty_at_ms: int | None = None
    refusal: str | None = None
    taken: str | None = None

    @property
    def may_be_taken(self) -> bool:
        """Whether the processor may have it: it was sent, and the last send did not certainly fail."""
        return self.sent_at_ms is not None and self.outcome != State.FAILED


def move(
    connection: apsw.Connection,
    run: Run,
    event: Event,
    *,
    now_ms: int,
    settlement_id: str | None = None,
    error: tuple[str, str] | None = None,
    release: bool = False,
    retry_at_ms: int | None = None,
    needs_person: bool = False,
    is_due_at_once: bool = False,
) -> Run:
    """The run after the event; `RunInProgress` if another owner has taken it since, and then nothing changes.

    `release` gives the claim back. A run that is unfinished then is due again at `retry_at_ms`, else after the back-off
    of its tries; at once when it was not at the end of a try (`is_due_at_once`).
    """
    code, detail = error or (None, None)
    state = next_state(run.state, event)
    tries, due_ms = run.tries, None
    if state not in UNFINISHED:
        tries = 0
    elif release and not is_due_at_once:
        tries += 1
        due_ms = None if needs_person else next_try_ms(now_ms, tries, known_ms=retry_at_ms)
    moved = change(
        connection,
        _SQL["move_run"],
        state=state,
        settlement_id=settlement_id,
        error_code=code,
        error_detail=detail,
        now_ms=now_ms,
        release=int(release),
        retry_at_ms=due_ms,
        tries=tries,
        needs_person=int(needs_person),
        number=run.number,
        owner=run.owner,
        state_before=run.state,
    )
    if not moved:
        raise RunInProgress(f"{run.id} was taken over by another process")
    note_state(connection, run, state, detail=code or settlement_id, now_ms=now_ms)
    return run_by_number(connection, run.number)


def note_state(
    connection: apsw.Connection,
    run: Run,
    state: State,
    *,
    detail: str | None = None,
    who: Person | None = None,
    now_ms: int,
) -> None:
    """Note that a run is in another state than it was; staying in its state is no change."""
    if state is run.state:
        return
    said = f"{run.state} to {state}" + (f": {detail}" if detail else "")
    who = run.asker if who is None else who
    note(connection, who, account=run.account, what="state", subject=run.id, detail=said, at_ms=now_ms)


def run_by_day(connection: apsw.Connection, account: str, day: Date) -> Run | None:
    """The run of that account and day, if there is one."""
    return next(iter(select_runs(connection, "run_by_day", account=account, date=day.isoformat())), None)


def run_by_number(connection: apsw.Connection, number: int) -> Run:
    """The run of that number, which must exist."""
    return select_runs(connection, "run_by_number", number=number)[0]


def unfinished_runs(connection: apsw.Connection) -> list[Run]:
    """The runs that something may have cut off: pulling, frozen or unknown, in order of their day."""
    return select_runs(connection, "unfinished_runs")


def posted_days(connection: apsw.Connection, account: str, first: Date, before: Date) -> list[Run]:
    """The posted runs of an account from one day up to, not including, another."""
    return select_runs(connection, "posted_days", account=account, first=first.isoformat(), before=before.isoformat())


def attempt_of(connection: apsw.Connection, run: int, number: int) -> Attempt | None:
    """What that attempt froze; None while it is pulled."""
    return next(iter(_attempts(connection, "attempt", run=run, number=number)), None)


def current_attempt(connection: apsw.Connection, run: Run) -> Attempt:
    """The frozen attempt that a run is at; `InvariantViolated` if there is none."""
    attempt = attempt_of(connection, run.number, run.attempt)
    if attempt is None:
        raise InvariantViolated(f"{run.id} has no attempt {run.attempt}")
    return attempt


def attempts_of(connection: apsw.Connection, run: int) -> list[Attempt]:
    """All frozen attempts of a run, oldest first."""
    return _attempts(connection, "attempts", run=run)


def select_runs(connection: apsw.Connection, query: str, **parameters: object) -> list[Run]:
    """The runs that a query of `runs.sql` gives, which selects the columns of `run_columns`."""
    return [
        Run(**row | {"date": Date.fromisoformat(row["date"]), "state": State(row["state"])})
        for row in rows(connection, _SQL[query], **parameters)
    ]


def _attempts(connection: apsw.Connection, query: str, **parameters: object) -> list[Attempt]:
    return [
        Attempt(
            **row
            | {
                "settlement": msgspec.json.decode(row["settlement"], type=Settlement),
                "scales": json.loads(row["scales"]),
            }
        )
        for row in rows(connection, _SQL[query], **parameters)
    ]
