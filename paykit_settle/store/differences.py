"""The register of differences: rows that the processor no longer shows as they were settled, and what follows.

Every revision of a row says what was settled (`was`) and what the processor showed instead (`is_now`). A person ends
it: settled, it becomes a correction that a later run takes in; dismissed, nothing follows. Revisions that were decided
to be settled form a chain: each begins with what the one before it came to, so that together they come to the last.
What people see and decide is in `decisions.py`.
"""

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import date as Date
from typing import Any, Literal

import apsw

from paykit_settle.corrections import Correction, content_of
from paykit_settle.lifecycle import State
from paykit_settle.store.elsewhere import seen_elsewhere
from paykit_settle.store.queries import load_queries
from paykit_settle.store.rows import change, one, rows
from paykit_settle.store.runs import Run

_SQL = load_queries("differences.sql")

Kind = Literal["changed", "vanished", "wrong"]
NOT_KEPT = "what was settled of it is not kept any more"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A row of an earlier day that is not as it should be, as somebody has just read it.

    `changed`: other content than what was settled; `vanished`: its day was read whole without it, or the day that had
    it last, and no other day shows it; `wrong`: nothing of
    it was settled, and nothing can be, as `detail` says. `was` and `is_now` are the row's JSON as the processor sent
    it; `was` is None where that is not kept. `held_by_run` is the run that settled it, None for a row that was only
    owed or never settled.
    """

    account: str
    transaction_id: str
    kind: Kind
    period: Date
    held_by_run: int | None
    was: bytes | None
    is_now: bytes | None
    detail: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One revision of one row in the register. `decision` is None while nobody has ended it."""

    account: str
    transaction_id: str
    revision: int
    kind: str
    period: Date
    held_by_run: int | None
    was: bytes | None
    is_now: bytes | None
    detail: str | None
    seen_by_run: int | None
    seen_at_ms: int
    decision: str | None
    decided_by: str | None
    reason: str | None
    decided_at_ms: int | None
    taken_by_run: int | None
    holder_state: State | None
    taker_date: Date | None
    taker_state: State | None

    @property
    def id(self) -> str:
        """The name of the entry among those of its account: row and revision."""
        return f"{self.transaction_id}/{self.revision}"

    @property
    def is_live(self) -> bool:
        """Whether it waits for a person, or for the run that settles it."""
        return self.decision is None or (self.decision == "settle" and self.taken_by_run is None)


# What runs see.


def note_differences(connection: apsw.Connection, run: Run | None, seen: Iterable[Seen], *, now_ms: int) -> int:
    """Enter what is new of what was seen, by a run or (None) by a person's recheck; return how many entries that made.

    Only what says something new makes an entry; it ends an older one that nobody has settled yet. A row that turns out
    to be as it was settled makes none, and ends its open one. In a freeze this comes after `take_corrections`.
    """
    return sum(_note(connection, run, each, now_ms) for each in seen)


def _note(connection: apsw.Connection, run: Run | None, seen: Seen, now_ms: int) -> bool:
    known = revisions_of(connection, seen.account, [seen.transaction_id]).get(seen.transaction_id, [])
    newest = known[-1] if known else None
    key = {"account": seen.account, "transaction_id": seen.transaction_id}
    if seen.kind == "vanished" and seen_elsewhere(connection, seen.account, [seen.transaction_id]):
        return False  # another day has shown it since
    is_held = seen.held_by_run is not None
    if not is_held and one(connection, _SQL["written_off_row"], **key):
        return False
    was, is_kept = settled_before(known, seen.was)
    if is_held and is_kept and content_of(seen.is_now) == content_of(was):
        _end(connection, newest, "came back", now_ms)
        return False
    if newest is not None and _says_the_same(newest, seen, was):
        return False
    _end(connection, newest, "superseded", now_ms)
    insert_revision(
        connection,
        seen,
        was=was,
        detail=seen.detail or (None if is_kept or not is_held else NOT_KEPT),
        revision=newest.revision + 1 if newest else 1,
        seen_by_run=run.number if run else None,
        seen_at_ms=now_ms,
    )
    return True


def _says_the_same(newest: Difference, seen: Seen, was: bytes | None) -> bool:
    if newest.decision in ("came back", "moved", "superseded") or newest.kind != seen.kind:
        return False
    # What was settled can change too: its run was pulled anew, or a correction was settled.
    has_same_base = seen.held_by_run is None or content_of(newest.was) == content_of(was)
    return has_same_base and content_of(newest.is_now) == content_of(seen.is_now)


def note_unchanged(connection: apsw.Connection, account: str, ids: Collection[str], *, now_ms: int) -> None:
    """End the open entries of rows that are as they were settled, or that are wrong or missing no more."""
    _end_live(connection, account, ids, "came back", now_ms)


def note_moved(connection: apsw.Connection, account: str, ids: Collection[str], *, now_ms: int) -> None:
    """End the open entries of rows that stand, as they were settled, under another day, whose run passed them over."""
    _end_live(connection, account, ids, "moved", now_ms)


def _end_live(connection: apsw.Connection, account: str, ids: Collection[str], decision: str, now_ms: int) -> None:
    for known in revisions_of(connection, account, ids).values():
        _end(connection, known[-1], decision, now_ms)


def _end(connection: apsw.Connection, newest: Difference | None, decision: str, now_ms: int) -> None:
    """Ends the newest revision of a row, unless it has ended. An older one that is to be settled is left: the chain."""
    if newest is not None and newest.is_live:
        said = f"it was to be settled, said {newest.decided_by}" if newest.decision else None
        end_difference(connection, newest, decision, by=None, reason=said, now_ms=now_ms)


def end_difference(
    connection: apsw.Connection,
    difference: Difference,
    decision: str,
    *,
    by: str | None,
    reason: str | None,
    now_ms: int,
) -> None:
    """End one revision that no run has taken."""
    change(
        connection,
        _SQL["end_difference"],
        account=difference.account,
        transaction_id=difference.transaction_id,
        revision=difference.revision,
        decision=decision,
        decided_by=by,
        reason=reason,
        decided_at_ms=now_ms,
    )


def insert_revision(
    connection: apsw.Connection,
    entry: Seen | Difference,
    *,
    was: bytes | None,
    detail: str | None,
    revision: int,
    seen_by_run: int | None,
    seen_at_ms: int,
    decision: str | None = None,
    by: str | None = None,
    reason: str | None = None,
    decided_at_ms: int | None = None,
) -> None:
    """Add a revision with the content of what was seen, or of an earlier revision."""
    change(
        connection,
        _SQL["insert_difference"],
        account=entry.account,
        transaction_id=entry.transaction_id,
        revision=revision,
        kind=entry.kind,
        period=entry.period.isoformat(),
        held_by_run=entry.held_by_run,
        was=was,
        is_now=entry.is_now,
        detail=detail,
        seen_by_run=seen_by_run,
        seen_at_ms=seen_at_ms,
        decision=decision,
        decided_by=by,
        reason=reason,
        decided_at_ms=decided_at_ms,
    )


# What later runs go by.


def settled_content(connection: apsw.Connection, account: str, ids: Collection[str]) -> dict[str, bytes | None]:
    """Return what is settled of those rows that have corrections: each one's JSON, None where that is nothing."""
    settled = {identity: _settled_revision(known) for identity, known in revisions_of(connection, account, ids).items()}
    return {identity: revision.is_now for identity, revision in settled.items() if revision is not None}


def settled_before(known: Sequence[Difference], at_first: bytes | None) -> tuple[bytes | None, bool]:
    """Return what is settled of a row with these revisions, which was settled as `at_first`; and whether that is kept.

    None for `at_first`: its page was pruned. It may stand in an earlier revision.
    """
    settled = _settled_revision(known)
    if settled is not None:
        return settled.is_now, True
    if at_first is None and known and known[-1].decision != "superseded":
        at_first = known[-1].was
    return at_first, at_first is not None


def _settled_revision(known: Sequence[Difference]) -> Difference | None:
    """The last revision that is settled. The newest, until a run has taken it, is not: it may still be ended.

    An older one is, even while it waits: its run was pulled anew, and what came after it counts on it.
    """
    for revision in reversed(known):
        if revision.decision == "settle" and (revision.taken_by_run is not None or revision is not known[-1]):
            return revision
    return None


def live_ids(connection: apsw.Connection, account: str, period: Date | None = None) -> set[str]:
    """Return the rows, of one day or of all, with an entry that waits: what `note_unchanged` can end."""
    found = rows(connection, _SQL["live_ids"], account=account, period=period.isoformat() if period else "")
    return {row["transaction_id"] for row in found}


def corrections_for(connection: apsw.Connection, run: Run) -> list[Correction]:
    """Return what people decided to settle of days before the run's, and no run has taken, oldest day first."""
    found = rows(connection, _SQL["corrections_for"], account=run.account, before=run.date.isoformat())
    return [Correction(**row | {"period": Date.fromisoformat(row["period"])}) for row in found]


def are_free(connection: apsw.Connection, run: Run, corrections: Sequence[Correction]) -> bool:
    """Whether a run can still take these: no other has one of them by now, and each is still to be settled."""
    free = {(each.transaction_id, each.revision) for each in corrections_for(connection, run)}
    return all((each.transaction_id, each.revision) in free for each in corrections)


def take_corrections(connection: apsw.Connection, run: Run, corrections: Sequence[Correction]) -> bool:
    """Take corrections for this run, in its freeze; False, with nothing done, unless all of them are free."""
    if not are_free(connection, run, corrections):
        return False
    for each in corrections:
        key = {"account": run.account, "transaction_id": each.transaction_id, "revision": each.revision}
        change(connection, _SQL["take_correction"], run=run.number, **key)
    return True


def corrections_of(connection: apsw.Connection, run: int) -> list[Difference]:
    """Return the differences that a run settles, in order of day and row."""
    return select_differences(connection, "corrections_of", run=run)


def revisions_of(connection: apsw.Connection, account: str, ids: Collection[str]) -> dict[str, list[Difference]]:
    """Return all revisions of the rows among these that have any, oldest first."""
    found: dict[str, list[Difference]] = {}
    for each in select_differences(connection, "differences_of_rows", account=account, ids=json.dumps(list(ids))):
        found.setdefault(each.transaction_id, []).append(each)
    return found


def select_differences(connection: apsw.Connection, query: str, **parameters: object) -> list[Difference]:
    """Return what a query of `differences.sql` gives, which selects the columns of `difference_columns`."""
    return [Difference(**_typed(row)) for row in rows(connection, _SQL[query], **parameters)]


def _typed(row: dict[str, Any]) -> dict[str, Any]:
    dates = {name: Date.fromisoformat(row[name]) for name in ("period", "taker_date") if row[name] is not None}
    states = {name: State(row[name]) for name in ("holder_state", "taker_state") if row[name] is not None}
    return row | dates | states
