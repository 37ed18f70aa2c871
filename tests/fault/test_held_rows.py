"""A row is settled once in its life, whatever day it claims: one that another run holds is passed over and named.

Without these, a processor that moves a row to another day, or does not filter at all, would have it settled twice, and
every total and every `verify` would look right.
"""

from collections.abc import AsyncIterator
from datetime import date as Date
from pathlib import Path

import pytest

from fake_processor import FakeProcessor
from paykit_settle.errors import ProcessorRejected
from paykit_settle.lifecycle import Step
from paykit_settle.models import PostedSettlement
from paykit_settle.run import RunOptions
from paykit_settle.store.differences import live_ids
from paykit_settle.store.history import outstanding_rows
from paykit_settle.store.store import clock_ms
from paykit_settle.store.write_offs import write_off
from tests.fault.stage import (
    ACCOUNT,
    ADA,
    LIST,
    Host,
    a_processor,
    check_truth,
    host,
    of_kind,
    refuse,
    scripted,
    wire_row,
)

D13, D14, D15, D16, D17, D18 = (f"2026-01-{day}" for day in range(13, 19))


@pytest.fixture
async def fake() -> AsyncIterator[FakeProcessor]:
    async with a_processor() as processor:
        yield processor


@pytest.fixture
async def here(fake: FakeProcessor, tmp_path: Path) -> AsyncIterator[Host]:
    async with host(tmp_path / "paykit.db", fake.url) as one:
        yield one
        await check_truth(one, fake)


def add(fake: FakeProcessor, *rows: dict[str, object]) -> None:
    fake.state.add_transactions(ACCOUNT, rows)


def move(fake: FakeProcessor, identity: str, day: str, **members: object) -> None:
    fake.state.update_transaction(ACCOUNT, identity, created=wire_row("x", 1, day=day)["created"], **members)


def moved(posted: PostedSettlement) -> list[tuple[str, str, str | None, str | None, bool]]:
    """The rows that were passed over: id, day of the list, run that holds it, day there, whether it is different."""
    return [
        (
            row.id,
            row.period.isoformat(),
            row.run,
            None if row.held_under is None else row.held_under.isoformat(),
            row.is_different,
        )
        for row in posted.settlement.notes.moved
    ]


async def owed(here: Host) -> list[str]:
    as_of = Date(2026, 12, 31)
    rows = await here.store.read(lambda connection: outstanding_rows(connection, account=ACCOUNT, as_of=as_of))
    return [row.transaction_id for row in rows]


async def different(here: Host) -> set[str]:
    return await here.store.read(lambda connection: live_ids(connection, ACCOUNT))


async def test_settled_row_that_moves_to_a_day_not_run_yet_is_passed_over(fake: FakeProcessor, here: Host) -> None:
    add(fake, wire_row("t1", 100), wire_row("t2", 7))
    assert (await here.run(D15)).total_net == 107
    move(fake, "t1", D16)
    add(fake, wire_row("t3", 5, day=D16))
    posted = await here.run(D16)
    assert posted.total_net == 5
    assert ("t1", D16, "run_000001", D15, False) in moved(posted)
    assert any("passed over t1" in warning for warning in posted.warnings)
    assert await different(here) == set()  # it is where it says it is, as it was settled


async def test_settled_row_that_moves_to_a_posted_day_comes_in_no_second_time(fake: FakeProcessor, here: Host) -> None:
    add(fake, wire_row("t1", 100, day=D14), wire_row("t2", 7))
    assert [(await here.run(day)).total_net for day in (D14, D15)] == [100, 7]
    move(fake, "t1", D15)
    posted = await here.run(D16)
    assert (posted.total_net, moved(posted)) == (0, [("t1", D15, "run_000001", D14, False)])


async def test_row_that_was_taken_in_late_and_moves_is_passed_over(fake: FakeProcessor, here: Host) -> None:
    add(fake, wire_row("t1", 100, day=D14, status="pending"))
    await here.run(D14)
    fake.state.release_pending(ACCOUNT)
    assert (await here.run(D15)).total_net == 100
    move(fake, "t1", D16)
    posted = await here.run(D16)
    assert (posted.total_net, moved(posted)[0][:4]) == (0, ("t1", D16, "run_000002", D14))


async def test_owed_row_that_turns_available_under_another_day_is_settled_there_and_owed_no_more(
    fake: FakeProcessor, here: Host
) -> None:
    add(fake, wire_row("t1", 100, status="pending"))
    await here.run(D15)
    assert await owed(here) == ["t1"]
    move(fake, "t1", D16, status="available")
    assert (await here.run(D16)).total_net == 100
    assert await owed(here) == []
    assert [(await here.run(day)).total_net for day in (D17, D18)] == [0, 0]
    assert await here.balance() == 100


async def test_moved_row_with_other_content_is_in_the_register_of_differences(fake: FakeProcessor, here: Host) -> None:
    add(fake, wire_row("t1", 100))
    await here.run(D15)
    move(fake, "t1", D16, amount=90, net=90)
    posted = await here.run(D16)
    assert (posted.total_net, moved(posted)[0]) == (0, ("t1", D16, "run_000001", D15, True))
    assert await different(here) == {"t1"}


async def test_moved_row_that_is_pending_now_is_not_owed_again(fake: FakeProcessor, here: Host) -> None:
    add(fake, wire_row("t1", 100))
    await here.run(D15)
    move(fake, "t1", D16, status="pending")
    posted = await here.run(D16)
    assert (posted.total_net, moved(posted)[0][0]) == (0, "t1")
    assert await owed(here) == []


async def test_written_off_row_that_turns_up_under_another_day_is_left_to_the_person(
    fake: FakeProcessor, here: Host
) -> None:
    add(fake, wire_row("t1", 100, status="pending"))
    await here.run(D15)
    await here.store.write(
        lambda connection: write_off(connection, ACCOUNT, "t1", reason="paid", by=ADA, now_ms=clock_ms())
    )
    move(fake, "t1", D16, status="available")
    posted = await here.run(D16)
    assert (posted.total_net, moved(posted)) == (0, [("t1", D16, None, None, False)])
    assert posted.settlement.notes.written_off_available == ("t1",)


async def test_row_that_a_rejected_run_holds_is_passed_over_until_that_run_is_pulled_anew(
    fake: FakeProcessor, here: Host
) -> None:
    add(fake, wire_row("t1", 100))
    cue = scripted(fake)
    cue.instead = refuse(422)
    assert isinstance(await here.attempt(D15), ProcessorRejected)
    cue.behave()
    move(fake, "t1", D16)
    posted = await here.run(D16)
    assert (posted.total_net, moved(posted)[0][:3]) == (0, ("t1", D16, "run_000001"))
    assert (await here.run_again(D15)).total_net == 0  # it is not on that day any more, and free again
    move(fake, "t1", D17)
    assert (await here.run(D17)).total_net == 100


async def test_processor_that_does_not_filter_and_dates_nothing_has_each_row_settled_once(tmp_path: Path) -> None:
    """40.00 were settled for 20.00: every day's list was all there is."""
    options = RunOptions(rows_without_created="accept")
    with a_processor([wire_row("t1", 1000), wire_row("t2", 1000)]) as fake:
        fake.fault("created_missing", route=f"GET {LIST}", unfiltered=1)
        async with host(tmp_path / "paykit.db", fake.url, options=options) as here:
            assert (await here.run(D15)).total_net == 2000
            posted = await here.run(D16)
            assert posted.total_net == 0
            assert {row[0] for row in moved(posted)} == {"t1", "t2"}
            await check_truth(here, fake)


async def test_row_of_a_pruned_run_is_still_held(fake: FakeProcessor, here: Host) -> None:
    add(fake, wire_row("t1", 100))
    await here.run(D15)
    await here.change("UPDATE pages SET body = NULL, available_ids = ?", _packed(["t1"]))
    move(fake, "t1", D16)
    assert (await here.run(D16)).total_net == 0


def _packed(ids: list[str]) -> bytes:
    from paykit_settle.store.packing import pack_ids

    return pack_ids(ids)


async def test_digest_that_two_ids_share_passes_nothing_over(
    fake: FakeProcessor, here: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paykit_settle.pull.digest_function", lambda _connection: lambda _identity: 7)
    add(fake, wire_row("t1", 100), wire_row("t2", 5, day=D16))
    assert [(await here.run(day)).total_net for day in (D15, D16)] == [100, 5]


async def test_run_that_is_frozen_meanwhile_keeps_the_row_that_both_have_read(
    fake: FakeProcessor, tmp_path: Path
) -> None:
    add(fake, wire_row("t1", 100))
    database = tmp_path / "race.db"
    async with host(database, fake.url) as other:
        took: list[int] = []

        def at_step(step: Step) -> None:
            if step is Step.BEFORE_FREEZE and not took:
                took.append(1)

        async with host(database, fake.url, at_step=at_step) as here:
            freeze = here.runner._freezer._freeze

            async def freeze_second(*arguments: object) -> object:
                if not took:
                    took.append(1)
                    move(fake, "t1", D16)
                    assert (await other.run(D16)).total_net == 100
                return await freeze(*arguments)  # type: ignore[arg-type]  # as they came

            here.runner._freezer._freeze = freeze_second  # type: ignore[method-assign,assignment]  # the moment between look and freeze
            posted = await here.run(D15)
            assert (posted.total_net, moved(posted)[0][:3]) == (0, ("t1", D15, "run_000002"))
            await check_truth(here, fake)


async def test_runs_of_an_older_version_hold_their_rows_too(fake: FakeProcessor, here: Host) -> None:
    add(fake, wire_row("t1", 100), wire_row("t2", 50, status="pending"))
    await here.run(D15)
    fake.state.release_pending(ACCOUNT)
    await here.run(D16)
    await here.change("DELETE FROM settled_ids")
    await here.change("UPDATE runs SET indexed_pull = NULL")
    move(fake, "t1", D17)
    move(fake, "t2", D17)
    posted = await here.run(D17)
    assert (posted.total_net, sorted(row[0] for row in moved(posted))[:2]) == (0, ["t1", "t2"])


# What is asked of earlier days.


async def test_every_row_pending_for_two_days_costs_a_flat_number_of_lists(tmp_path: Path) -> None:
    await _check_flat(tmp_path / "a.db", RunOptions(page_size=2), factor=4)
    await _check_flat(tmp_path / "b.db", RunOptions(page_size=2, look_back_days=1, look_back_listings=1), factor=3)


async def _check_flat(database: Path, options: RunOptions, *, factor: int) -> None:
    days = [f"2026-01-{day:02d}" for day in range(1, 31)]
    with a_processor() as fake:
        async with host(database, fake.url, options=options) as here:
            costs = []
            for index, day in enumerate(days):
                start = int(str(wire_row("x", 1, day=day, second=0)["created"]))
                add(
                    fake,
                    *(
                        wire_row(f"{day}-{number}", 10, day=day, status="pending", second=60 * number)
                        | {"available_on": start + 2 * 86_400}
                        for number in range(6)
                    ),
                )
                if index >= 2:
                    for number in range(6):
                        fake.state.update_transaction(ACCOUNT, f"{days[index - 2]}-{number}", status="available")
                before = len(fake.requests)
                await here.run(day)
                costs.append(len([each for each in fake.requests[before:] if each.path.startswith(LIST)]))
            own = 3
            assert max(costs[5:]) <= factor * own + 2, costs
            assert len(set(costs[5:])) == 1, costs
            assert await here.balance() == 10 * 6 * 28
            await check_truth(here, fake)


async def test_owed_row_of_a_day_long_listed_is_asked_for_by_its_id(fake: FakeProcessor, tmp_path: Path) -> None:
    options = RunOptions(page_size=2)
    add(fake, *(wire_row(f"t{number}", 10, day=D13, second=60 * number) for number in range(5)))
    add(fake, wire_row("p1", 500, day=D13, status="pending", second=1000))
    async with host(tmp_path / "paykit.db", fake.url, options=options) as here:
        for day in (D13, D14, D15, D16):
            await here.run(day)
        fake.state.update_transaction(ACCOUNT, "p1", status="available", amount=490, net=490)
        before = len(fake.requests)
        posted = await here.run(D17)
        asked = [request.path for request in fake.requests[before:]]
        assert posted.total_net == 490
        assert asked.count(f"{LIST}/p1") == 1
        (late,) = posted.settlement.late
        assert (late.period.isoformat(), late.amended_ids) == (D13, ("p1",))
        assert await owed(here) == []
        await check_truth(here, fake)


@pytest.mark.parametrize("status", [404, 405, 501])
async def test_processor_without_rows_by_id_has_the_day_listed(
    fake: FakeProcessor, tmp_path: Path, status: int
) -> None:
    fake.fault("no_such_route", status=status)
    add(fake, *(wire_row(f"t{number}", 10, day=D13, second=60 * number) for number in range(5)))
    add(fake, wire_row("p1", 500, day=D13, status="pending", second=1000))
    async with host(tmp_path / "paykit.db", fake.url, options=RunOptions(page_size=2)) as here:
        for day in (D13, D14, D15, D16):
            await here.run(day)
        fake.state.release_pending(ACCOUNT)
        assert (await here.run(D17)).total_net == 500
        await check_truth(here, fake)


async def test_owed_row_that_is_gone_by_id_and_from_its_day_has_vanished_and_is_listed_once(
    fake: FakeProcessor, tmp_path: Path
) -> None:
    add(fake, *(wire_row(f"t{number}", 10, day=D13, second=60 * number) for number in range(5)))
    add(fake, wire_row("p1", 500, day=D13, status="pending", second=1000))
    async with host(tmp_path / "paykit.db", fake.url, options=RunOptions(page_size=2)) as here:
        for day in (D13, D14, D15, D16):
            await here.run(day)
        fake.state.remove_transaction(ACCOUNT, "p1")
        posted = await here.run(D17)
        assert [late.vanished_ids for late in posted.settlement.late] == [("p1",)]
        assert (await different(here), await owed(here)) == ({"p1"}, ["p1"])
        before = len(of_kind(fake, "GET", LIST))
        await here.run(D18)
        day_of_three_pages = 3
        assert len(of_kind(fake, "GET", LIST)) - before < 1 + 3 + day_of_three_pages
        await check_truth(here, fake)


async def test_another_row_in_the_answer_leaves_the_row_owed_and_is_named(fake: FakeProcessor, tmp_path: Path) -> None:
    add(fake, *(wire_row(f"t{number}", 10, day=D13, second=60 * number) for number in range(5)))
    add(fake, wire_row("p1", 500, day=D13, status="pending", second=1000))
    async with host(tmp_path / "paykit.db", fake.url, options=RunOptions(page_size=2)) as here:
        for day in (D13, D14, D15, D16):
            await here.run(day)
        fake.state.release_pending(ACCOUNT)
        fake.fault("other_row")
        posted = await here.run(D17)
        assert posted.total_net == 0
        assert any("p1" in warning and "another row" in warning for warning in posted.warnings)
        assert await owed(here) == ["p1"]
        fake.heal()
        assert (await here.run(D18)).total_net == 500
        await check_truth(here, fake)


async def test_row_that_becomes_available_later_is_not_asked_for(fake: FakeProcessor, tmp_path: Path) -> None:
    far = int(str(wire_row("x", 1, day="2026-02-20")["created"]))
    add(fake, wire_row("p1", 500, day=D13, status="pending") | {"available_on": far})
    async with host(tmp_path / "paykit.db", fake.url) as here:
        for day in (D13, D14, D15, D16):
            await here.run(day)
        before = len(fake.requests)
        posted = await here.run(D17)
        assert D13 not in [day.period.isoformat() for day in posted.settlement.notes.earlier_days]
        assert f"{LIST}/p1" not in [request.path for request in fake.requests[before:]]


async def test_late_row_after_an_outage_of_days_is_still_found(fake: FakeProcessor, here: Host) -> None:
    """The look-back counted days, so 77 minor units were lost."""
    await here.run(D13)
    add(fake, wire_row("t1", 77, day=D13))
    for day in (D18, "2026-01-19"):
        await here.run(day)
    assert await here.balance() == 77


async def test_too_many_odd_rows_give_the_day_up_and_today_is_settled(fake: FakeProcessor, here: Host) -> None:
    add(fake, *(wire_row(f"t{number}", 10, second=number) for number in range(101)))
    await here.run(D15)
    for number in range(101):
        fake.state.update_transaction(ACCOUNT, f"t{number}", amount=9, net=9)
    add(fake, wire_row("u1", 3, day=D16), wire_row("late", 8))
    posted = await here.run(D16)
    assert posted.total_net == 3
    (day,) = posted.settlement.notes.earlier_days
    assert "101 rows are wrong, changed or vanished" in str(day.given_up)


async def test_pages_of_earlier_days_keep_their_bytes_only_where_they_are_needed(
    fake: FakeProcessor, tmp_path: Path
) -> None:
    add(fake, *(wire_row(f"t{number}", 10, second=60 * number) for number in range(6)))
    async with host(tmp_path / "paykit.db", fake.url, options=RunOptions(page_size=2)) as here:
        await here.run(D15)
        add(fake, wire_row("late", 8, second=10_000))
        assert (await here.run(D16)).total_net == 8
        kept = [page.is_kept for page in (await here.history(D16)).pages if page.period == D15]
        assert sorted(kept) == [False] * (len(kept) - 1) + [True]
        await check_truth(here, fake)
