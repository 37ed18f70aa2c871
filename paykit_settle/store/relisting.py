"""What earlier days may still owe: which a run lists again, which rows are dealt with, which are outstanding."""

import json
from collections.abc import Sequence
from datetime import date as Date
from datetime import timedelta

import apsw

from paykit_settle.store.queries import load_queries
from paykit_settle.store.rows import change_many, one, rows
from paykit_settle.store.runs import Run, posted_days

_SQL = load_queries("runs.sql")


def days_to_relist(connection: apsw.Connection, run: Run, look_back_days: int) -> list[Run]:
    """The posted days before the run's own that it lists again: back to the oldest outstanding row, and some days.

    A day that this run has begun to list stays among them, even if what it owed has been settled since: the evidence
    holds whole days, and a rejected attempt may have found there what nobody else has seen.
    """
    first = run.date - timedelta(days=min(look_back_days, (run.date - Date.min).days))
    oldest = one(connection, _SQL["oldest_outstanding"], account=run.account, before=run.date.isoformat())
    begun = one(connection, _SQL["oldest_page"], run=run.number)
    for day in (oldest, begun):
        if day is not None and day["period"] is not None:
            first = min(first, Date.fromisoformat(day["period"]))
    return posted_days(connection, run.account, first, run.date)


def late_rows_of_day(connection: apsw.Connection, account: str, period: Date) -> dict[tuple[int, int], set[str]]:
    """The rows of an earlier day that runs have taken in since, by the (run, pull) in which they were read."""
    taken: dict[tuple[int, int], set[str]] = {}
    for row in rows(connection, _SQL["late_rows_of_day"], account=account, period=period.isoformat()):
        taken.setdefault((row["run"], row["pull"]), set()).add(row["transaction_id"])
    return taken


def written_off_ids(connection: apsw.Connection, account: str, period: Date) -> list[str]:
    """The rows of a day that a person wrote off: dealt with by hand, for good."""
    found = rows(connection, _SQL["written_off_ids"], account=account, period=period.isoformat())
    return [row["transaction_id"] for row in found]


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


def register_outstanding(
    connection: apsw.Connection, run: Run, owed: Sequence[tuple[str, str, str, str, int, int]], *, now_ms: int
) -> None:
    """Registers rows (id, period, type, currency, amount, fee) as owed; one that is registered stays as it is."""
    change_many(
        connection,
        _SQL["insert_outstanding"],
        [
            {
                "account": run.account,
                "transaction_id": identity,
                "period": period,
                "type": kind,
                "currency": currency,
                "amount": amount,
                "fee": fee,
                "run": run.number,
                "now_ms": now_ms,
            }
            for identity, period, kind, currency, amount, fee in owed
        ],
    )
