"""Settled days, listed again at a real socket: what differs is named and registered, and nothing is settled.

Without it, rows that changed, went or came after the look-back would never be seen by anybody.
"""

from collections.abc import AsyncIterator
from datetime import date as Date
from pathlib import Path

import pytest

from fake_processor import FakeProcessor
from paykit_settle.recheck import RecheckedDay, recheck_and_register
from paykit_settle.run import RunOptions
from paykit_settle.store.differences import live_ids
from tests.fault.stage import ACCOUNT, DAY, LIST, Host, a_processor, check_truth, host, posts, wire_row

NEXT = "2026-01-16"


@pytest.fixture
async def fake() -> AsyncIterator[FakeProcessor]:
    rows = [wire_row("t1", 100), wire_row("t2", 200), wire_row("t3", 300), wire_row("p1", 7, status="pending")]
    async with a_processor(rows) as processor:
        yield processor


@pytest.fixture
async def here(fake: FakeProcessor, tmp_path: Path) -> AsyncIterator[Host]:
    async with host(tmp_path / "paykit.db", fake.url) as one:
        await one.run()
        yield one
        await check_truth(one, fake)


async def again(here: Host, *, to: str = DAY) -> list[RecheckedDay]:
    first, last = Date.fromisoformat(DAY), Date.fromisoformat(to)
    return await recheck_and_register(here.client, here.store, ACCOUNT, first, last, RunOptions(page_size=2), now_ms=1)


async def registered(here: Host) -> set[str]:
    return await here.store.read(lambda connection: live_ids(connection, ACCOUNT))


async def test_day_that_is_as_it_was_settled_has_nothing_to_see(here: Host) -> None:
    (day,) = await again(here)
    assert (day.row_count, day.pending_ids, day.has_something_to_see) == (4, ["p1"], False)
    assert await registered(here) == set()


async def test_changed_vanished_late_and_wrong_rows_are_named_and_nothing_is_settled(
    fake: FakeProcessor, here: Host
) -> None:
    fake.state.update_transaction(ACCOUNT, "t1", amount=90, net=90)
    fake.state.remove_transaction(ACCOUNT, "t2")
    fake.state.add_transactions(ACCOUNT, [wire_row("l1", 5), wire_row("w1", 6, status="odd")])
    (day,) = await again(here)
    assert [seen.transaction_id for seen in (*day.changed, *day.vanished, *day.wrong)] == ["t1", "t2", "w1"]
    assert day.late_ids == ["l1"]
    assert day.has_something_to_see
    was = day.changed[0].was
    assert was is not None
    assert b'"amount":100' in was.replace(b" ", b"")
    assert await registered(here) == {"t1", "t2", "w1"}
    assert (len(posts(fake)), await here.balance()) == (1, 600)


async def test_row_that_is_back_as_it_was_ends_its_difference(fake: FakeProcessor, here: Host) -> None:
    fake.state.update_transaction(ACCOUNT, "t1", amount=90, net=90)
    await again(here)
    fake.state.update_transaction(ACCOUNT, "t1", amount=100, net=100)
    (day,) = await again(here)
    assert day.unchanged_ids == ["t1"]
    assert await registered(here) == set()


async def test_row_that_was_taken_in_late_belongs_to_its_day(fake: FakeProcessor, here: Host) -> None:
    fake.state.release_pending(ACCOUNT)
    await here.run(NEXT)
    first, second = await again(here, to=NEXT)
    assert (first.has_something_to_see, second.has_something_to_see) == (False, False)
    fake.state.update_transaction(ACCOUNT, "p1", amount=8, net=8)
    first, _ = await again(here, to=NEXT)
    assert [seen.transaction_id for seen in first.changed] == ["p1"]


async def test_day_that_cannot_be_read_or_is_not_settled_says_so(fake: FakeProcessor, here: Host) -> None:
    fake.fault("error_500", route=f"GET {LIST}")
    first, second = await again(here, to=NEXT)
    assert "500" in str(first.reason)
    assert second.reason == "it is not settled"
    assert await registered(here) == set()
