"""Which rows of its evidence a run holds: all that it settled, or what a person says a settlement not of ours holds.

Rows of the run's own day that are not covered are free: its day, which nobody can have listed before it was posted, is
listed again, and a later run takes them in late.
Rows of earlier days that it had taken in are owed again. Functions take the connection of a unit of work.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import date as Date
from typing import Literal

import apsw

from paykit_settle.corrections import decode_row
from paykit_settle.errors import InvalidRequest
from paykit_settle.models import BalanceTransaction
from paykit_settle.money import ScaleProfile, canonical_currency
from paykit_settle.store.earlier_plan import all_written_off
from paykit_settle.store.elsewhere import let_go
from paykit_settle.store.evidence import counted_pages, own_rows
from paykit_settle.store.evidence_rows import answered_rows, evidence_periods, sent_rows
from paykit_settle.store.queries import load_queries
from paykit_settle.store.relisting import OwedRow, register_outstanding, take_owed
from paykit_settle.store.rows import change, change_many, one, rows
from paykit_settle.store.runs import Attempt, Run, run_by_number
from paykit_settle.store.settled import digest_function, find_holders, passed_over_ids, write_digests

_SQL = load_queries("resolving.sql")
_RUNS = load_queries("runs.sql")

ROWS_REFUSED_NAMED_MAX = 5

Kind = Literal["all", "none", "listed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Covers:
    """What a person says a settlement that is not ours holds of a run's evidence; `ids` where they are listed."""

    kind: Kind
    ids: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class CoveredRows:
    """Listed rows as the evidence has them: of the run's own day, of earlier days, and corrections that it settles."""

    own: Collection[str] = ()
    earlier: Mapping[str, Date] = field(default_factory=dict)
    corrected: Collection[str] = ()

    @property
    def ids(self) -> set[str]:
        return {*self.own, *self.earlier, *self.corrected}


def find_covered(connection: apsw.Connection, run: Run, ids: Collection[str]) -> CoveredRows:
    """Return where in the run's evidence these rows stand; reads pages, and changes nothing.

    `InvalidRequest` naming those that are not in it, or that somebody else has dealt with.
    """
    corrected = {row["transaction_id"] for row in rows(connection, _SQL["corrections_taken"], run=run.number)} & set(
        ids
    )
    left = set(ids) - corrected
    own: set[str] = set()
    earlier: dict[str, Date] = {}
    for period in evidence_periods(connection, run):
        found = _on_day(connection, run, period, left)
        if period == run.date.isoformat():
            own |= found
        else:
            earlier |= dict.fromkeys(found, Date.fromisoformat(period))
    earlier = {identity: day for identity, day in earlier.items() if identity not in own}
    _refuse(run, left - own - set(earlier), "not in its evidence")
    held = find_holders(connection, run.account, left, digest_function(connection), except_run=run.number)
    _refuse(run, set(held), "held by another run")
    _refuse(
        run, left & (set(all_written_off(connection, run.account)) | passed_over_ids(connection, run)), "dealt with"
    )
    return CoveredRows(own=own, earlier=earlier, corrected=corrected)


def _on_day(connection: apsw.Connection, run: Run, period: str, ids: Collection[str]) -> set[str]:
    found = set(answered_rows(connection, run, period, ids))
    for page in counted_pages(connection, run.number, run.pull, period):
        found |= {row.id for row in own_rows(page) if row.id in ids}
    return found


def _refuse(run: Run, ids: Collection[str], why: str) -> None:
    if ids:
        named, more = sorted(ids)[:ROWS_REFUSED_NAMED_MAX], len(ids) - ROWS_REFUSED_NAMED_MAX
        told = ", ".join(f"{each!r:.80}" for each in named) + (f" and {more} more" if more > 0 else "")
        raise InvalidRequest(f"{run.id} cannot be said to cover {told}: {why}")


def cover(
    connection: apsw.Connection, run: Run, attempt: Attempt, covers: Covers, covered: CoveredRows, *, now_ms: int
) -> None:
    """Let the run hold what is covered, and free the rest of what its `attempt` had frozen.

    With `all` nothing changes: what it had frozen is held as settled, and what it registered as owed stays owed.
    """
    if covers.kind == "all":
        return
    ids = covered.ids
    among = {"run": run.number, "covered": json.dumps(sorted(ids))}
    late = {row["transaction_id"]: row["period"] for row in rows(connection, _SQL["late_rows_taken"], run=run.number)}
    freed = {identity: period for identity, period in late.items() if identity not in ids}
    owed = _owed_again(connection, run, attempt, freed) + _passed_over(connection, run, attempt, ids)
    change(connection, _SQL["free_late_rows"], **among)
    change(connection, _SQL["free_owed"], **among)
    change(connection, _SQL["free_corrections"], **among)
    change(connection, _SQL["free_differences"], **among, now_ms=now_ms)
    list_again_since(connection, run)
    register_outstanding(connection, run, owed, now_ms=now_ms)
    # Days that showed its rows are listed again; what is covered is passed over there once more.
    let_go(connection, run)
    _hold(connection, run, covered, late)


def list_again_since(connection: apsw.Connection, run: Run) -> None:
    """Let the days be listed again that others have listed since the run was first frozen, and so held rows.

    What it held then was passed over wherever it stood, and nobody kept on which earlier days that was.
    """
    first = one(connection, _SQL["first_frozen"], run=run.number)
    if first is not None and first["at_ms"] is not None:
        key = {"account": run.account, "run": run.number}
        change(connection, _SQL["forget_listings_since"], **key, since_ms=first["at_ms"])


def _hold(connection: apsw.Connection, run: Run, covered: CoveredRows, late: Collection[str]) -> None:
    new = {identity: day for identity, day in covered.earlier.items() if identity not in late}
    key = {"account": run.account, "run": run.number}
    change_many(
        connection,
        _RUNS["insert_late_row"],
        [{**key, "transaction_id": identity, "period": day.isoformat()} for identity, day in new.items()],
    )
    change_many(
        connection,
        _SQL["insert_covered_row"],
        [{"run": run.number, "transaction_id": identity} for identity in sorted(covered.own)],
    )
    digest = digest_function(connection)
    # Rows that were owed, or left alone, were in no index so far.
    write_digests(connection, run, sorted(digest(identity) for identity in (*covered.own, *new)))
    take_owed(connection, run, [*covered.own, *covered.earlier])


def _owed_again(connection: apsw.Connection, run: Run, attempt: Attempt, freed: Mapping[str, str]) -> list[OwedRow]:
    """The rows of earlier days that the run had taken in, to be owed: one that came late was not registered before."""
    owed = []
    for period in sorted(set(freed.values())):
        ids = {identity for identity, day in freed.items() if day == period}
        owed += _as_owed(attempt, period, sent_rows(connection, run, period, ids))
    return owed


def _passed_over(connection: apsw.Connection, run: Run, attempt: Attempt, covered: Collection[str]) -> list[OwedRow]:
    """Rows that other runs passed over on their own days because this one held them: no run would look again."""
    by_run: dict[int, set[str]] = {}
    for row in rows(connection, _SQL["passed_over_for"], run=run.number):
        if row["transaction_id"] not in covered:
            by_run.setdefault(row["run"], set()).add(row["transaction_id"])
    owed = []
    for number, ids in by_run.items():
        other = run_by_number(connection, number)
        period = other.date.isoformat()
        owed += _as_owed(attempt, period, sent_rows(connection, other, period, ids))
    return owed


def _as_owed(attempt: Attempt, period: str, sent: Mapping[str, bytes]) -> list[OwedRow]:
    scale = ScaleProfile(overrides=attempt.scales)
    decoded = (decode_row(row) for _, row in sorted(sent.items()))
    return [_owed(row, Date.fromisoformat(period), scale) for row in decoded]


def _owed(row: BalanceTransaction, period: Date, scale: ScaleProfile) -> OwedRow:
    currency = canonical_currency(row.currency)
    return OwedRow(
        transaction_id=row.id,
        period=period,
        type=row.type,
        currency=currency,
        amount=scale.from_wire(row.amount, currency),
        fee=scale.from_wire(row.fee, currency),
    )
