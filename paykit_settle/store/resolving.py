"""What a person ends: a run whose outcome is unknown, one in conflict with what the processor has, a run's attention.

Each is one unit of work: it looks again at the run that was read before the processor was asked, and refuses when
anybody has it, or has ended it, by now. Who and why are kept.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

import apsw
import msgspec

from paykit_settle.errors import InvalidRequest, SettlementConflict
from paykit_settle.lifecycle import Event, State, next_state
from paykit_settle.models import Settlement
from paykit_settle.person import Person
from paykit_settle.run_request import check_decision
from paykit_settle.store.changes import note
from paykit_settle.store.coverage import CoveredRows, Covers, cover
from paykit_settle.store.freezing import book_attempt, end_attempt, next_attempt
from paykit_settle.store.history import find_run
from paykit_settle.store.queries import load_queries
from paykit_settle.store.rows import change
from paykit_settle.store.runs import Attempt, Run, attempt_of, current_attempt, note_state, run_by_number, select_runs
from paykit_settle.version import __version__
from paykit_settle.wire import settlement_key

_SQL = load_queries("resolving.sql")
_RUNS = load_queries("runs.sql")

IsAlive = Callable[[str], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Who decides, why, and when."""

    by: Person
    reason: str
    now_ms: int

    def check(self) -> None:
        """Pass when name and reason can be kept and shown; `InvalidRequest` otherwise."""
        check_decision(by=self.by.name, reason=self.reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A settlement of the processor's that is to be booked: what it says, its bytes, and which rows it holds."""

    settlement_id: str
    status: str
    settlement: Settlement
    received: bytes
    covers: Covers
    covered: CoveredRows = field(default_factory=CoveredRows)
    attention: str | None = None


def resolvable(
    connection: apsw.Connection, identity: str, *, is_absent: bool, is_alive: IsAlive
) -> tuple[Run, Attempt]:
    """Return a run that a person may end, with what it froze.

    It is unknown; or (not `is_absent`) rejected because the processor has another settlement. `InvalidRequest` for any
    other, and while somebody works on it.
    """
    run = find_run(connection, identity)
    attempt = attempt_of(connection, run.number, run.attempt)
    is_conflict = run.state is State.REJECTED and run.error_code == SettlementConflict.code
    is_open = run.state is State.UNKNOWN or (is_conflict and not is_absent)
    if not is_open or attempt is None:
        which = "only an unknown run" if is_absent else "only an unknown run, or one in a settlement_conflict,"
        raise InvalidRequest(f"{run.id} is {run.state}: {which} that nobody works on can be resolved so")
    if run.owner is not None and is_alive(run.owner):
        raise InvalidRequest(
            f"{run.id} is {run.state}, and a living process works on it: only one that nobody works on can be resolved"
        )
    return run, attempt


def book_ours(
    connection: apsw.Connection,
    asked: Run,
    *,
    settlement_id: str,
    status: str,
    attention: str | None,
    decision: Decision,
    is_alive: IsAlive,
) -> Run:
    """End the run as posted with what it froze, and book that."""
    run, attempt = _again(connection, asked, is_absent=False, is_alive=is_alive)
    _check_not_booked(connection, run, settlement_id)
    end_attempt(
        connection,
        run,
        "posted",
        now_ms=decision.now_ms,
        detail=decision.reason,
        settlement_id=settlement_id,
        status=status,
    )
    _end(connection, run, Event.ACCEPT, decision, settlement_id=settlement_id, attention=attention)
    posted = run_by_number(connection, run.number)
    book_attempt(connection, posted, attempt, settlement_id=settlement_id, now_ms=decision.now_ms)
    return posted


def book_taken(connection: apsw.Connection, asked: Run, taken: Taken, *, decision: Decision, is_alive: IsAlive) -> Run:
    """End the run as posted with the processor's settlement, a further attempt, and book that in place of ours."""
    run, attempt = _again(connection, asked, is_absent=False, is_alive=is_alive)
    _check_not_booked(connection, run, taken.settlement_id)
    detail = f"in its place {taken.settlement_id} was taken, which the processor has"
    end_attempt(connection, run, "replaced", now_ms=decision.now_ms, detail=detail)
    change(
        connection,
        _SQL["insert_taken"],
        run=run.number,
        number=run.attempt,
        body=taken.received,
        body_sha256=hashlib.sha256(taken.received).hexdigest(),
        settlement=msgspec.json.encode(taken.settlement).decode(),
        program=__version__,
        now_ms=decision.now_ms,
        detail=decision.reason,
        settlement_id=taken.settlement_id,
        status=taken.status,
        taken=taken.settlement.taken,
    )
    _end(
        connection,
        run,
        Event.ACCEPT,
        decision,
        settlement_id=taken.settlement_id,
        attention=taken.attention,
        attempt=run.attempt + 1,
        currency=taken.settlement.settlement_currency,
        covers=taken.covers,
    )
    posted = run_by_number(connection, run.number)
    cover(connection, posted, attempt, taken.covers, taken.covered, now_ms=decision.now_ms)
    own = current_attempt(connection, posted)
    book_attempt(connection, posted, own, settlement_id=taken.settlement_id, now_ms=decision.now_ms)
    return posted


def declare_absent(connection: apsw.Connection, asked: Run, *, decision: Decision, is_alive: IsAlive) -> Run:
    """End an unknown run as failed, with the same settlement frozen under the next key: run it again to post it."""
    run, _ = _again(connection, asked, is_absent=True, is_alive=is_alive)
    end_attempt(connection, run, "absent", now_ms=decision.now_ms, detail=decision.reason)
    _end(connection, run, Event.DECLARE_ABSENT, decision)
    failed = run_by_number(connection, run.number)
    key = settlement_key(run.account, run.date, attempt=run.attempt + 1)
    next_attempt(connection, failed, key, now_ms=decision.now_ms)
    return run_by_number(connection, run.number)


def end_attention(connection: apsw.Connection, identity: str, *, decision: Decision) -> Run:
    """Note that somebody has looked at a posted run that asked for it; `InvalidRequest` when it asks for nothing."""
    run = find_run(connection, identity)
    if run.attention is None:
        raise InvalidRequest(f"{run.id} is {run.state}, and there is nothing about it to be noted")
    change(connection, _SQL["end_attention"], number=run.number, now_ms=decision.now_ms)
    said = f"{decision.reason} (it was: {run.attention})"
    _note(connection, run, "resolve noted", said, decision)
    return run_by_number(connection, run.number)


def _again(connection: apsw.Connection, asked: Run, *, is_absent: bool, is_alive: IsAlive) -> tuple[Run, Attempt]:
    run, attempt = resolvable(connection, asked.id, is_absent=is_absent, is_alive=is_alive)
    if (run.attempt, run.pull, run.changed_at_ms) != (asked.attempt, asked.pull, asked.changed_at_ms):
        raise InvalidRequest(f"{run.id} has gone on since it was looked at: look again, and decide then")
    return run, attempt


def _check_not_booked(connection: apsw.Connection, run: Run, settlement_id: str) -> None:
    """Refuses a settlement that another day of the account is booked with: a list may not say which day one is of."""
    for other in select_runs(connection, "run_by_settlement", settlement_id=settlement_id):
        if other.account == run.account and other.number != run.number:
            raise InvalidRequest(f"{settlement_id} is booked with {other.id} of {other.date} already")


def _end(
    connection: apsw.Connection,
    run: Run,
    event: Event,
    decision: Decision,
    *,
    settlement_id: str | None = None,
    attention: str | None = None,
    attempt: int | None = None,
    currency: str | None = None,
    covers: Covers | None = None,
) -> None:
    posted = event is Event.ACCEPT
    what = "posted" if posted else "absent"
    state = next_state(run.state, event)
    change(
        connection,
        _RUNS["insert_resolution"],
        run=run.number,
        attempt=run.attempt,
        decision=what,
        settlement_id=settlement_id,
        reason=decision.reason,
        decided_by=decision.by.name,
        now_ms=decision.now_ms,
    )
    ended = change(
        connection,
        _SQL["end_resolved"],
        state=state,
        settlement_id=settlement_id,
        settlement_currency=currency or run.settlement_currency,
        attempt=attempt or run.attempt,
        covers=covers.kind if covers else None,
        attention=attention,
        error_code=None if posted else "outcome_unknown",
        error_detail=None if posted else f"absent, says {decision.by.name}: {decision.reason}",
        now_ms=decision.now_ms,
        number=run.number,
        state_before=run.state,
        attempt_before=run.attempt,
        owner=run.owner,
    )
    if not ended:
        raise InvalidRequest(f"{run.id} is not {run.state} any more")
    held = f"; it covers {_covers_text(covers)}" if covers else ""
    _note(connection, run, f"resolve {what}", decision.reason + held, decision)
    note_state(connection, run, state, detail=settlement_id, who=decision.by, now_ms=decision.now_ms)


def _covers_text(covers: Covers) -> str:
    return f"{len(covers.ids)} rows that are listed" if covers.kind == "listed" else covers.kind


def _note(connection: apsw.Connection, run: Run, what: str, detail: str, decision: Decision) -> None:
    note(
        connection,
        decision.by,
        account=run.account,
        what=what,
        subject=run.id,
        detail=detail,
        at_ms=decision.now_ms,
    )
