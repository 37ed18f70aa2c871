"""The windows of a pull: a span of time cut into tiles that are paged side by side. Pure: it plans, others fetch.

It starts with one page of the whole span. While more follow, an idle slot takes half of what the busiest window has
left. Windows are half open on whole seconds and tile the span at every moment, so a row belongs to exactly one of them.
That holds only for a processor that filters by `created` and lists in its order. The first answer that shows otherwise
ends the reading, if the span is cut by then: it is read anew as one list, and `serial_reason` says why.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from paykit_settle.errors import InvariantViolated
from paykit_settle.models import BalanceTransaction

Rows = Sequence[BalanceTransaction]
SPLIT_PAGES_MIN = 2
"""Pages that a window must have left, by estimate, before it is split."""
EDGE_S = 1
"""How much further than its own span a window asks, where it borders on another: a bound may be off by one."""

NOT_FILTERED = "the processor does not filter by created"
NOT_ORDERED = "rows in no order of created"
NOT_DATED = "rows without created"
OTHER_SPAN = "it was read for another span before"
NOT_COUNTED = "a row that one window left to another was not in it"


class ReadingSpoiled(Exception):
    """What was read in windows cannot be trusted to be whole. The text says why."""


@dataclass(slots=True, kw_only=True, eq=False)
class PagedWindow:
    """`[start_s, end_s)` in unix seconds, and how far its list has been read.

    `cursor` is the last row read that it may go on behind, created at `cursor_s`; `frontier_s` is when the last row
    read at all was created. `requests` counts what was asked, `rows` what came of its own and `edge_rows` of its
    neighbours' at its edges. `density` is rows by seconds where it was taken from, for a guess before its first page.
    """

    number: int
    start_s: int
    end_s: int
    cursor: str | None = None
    cursor_s: int | None = None
    frontier_s: int | None = None
    requests: int = 0
    rows: int = 0
    edge_rows: int = 0
    is_done: bool = False
    density: tuple[int, int] = (0, 1)

    @property
    def span(self) -> tuple[int, int]:
        return self.start_s, self.end_s


@dataclass(slots=True, kw_only=True)
class PagePlan:
    """The windows of one list. At most `windows_max` are worked on at once; `page_size` rows are asked for at a time.

    Over all windows there are at most `ceil(rows / page_size) + 2 × windows_max` requests, if pages come full and the
    list is not read anew: a window costs at most two that are not (its last, and one to see that nothing is left where
    another took over), and a split that could exceed this is not made. Rows in the two seconds at a split come to both
    sides of it, and count twice here.
    """

    start_s: int
    end_s: int
    page_size: int
    windows_max: int
    first_number: int = 0
    windows: list[PagedWindow] = field(default_factory=list, init=False)
    serial_reason: str | None = None
    is_changed: bool = True
    _newest_first: bool | None = None
    _spent: int = 0

    def __post_init__(self) -> None:
        self.windows.append(PagedWindow(number=self.first_number, start_s=self.start_s, end_s=self.end_s))

    def restore(self, windows: Sequence[tuple[int, int, int]], serial_reason: str | None) -> None:
        """Goes on with windows (number, start, end) of an earlier attempt; then `take` their pages again, in order."""
        self.windows[:] = [PagedWindow(number=number, start_s=start, end_s=end) for number, start, end in windows]
        self.windows.sort(key=lambda window: window.number)
        self.serial_reason, self.is_changed = serial_reason, False

    def anew(self, reason: str) -> "PagePlan":
        """Return the plan of the same list read anew as one, for that reason. Numbers of windows go on."""
        return PagePlan(
            start_s=self.start_s,
            end_s=self.end_s,
            page_size=self.page_size,
            windows_max=self.windows_max,
            first_number=self._next_number(),
            serial_reason=reason,
        )

    def asked_span(self, window: PagedWindow) -> tuple[int, int]:
        """Return the span to ask for: the window's own, and a second more where it borders on another."""
        return max(self.start_s, window.start_s - EDGE_S), min(self.end_s, window.end_s + EDGE_S)

    @property
    def is_done(self) -> bool:
        return all(window.is_done for window in self.windows)

    @property
    def is_tiled(self) -> bool:
        """Whether the windows meet end to end, from the span's start to its end."""
        windows = sorted(self.windows, key=lambda window: window.start_s)
        ends = [self.start_s, *(window.end_s for window in windows)]
        return ends == [*(window.start_s for window in windows), self.end_s]

    def check_whole(self) -> None:
        """`InvariantViolated` unless the windows tile the span and each was read to its end."""
        at = self.start_s
        for window in sorted(self.windows, key=lambda window: window.start_s):
            if window.start_s != at or not window.is_done:
                raise InvariantViolated(f"window {window.number} was not read whole, or does not begin where one ends")
            at = window.end_s
        if at != self.end_s:
            raise InvariantViolated(f"the windows end at {at}, the day at {self.end_s}")

    @property
    def requests(self) -> int:
        return sum(window.requests for window in self.windows)

    @property
    def seconds_read(self) -> int:
        """How much of the span is behind us, for an estimate of what is left."""
        return self.end_s - self.start_s - sum(self._left(each)[1] for each in self.windows if not each.is_done)

    def take(self, window: PagedWindow, asked: tuple[int, int], rows: Rows, *, has_more: bool) -> Rows:
        """Notes a page that came for the window when `asked` was asked, and gives the rows of it that are its own.

        The others are of its neighbours: at its edges, or beyond an end that moved while the page was under way. The
        last page ends the window only if what was asked covers what the window is now. `ReadingSpoiled`: the page shows
        that rows may be missing, and nothing that came counts.
        """
        window.requests += 1
        times = [row.created for row in rows]
        if self.serial_reason is None and (doubt := self._doubt(window, asked, times)) is not None:
            if len(self.windows) > 1:
                raise ReadingSpoiled(doubt)
            self.serial_reason, self.is_changed = doubt, True
        own, kept = rows, rows
        if self.serial_reason is None and len(self.windows) > 1 and times:
            seconds = cast(list[int], times)
            start, end = self.asked_span(window)
            if not (window.start_s <= min(seconds[0], seconds[-1]) and max(seconds[0], seconds[-1]) < window.end_s):
                own = [row for row, at in zip(rows, seconds, strict=True) if window.start_s <= at < window.end_s]
                kept = [row for row, at in zip(rows, seconds, strict=True) if start <= at < end]
        window.rows += len(own)
        window.edge_rows += len(kept) - len(own)
        if kept:
            window.cursor, window.cursor_s = kept[-1].id, kept[-1].created
        if times and times[-1] is not None:
            window.frontier_s = times[-1]
        window.is_done = not has_more and asked[0] <= window.start_s and window.end_s <= asked[1]
        if window.is_done:
            self._spent += window.requests - (window.rows + window.edge_rows) // self.page_size
        return own

    def _doubt(self, window: PagedWindow, asked: tuple[int, int], times: list[int | None]) -> str | None:
        """Why a page shows that the list cannot be read in windows; None when it does not."""
        if None in times:
            return NOT_DATED
        if not times:
            return None
        seconds = cast(list[int], times)
        if self._newest_first is None and seconds[0] != seconds[-1]:
            self._newest_first = seconds[0] > seconds[-1]
        # Lists are nearly always in order, which makes this fast and gives both ends.
        ordered = sorted(seconds, reverse=self._newest_first is not False)
        low, high = min(ordered[0], ordered[-1]), max(ordered[0], ordered[-1])
        if not (asked[0] <= low and high < asked[1]):
            return NOT_FILTERED
        is_ordered = seconds == ordered
        if (before := window.cursor_s) is not None:
            if self._newest_first is None and before != seconds[0]:
                self._newest_first = before > seconds[0]
            is_ordered = is_ordered and (
                seconds[0] <= before if self._newest_first is not False else seconds[0] >= before
            )
        return None if is_ordered else NOT_ORDERED

    def steal(self) -> PagedWindow | None:
        """A new window for an idle slot: half of what the busiest one has left. None when there is nothing to take."""
        if self.serial_reason or self._newest_first is None or not self._can_afford():
            return None
        rows_left, window = max(
            ((self._left(each)[0], each) for each in self.windows if not each.is_done),
            key=lambda item: item[0],
            default=(0, self.windows[0]),
        )
        middle = self._middle(window)
        if rows_left < SPLIT_PAGES_MIN * self.page_size or middle is None:
            return None
        taken = (window.start_s, middle) if self._newest_first else (middle, window.end_s)
        stolen = PagedWindow(
            number=self._next_number(), start_s=taken[0], end_s=taken[1], density=self._density(window)
        )
        if self._newest_first:
            window.start_s = middle
        else:
            window.end_s = middle
        self.windows.append(stolen)
        self.is_changed = True
        return stolen

    def _can_afford(self) -> bool:
        active = sum(not each.is_done for each in self.windows)
        return self._spent + 2 * active + 2 <= 2 * self.windows_max

    def _next_number(self) -> int:
        return 1 + max(window.number for window in self.windows)

    def _density(self, window: PagedWindow) -> tuple[int, int]:
        seconds = window.end_s - window.start_s - self._left(window)[1]
        return (window.rows, seconds) if window.rows and seconds else window.density

    def _left(self, window: PagedWindow) -> tuple[int, int]:
        """Rows, by estimate, and seconds that the window has left."""
        if window.frontier_s is None:
            seconds = window.end_s - window.start_s
            return window.density[0] * seconds // window.density[1], seconds
        if self._newest_first is not False:
            seconds = min(window.end_s, window.frontier_s) - window.start_s
        else:
            seconds = window.end_s - max(window.start_s, window.frontier_s) - 1
        seconds = max(0, seconds)
        return window.rows * seconds // max(1, window.end_s - window.start_s - seconds), seconds

    def _middle(self, window: PagedWindow) -> int | None:
        """The second at which to cut what is left of the window; None when it has no second to spare."""
        low, high = window.start_s, window.end_s
        if window.frontier_s is not None and self._newest_first:
            high = min(high, window.frontier_s + 1)
        elif window.frontier_s is not None:
            low = max(low, window.frontier_s)
        middle = (low + high) // 2
        return middle if low < middle < high else None
