"""Which earlier days a run reads again, why and how: the days that are still to be listed, and those that owe rows.

A posted day is listed again until enough runs have done so and enough time has passed. After that it is read only for
the rows that it owes, the cheaper way: each by its id, or all by one more listing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date as Date

import apsw

from paykit_settle.lifecycle import State
from paykit_settle.store.elsewhere import seen_elsewhere
from paykit_settle.store.queries import load_queries
from paykit_settle.store.rows import one, rows
from paykit_settle.store.runs import Run, run_by_day, run_by_number

_SQL = load_queries("settled.sql")

DAYS_LISTED_MAX = 31
"""Earlier days that one run lists at most; those listed longest ago come first, the others are named."""
DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OwedRow:
    """A row that is owed: what it was when it was registered, in ISO minor units, and when it becomes available."""

    id: str
    type: str
    currency: str
    amount: int
    fee: int
    available_on_s: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedDay:
    """An earlier day that is to be read, and why. `ask` are the rows to ask for by id; without any it is listed."""

    day: Run
    why: str
    owed: Mapping[str, OwedRow]
    ask: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierDaysPlan:
    """The days to read, oldest first, and those that must wait for a later run because there are too many."""

    days: list[PlannedDay]
    waiting: list[Date]


def plan_earlier_days(
    connection: apsw.Connection, run: Run, *, look_back_days: int, look_back_listings: int, now_ms: int
) -> EarlierDaysPlan:
    """Return which posted days before the run's own it reads again.

    Those that its earlier pulls have begun to read; those that fewer than `look_back_listings` runs have listed, or
    none at least `look_back_days` × 24 hours after their end; and those that owe a row that may be available by now.
    """
    owed = owed_rows(connection, run)
    reasons: dict[Date, str] = {}
    days: dict[Date, Run] = {}
    for row in rows(connection, _SQL["begun_days"], run=run.number):
        _consider(days, reasons, run_by_day(connection, run.account, Date.fromisoformat(row["period"])), "begun before")
    age_ms = look_back_days * DAY_MS
    due = rows(
        connection,
        _SQL["listed_days"],
        account=run.account,
        before=run.date.isoformat(),
        listings=look_back_listings,
        age_ms=age_ms,
    )
    for row in due:
        why = f"listed {row['listings']} of {look_back_listings} times"
        if row["listings"] >= look_back_listings:
            why = f"not listed yet {look_back_days} days after its end"
        _consider(days, reasons, run_by_number(connection, row["number"]), why)
    by_id: list[PlannedDay] = []
    owed = _where_they_stand(connection, run, owed)
    for period, of_day in owed.items():
        ask = tuple(each.id for each in of_day.values() if (each.available_on_s or 0) * 1000 <= now_ms)
        day = run_by_day(connection, run.account, period)
        if period in days or not ask or day is None or day.state is not State.POSTED:
            continue
        why = f"owes {len(of_day)} row{'s' * (len(of_day) != 1)}"
        if len(ask) < last_page_count(connection, day):
            by_id.append(PlannedDay(day=day, why=why, owed=of_day, ask=ask))
        else:
            _consider(days, reasons, day, why)
    listed = list(days)[:DAYS_LISTED_MAX]
    planned = [PlannedDay(day=days[each], why=reasons[each], owed=owed.get(each, {})) for each in listed]
    return EarlierDaysPlan(
        days=sorted(planned + by_id, key=lambda each: each.day.date), waiting=sorted(list(days)[DAYS_LISTED_MAX:])
    )


def _where_they_stand(
    connection: apsw.Connection, run: Run, owed: Mapping[Date, Mapping[str, OwedRow]]
) -> dict[Date, dict[str, OwedRow]]:
    """The owed rows by the posted day that showed them last, which may not be the one that they are owed under."""
    elsewhere = seen_elsewhere(connection, run.account, [identity for of_day in owed.values() for identity in of_day])
    days = {day: run_by_day(connection, run.account, day) for day in set(elsewhere.values()) if day < run.date}
    posted = {day for day, found in days.items() if found is not None and found.state is State.POSTED}
    found: dict[Date, dict[str, OwedRow]] = {}
    for period, of_day in owed.items():
        for identity, row in of_day.items():
            stands = elsewhere.get(identity, period)
            found.setdefault(stands if stands in posted else period, {})[identity] = row
    return dict(sorted(found.items()))


def _consider(days: dict[Date, Run], reasons: dict[Date, str], day: Run | None, why: str) -> None:
    if day is not None and day.state is State.POSTED and day.date not in days:
        days[day.date], reasons[day.date] = day, why


def owed_rows(connection: apsw.Connection, run: Run) -> dict[Date, dict[str, OwedRow]]:
    """Return the rows that the account owes of days before the run's and that no run holds, by day and id."""
    found: dict[Date, dict[str, OwedRow]] = {}
    for row in rows(connection, _SQL["owed_rows"], account=run.account, before=run.date.isoformat()):
        of_day = found.setdefault(Date.fromisoformat(row["period"]), {})
        of_day[row["transaction_id"]] = OwedRow(
            id=row["transaction_id"],
            type=row["type"],
            currency=row["currency"],
            amount=row["amount"],
            fee=row["fee"],
            available_on_s=row["available_on_s"],
        )
    return found


def owed_ids(connection: apsw.Connection, account: str) -> list[str]:
    """Return every row that the account owes and no run holds."""
    return [row["transaction_id"] for row in rows(connection, _SQL["owed_ids"], account=account)]


def all_written_off(connection: apsw.Connection, account: str) -> dict[str, Date]:
    """Return the rows of the account that a person wrote off, dealt with by hand and for good, with their days."""
    found = rows(connection, _SQL["written_off"], account=account)
    return {row["transaction_id"]: Date.fromisoformat(row["period"]) for row in found}


def last_page_count(connection: apsw.Connection, day: Run) -> int:
    """Return how many pages a day had when it was last listed."""
    found = one(
        connection,
        _SQL["last_page_count"],
        account=day.account,
        period=day.date.isoformat(),
        run=day.number,
        pull=day.pull,
    )
    return int(found["pages"]) if found else 0


def vanished_ids(connection: apsw.Connection, account: str) -> set[str]:
    """Return the rows of which it is known that the processor shows them no more."""
    return {row["transaction_id"] for row in rows(connection, _SQL["vanished_ids"], account=account)}
