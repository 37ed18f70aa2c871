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
from paykit_settle.paging import NOT_DATED, NOT_FILTERED, NOT_ORDERED, PagedWindow, PagePlan, ReadingSpoiled
from tests.rows import row

SPAN_S = 5_000


@dataclass
class Simulation:
    """A processor's list, and slots that ask for its pages and get them in any order."""

    rows: Sequence[BalanceTransaction]
    page_size: int
    filters: bool = True
    counted: list[str] = field(default_factory=list)
    cut: set[str] = field(default_factory=set)
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

    def run(self, plan: PagePlan, random: Random, *, stop_after: int | None = None) -> PagePlan:
        """Reads the plan to its end, or until so many pages came; what is under way then is lost.

        Gives the plan that counts: another one, when the reading was given up and the list read anew.
        """
        under_way: list[tuple[PagedWindow, tuple[int, int], list[BalanceTransaction], bool]] = []
        idle = [window for window in plan.windows if not window.is_done]
        while True:
            while len(under_way) < plan.windows_max and (window := idle.pop() if idle else plan.steal()) is not None:
                asked = plan.asked_span(window)
                under_way.append((window, asked, *self.page(asked, window.cursor)))
            if not under_way or stop_after == 0:
                return plan
            window, asked, rows, has_more = under_way.pop(random.randrange(len(under_way)))
            try:
                own = plan.take(window, asked, rows, has_more=has_more)
            except ReadingSpoiled as spoiled:
                self.counted.clear()
                self.cut.clear()
                return self.run(plan.anew(str(spoiled)), random)
            self.counted += [each.id for each in own]
            self.cut |= {each.id for each in rows} - {each.id for each in own}
            stop_after = None if stop_after is None else stop_after - 1
            if not window.is_done:
                idle.append(window)


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
    assert plan.is_tiled
    assert processor.cut <= set(processor.counted)
    edge_rows = sum(window.edge_rows for window in plan.windows)
    assert processor.requests <= -(-(len(rows) + edge_rows) // page_size) + 2 * windows_max
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
        for name in ("cursor", "cursor_s", "frontier_s", "requests", "rows", "edge_rows", "is_done"):
            setattr(new, name, getattr(old, name))
    processor.run(resumed, random)
    assert sorted(processor.counted) == sorted(each.id for each in rows)
    assert resumed.is_tiled


@given(times, st.integers(1, 40), st.integers(1, 64), st.randoms(use_true_random=False))
def test_list_in_no_order_is_read_whole_and_once_by_id(
    created: list[int], page_size: int, windows_max: int, random: Random
) -> None:
    rows = [row(f"t{index}", 100, created=time) for index, time in enumerate(created)]
    processor = Simulation(rows, page_size)
    processor.run(PagePlan(start_s=0, end_s=SPAN_S, page_size=page_size, windows_max=windows_max), random)
    assert sorted(processor.counted) == sorted(each.id for each in rows)


@given(times, orders, st.integers(1, 40), st.integers(1, 64), st.randoms(use_true_random=False))
def test_processor_that_does_not_filter_is_read_as_one_list(
    created: list[int], order: str, page_size: int, windows_max: int, random: Random
) -> None:
    rows = listed(created, order)
    processor = Simulation(rows, page_size, filters=False)
    plan = PagePlan(start_s=0, end_s=SPAN_S, page_size=page_size, windows_max=windows_max)
    plan = processor.run(plan, random)
    assert sorted(processor.counted) == sorted(each.id for each in rows)
    assert plan.is_tiled
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
    assert plan.serial_reason == (NOT_DATED if rows else None)


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
        first = PagePlan(start_s=0, end_s=1_000, page_size=10, windows_max=8)
        plan = processor.run(first, Random(seed))  # noqa: S311 - the order of answers, no secret
        assert processor.counted == [each.id for each in rows]
        assert plan.serial_reason == NOT_FILTERED
        assert [window.number for window in plan.windows] == [len(first.windows)]
        assert plan.requests == 100


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
    assert plan.serial_reason == NOT_ORDERED


@given(times, orders, st.integers(1, 40), st.integers(1, 64), st.sampled_from([(1, 0), (0, -1), (1, -1)]))
def test_bound_that_leaves_out_its_own_second_loses_no_row_at_a_split(
    created: list[int], order: str, page_size: int, windows_max: int, off: tuple[int, int]
) -> None:
    """`created[gte]` read as "after", `created[lt]` as "before the second before": windows ask a second more."""

    class OffByOne(Simulation):
        def page(self, span: tuple[int, int], cursor: str | None) -> tuple[list[BalanceTransaction], bool]:
            start = span[0] + off[0] if span[0] else 0  # the day's own edges are another matter
            end = span[1] + off[1] if span[1] < SPAN_S else SPAN_S
            return super().page((start, end), cursor)

    rows = listed(created, order)
    processor = OffByOne(rows, page_size)
    plan = PagePlan(start_s=0, end_s=SPAN_S, page_size=page_size, windows_max=windows_max)
    assert processor.run(plan, Random(len(rows))) is plan  # noqa: S311 - the order of answers, no secret
    assert sorted(processor.counted) == sorted(each.id for each in rows)


def test_page_that_was_asked_for_less_than_the_window_is_now_does_not_end_it() -> None:
    plan = PagePlan(start_s=0, end_s=SPAN_S, page_size=10, windows_max=8)
    window = plan.windows[0]
    for asked in ((1, SPAN_S), (0, SPAN_S - 1)):
        plan.take(window, asked, [], has_more=False)
        assert not window.is_done
    plan.take(window, (0, SPAN_S), [], has_more=False)
    assert window.is_done


def test_one_list_stays_one_whatever_its_rows_say() -> None:
    plan = PagePlan(start_s=0, end_s=1_000, page_size=2, windows_max=8).anew("a reason")
    window = plan.windows[0]
    for number, created in enumerate([5, None, 999, 3, 2_000, 4]):
        rows = [row(f"t{number}", 1, created=created)]
        assert plan.take(window, plan.asked_span(window), rows, has_more=True) == rows
        assert (window.cursor, plan.steal(), plan.serial_reason) == (f"t{number}", None, "a reason")
