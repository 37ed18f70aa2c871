"""Which days a command means: one date, `yesterday`, or a range; the clock is an argument."""

from datetime import date as Date
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from paykit_settle.errors import InvalidRequest
from paykit_settle.window import parse_date, yesterday

DAYS_MAX = 366
"""The most days of one range."""


def resolve_days(*, date: str | None, first: str | None, last: str | None, now: datetime, zone: ZoneInfo) -> list[Date]:
    """The days in order; `InvalidRequest` unless it is either a date or a first and a last day."""
    if date is not None and first is None and last is None:
        return [_day(date, "--date", now, zone)]
    if date is not None or first is None or last is None:
        raise InvalidRequest("give either --date, or --from and --to")
    start, end = _day(first, "--from", now, zone), _day(last, "--to", now, zone)
    count = (end - start).days + 1
    if not 1 <= count <= DAYS_MAX:
        raise InvalidRequest(f"--from {start} --to {end} must be 1 to {DAYS_MAX} days, in order")
    return [start + timedelta(days=offset) for offset in range(count)]


def _day(text: str, option: str, now: datetime, zone: ZoneInfo) -> Date:
    if text == "yesterday":
        return yesterday(now, zone)
    try:
        return parse_date(text)
    except ValueError as error:
        raise InvalidRequest(f"{option} {error}, or `yesterday`") from None
