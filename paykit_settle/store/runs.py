"""Runs in the database: records, claims and changes of state, each one statement or one transaction.

Every change is conditional on the owner and the state that its caller believes in, and goes through the table of
allowed transitions. Functions here take the connection of a unit of work; they know nothing of the processor.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date as Date

import apsw
import msgspec

from paykit_settle.errors import InvalidRequest, InvariantViolated, ProcessorRejected, RunInProgress, SettlementConflict
from paykit_settle.lifecycle import Event, State, next_state
from paykit_settle.models import Settlement
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

    @property
    def id(self) -> str:
        return f"run_{self.number:06d}"


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

    @property
    def may_be_taken(self) -> bool:
        """Whether the processor may have it: it was sent, and the last send did not certainly fail."""
        return self.sent_at_ms is not None and self.outcome != State.FAILED


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequest:
    """Who wants to run what, and on which terms."""

    account: str
    date: Date
    settlement_currency: str
    tenant: str
    zone: str
    window: Window
    owner: str
    requested_by: str
    retry_rejected: bool
    pull_age_max_ms: int
    now_ms: int


def claim(connection: apsw.Connection, wanted: ClaimRequest, *, is_alive: Callable[[str], bool]) -> Run:
    """Makes the run or takes it over; a posted one is given as it is, to be answered again.

    Raises `RunInProgress` while its owner lives, `SettlementConflict` for another settlement currency once that is
    fixed, `ProcessorRejected` for a rejected run unless `retry_rejected`, `InvalidRequest` for an overlapping window.
    """
    run = run_by_day(connection, wanted.account, wanted.date)
    if run is None:
        return _insert(connection, wanted)
    if run.owner is not None and run.owner != wanted.owner and is_alive(run.owner):
        raise RunInProgress(f"{run.id} for {run.account} on {run.date} is in progress")
    frozen = run.state in (State.FROZEN, State.POSTED, State.UNKNOWN) or (
        run.state is State.FAILED and attempt_of(connection, run.number, run.attempt) is not None
    )
    if frozen and run.settlement_currency != wanted.settlement_currency:
        raise SettlementConflict(
            f"{run.account} on {run.date} is settled in {run.settlement_currency.upper()} ({run.id}, {run.state}), "
            f"not in {wanted.settlement_currency.upper()}"
        )
    if run.state is State.POSTED:
        return run
    if run.state is State.REJECTED and not wanted.retry_rejected:
        kind = SettlementConflict if run.error_code == SettlementConflict.code else ProcessorRejected
        raise kind(
            f"attempt {run.attempt} of {run.id} was rejected: {run.error_detail}; a new attempt starts on request only"
        )
    return _take_over(connection, run, wanted, frozen=frozen)


def _insert(connection: apsw.Connection, wanted: ClaimRequest) -> Run:
    _refuse_overlap(connection, wanted)
    change(
        connection,
        _SQL["insert_run"],
        account=wanted.account,
        date=wanted.date.isoformat(),
        tenant=wanted.tenant,
        settlement_currency=wanted.settlement_currency,
        zone=wanted.zone,
        window_start_s=wanted.window.start_unix_s,
        window_end_s=wanted.window.end_unix_s,
        owner=wanted.owner,
        requested_by=wanted.requested_by,
        now_ms=wanted.now_ms,
    )
    return run_by_number(connection, connection.last_insert_rowid())


def _refuse_overlap(connection: apsw.Connection, wanted: ClaimRequest) -> None:
    start, end = wanted.window.start_unix_s, wanted.window.end_unix_s
    day = wanted.date.isoformat()
    overlapping = select_runs(connection, "overlapping_run", account=wanted.account, date=day, start_s=start, end_s=end)
    for other in overlapping:
        raise InvalidRequest(
            f"the window of {day} in {wanted.zone} overlaps that of {other.date} in {other.zone} ({other.id})"
        )


def _take_over(connection: apsw.Connection, run: Run, wanted: ClaimRequest, *, frozen: bool) -> Run:
    attempt, pull, started = run.attempt, run.pull, run.pull_started_at_ms
    zone, start, end = run.zone, run.window_start_s, run.window_end_s
    if not frozen and wanted.zone != zone:
        # Nothing is fixed yet: the day is the one that is asked for now, and its rows are read for that window.
        _refuse_overlap(connection, wanted)
        zone, start, end = wanted.zone, wanted.window.start_unix_s, wanted.window.end_unix_s
        pull, started = pull + 1, wanted.now_ms
    if run.state is State.REJECTED:
        state = next_state(run.state, Event.RETRY_REJECTED)
        # What the rejected attempt had taken in is free again: its pull starts anew.
        change(connection, _SQL["forget_late_rows"], run=run.number)
        change(connection, _SQL["forget_outstanding"], run=run.number)
        change(connection, _SQL["forget_corrections"], run=run.number)
        change(connection, _SQL["forget_differences"], run=run.number, now_ms=wanted.now_ms)
        attempt, pull, started = attempt + 1, pull + 1, wanted.now_ms
    elif frozen:
        state = next_state(run.state, Event.CLAIM_FROZEN)
    else:
        state = next_state(run.state, Event.CLAIM)
        # Rows that were refused, a cursor that was, or a pull of long ago: read again from the start; else it goes on.
        if run.error_code in ("run_refused", "processor_rejected") or wanted.now_ms - started > wanted.pull_age_max_ms:
            pull, started = pull + 1, wanted.now_ms
    change(
        connection,
        _SQL["claim_run"],
        owner=wanted.owner,
        state=state,
        settlement_currency=wanted.settlement_currency,
        tenant=run.tenant if frozen else wanted.tenant,
        zone=zone,
        window_start_s=start,
        window_end_s=end,
        attempt=attempt,
        pull=pull,
        pull_started_at_ms=started,
        requested_by=wanted.requested_by,
        now_ms=wanted.now_ms,
        number=run.number,
    )
    return run_by_number(connection, run.number)


def move(
    connection: apsw.Connection,
    run: Run,
    event: Event,
    *,
    now_ms: int,
    settlement_id: str | None = None,
    error: tuple[str, str] | None = None,
    release: bool = False,
) -> Run:
    """The run after the event; `RunInProgress` if another owner has taken it since, and then nothing changes."""
    code, detail = error or (None, None)
    moved = change(
        connection,
        _SQL["move_run"],
        state=next_state(run.state, event),
        settlement_id=settlement_id,
        error_code=code,
        error_detail=detail,
        now_ms=now_ms,
        release=int(release),
        number=run.number,
        owner=run.owner,
        state_before=run.state,
    )
    if not moved:
        raise RunInProgress(f"{run.id} was taken over by another process")
    return run_by_number(connection, run.number)


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
