"""Windows: however a list is ordered, paged and answered, each row is counted once, and no more is asked.

Without it, a split at the wrong second, a page under way when its window shrank, or a resumed plan could lose a row
or count it twice, and the total would still look like a total.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paykit_settle.errors import InvariantViolated
from paykit_settle.models import BalanceTransaction
from paykit_settle.paging import PagedWindow, PagePlan
from tests.rows import row

SPAN_S = 5_000


@dataclass
class Simulation:
    """A processor's list, and slots that ask for its pages and get them in any order."""

    rows: Sequence[BalanceTransaction]
    page_size: int
    filters: bool = True
    counted: list[str] = field(default_factory=list)
    requests: int = 0

    def page(self, span: tuple[int, int], cursor: str | None) -> tuple[list[BalanceTransaction], bool]:
        self.requests += 1
        start = 0 if cursor is None else next(i for i, each in enumerate(self.rows) if each.id == cursor) + 1
        found = [
            each
            for each in self.rows[start:]
            if not self.filters or each.created is None or span[0] <= each.created < span[1]
        ]
        return found[: self.page_size], len(found) > self.page_size

    def run(self, plan: PagePlan, random: Random, *, stop_after: int | None = None) -> None:
        """Reads the plan to its end, or until so many pages came; what is under way then is lost."""
        under_way: list[tuple[PagedWindow, tuple[int, int], list[BalanceTransaction], bool]] = []
        idle = [window for window in plan.windows if not window.is_done]
        while True:
            while len(under_way) < plan.windows_max and (window := idle.pop() if idle else plan.steal()) is not None:
                under_way.append((window, window.span, *self.page(window.span, window.cursor)))
            if not under_way or stop_after == 0:
                return
            window, asked, rows, has_more = under_way.pop(random.randrange(len(under_way)))
            own = plan.take(window, asked, rows, has_more=has_more)
            if own is not None:
                self.counted += [each.id for each in own]
            stop_after = None if stop_after is None else stop_after - 1
            if not window.is_done:
                idle.append(window)


def tiles(plan: PagePlan) -> bool:
    """Whether the windows meet end to end from the span's start to its end."""
    windows = sorted(plan.windows, key=lambda window: window.start_s)
    edges = [plan.start_s, *(window.end_s for window in windows)]
    return edges[-1] == plan.end_s and [window.start_s for window in windows] == edges[:-1]


times = st.lists(st.integers(min_value=0, max_value=SPAN_S - 1), max_size=300)
orders = st.sampled_from(["newest", "oldest"])


def listed(created: Sequence[int], order: str) -> list[BalanceTransaction]:
    in_order = sorted(created, reverse=order == "newest")
    return [row(f"t{index}", 100, created=time) for index, time in enumerate(in_order)]


@given(times, orders, st.integers(1, 40), st.integers(1, 64), st.randoms(use_true_random=False))
def test_each_row_is_counted_once_in_windows_that_tile(
    created: list[int], order: str, page_size: int, windows_max: int, random: Random
) -> None:
    rows = listed(created, order)
    processor = Simulation(rows, page_size)
    plan = PagePlan(start_s=0, end_s=SPAN_S, page_size=page_size, windows_max=windows_max)
    processor.run(plan, random)
    assert sorted(processor.counted) == sorted(each.id for each in rows)
    assert plan.is_done
    assert tiles(plan)
    assert processor.requests <= -(-len(rows) // page_size) + 2 * windows_max
    assert sum(window.requests for window in plan.windows) == processor.requests


@given(times, orders, st.integers(1, 9), st.integers(1, 64), st.integers(0, 60), st.randoms(use_true_random=False))
def test_plan_goes_on_from_what_was_stored(
    created: list[int], order: str, page_size: int, windows_max: int, stop_after: int, random: Random
) -> None:
    """What was under way at the crash is asked for again; what had come is not."""
    rows = listed(created, order)
    processor = Simulation(rows, page_size)
    plan = PagePlan(start_s=0, end_s=SPAN_S, page_size=page_size, windows_max=windows_max)
    processor.run(plan, random, stop_after=stop_after)
    resumed = PagePlan(start_s=0, end_s=SPAN_S, page_size=page_size, windows_max=windows_max)
    resumed.restore([(each.number, each.start_s, each.end_s) for each in plan.windows], plan.serial_reason)
    for old, new in zip(plan.windows, resumed.windows, strict=True):
        new.cursor, new.frontier_s, new.requests, new.rows = old.cursor, old.frontier_s, old.requests, old.rows
        new.is_done = old.is_done
    processor.run(resumed, random)
    assert sorted(processor.counted) == sorted(each.id for each in rows)
    assert tiles(resumed)


@given(times, st.integers(1, 40), st.integers(1, 64), st.randoms(use_true_random=False))
def test_list_in_no_order_is_read_whole_and_once_by_id(
    created: list[int], page_size: int, windows_max: int, random: Random
) -> None:
    rows = [row(f"t{index}", 100, created=time) for index, time in enumerate(created)]
    processor = Simulation(rows, page_size)
    processor.run(PagePlan(start_s=0, end_s=SPAN_S, page_size=page_size, windows_max=windows_max), random)
    assert set(processor.counted) == {each.id for each in rows}


@given(times, orders, st.integers(1, 40), st.integers(1, 64), st.randoms(use_true_random=False))
def test_processor_that_does_not_filter_is_read_as_one_list(
    created: list[int], order: str, page_size: int, windows_max: int, random: Random
) -> None:
    rows = listed(created, order)
    processor = Simulation(rows, page_size, filters=False)
    plan = PagePlan(start_s=0, end_s=SPAN_S, page_size=page_size, windows_max=windows_max)
    processor.run(plan, random)
    assert set(processor.counted) == {each.id for each in rows}
    assert tiles(plan)
    assert len(plan.windows) == 1 or plan.serial_reason is None


@given(times, st.integers(1, 40), st.integers(2, 64), st.randoms(use_true_random=False))
def test_rows_without_created_make_one_window(
    created: list[int], page_size: int, windows_max: int, random: Random
) -> None:
    rows = [row(f"t{index}", 100, created=None) for index in range(len(created))]
    processor = Simulation(rows, page_size)
    plan = PagePlan(start_s=0, end_s=SPAN_S, page_size=page_size, windows_max=windows_max)
    processor.run(plan, random)
    assert processor.counted == [each.id for each in rows]
    assert len(plan.windows) == 1
    assert plan.serial_reason == ("rows without created" if rows else None)


def test_idle_slots_share_a_day_at_once_after_its_first_page() -> None:
    rows = listed(range(SPAN_S), "newest")
    plan = PagePlan(start_s=0, end_s=SPAN_S, page_size=10, windows_max=8)
    first = plan.windows[0]
    assert plan.steal() is None
    plan.take(first, first.span, rows[:10], has_more=True)
    stolen = [plan.steal() for _ in range(7)]
    assert None not in stolen
    assert plan.steal() is None
    lengths = [window.end_s - window.start_s for window in plan.windows]
    assert max(lengths) <= 2 * min(lengths)


def test_windows_are_given_up_when_rows_come_that_were_not_asked_for() -> None:
    rows = listed(range(1_000), "newest")
    for seed in range(8):
        processor = Simulation(rows, 10, filters=False)
        plan = PagePlan(start_s=0, end_s=1_000, page_size=10, windows_max=8)
        processor.run(plan, Random(seed))  # noqa: S311 - the order of answers, no secret
        assert set(processor.counted) == {each.id for each in rows}
        assert plan.serial_reason == "the processor does not filter by created"
        assert len(plan.windows) == 1
        assert plan.requests >= 100


def test_what_is_read_grows_to_the_whole_span() -> None:
    plan = PagePlan(start_s=0, end_s=SPAN_S, page_size=50, windows_max=4)
    assert plan.seconds_read == 0
    Simulation(listed(range(SPAN_S), "oldest"), 50).run(plan, Random(1), stop_after=30)  # noqa: S311 - the same
    assert 0 < plan.seconds_read < SPAN_S


def test_plan_is_whole_only_when_its_windows_meet_and_have_ended() -> None:
    plan = PagePlan(start_s=0, end_s=SPAN_S, page_size=1, windows_max=2)
    with pytest.raises(InvariantViolated, match="not read whole"):
        plan.check_whole()
    plan.restore([(0, 0, 10), (1, 10, SPAN_S)], None)
    for window in plan.windows:
        window.is_done = True
    plan.check_whole()
    plan.windows[0].end_s = 9
    with pytest.raises(InvariantViolated, match="not read whole"):
        plan.check_whole()
    plan.windows[:] = plan.windows[:1]
    with pytest.raises(InvariantViolated, match="the windows end at 9"):
        plan.check_whole()


def test_reason_for_one_list_is_the_first_that_was_seen() -> None:
    shuffled = [row(f"t{index}", 100, created=created) for index, created in enumerate([5, 1, 9, 3, 8, 2, 7, 4])]
    plan = PagePlan(start_s=0, end_s=SPAN_S, page_size=4, windows_max=8)
    Simulation(shuffled, 4).run(plan, Random(1))  # noqa: S311 - the same
    assert plan.serial_reason == "rows in no order of created"
