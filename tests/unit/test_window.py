"""The day of an account: a wrong edge settles an hour twice or never, a wrong zone the wrong day.

Without these, start + 24 h, an inclusive end or the machine's own zone would pass for a day.
"""

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise

import pytest

from paykit_settle.errors import InvalidRequest, WindowOpen
from paykit_settle.window import NoSuchDay, Window, day_window, existing_window, load_zone, parse_date, yesterday

BERLIN = load_zone("Europe/Berlin")
UTC_ZONE = load_zone("Etc/UTC")


@pytest.mark.parametrize(
    ("day", "start", "end", "hours"),
    [
        ("2025-03-30", 1743289200, 1743372000, 23),  # TIM-01
        ("2025-10-26", 1761429600, 1761519600, 25),
        ("2025-06-10", 1749506400, 1749592800, 24),
    ],
)
def test_day_has_the_hours_its_zone_gives_it(day: str, start: int, end: int, hours: int) -> None:
    window = day_window(parse_date(day), BERLIN)
    assert (window.start_unix_s, window.end_unix_s) == (start, end)
    assert window.end - window.start == timedelta(hours=hours)


@pytest.mark.parametrize(
    ("zone", "first"),
    [
        ("Europe/Berlin", "2025-03-25"),
        ("America/Havana", "2025-10-30"),  # clocks go back at 01:00 to midnight: two midnights
        ("America/Havana", "2025-03-05"),  # and forward at midnight: none
        ("Africa/Cairo", "2025-04-20"),  # forward at midnight
        ("Asia/Beirut", "2025-03-26"),
        ("Pacific/Apia", "2011-12-27"),  # a whole date that never was
        ("Australia/Lord_Howe", "2025-04-03"),  # half an hour
        ("Etc/UTC", "2024-02-27"),
    ],
)
def test_adjacent_days_tile_without_gap_or_overlap(zone: str, first: str) -> None:
    day, info = parse_date(first), load_zone(zone)
    windows = [day_window(day + timedelta(days=offset), info) for offset in range(8)]
    for before, after in pairwise(windows):
        assert before.end == after.start
        assert before.start <= before.end


def test_day_without_a_midnight_starts_when_the_clocks_jump() -> None:
    window = day_window(date(2025, 3, 9), load_zone("America/Havana"))
    assert window.start.isoformat() == "2025-03-09T05:00:00+00:00"
    assert window.end - window.start == timedelta(hours=23)


def test_day_with_two_midnights_starts_at_the_first() -> None:
    window = day_window(date(2025, 11, 2), load_zone("America/Havana"))
    assert window.start.isoformat() == "2025-11-02T04:00:00+00:00"
    assert window.end - window.start == timedelta(hours=25)


@pytest.mark.parametrize("machine_zone", ["Asia/Dubai", "America/Los_Angeles", "UTC"])
@pytest.mark.parametrize(
    ("zone", "expected"),
    [("Etc/UTC", "2025-03-10"), ("Asia/Dubai", "2025-03-11"), ("America/Los_Angeles", "2025-03-10")],
)
def test_yesterday_is_the_accounts_whatever_the_machine_thinks(
    machine_zone: str, zone: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TIM-05."""
    monkeypatch.setenv("TZ", machine_zone)
    now = datetime(2025, 3, 11, 20, 30, tzinfo=UTC)
    assert yesterday(now, load_zone(zone)).isoformat() == expected


def test_window_is_open_until_its_end_and_grace_are_over() -> None:
    window = day_window(date(2026, 1, 15), UTC_ZONE)
    grace = timedelta(seconds=300)
    window.check_closed(datetime(2026, 1, 16, 0, 5, tzinfo=UTC), grace=grace)
    with pytest.raises(WindowOpen, match=r"2026-01-16T00:05:00\+00:00"):
        window.check_closed(datetime(2026, 1, 16, 0, 4, 59, tzinfo=UTC), grace=grace)


@pytest.mark.parametrize("text", ["2026-1-15", "20260115", "2026-W03-4", "2026-02-30", "2026-01-15T00:00", "", None, 5,
                                  "２０２６-01-15", "2026-01-1x", "2026/01/15", "0000-01-01"])  # fmt: skip
def test_date_is_exactly_year_month_day(text: object) -> None:
    with pytest.raises(ValueError, match="2026-01-15"):
        parse_date(text)


@pytest.mark.parametrize("day", [date.min, date.max])
def test_date_at_the_calendars_edge_is_refused_not_crashed(day: date) -> None:
    with pytest.raises(InvalidRequest, match="calendar"):
        day_window(day, load_zone("Asia/Dubai") if day == date.min else UTC_ZONE)


@pytest.mark.parametrize(
    "name", ["Mars/Olympus", "", "../../etc/passwd", "Europe", "/etc/localtime", "Europe/Berlin\0"]
)
def test_unknown_zone_is_refused_by_name(name: str) -> None:
    with pytest.raises(InvalidRequest, match="time zone"):
        load_zone(name)


@pytest.mark.parametrize(
    ("length_s", "named"),
    [
        (23 * 3600, None),
        (25 * 3600, None),
        (23 * 3600 - 1, "22 h 59 min 59 s"),
        (25 * 3600 + 60, "25 h 1 min"),
        (29 * 3600, "29 h long"),
    ],
)
def test_window_of_odd_length_is_named(length_s: int, named: str | None) -> None:
    window = Window.of_span(1_000_000, 1_000_000 + length_s)
    assert (window.start_unix_s, window.end_unix_s) == (1_000_000, 1_000_000 + length_s)
    if named is None:
        assert window.odd_length is None
    else:
        assert named in (window.odd_length or "")


def test_date_that_a_zone_skipped_does_not_exist() -> None:
    apia = load_zone("Pacific/Apia")
    skipped = day_window(date(2011, 12, 30), apia)
    with pytest.raises(NoSuchDay, match="2011-12-30 does not exist in Pacific/Apia"):
        existing_window(date(2011, 12, 30), skipped, "Pacific/Apia")
    exists = day_window(date(2011, 12, 29), apia)
    assert existing_window(date(2011, 12, 29), exists, "Pacific/Apia") == exists
