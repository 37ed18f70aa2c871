"""The zone of an account, and the days beside a change of it: which are refused, which tile, which do not exist.

Without these a setting that differs from yesterday's would shift every later window, hours beside a change would be
settled by nobody or twice, and a settled day would be answered as if it were the one that was asked for.
"""

import json
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from fake_processor import FakeProcessor
from paykit_settle.client import ProcessorClient
from paykit_settle.errors import InvalidRequest, RunRefused, SettlementConflict, WindowOpen
from paykit_settle.models import PostedSettlement
from paykit_settle.run import RunOptions, build_settlement
from paykit_settle.run_request import make_run_request
from paykit_settle.window import NoSuchDay, load_zone, yesterday
from tests.fault.stage import ACCOUNT, LIST, a_processor, check_truth, host, refuse, scripted, wire_row
from tests.programs import paykit

D14, D15, D16, D17, D18 = (f"2026-01-{day}" for day in (14, 15, 16, 17, 18))
BERLIN, NEW_YORK, TOKYO = "Europe/Berlin", "America/New_York", "Asia/Tokyo"
PAGO_PAGO, KIRITIMATI = "Pacific/Pago_Pago", "Pacific/Kiritimati"


@pytest.fixture
async def fake() -> AsyncIterator[FakeProcessor]:
    """A row of one cent in every hour of six days: a total is the hours of its window."""
    async with a_processor(hourly("2026-01-13", 6)) as processor:
        yield processor


def hourly(first: str, days: int) -> list[dict[str, object]]:
    return [wire_row(f"h{hour}", 1, day=first, second=hour * 3600) for hour in range(days * 24)]


def in_zone(zone: str | None) -> RunOptions:
    return RunOptions(zone=zone)


def hours(posted: PostedSettlement) -> tuple[str, str, int]:
    """The window of a settlement, and the rows in it: one an hour."""
    window = posted.settlement.window
    assert posted.settlement.roll_up.row_count == posted.total_net
    return f"{window.start:%dT%H}", f"{window.end:%dT%H}", posted.total_net


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "zones.db"


# Which zone.


async def test_zone_that_nobody_names_is_the_accounts_own(fake: FakeProcessor, database: Path) -> None:
    async with host(database, fake.url, options=in_zone(BERLIN)) as here:
        assert hours(await here.run(D15)) == ("14T23", "15T23", 24)
    async with host(database, fake.url) as here:
        assert hours(await here.run(D16)) == ("15T23", "16T23", 24)
        await check_truth(here, fake)


async def test_account_for_which_no_zone_was_ever_named_is_settled_in_utc(fake: FakeProcessor, database: Path) -> None:
    async with host(database, fake.url) as here:
        assert hours(await here.run(D15)) == ("15T00", "16T00", 24)
        assert (await here.stored(D15)).zone == "Etc/UTC"


@pytest.mark.parametrize("is_named", [True, False])
async def test_zone_that_is_not_the_accounts_is_refused_by_name_before_anything_is_asked(
    fake: FakeProcessor, database: Path, is_named: bool
) -> None:
    async with host(database, fake.url) as here:
        await here.run(D15)
    asked = len(fake.requests)
    async with host(database, fake.url, options=in_zone(None if is_named else BERLIN)) as here:
        with pytest.raises(SettlementConflict, match=r"in zone Etc/UTC, not in Europe/Berlin.*--zone-changed"):
            await here.run(D16, zone=BERLIN if is_named else None)
        assert len(fake.requests) == asked


async def test_change_of_zone_holds_for_the_runs_that_follow(fake: FakeProcessor, database: Path) -> None:
    async with host(database, fake.url) as here:
        await here.run(D14)
        changed = await here.run(D15, zone=BERLIN, zone_changed=True)
        assert f"the zone of {ACCOUNT} has changed from Etc/UTC to {BERLIN}" in changed.warnings
        assert (await here.run(D16)).settlement.window.start.hour == 23
        with pytest.raises(SettlementConflict, match="in zone Europe/Berlin, not in Etc/UTC"):
            await here.run(D17, zone="Etc/UTC")
        await check_truth(here, fake)


async def test_change_without_a_zone_is_a_usage_error(fake: FakeProcessor, database: Path) -> None:
    async with host(database, fake.url) as here:
        with pytest.raises(InvalidRequest, match="needs the zone"):
            await here.run(D15, zone_changed=True)


# Days that are settled.


@pytest.mark.parametrize("zone_changed", [True, False])
async def test_other_zone_named_for_a_settled_day_is_a_conflict(
    fake: FakeProcessor, database: Path, zone_changed: bool
) -> None:
    async with host(database, fake.url) as here:
        await here.run(D15)
        with pytest.raises(
            SettlementConflict, match=r"settled in zone Etc/UTC \(run_000001, posted\), not in Asia/Tokyo"
        ):
            await here.run(D15, zone=TOKYO, zone_changed=zone_changed)
        assert (await here.run(D15, zone="Etc/UTC")).replayed


async def test_settled_day_is_answered_whatever_the_settings_say_with_a_warning(
    fake: FakeProcessor, database: Path
) -> None:
    async with host(database, fake.url) as here:
        first = await here.run(D15)
    asked = len(fake.requests)
    async with host(database, fake.url, options=in_zone(TOKYO)) as here:
        again = await here.run(D15)
        assert (again.settlement, again.replayed) == (first.settlement, True)
        assert again.warnings == (
            "run_000001 was settled in zone Etc/UTC, and is answered although the settings name Asia/Tokyo",
        )
        assert len(fake.requests) == asked


async def test_unfrozen_run_changes_its_zone_only_when_that_is_said(fake: FakeProcessor, database: Path) -> None:
    """A day asked for in the wrong zone, refused for its rows, and asked for again in the right one."""
    fake.state.add_transactions(ACCOUNT, [wire_row("bad", 100, day=D15, status="failed")])
    async with host(database, fake.url) as utc:
        assert isinstance(await utc.attempt(D15), RunRefused)
    fake.state.update_transaction(ACCOUNT, "bad", status="available", amount=0, net=0)
    async with host(database, fake.url, options=in_zone(BERLIN)) as berlin:
        with pytest.raises(SettlementConflict, match=r"begun in zone Etc/UTC .*--zone-changed"):
            await berlin.run(D15, zone=BERLIN)
        posted = await berlin.run(D15, zone_changed=True)
        assert (f"{posted.settlement.window.start:%dT%H}", posted.total_net) == ("14T23", 24)
        assert ((await berlin.stored(D15)).zone, (await berlin.stored(D15)).pull) == (BERLIN, 2)
        assert hours(await berlin.run(D14)) == ("13T23", "14T23", 24)
        await check_truth(berlin, fake)


async def test_run_that_is_gone_on_with_stays_in_its_zone_and_says_so(fake: FakeProcessor, database: Path) -> None:
    async with host(database, fake.url) as utc:
        fake.fault("error_503", route=f"GET {LIST}", retry_after_s=0)
        await utc.attempt(D15)
        fake.heal()
    async with host(database, fake.url, options=in_zone(BERLIN)) as berlin:
        posted = await berlin.run(D15)
        assert hours(posted) == ("15T00", "16T00", 24)
        assert posted.warnings == ("run_000001 goes on with what it was begun on: zone = Etc/UTC, not Europe/Berlin",)


async def test_rejected_day_is_tried_anew_in_its_own_window(fake: FakeProcessor, database: Path) -> None:
    """The days beside it may be settled: its edges are theirs."""
    cue = scripted(fake)
    async with host(database, fake.url) as here:
        cue.instead = refuse(422)
        await here.attempt(D15)
        cue.behave()
        await here.run(D16, zone=TOKYO, zone_changed=True)
        assert hours(await here.run_again(D15)) == ("15T00", "16T00", 24)
        await check_truth(here, fake)


# Days tile.


@pytest.mark.parametrize(
    ("before", "after", "window"),
    [
        ("Etc/UTC", NEW_YORK, ("16T00", "17T05", 29)),  # the hours that fell between two windows
        ("Etc/UTC", BERLIN, ("16T00", "16T23", 23)),
        (NEW_YORK, "Etc/UTC", ("16T05", "17T00", 19)),  # the overlap that was refused
        (NEW_YORK, TOKYO, ("16T05", "16T15", 10)),
        (TOKYO, NEW_YORK, ("15T15", "17T05", 38)),
    ],
)
async def test_day_after_a_change_of_zone_begins_where_the_day_before_ends(
    fake: FakeProcessor, database: Path, before: str, after: str, window: tuple[str, str, int]
) -> None:
    async with host(database, fake.url) as here:
        await here.run(D15, zone=before)
        changed = await here.run(D16, zone=after, zone_changed=True)
        assert hours(changed) == window
        is_odd = not 23 <= window[2] <= 25
        assert any(f"the window is {window[2]} h long" in said for said in changed.warnings) == is_odd
        again = await here.run(D16)
        assert any(f"the window is {window[2]} h long" in said for said in again.warnings) == is_odd
        await check_truth(here, fake)


@pytest.mark.parametrize(("before", "after"), [("Etc/UTC", NEW_YORK), (NEW_YORK, TOKYO), (TOKYO, BERLIN)])
@pytest.mark.parametrize("order", [(D15, D16, D14, D17), (D17, D14, D16, D15), (D14, D17, D15, D16)])
async def test_every_hour_is_in_one_day_whatever_order_days_are_run_in(
    fake: FakeProcessor, database: Path, before: str, after: str, order: tuple[str, ...]
) -> None:
    async with host(database, fake.url) as here:
        windows = {}
        for number, day in enumerate(order):
            zone = before if number < 2 else after
            windows[day] = (await here.run(day, zone=zone, zone_changed=True)).settlement.window
        for first, second in ((D14, D15), (D15, D16), (D16, D17)):
            assert windows[first].end == windows[second].start
        span = windows[D17].end - windows[D14].start
        assert await here.balance() == span.total_seconds() // 3600
        await check_truth(here, fake)


async def test_late_row_of_a_long_day_belongs_to_it(fake: FakeProcessor, database: Path) -> None:
    async with host(database, fake.url) as here:
        await here.run(D15)
        await here.run(D16, zone=NEW_YORK, zone_changed=True)
        fake.state.add_transactions(ACCOUNT, [wire_row("late", 1000, day=D17, second=3600)])
        posted = await here.run(D17)
        assert [(late.period.isoformat(), late.roll_up.row_count) for late in posted.settlement.late] == [(D16, 1)]
        await check_truth(here, fake)


# Days that do not exist.


async def test_day_that_its_zone_skipped_does_not_exist(tmp_path: Path) -> None:
    """Apia went from 2011-12-29 to 2011-12-31; the row in the last hour of the 29th is counted once."""
    rows = [
        wire_row("last", 10, day="2011-12-30", second=9 * 3600),
        wire_row("first", 1, day="2011-12-30", second=36_000),
    ]
    async with a_processor(rows, first="2011-12-01") as fake:
        async with host(tmp_path / "apia.db", fake.url, options=in_zone("Pacific/Apia")) as here:
            with pytest.raises(NoSuchDay, match="2011-12-30 does not exist in Pacific/Apia"):
                await here.run("2011-12-30")
            assert [(await here.run(day)).total_net for day in ("2011-12-31", "2011-12-29")] == [1, 10]
            with pytest.raises(NoSuchDay):
                await here.run("2011-12-30")
            await check_truth(here, fake)
        async with ProcessorClient(fake.url) as client:
            with pytest.raises(InvalidRequest, match="does not exist"):
                await build_settlement(client, None, ACCOUNT, "2011-12-30", options=in_zone("Pacific/Apia"))


async def test_day_that_a_change_of_zone_swallows_does_not_exist(fake: FakeProcessor, database: Path) -> None:
    """From Pago Pago to Kiritimati the clocks go forward by 25 hours."""
    async with host(database, fake.url) as here:
        assert hours(await here.run(D15, zone=PAGO_PAGO)) == ("15T11", "16T11", 24)
        with pytest.raises(NoSuchDay, match=f"{D16} does not exist in {KIRITIMATI}"):
            await here.run(D16, zone=KIRITIMATI, zone_changed=True)
        assert hours(await here.run(D17, zone=KIRITIMATI, zone_changed=True)) == ("16T11", "17T10", 23)
        with pytest.raises(NoSuchDay):
            await here.run(D16)
        await check_truth(here, fake)


async def test_day_that_is_still_open_changes_nothing_for_the_account(fake: FakeProcessor, database: Path) -> None:
    async with host(database, fake.url) as here:
        await here.run(D15)
        wanted = make_run_request(ACCOUNT, "2026-06-01", "usd")  # not by the host, whose clock goes on with it
        with pytest.raises(WindowOpen):
            await here.runner.run(wanted, requested_by="test", zone=TOKYO, zone_changed=True)
        assert hours(await here.run(D16)) == ("16T00", "17T00", 24)


# Days that are mistypes.


@pytest.mark.parametrize("day", ["1989-12-31", "0026-01-15", "1026-01-15"])
async def test_day_before_1990_is_a_mistype_at_every_entry(fake: FakeProcessor, database: Path, day: str) -> None:
    async with host(database, fake.url) as here, ProcessorClient(fake.url) as client:
        with pytest.raises(InvalidRequest, match="must not be before 1990-01-01"):
            await here.run(day)
        with pytest.raises(InvalidRequest, match="must not be before 1990-01-01"):
            await build_settlement(client, None, ACCOUNT, date.fromisoformat(day))
    words = ("run", "--account", ACCOUNT, "--processor-url", fake.url)
    for asked in (("--date", day), ("--from", day, "--to", day), ("--date", day, "--dry-run")):
        done = paykit(*words, *asked, cwd=database.parent)
        assert (done.returncode, "must not be before 1990-01-01" in done.stderr) == (2, True)
    assert fake.requests == []


# The program.


@pytest.fixture
def served() -> Iterator[FakeProcessor]:
    with a_processor(hourly("2026-01-13", 6)) as processor:
        yield processor


def run_days(
    served: FakeProcessor, cwd: Path, *words: str, env: dict[str, str] | None = None
) -> list[dict[str, object]]:
    done = paykit("run", "--account", ACCOUNT, "--processor-url", served.url, "--json", *words, cwd=cwd, env=env)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("source", ["flag", "environment", "file"])
def test_zone_of_flag_environment_or_file_is_held_to_the_account(
    served: FakeProcessor, tmp_path: Path, source: str
) -> None:
    run_days(served, tmp_path, "--date", D15)
    (tmp_path / "settings.toml").write_text(f'zone = "{BERLIN}"\n')
    words = {"flag": ["--zone", BERLIN], "environment": [], "file": ["--config", "settings.toml"]}[source]
    env = {"PAYKIT_ZONE": BERLIN} if source == "environment" else {}
    (refused,) = run_days(served, tmp_path, "--date", D16, *words, env=env)
    assert (refused["error"], "--zone-changed" in str(refused["detail"])) == ("settlement_conflict", True)
    (settled,) = run_days(served, tmp_path, "--date", D15, *words, env=env)
    if source == "flag":
        assert settled["error"] == "settlement_conflict"
    else:
        assert (settled["replayed"], settled["warnings"]) == (
            True,
            [f"run_000001 was settled in zone Etc/UTC, and is answered although the settings name {BERLIN}"],
        )
    (changed,) = run_days(served, tmp_path, "--date", D16, "--zone-changed", *words, env=env)
    assert changed["total_net"] == 23


def test_range_passes_over_a_day_that_does_not_exist(served: FakeProcessor, tmp_path: Path) -> None:
    run_days(served, tmp_path, "--date", D15, "--zone", PAGO_PAGO)
    changed = ("--from", D16, "--to", D17, "--zone", KIRITIMATI, "--zone-changed")
    passed, settled = run_days(served, tmp_path, *changed)
    assert (passed["date"], passed["state"]) == (D16, "no such day")
    assert settled["total_net"] == 23
    again = paykit("run", "--account", ACCOUNT, "--processor-url", served.url, "--from", D16, "--to", D17, cwd=tmp_path)
    assert again.returncode == 0
    assert f"{D16} is passed over: {D16} does not exist in {KIRITIMATI}" in again.stderr
    listed = paykit("settlements", "--json", cwd=tmp_path).stdout
    assert [json.loads(line)["state"] for line in listed.splitlines()] == ["posted", "posted"]
    alone = paykit("run", "--account", ACCOUNT, "--processor-url", served.url, "--date", D16, cwd=tmp_path)
    assert (alone.returncode, "invalid_request" in alone.stderr) == (2, True)


def test_long_day_is_named_in_the_statement_and_the_explanation(served: FakeProcessor, tmp_path: Path) -> None:
    run_days(served, tmp_path, "--date", D15)
    words = ("--zone", NEW_YORK, "--zone-changed", "--date", D16)
    looked = run_days(served, tmp_path, "--dry-run", *words)[0]
    done = paykit("run", "--account", ACCOUNT, "--processor-url", served.url, *words, cwd=tmp_path)
    assert "window   the window is 29 h long: it lies beside a change of zone" in done.stdout
    assert f"note     the zone of {ACCOUNT} has changed" in done.stdout
    told = " ".join(paykit("explain", "run_000002", cwd=tmp_path).stdout.split())
    assert "note the window is 29 h long" in told
    shown = json.loads(paykit("explain", "run_000002", "--json", cwd=tmp_path).stdout)
    assert shown["warnings"][0].startswith("the window is 29 h long")
    (again,) = run_days(served, tmp_path, "--date", D16)
    assert again["warnings"] == shown["warnings"]
    assert looked["warnings"] == [
        f"the zone of {ACCOUNT} has changed from Etc/UTC to {NEW_YORK}",
        *shown["warnings"],
    ]
    assert (looked["window"], looked["total_net"]) == (again["window"], again["total_net"])


def test_yesterday_and_a_look_are_in_the_accounts_own_zone(served: FakeProcessor, tmp_path: Path) -> None:
    run_days(served, tmp_path, "--date", D15, "--zone", KIRITIMATI)
    looked = run_days(served, tmp_path, "--date", D16, "--dry-run")[0]
    assert looked["window"] == {"start": "2026-01-15T10:00:00+00:00", "end": "2026-01-16T10:00:00+00:00"}
    before = yesterday(datetime.now(UTC), load_zone(KIRITIMATI))
    looked = run_days(served, tmp_path, "--date", "yesterday", "--dry-run")[0]
    after = yesterday(datetime.now(UTC), load_zone(KIRITIMATI))
    assert looked["date"] in (before.isoformat(), after.isoformat())
