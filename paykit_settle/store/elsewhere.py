"""Rows that were last seen under another day than the one under which they are settled or owed.

A row is looked for on one day's list at a time: the day that showed it last, else its own. Where that list shows it no
more, and nothing else does, it has vanished.
"""

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import date as Date

import apsw

from paykit_settle.store.queries import load_queries
from paykit_settle.store.rows import change, change_many, rows
from paykit_settle.store.runs import Run

_SQL = load_queries("elsewhere.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenElsewhere:
    """A row that a day's list showed although a run holds it under another day."""

    transaction_id: str
    period: Date
    held_by_run: int


def seen_elsewhere(connection: apsw.Connection, account: str, ids: Collection[str]) -> dict[str, Date]:
    """Return those of the rows that were last seen under another day than their own, with that day."""
    found = rows(connection, _SQL["elsewhere"], account=account, ids=json.dumps(list(ids)))
    return {row["transaction_id"]: Date.fromisoformat(row["period"]) for row in found}


def expected_on(connection: apsw.Connection, account: str, day: Date) -> set[str]:
    """Return the rows of other days that a day's list is to show: it did when they were last seen."""
    found = rows(connection, _SQL["expected"], account=account, period=day.isoformat())
    return {row["transaction_id"] for row in found}


def to_look_for(connection: apsw.Connection, account: str, day: Date, missing: Collection[str]) -> list[str]:
    """Return those of a day's missing rows that no other day's list is to show."""
    elsewhere = seen_elsewhere(connection, account, missing)
    return [identity for identity in missing if elsewhere.get(identity, day) == day]


def all_elsewhere(connection: apsw.Connection, account: str) -> set[str]:
    """Return every row of the account that was last seen under another day than its own."""
    return {row["transaction_id"] for row in rows(connection, _SQL["all_elsewhere"], account=account)}


def note_elsewhere(connection: apsw.Connection, account: str, seen: Iterable[SeenElsewhere]) -> None:
    """Keep where held rows were seen now."""
    change_many(
        connection,
        _SQL["insert_elsewhere"],
        [
            {
                "account": account,
                "transaction_id": each.transaction_id,
                "period": each.period.isoformat(),
                "held_by_run": each.held_by_run,
            }
            for each in seen
        ],
    )


def note_owed_elsewhere(connection: apsw.Connection, account: str, owed: Iterable[tuple[str, Date]]) -> None:
    """Keep where rows were seen that are owed, if they are owed under another day."""
    change_many(
        connection,
        _SQL["insert_owed_elsewhere"],
        [{"account": account, "transaction_id": each, "period": period.isoformat()} for each, period in owed],
    )


def forget_elsewhere(connection: apsw.Connection, account: str, ids: Collection[str]) -> None:
    """Forget where rows were seen: they stand under their own day again, are settled where they stand, or are gone."""
    change(connection, _SQL["forget_elsewhere"], account=account, ids=json.dumps(list(ids)))


def list_again(connection: apsw.Connection, account: str, day: Date) -> None:
    """Have a day listed again by the runs to come: it has rows that nobody has settled or registered."""
    change(connection, _SQL["list_day_again"], account=account, period=day.isoformat())


def let_go(connection: apsw.Connection, run: Run) -> None:
    """Have the days listed again that showed rows which this run holds no more: nobody may have them."""
    change(connection, _SQL["list_again"], account=run.account, run=run.number)
    change(connection, _SQL["forget_held"], account=run.account, run=run.number)
