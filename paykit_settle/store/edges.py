"""The stored edges between an account's days: read for the window of a day, kept while a run on either side exists.

The arithmetic is in `day_edges.py`. Functions take the connection of a unit of work.
"""

from datetime import date as Date
from datetime import timedelta

import apsw

from paykit_settle.day_edges import edges_of_day
from paykit_settle.errors import InvalidRequest
from paykit_settle.store.queries import load_queries
from paykit_settle.store.rows import change, rows
from paykit_settle.store.runs import Run
from paykit_settle.window import Window, existing_window, load_zone

_SQL = load_queries("accounts.sql")
_DAY = timedelta(days=1)


def window_of_day(connection: apsw.Connection, account: str, day: Date, zone: str) -> Window:
    """Return the window that a day without a run has: what is left for it between the edges of the days beside it.

    `NoSuchDay` when that is nothing.
    """
    return _window(day, zone, _nearby(connection, account, day))


def window_of_run(connection: apsw.Connection, run: Run, zone: str | None = None) -> Window:
    """Return the window that a run which is not frozen has: with `zone`, its own edges are proposed anew.

    An edge that a day beside it uses stays, but for a gap that an older program left before the run: it is closed.
    """
    stored = _nearby(connection, run.account, run.date)
    beside = _windows(connection, run)
    before, after = beside.get(run.date - _DAY), beside.get(run.date + _DAY)
    if before is not None:
        stored[run.date] = min(stored.get(run.date, before[1]), before[1])
    if zone is not None:
        stored = {
            day: start
            for day, start in stored.items()
            if not (day == run.date and before is None) and not (day == run.date + _DAY and after is None)
        }
    return _window(run.date, zone or run.zone, stored)


def keep_edges(connection: apsw.Connection, account: str, day: Date, window: Window) -> None:
    """Store where a day begins and ends, for it and for the days beside it."""
    for date, start_s in ((day, window.start_unix_s), (day + _DAY, window.end_unix_s)):
        change(connection, _SQL["put_edge"], account=account, date=date.isoformat(), start_s=start_s)


def listing_span(connection: apsw.Connection, run: Run) -> tuple[int, int]:
    """Return the span of time to list for the day of a run that is settled, in unix seconds.

    It is the run's window, from the end of the day before where an older program left a gap between the two: the rows
    of the gap belong to the later day, and are taken in as late rows of it.
    """
    before = _windows(connection, run).get(run.date - _DAY)
    start_s = run.window_start_s if before is None else min(run.window_start_s, before[1])
    return start_s, run.window_end_s


def gap_before(connection: apsw.Connection, run: Run) -> int:
    """Return the seconds between the end of the day before and the run's window that no run's window holds."""
    return run.window_start_s - listing_span(connection, run)[0]


def empty_days(connection: apsw.Connection, account: str, first: Date, last: Date) -> set[Date]:
    """Return the dates of a span that do not exist for the account: nothing lies between their edges."""
    found = rows(connection, _SQL["empty_days"], account=account, first=first.isoformat(), last=last.isoformat())
    return {Date.fromisoformat(row["date"]) for row in found}


def _window(day: Date, zone: str, stored: dict[Date, int]) -> Window:
    return existing_window(day, Window.of_span(*edges_of_day(day, load_zone(zone), stored)), zone)


def _nearby(connection: apsw.Connection, account: str, day: Date) -> dict[Date, int]:
    found = rows(connection, _SQL["nearby_edges"], account=account, date=day.isoformat(), next=_next(day).isoformat())
    return {Date.fromisoformat(row["date"]): row["start_s"] for row in found}


def _windows(connection: apsw.Connection, run: Run) -> dict[Date, tuple[int, int]]:
    """The windows of the runs on the day itself and on those beside it."""
    found = rows(
        connection,
        _SQL["run_windows"],
        account=run.account,
        before=(run.date - _DAY).isoformat(),
        date=run.date.isoformat(),
        next=_next(run.date).isoformat(),
    )
    return {Date.fromisoformat(row["date"]): (row["window_start_s"], row["window_end_s"]) for row in found}


def _next(day: Date) -> Date:
    try:
        return day + _DAY
    except OverflowError:
        raise InvalidRequest(f"date {day.isoformat()} is outside the calendar") from None
