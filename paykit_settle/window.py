"""The day of an account as a half-open span of time, and which days may be settled yet.

A day runs from local midnight to the next local midnight of the account's IANA zone, so it has 23, 24 or 25 hours and
adjacent days tile without gap or overlap. Where the zone changes between two days, `day_edges.py` sees to that. The
clock is always an argument.
"""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from paykit_settle.errors import InvalidRequest, WindowOpen

DEFAULT_ZONE = "Etc/UTC"
"""The zone of an account for which none was ever named."""
SHORT_DAY_S, LONG_DAY_S = 23 * 3600, 25 * 3600
"""A window shorter or longer than these is named: clocks that go forward or back give no others."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class NoSuchDay(InvalidRequest):
    """A date that has no instant of its own: skipped by its zone, or swallowed by a change of zone."""


class StillOpen(WindowOpen):
    """A day that may be settled from `closes` on."""

    def __init__(self, detail: str, *, closes: datetime) -> None:
        super().__init__(detail)
        self.closes = closes


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """`[start, end)`: aware datetimes in UTC, on whole seconds."""

    start: datetime
    end: datetime

    @property
    def start_unix_s(self) -> int:
        return (self.start - EPOCH) // timedelta(seconds=1)

    @property
    def end_unix_s(self) -> int:
        return (self.end - EPOCH) // timedelta(seconds=1)

    @classmethod
    def of_span(cls, start_s: int, end_s: int) -> "Window":
        """Return the window between two unix times, in seconds."""
        return cls(start=EPOCH + timedelta(seconds=start_s), end=EPOCH + timedelta(seconds=end_s))

    @property
    def odd_length(self) -> str | None:
        """What there is to say of a window that is longer than 25 hours or shorter than 23; None for any other."""
        length_s = self.end_unix_s - self.start_unix_s
        if SHORT_DAY_S <= length_s <= LONG_DAY_S:
            return None
        minutes, seconds = divmod(length_s, 60)
        length = f"{minutes // 60} h" + f" {minutes % 60} min" * bool(minutes % 60) + f" {seconds} s" * bool(seconds)
        return f"the window is {length} long: it lies beside a change of zone, or the zone skipped or repeated hours"

    def check_closed(self, now: datetime, *, grace: timedelta) -> None:
        """Passes once the window has ended and its grace is over; `StillOpen` says when that will be."""
        closes = self.end + grace
        if now < closes:
            raise StillOpen(
                f"the window ends {self.end.isoformat()} and may be settled from {closes.isoformat()} on "
                f"(now {now.astimezone(UTC).isoformat(timespec='seconds')})",
                closes=closes,
            )


def day_window(day: date, zone: ZoneInfo) -> Window:
    """The window of one date: from its first instant in the zone to the first instant of the next date."""
    try:
        return Window(start=_first_instant(day, zone), end=_first_instant(day + timedelta(days=1), zone))
    except OverflowError:
        raise InvalidRequest(f"date {day.isoformat()} is outside the calendar") from None


def existing_window(day: date, window: Window, zone: str) -> Window:
    """Return the window of a day, or raise `NoSuchDay` when it is empty."""
    if window.start >= window.end:
        raise NoSuchDay(
            f"{day.isoformat()} does not exist in {zone} for this account: the day before ends where the next begins, "
            f"{window.start.isoformat()}"
        )
    return window


def _first_instant(day: date, zone: ZoneInfo) -> datetime:
    # fold=0 takes the earlier of two midnights (clocks set back over midnight). Where midnight is skipped, the local
    # time does not exist and fold=0 reads it with the offset before the change: the very instant of the jump.
    return datetime.combine(day, time(0), tzinfo=zone).astimezone(UTC)


def parse_date(text: object) -> date:
    """Exactly `YYYY-MM-DD`; `ValueError` otherwise (ISO's week dates and short forms are refused too)."""
    if type(text) is not str or len(text) != 10 or text[4] != "-" or text[7] != "-":
        raise ValueError("must be a date like 2026-01-15")
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ValueError("must be a date like 2026-01-15") from None


def yesterday(now: datetime, zone: ZoneInfo) -> date:
    """The date before today's in the account's zone, whatever zone the machine is in."""
    return now.astimezone(zone).date() - timedelta(days=1)


def load_zone(name: str) -> ZoneInfo:
    """The IANA zone of that name; `InvalidRequest` naming it when there is none."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidRequest(f"unknown time zone {name!r:.60}: use an IANA name such as Europe/Berlin") from None
