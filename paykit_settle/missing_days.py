"""Which later days stand between a row of an earlier day and its being settled now. Pure; the clock is an argument.

A database that was restored may know nothing of settlements that took such a row in: they are at the processor, under
one of these days.
"""

from collections.abc import Collection, Iterable
from datetime import date as Date
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from paykit_settle.errors import InvalidRequest
from paykit_settle.window import day_window

LOOKUPS_MAX = 62
"""Days that one run asks the processor for before it takes in late rows."""
SURELY_EMPTY_DAYS = 7
"""How long ago a day must have ended for an empty answer to be kept: nobody is about to settle it any more."""
EMPTY_KEPT_HOURS = 24


def missing_days(oldest: Date, newest: Date, *, known: Collection[Date], zone: ZoneInfo) -> list[Date]:
    """Return the days after `oldest` up to `newest` that are not known, newest first.

    A day that a change of the zone has left out is none.
    """
    span = (newest - timedelta(days=offset) for offset in range(max(0, (newest - oldest).days)))
    return [day for day in span if day not in known and end_of(day, zone) is not None]


def end_of(day: Date, zone: ZoneInfo) -> datetime | None:
    """Return when a day ends in a zone; None for one that a change of the zone has left out."""
    try:
        window = day_window(day, zone)
    except InvalidRequest:
        return None
    return window.end if window.start < window.end else None


def is_long_over(day: Date, zone: ZoneInfo, now: datetime) -> bool:
    """Return whether a day ended so long ago that an empty answer for it may be believed for a while."""
    end = end_of(day, zone)
    return end is not None and end + timedelta(days=SURELY_EMPTY_DAYS) < now


def too_far_back(periods: Iterable[Date], missing: list[Date]) -> dict[Date, str]:
    """Return the periods after which more days are missing than one run asks for, each with that as its reason."""
    counts = {period: sum(day > period for day in missing) for period in periods}
    return {
        period: f"{count} later days have no run here, and a run asks the processor for at most {LOOKUPS_MAX}"
        for period, count in counts.items()
        if count > LOOKUPS_MAX
    }
