"""Rows that stand under another day than the one they are settled or owed under, and what becomes of them there.

Without these, a row that moves and then changes, vanishes, comes back or is let go by a rejected run would be lost, or
be settled at an amount that nobody sees any more, and every `verify` would still pass.
"""

from collections.abc import AsyncIterator
from datetime import date as Date
from pathlib import Path

import pytest

from fake_processor import FakeProcessor
from paykit_settle.errors import ProcessorRejected
from paykit_settle.money import ScaleProfile
from paykit_settle.recheck import RecheckedDay, recheck_and_register
from paykit_settle.run import RunOptions
from paykit_settle.store.decisions import settle_difference
from paykit_settle.store.differences import live_ids
from paykit_settle.store.history import outstanding_rows
from paykit_settle.store.store import clock_ms
from paykit_settle.store.write_offs import write_off
from tests.fault.stage import ACCOUNT, ADA, Host, a_processor, check_truth, host, refuse, scripted, wire_row

D13, D14, D15, D16, D17, D18, D19, D20, D21 = (f"2026-01-{day}" for day in range(13, 22))


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


def change(fake: FakeProcessor, amount: int, **members: object) -> None:
    fake.state.update_transaction(ACCOUNT, "t1", amount=amount, net=amount, **members)


def created(day: str) -> object:
    return wire_row("x", 1, day=day)["created"]


async def different(here: Host) -> set[str]:
    return await here.store.read(lambda connection: live_ids(connection, ACCOUNT))


async def owed(here: Host) -> list[str]:
    as_of = Date(2026, 12, 31)
    rows = await here.store.read(lambda connection: outstanding_rows(connection, account=ACCOUNT, as_of=as_of))
    return [row.transaction_id for row in rows]


async def settle(here: Host) -> None:
    await here.store.write(
        lambda connection: settle_difference(connection, ACCOUNT, "t1", by=ADA, scale=ScaleProfile(), now_ms=clock_ms())
    )


async def recheck(here: Host, first: str, last: str) -> list[RecheckedDay]:
    span = Date.fromisoformat(first), Date.fromisoformat(last)
    return await recheck_and_register(here.client, here.store, ACCOUNT, *span, RunOptions(), now_ms=clock_ms())


async def totals(here: Host, *days: str) -> list[int]:
    return [(await here.run(day)).total_net for day in days]


async def test_row_that_moved_with_other_content_stays_different_when_its_own_day_is_listed(
    fake: FakeProcessor, here: Host
) -> None:
    add(fake, wire_row("t1", 100))
    await here.run(D15)
    change(fake, 90, created=created(D16))
    for day in (D16, D17, D18):
        assert (await here.run(day)).total_net == 0
        assert await different(here) == {"t1"}
    await settle(here)
    assert await totals(here, D19, D20) == [-10, 0]
    assert await different(here) == set()


@pytest.mark.parametrize("day", [D14, D16], ids=["to an earlier day", "to a later day"])
async def test_row_that_moved_and_then_vanished_is_named(fake: FakeProcessor, here: Host, day: str) -> None:
    add(fake, wire_row("t1", 100))
    await totals(here, D14, D15)
    change(fake, 100, created=created(day))
    await here.run(D16)
    assert await different(here) == set()
    fake.state.remove_transaction(ACCOUNT, "t1")
    await here.run(D17)
    assert await different(here) == {"t1"}


async def test_row_that_comes_home_has_not_vanished(fake: FakeProcessor, here: Host) -> None:
    add(fake, wire_row("t1", 100))
    await here.run(D15)
    change(fake, 100, created=created(D16))
    await here.run(D16)
    change(fake, 100, created=created(D15))
    for day in (D17, D18, D19, D20):
        await here.run(day)
        assert await different(here) == set()


async def test_row_that_was_taken_back_and_stands_under_another_day_is_different(
    fake: FakeProcessor, here: Host
) -> None:
    add(fake, wire_row("t1", 100))
    await here.run(D15)
    fake.state.remove_transaction(ACCOUNT, "t1")
    await here.run(D16)
    await settle(here)
    assert await totals(here, D17) == [-100]
    add(fake, wire_row("t1", 100, day=D18))
    await here.run(D18)
    assert await different(here) == {"t1"}
    await settle(here)
    assert await totals(here, D19) == [100]


async def test_row_that_was_taken_back_and_is_there_again_is_seen_by_recheck(fake: FakeProcessor, here: Host) -> None:
    add(fake, wire_row("t1", 100))
    await here.run(D15)
    fake.state.remove_transaction(ACCOUNT, "t1")
    await here.run(D16)
    await settle(here)
    await totals(here, D17, D18, D19)
    (day,) = await recheck(here, D15, D15)
    assert not day.has_something_to_see
    add(fake, wire_row("t1", 100))
    (day,) = await recheck(here, D15, D15)
    assert [seen.transaction_id for seen in day.changed] == ["t1"]


async def test_corrected_row_that_moves_with_its_first_content_is_different(fake: FakeProcessor, here: Host) -> None:
    add(fake, wire_row("t1", 100))
    await here.run(D15)
    change(fake, 90)
    await here.run(D16)
    await settle(here)
    assert await totals(here, D17) == [-10]
    change(fake, 100, created=created(D18))
    await here.run(D18)
    assert await different(here) == {"t1"}


async def test_correction_of_a_row_that_moves_as_it_was_settled_is_not_taken(fake: FakeProcessor, here: Host) -> None:
    add(fake, wire_row("t1", 100))
    await here.run(D15)
    change(fake, 90)
    await here.run(D16)
    await settle(here)
    change(fake, 100, created=created(D17))
    assert await totals(here, D17, D18) == [0, 0]
    assert (await different(here), await here.balance()) == (set(), 100)


async def test_correction_of_a_row_under_another_day_is_taken_by_the_next_run(fake: FakeProcessor, here: Host) -> None:
    add(fake, wire_row("t1", 100))
    await totals(here, D15, D16)
    change(fake, 90, created=created(D16))
    await here.run(D17)
    await settle(here)
    assert await totals(here, D18) == [-10]


async def test_correction_waits_for_an_earlier_one_that_a_rejected_run_has_taken(
    fake: FakeProcessor, here: Host
) -> None:
    """The row was settled twice until the rejected run was tried again."""
    add(fake, wire_row("t1", 100))
    await here.run(D15)
    change(fake, 100, status="pending")
    await here.run(D16)
    await settle(here)
    cue = scripted(fake)
    cue.instead = refuse(422)
    assert isinstance(await here.attempt(D17), ProcessorRejected)
    cue.behave()
    change(fake, 100, status="available")
    await recheck(here, D15, D15)
    await settle(here)
    assert await totals(here, D18) == [0]
    assert (await here.run_again(D17)).total_net == 0
    assert await totals(here, D19) == [0]
    assert (await different(here), await here.balance()) == (set(), 100)


async def test_row_that_a_rejected_run_lets_go_is_taken_in_although_its_day_was_listed_often_enough(
    fake: FakeProcessor, here: Host
) -> None:
    add(fake, wire_row("t1", 100))
    cue = scripted(fake)
    cue.instead = refuse(422)
    assert isinstance(await here.attempt(D15), ProcessorRejected)
    cue.behave()
    change(fake, 100, created=created(D16))
    assert await totals(here, D16, D17, D18, D19, D20) == [0] * 5
    assert (await here.run_again(D15)).total_net == 0
    assert await totals(here, D21) == [100]


async def test_owed_row_that_moves_to_another_day_is_looked_for_there(fake: FakeProcessor, here: Host) -> None:
    add(fake, wire_row("t1", 100, day=D13, status="pending"))
    await totals(here, D13, D14, D15)
    change(fake, 100, created=created(D15))
    await totals(here, D16, D17, D18, D19)
    assert (await owed(here), await different(here)) == (["t1"], set())
    change(fake, 100, status="available")
    assert await totals(here, D20) == [100]
    assert (await owed(here), await different(here)) == ([], set())


@pytest.mark.parametrize("is_written_off", [False, True], ids=["settled", "written off"])
async def test_row_that_is_dealt_with_refuses_no_day_however_wrong_it_is_there(
    fake: FakeProcessor, here: Host, *, is_written_off: bool
) -> None:
    add(fake, wire_row("t1", 100, status="pending" if is_written_off else "available"))
    await here.run(D15)
    if is_written_off:
        await here.store.write(
            lambda connection: write_off(connection, ACCOUNT, "t1", reason="paid", by=ADA, now_ms=clock_ms())
        )
    change(fake, 100, created=created(D16), currency="xxq")
    add(fake, wire_row("t2", 5, day=D16))
    assert await totals(here, D16, D17) == [5, 0]
    assert await different(here) == (set() if is_written_off else {"t1"})


async def test_held_row_that_is_wrong_under_an_earlier_day_is_different(fake: FakeProcessor, here: Host) -> None:
    add(fake, wire_row("t1", 100))
    await totals(here, D14, D15)
    change(fake, 100, created=created(D14), currency="xxq")
    await here.run(D16)
    assert await different(here) == {"t1"}


async def test_recheck_takes_a_row_that_was_passed_over_for_what_it_is(fake: FakeProcessor, here: Host) -> None:
    add(fake, wire_row("t1", 100))
    await totals(here, D15, D16)
    change(fake, 100, created=created(D16))
    days = await recheck(here, D15, D16)
    assert not any(day.has_something_to_see for day in days)
    change(fake, 90)
    days = await recheck(here, D15, D16)
    assert [[seen.transaction_id for seen in day.changed] for day in days] == [[], ["t1"]]
    assert not any(day.late_ids or day.vanished for day in days)
    assert await different(here) == {"t1"}


async def test_late_row_that_recheck_finds_is_taken_in_by_the_next_run(fake: FakeProcessor, here: Host) -> None:
    await totals(here, D13, D14, D15, D16)
    add(fake, wire_row("t1", 100, day=D13))
    assert await totals(here, D17, D18) == [0, 0]
    (day,) = await recheck(here, D13, D13)
    assert day.late_ids == ["t1"]
    assert await totals(here, D19) == [100]


async def test_owed_row_that_is_gone_stays_named_after_a_recheck(fake: FakeProcessor, here: Host) -> None:
    add(fake, wire_row("t1", 100, status="pending"))
    await here.run(D15)
    fake.state.remove_transaction(ACCOUNT, "t1")
    await here.run(D16)
    assert await different(here) == {"t1"}
    await recheck(here, D15, D15)
    assert await different(here) == {"t1"}


async def test_owed_row_that_moved_and_is_gone_there_is_named_by_recheck(fake: FakeProcessor, here: Host) -> None:
    add(fake, wire_row("t1", 100, status="pending"))
    await here.run(D15)
    change(fake, 100, created=created(D16))
    await totals(here, D16, D17)
    fake.state.remove_transaction(ACCOUNT, "t1")
    await recheck(here, D15, D16)
    assert (await different(here), await owed(here)) == ({"t1"}, ["t1"])
