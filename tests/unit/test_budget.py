"""The request budget: without it many runs together would be refused by the processor, or one account wait for ever."""

import asyncio

import pytest

from paykit_settle import budget as budget_module
from paykit_settle.budget import RequestBudget
from tests.loop_clock import everybody_waits, pass_time


class Clock:
    """The budget's clock, which only a test moves; the event loop's goes with it."""

    def __init__(self) -> None:
        self._now_ns = 0

    def monotonic_ns(self) -> int:
        return self._now_ns

    async def pass_ms(self, milliseconds: int) -> None:
        self._now_ns += milliseconds * 1_000_000
        pass_time(milliseconds / 1000)
        await everybody_waits()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(budget_module, "time", clock)
    return clock


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


async def test_rate_is_kept_after_a_small_burst(clock: Clock) -> None:
    """Twenty at once, then one every five milliseconds."""
    budget, entered = RequestBudget(per_second=200), list[int]()

    async def one(number: int) -> None:
        if not budget.try_enter():
            await budget.enter("a")
        entered.append(number)

    asking = [asyncio.ensure_future(one(number)) for number in range(60)]
    await everybody_waits()
    assert len(entered) == 20
    for count in range(20, 60):
        await clock.pass_ms(4)
        assert len(entered) == count
        await clock.pass_ms(1)
        assert len(entered) == count + 1
    await asyncio.gather(*asking)


async def test_hold_keeps_everybody_out_until_it_is_over(clock: Clock) -> None:
    budget = RequestBudget()
    budget.hold(1)
    assert not budget.try_enter()
    entering = asyncio.ensure_future(budget.enter("a"))
    await clock.pass_ms(999)
    assert not entering.done()
    await clock.pass_ms(1)
    assert entering.done()


async def test_cancelled_waiter_leaves_its_turn_to_the_next() -> None:
    budget = RequestBudget(in_flight_max=1)
    assert budget.try_enter()
    first, second = (asyncio.ensure_future(budget.enter(name)) for name in ("a", "b"))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    budget.leave()
    await asyncio.wait_for(second, 30)


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
