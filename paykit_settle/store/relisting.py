"""Rows of earlier days: taken in late, owed, or written off."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date as Date

import apsw

from paykit_settle.store.earlier_plan import owed_ids
from paykit_settle.store.queries import load_queries
from paykit_settle.store.rows import change_many, rows
from paykit_settle.store.runs import Run

_SQL = load_queries("runs.sql")
_SETTLED = load_queries("settled.sql")


def late_rows_of_day(connection: apsw.Connection, account: str, period: Date) -> dict[tuple[int, int], set[str]]:
    """The rows of an earlier day that runs have taken in since, by the (run, pull) in which they were read."""
    taken: dict[tuple[int, int], set[str]] = {}
    for row in rows(connection, _SQL["late_rows_of_day"], account=account, period=period.isoformat()):
        taken.setdefault((row["run"], row["pull"]), set()).add(row["transaction_id"])
    return taken


def taken_among(connection: apsw.Connection, account: str, ids: Sequence[str]) -> set[str]:
    """Which of these rows a run has taken in, for whichever day, or a person wrote off."""
    found = rows(connection, _SQL["taken_late_rows"], account=account, ids=json.dumps(ids))
    return {row["transaction_id"] for row in found}


def take_late_rows(connection: apsw.Connection, run: Run, late: Sequence[tuple[Date, str]]) -> bool:
    """Takes rows of earlier days for this run.

    False, with nothing done, when another run has any of them by now, or a person wrote one off.
    """
    if taken_among(connection, run.account, [identity for _, identity in late]):
        return False
    change_many(
        connection,
        _SQL["insert_late_row"],
        [
            {"account": run.account, "transaction_id": identity, "period": period.isoformat(), "run": run.number}
            for period, identity in late
        ],
    )
    return True


def are_owed(connection: apsw.Connection, run: Run, ids: Sequence[str]) -> bool:
    """Return whether all of these rows are still owed: nobody has settled them or written them off."""
    return set(ids) <= set(owed_ids(connection, run.account))


def take_owed(connection: apsw.Connection, run: Run, ids: Sequence[str]) -> None:
    """Note that the run settles those of the rows that are owed, as rows of whatever day."""
    change_many(
        connection,
        _SETTLED["take_owed"],
        [{"run": run.number, "account": run.account, "transaction_id": identity} for identity in ids],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OwedRow:
    """A row to register as owed, in ISO minor units; `available_on_s` as the processor says, in unix seconds."""

    transaction_id: str
    period: Date
    type: str
    currency: str
    amount: int
    fee: int
    available_on_s: int | None = None


def register_outstanding(connection: apsw.Connection, run: Run, owed: Sequence[OwedRow], *, now_ms: int) -> None:
    """Registers rows as owed; one that is registered stays as it is."""
    change_many(
        connection,
        _SQL["insert_outstanding"],
        [
            {
                "account": run.account,
                "transaction_id": each.transaction_id,
                "period": each.period.isoformat(),
                "type": each.type,
                "currency": each.currency,
                "amount": each.amount,
                "fee": each.fee,
                "available_on_s": each.available_on_s,
                "run": run.number,
                "now_ms": now_ms,
            }
            for each in owed
        ],
    )
