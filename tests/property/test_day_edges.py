"""Days tile: whatever order an account's days are run in, and however its zone changes meanwhile, no instant is in two
days and none is in no day.

Without these, an hour beside a change of zone would be settled twice or by nobody, or two days would ask for the same
rows under two dates.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise

import apsw
import pytest

from paykit_settle.day_edges import edges_of_day
from paykit_settle.endpoint import ProcessorIdentity
from paykit_settle.lifecycle import Event
from paykit_settle.store.claim_request import ClaimRequest
from paykit_settle.store.claims import claim
from paykit_settle.store.edges import listing_span
from paykit_settle.store.migrations import migrate
from paykit_settle.store.runs import Run, move, select_runs
from paykit_settle.terms import Terms
from paykit_settle.window import NoSuchDay, day_window, load_zone

ZONES = [
    "Etc/UTC",
    "Europe/Berlin",
    "America/New_York",
    "Pacific/Pago_Pago",  # eleven hours behind
    "Pacific/Kiritimati",  # fourteen ahead: a day and an hour from the one before
    "Pacific/Apia",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",  # half an hour of summer time
    "America/Havana",  # two midnights, or none
]
FIRST = date(2011, 12, 20)
"""Around the day that Apia skipped."""
DAYS = 24


def test_first_day_is_what_its_zone_says() -> None:
    for zone in map(load_zone, ZONES):
        window = day_window(FIRST, zone)
        assert edges_of_day(FIRST, zone, {}) == (window.start_unix_s, window.end_unix_s)


@pytest.mark.parametrize("seed", range(200))
def test_days_tile_in_any_order_and_through_any_change_of_zone(seed: int) -> None:
    """Every day of the span is asked for, in random order and zones: each has a window, or is named as none.

    One that was none when it was asked for may get one when its neighbour changes its zone later, and is asked again.
    """
    dice = random.Random(seed)  # noqa: S311 - a test's choices, not a secret
    days = [FIRST + timedelta(days=offset) for offset in range(DAYS)]
    stored: dict[date, int] = {}
    empty: set[date] = set()
    for day in (*dice.sample(days, DAYS), *days):
        start, end = edges_of_day(day, load_zone(dice.choice(ZONES)), stored)
        assert start <= end
        if start == end:
            empty.add(day)  # no run comes of it, so nothing is stored for it
        else:
            empty.discard(day)
            stored |= {day: start, day + timedelta(days=1): end}
        assert all(stored[before] <= stored[after] for before, after in pairwise(sorted(stored)))
    spans = [(stored[day], stored[day + timedelta(days=1)]) for day in days if day not in empty]
    assert all(before[1] == after[0] for before, after in pairwise(spans))


@contextmanager
def database() -> Iterator[apsw.Connection]:
    connection = apsw.Connection(":memory:")
    try:
        migrate(connection, now_ms=1)
        yield connection
    finally:
        connection.close()


def asked(day: date, zone: str | None) -> ClaimRequest:
    return ClaimRequest(
        account="acct_123",
        date=day,
        settlement_currency="usd",
        tenant=None,
        zone=zone,
        zone_named=zone is not None,
        zone_changed=zone is not None,
        processor=ProcessorIdentity(url="http://127.0.0.1:1", key_mode="test"),
        terms=Terms(scales={}, rates_base="usd", rate_age_max_h=120, rate_ahead_max_h=24),
        rates_given=None,
        owner="test",
        requested_by="test",
        principal="ada",
        pull_age_max_ms=3_600_000,
        now=datetime(2026, 6, 1, tzinfo=UTC),
        grace=timedelta(0),
        now_ms=1,
    )


@pytest.mark.parametrize("seed", range(60))
def test_windows_of_claimed_runs_tile_also_when_some_are_begun_anew_in_another_zone(seed: int) -> None:
    """The same over the database: days fail and are claimed again in other zones, and some stay for good."""
    dice = random.Random(seed)  # noqa: S311 - a test's choices, not a secret
    with database() as connection:
        for _ in range(3 * DAYS):
            day = FIRST + timedelta(days=dice.randrange(DAYS))
            zone = dice.choice([None, *ZONES])
            try:
                run = claim(connection, asked(day, zone), is_alive=lambda _: False).run
            except NoSuchDay:
                pass
            else:
                event = dice.choice([Event.FAIL, Event.FAIL, Event.FREEZE])
                if event is Event.FAIL:
                    move(connection, run, event, now_ms=2, error=("processor_unavailable", "scripted"), release=True)
            check_tiling(connection)
        for offset in range(DAYS):
            day = FIRST + timedelta(days=offset)
            try:
                claim(connection, asked(day, None), is_alive=lambda _: False)
            except NoSuchDay:
                assert day not in {run.date for run in check_tiling(connection)}
        runs = check_tiling(connection)
        assert all(before.window_end_s == after.window_start_s for before, after in pairwise(runs))


def check_tiling(connection: apsw.Connection) -> list[Run]:
    """No two windows share an instant, consecutive dates meet, and nothing beyond a run's own window is listed."""
    every = {"account": "acct_123", "first": "", "last": "", "before_date": "9999-12-31", "before_number": 2**62}
    runs = sorted(select_runs(connection, "list_runs", **every, limit=1000), key=lambda run: run.date)
    for before, after in pairwise(runs):
        assert before.window_start_s < before.window_end_s <= after.window_start_s < after.window_end_s
        if after.date - before.date == timedelta(days=1):
            assert before.window_end_s == after.window_start_s
    for run in runs:
        assert listing_span(connection, run) == (run.window_start_s, run.window_end_s)
    return runs
