"""What earlier days may still owe: which a run lists again, which rows are dealt with, which are outstanding."""

import json
from collections.abc import Sequence
from datetime import date as Date
from datetime import timedelta

import apsw

from paykit_settle.store.queries import load_queries
from paykit_settle.store.runs import Run, posted_days

_SQL = load_queries("runs.sql")


def days_to_relist(connection: apsw.Connection, run: Run, look_back_days: int) -> list[Run]:
    """The posted days before the run's own that it lists again: back to the oldest outstanding row, and some days.

    A day that this run has begun to list stays among them, even if what it owed has been settled since: the evidence
    holds whole days, and a rejected attempt may have found there what nobody else has seen.
    """
    first = run.date - timedelta(days=min(look_back_days, (run.date - Date.min).days))
    oldest = connection.execute(_SQL["oldest_outstanding"], (run.account, run.date.isoformat())).get
    begun = connection.execute(_SQL["oldest_page"], (run.number,)).get
    for day in (oldest, begun):
        if day is not None:
            first = min(first, Date.fromisoformat(day))
    return posted_days(connection, run.account, first, run.date)


def late_rows_of_day(connection: apsw.Connection, account: str, period: Date) -> dict[tuple[int, int], set[str]]:
    """The rows of an earlier day that runs have taken in since, by the (run, pull) in which they were read."""
    taken: dict[tuple[int, int], set[str]] = {}
    for identity, run, pull in connection.execute(_SQL["late_rows_of_day"], (account, period.isoformat())):
        taken.setdefault((run, pull), set()).add(identity)
    return taken


def written_off_ids(connection: apsw.Connection, account: str, period: Date) -> list[str]:
    """The rows of a day that a person wrote off: dealt with by hand, for good."""
    return [identity for (identity,) in connection.execute(_SQL["written_off_ids"], (account, period.isoformat()))]


def taken_among(connection: apsw.Connection, account: str, ids: Sequence[str]) -> set[str]:
    """Which of these rows a run has taken in, for whichever day, or a person wrote off."""
    return {identity for (identity,) in connection.execute(_SQL["taken_late_rows"], (account, json.dumps(ids)))}


def take_late_rows(connection: apsw.Connection, run: Run, rows: Sequence[tuple[Date, str]]) -> bool:
    """Takes rows of earlier days for this run.

    False, with nothing done, when another run has any of them by now, or a person wrote one off.
    """
    if taken_among(connection, run.account, [identity for _, identity in rows]):
        return False
    connection.executemany(
        _SQL["insert_late_row"], [(run.account, identity, period.isoformat(), run.number) for period, identity in rows]
    )
    return True


def register_outstanding(
    connection: apsw.Connection, run: Run, rows: Sequence[tuple[str, str, str, str, int, int]], *, now_ms: int
) -> None:
    """Registers rows (id, period, type, currency, amount, fee) as owed; one that is registered stays as it is."""
    connection.executemany(
        _SQL["insert_outstanding"],
        [
            (run.account, identity, period, kind, currency, amount, fee, run.number, now_ms)
            for identity, period, kind, currency, amount, fee in rows
        ],
    )
