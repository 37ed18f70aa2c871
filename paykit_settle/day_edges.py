"""The edges between an account's days: one instant between two consecutive dates, used by both, so that days tile.

Pure. A zone proposes an edge; one that is stored stays, and a new one is never before its neighbours. Instants are unix
seconds.
"""

from collections.abc import Mapping
from datetime import date as Date
from datetime import timedelta
from zoneinfo import ZoneInfo

from paykit_settle.window import day_window

_DAY = timedelta(days=1)


def edges_of_day(day: Date, zone: ZoneInfo, stored: Mapping[Date, int]) -> tuple[int, int]:
    """Return where a day begins and ends: at the stored edges, else where the zone says, not beyond its neighbours.

    `stored` holds the edges that runs of the account use, by the date that begins there; it may hold no more than the
    nearest on either side. The two are equal where nothing is left for the day. `InvalidRequest` at the calendar's end.
    """
    proposed = day_window(day, zone)
    start = _edge(day, proposed.start_unix_s, stored)
    return start, _edge(day + _DAY, proposed.end_unix_s, {**stored, day: start})


def _edge(day: Date, proposed_s: int, stored: Mapping[Date, int]) -> int:
    if day in stored:
        return stored[day]
    before = max((date for date in stored if date < day), default=None)
    after = min((date for date in stored if date > day), default=None)
    if before is not None:
        proposed_s = max(proposed_s, stored[before])
    if after is not None:
        proposed_s = min(proposed_s, stored[after])
    return proposed_s
