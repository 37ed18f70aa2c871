"""The request budget: without it many runs together would be refused by the processor, or one account wait for ever."""

import asyncio
import time

import pytest

from paykit_settle.budget import RequestBudget


async def turns(budget: RequestBudget, asked: list[str]) -> list[str]:
    """In which order the accounts enter, one request at a time."""
    order: list[str] = []

    async def one(account: str) -> None:
        if not budget.try_enter():
            await budget.enter(account)
        order.append(account)
        await asyncio.sleep(0)
        budget.leave()

    await asyncio.gather(*(one(account) for account in asked))
    return order


async def test_accounts_take_turns_whatever_each_has_waiting() -> None:
    order = await turns(RequestBudget(in_flight_max=1), ["big"] * 6 + ["small", "tiny", "small"])
    assert order[:5] == ["big", "big", "small", "tiny", "big"]
    assert sorted(order) == sorted(["big"] * 6 + ["small"] * 2 + ["tiny"])


async def test_no_more_are_in_flight_than_allowed() -> None:
    budget = RequestBudget(in_flight_max=2)
    assert [budget.try_enter() for _ in range(3)] == [True, True, False]
    budget.leave()
    assert budget.try_enter()


async def test_rate_is_kept_after_a_small_burst() -> None:
    budget = RequestBudget(per_second=200)
    start = time.monotonic()
    await turns(budget, ["a"] * 60)
    assert time.monotonic() - start >= 0.19  # 20 at once, 40 at 200 a second


async def test_hold_keeps_everybody_out_until_it_is_over() -> None:
    budget = RequestBudget()
    budget.hold(1)
    assert not budget.try_enter()
    start = time.monotonic()
    await budget.enter("a")
    assert time.monotonic() - start >= 0.9


async def test_cancelled_waiter_leaves_its_turn_to_the_next() -> None:
    budget = RequestBudget(in_flight_max=1)
    assert budget.try_enter()
    first, second = (asyncio.ensure_future(budget.enter(name)) for name in ("a", "b"))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    budget.leave()
    await asyncio.wait_for(second, 5)


async def test_turn_that_came_in_the_moment_of_cancellation_is_given_back() -> None:
    budget = RequestBudget(in_flight_max=1)
    assert budget.try_enter()
    waiting = asyncio.ensure_future(budget.enter("a"))
    await asyncio.sleep(0)
    budget.leave()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert budget.try_enter()
