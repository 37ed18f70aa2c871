"""What people see of the register of differences and decide about it. Who and why are kept, also when it is undone."""

import apsw

from paykit_settle.corrections import Correction, correction_fault
from paykit_settle.errors import InvalidRequest, RunNotFound
from paykit_settle.lifecycle import State
from paykit_settle.money import ScaleProfile
from paykit_settle.person import Person
from paykit_settle.run_request import check_decision
from paykit_settle.store.changes import note
from paykit_settle.store.differences import (
    NOT_KEPT,
    Difference,
    end_difference,
    insert_revision,
    revisions_of,
    select_differences,
    settled_before,
)
from paykit_settle.store.runs import run_by_number

_LATEST = (2**62, "", 0)
"""The cursor that every entry lies before."""


def list_differences(
    connection: apsw.Connection, account: str, *, with_ended: bool, after: str | None = None, limit: int
) -> tuple[list[Difference], bool]:
    """Return the entries of an account, newest first, after the entry of that id, and whether more follow."""
    cursor: tuple[int, str, int] = _LATEST
    if after is not None:
        identity, _, number = after.rpartition("/")
        known = {each.id: each for each in revisions_of(connection, account, [identity]).get(identity, [])}
        if after not in known:
            raise InvalidRequest(f"{account} has no difference {after!r:.80}")
        cursor = (known[after].seen_at_ms, identity, int(number))
    found = select_differences(
        connection,
        "list_differences",
        account=account,
        with_ended=int(with_ended),
        before_ms=cursor[0],
        before_id=cursor[1],
        before_revision=cursor[2],
        limit=limit + 1,
    )
    return found[:limit], len(found) > limit


def settle_difference(
    connection: apsw.Connection,
    account: str,
    transaction_id: str,
    *,
    by: Person,
    reason: str | None = None,
    scale: ScaleProfile,
    now_ms: int,
) -> None:
    """Decide that the next run of a later date settles what a row is now, less what was settled of it.

    `transaction_id` is a row, or one revision of it (`ROW/REVISION`), which is refused when there is a newer one.
    `RunNotFound` when the row has no difference; `InvalidRequest`, with the way out, when there is nothing to settle:
    its difference has ended, nothing of it was settled, its run is not posted, or it has no exact value in the `scale`.
    """
    check_decision(by=by.name, reason=reason)
    known = _known(connection, account, transaction_id)
    newest, transaction_id = known[-1], known[-1].transaction_id
    if newest.decision not in (None, "dismiss"):
        raise InvalidRequest(f"{transaction_id} is not open: {state_text(newest)}")
    if newest.held_by_run is None:
        nothing = (
            "it was only owed" if newest.kind == "vanished" else f"it is wrong: {newest.detail or 'see its content'}"
        )
        raise InvalidRequest(
            f"nothing of {transaction_id} was settled, so there is nothing to set right ({nothing}); "
            f"dismiss it, or take it out with outstanding --write-off {transaction_id}"
        )
    if newest.holder_state is not State.POSTED:
        holder = run_by_number(connection, newest.held_by_run)
        raise InvalidRequest(
            f"{transaction_id} is held by {holder.id} of {holder.date}, which is {holder.state}: "
            "what was settled of it is not certain yet"
        )
    was, is_kept = settled_before(known, newest.was)
    if not is_kept:
        raise InvalidRequest(f"{transaction_id} cannot be settled: {NOT_KEPT}; dismiss it")
    correction = Correction(
        transaction_id=transaction_id,
        revision=newest.revision,
        period=newest.period,
        was=was,
        is_now=newest.is_now,
    )
    if (fault := correction_fault(correction, scale)) is not None:
        raise InvalidRequest(f"{transaction_id} cannot be settled as it is now: {fault}; dismiss it")
    if newest.decision is None:
        end_difference(connection, newest, "settle", by=by.name, reason=reason, now_ms=now_ms)
    else:
        _decide_again(connection, newest, "settle", was=correction.was, by=by.name, reason=reason, now_ms=now_ms)
    note(
        connection, by, account=account, what="settle difference", subject=newest.id, detail=reason or "", at_ms=now_ms
    )


def dismiss_difference(
    connection: apsw.Connection, account: str, transaction_id: str, *, by: Person, reason: str, now_ms: int
) -> None:
    """Decide that nothing follows from a difference, as long as the row stays as it is now.

    Also takes back that it is to be settled, until a run has taken it. `RunNotFound` when the row has no difference,
    `InvalidRequest` when it has ended.
    """
    check_decision(by=by.name, reason=reason)
    newest = _known(connection, account, transaction_id)[-1]
    if not newest.is_live:
        raise InvalidRequest(f"{transaction_id} is not open: {state_text(newest)}")
    note(connection, by, account=account, what="dismiss difference", subject=newest.id, detail=reason, at_ms=now_ms)
    if newest.decision is None:
        end_difference(connection, newest, "dismiss", by=by.name, reason=reason, now_ms=now_ms)
        return
    said = f"it was to be settled, said {newest.decided_by}"
    end_difference(connection, newest, "superseded", by=None, reason=said, now_ms=now_ms)
    _decide_again(connection, newest, "dismiss", was=newest.was, by=by.name, reason=reason, now_ms=now_ms)


def _known(connection: apsw.Connection, account: str, named: str) -> list[Difference]:
    """The revisions of a row; one that is named with its revision must still be the newest."""
    row = named.rpartition("/")[0]
    found = revisions_of(connection, account, [named, row])
    if named in found:
        return found[named]
    known = found.get(row, [])
    if named not in [each.id for each in known]:
        raise RunNotFound(f"{account} has no difference {named!r:.80}")
    if known[-1].id != named:
        raise InvalidRequest(f"{named} is not how the row is now: look at {known[-1].id}")
    return known


def _decide_again(
    connection: apsw.Connection,
    newest: Difference,
    decision: str,
    *,
    was: bytes | None,
    by: str,
    reason: str | None,
    now_ms: int,
) -> None:
    """Another decision about the same content is a revision of its own, so that the first stays on record."""
    insert_revision(
        connection,
        newest,
        was=was,
        detail=newest.detail,
        revision=newest.revision + 1,
        seen_by_run=newest.seen_by_run,
        seen_at_ms=newest.seen_at_ms,
        decision=decision,
        by=by,
        reason=reason,
        decided_at_ms=now_ms,
    )


def state_text(difference: Difference) -> str:
    """Return in words where a difference stands."""
    if difference.decision == "settle" and difference.taken_by_run is not None:
        run = f"run_{difference.taken_by_run:06d} of {difference.taker_date}"
        return f"settled in {run}" + (
            f", which is {difference.taker_state}" if difference.taker_state is not State.POSTED else ""
        )
    return _STATES[difference.decision]


_STATES = {
    None: "open",
    "settle": "to be settled",
    "dismiss": "dismissed",
    "came back": "came back",
    "superseded": "superseded",
    "moved": "moved",
    "written off": "written off",
}
