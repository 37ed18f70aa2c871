"""What people do to runs by hand: end an unknown one, prune old pages. Who and why are kept."""

from collections.abc import Callable
from datetime import date as Date
from datetime import timedelta

import apsw

from paykit_settle.errors import InvalidRequest
from paykit_settle.lifecycle import Event, State, next_state
from paykit_settle.person import Person
from paykit_settle.run_request import check_decision, check_text
from paykit_settle.store.changes import note
from paykit_settle.store.earlier_plan import DAY_MS
from paykit_settle.store.evidence import own_rows, stored_page
from paykit_settle.store.freezing import book_attempt, end_attempt, next_attempt
from paykit_settle.store.packing import pack_ids
from paykit_settle.store.queries import load_queries
from paykit_settle.store.rows import change, rows
from paykit_settle.store.runs import Run, attempt_of, note_state, run_by_number
from paykit_settle.wire import settlement_key

_SQL = load_queries("runs.sql")
_SETTLED = load_queries("settled.sql")

PRUNE_BATCH = 200
"""Pages pruned in one commit: the writer has others to serve."""


def resolve(
    connection: apsw.Connection,
    run: Run,
    *,
    settlement_id: str | None,
    reason: str,
    by: Person,
    now_ms: int,
    is_alive: Callable[[str], bool],
) -> Run:
    """Ends an unknown run as a person says: posted as `settlement_id` and booked, or (None) absent at the processor.

    Absent makes it failed, with the same settlement frozen under the next attempt's key: run it again to post it.
    `InvalidRequest` unless the run is unknown and nobody works on it.
    """
    check_decision(by=by.name, reason=reason)
    if settlement_id is not None:
        check_text("a settlement's id", settlement_id)
    attempt = attempt_of(connection, run.number, run.attempt)
    is_held = run.owner is not None and is_alive(run.owner)
    if run.state is not State.UNKNOWN or is_held or attempt is None:
        raise InvalidRequest(f"{run.id} is {run.state}: only an unknown run that nobody works on can be resolved")
    posted = settlement_id is not None
    decision = "posted" if posted else "absent"
    made = {"settlement_id": settlement_id, "reason": reason, "decided_by": by.name, "now_ms": now_ms}
    change(connection, _SQL["insert_resolution"], run=run.number, attempt=run.attempt, decision=decision, **made)
    state = next_state(run.state, Event.ACCEPT if posted else Event.DECLARE_ABSENT)
    code, detail = (None, None) if posted else ("outcome_unknown", f"absent, says {by.name}: {reason}")
    change(
        connection,
        _SQL["resolve_run"],
        state=state,
        settlement_id=settlement_id,
        error_code=code,
        error_detail=detail,
        now_ms=now_ms,
        number=run.number,
        owner=run.owner,
    )
    end_attempt(
        connection,
        run,
        decision,
        now_ms=now_ms,
        detail=reason,
        settlement_id=settlement_id,
        status="resolved" if posted else None,
    )
    note(connection, by, account=run.account, what=f"resolve {decision}", subject=run.id, detail=reason, at_ms=now_ms)
    note_state(connection, run, state, detail=settlement_id, who=by, now_ms=now_ms)
    run = run_by_number(connection, run.number)
    if settlement_id is not None:
        book_attempt(connection, run, attempt, settlement_id=settlement_id, now_ms=now_ms)
    else:
        next_attempt(connection, run, settlement_key(run.account, run.date, attempt=run.attempt + 1), now_ms=now_ms)
    return run_by_number(connection, run.number)


def prune(
    connection: apsw.Connection,
    *,
    today: Date,
    older_than_days: int,
    look_back_days: int = 3,
    look_back_listings: int = 3,
) -> int:
    """Drops the bytes of up to PRUNE_BATCH old pages and gives how many; ids and digests stay.

    Never touches a run that is not posted, nor a day that owes a row or that later runs are still to list again.
    """
    before = today - timedelta(days=older_than_days)
    pages = rows(
        connection,
        _SQL["prunable_pages"],
        before=before.isoformat(),
        listings=look_back_listings,
        age_ms=look_back_days * DAY_MS,
        limit=PRUNE_BATCH,
    )
    for key in pages:
        ids = [row.id for row in own_rows(stored_page(connection, **key)) if row.status == "available"]
        change(connection, _SQL["prune_page"], available_ids=pack_ids(ids), **key)
    return len(pages)


def drop_unneeded_pages(connection: apsw.Connection, run: Run) -> int:
    """Drops the bytes of up to PRUNE_BATCH pages of earlier days of which a frozen run takes nothing in."""
    pages = rows(connection, _SETTLED["droppable_pages"], run=run.number, limit=PRUNE_BATCH)
    for key in pages:
        change(connection, _SETTLED["drop_page"], **key)
    return len(pages)
