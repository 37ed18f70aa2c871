"""Forgets a run that never sent anything, as if it had not been begun; its number is never given again.

What it held is free, what it registered of its own day is gone, and what it found owed on earlier days stays owed.
"""

from datetime import timedelta

import apsw

from paykit_settle.errors import InvalidRequest
from paykit_settle.lifecycle import State
from paykit_settle.store.changes import note
from paykit_settle.store.coverage import list_again_since
from paykit_settle.store.elsewhere import let_go
from paykit_settle.store.history import find_run
from paykit_settle.store.queries import load_queries
from paykit_settle.store.resolving import Decision, IsAlive
from paykit_settle.store.rows import change, one, rows
from paykit_settle.store.runs import Run, run_by_number
from paykit_settle.store.settled import account_number

_SQL = load_queries("resolving.sql")

FORGETTABLE = {State.PULLING, State.FROZEN, State.FAILED, State.REJECTED}

_REGISTERS = (
    "give_back_owed",
    "forget_available",
    "pass_on_owed",
    "give_back_corrections",
    "forget_held_differences",
    "forget_who_saw",
    "forget_late_rows",
    "forget_moved_rows",
)
_EVIDENCE = (
    "forget_row_answers",
    "forget_pages",
    "forget_windows",
    "forget_readings",
    "forget_covered_rows",
    "forget_resolutions",
    "forget_attempts",
)


def forget(connection: apsw.Connection, identity: str, *, decision: Decision, is_alive: IsAlive) -> Run:
    """Forget a run of which no attempt was ever sent, and return what it was.

    `InvalidRequest` for one that was sent, or may have been; that is posted; that a living process works on; or for
    whose sake another run passed rows over: nobody would settle those.
    """
    decision.check()
    run = find_run(connection, identity)
    _check(connection, run, is_alive)
    list_again_since(connection, run)
    of_run = {"run": run.number}
    day = {"account": run.account, "period": run.date.isoformat()}
    change(connection, _SQL["forget_own_owed"], **day, **of_run)
    let_go(connection, run)
    for query in _REGISTERS:
        change(connection, _SQL[query], **of_run)
    change(connection, _SQL["forget_listings"], account=run.account, **of_run)
    change(connection, _SQL["forget_settled_ids"], account_number=account_number(connection, run.account), **of_run)
    for query in _EVIDENCE:
        change(connection, _SQL[query], **of_run)
    if not change(connection, _SQL["forget_run"], owner=run.owner, state=run.state, **of_run):
        raise InvalidRequest(f"{run.id} is not {run.state} any more")
    change(connection, _SQL["keep_number"], **of_run)
    _forget_edges(connection, run)
    said = f"{run.date}, it was {run.state}: {decision.reason}"
    note(
        connection,
        decision.by,
        account=run.account,
        what="forget",
        subject=run.id,
        detail=said,
        at_ms=decision.now_ms,
    )
    return run


def _check(connection: apsw.Connection, run: Run, is_alive: IsAlive) -> None:
    if run.owner is not None and is_alive(run.owner):
        raise InvalidRequest(
            f"{run.id} is {run.state}, and a process that is alive works on it: it cannot be forgotten"
        )
    sent = one(connection, _SQL["attempts_sent"], run=run.number)
    if run.state not in FORGETTABLE or (sent is not None and sent["attempts"]):
        raise InvalidRequest(f"{run.id} is {run.state}: only a run of which nothing was ever sent can be forgotten")
    passed = rows(connection, _SQL["passed_over_for"], run=run.number)
    if passed:
        other, more = run_by_number(connection, passed[0]["run"]), len(passed) - 1
        raise InvalidRequest(
            f"{run.id} cannot be forgotten: {other.id} of {other.date} passed over {passed[0]['transaction_id']!r:.80}"
            + (f" and {more} more" if more else "")
            + ", which it holds; run it again instead"
        )


def _forget_edges(connection: apsw.Connection, run: Run) -> None:
    """An edge between two days stays while there is a run on either side of it."""
    for edge, beside in ((run.date, run.date - timedelta(days=1)), (run.date + timedelta(days=1),) * 2):
        if one(connection, _SQL["run_beside"], account=run.account, date=beside.isoformat()) is None:
            change(connection, _SQL["forget_edge"], account=run.account, date=edge.isoformat())
