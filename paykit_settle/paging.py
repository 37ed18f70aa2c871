"""The windows of a pull: a span of time cut into tiles that are paged side by side. Pure: it plans, others fetch.

It starts with one page of the whole span. While more follow, an idle slot takes half of what the busiest window has
left. Windows are half open on whole seconds and tile the span at every moment, so a row belongs to exactly one of them,
in whatever order the processor lists. Where that cannot be, there is one window, and `serial_reason` says why.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from paykit_settle.errors import InvariantViolated
from paykit_settle.models import BalanceTransaction

Rows = Sequence[BalanceTransaction]
SPLIT_PAGES_MIN = 2
"""Pages that a window must have left, by estimate, before it is split."""


@dataclass(slots=True, kw_only=True, eq=False)
class PagedWindow:
    """`[start_s, end_s)` in unix seconds, and how far its list has been read.

    `frontier_s` is when the last row read was created; `requests` and `rows` count what was asked and what is its own.
    `density` is rows by seconds where it was taken from, for a guess before its own first page.
    """

    number: int
    start_s: int
    end_s: int
    cursor: str | None = None
    frontier_s: int | None = None
    requests: int = 0
    rows: int = 0
    is_done: bool = False
    is_dropped: bool = False
    density: tuple[int, int] = (0, 1)

    @property
    def span(self) -> tuple[int, int]:
        return self.start_s, self.end_s


@dataclass(slots=True, kw_only=True)
class PagePlan:
    """The windows of one list. At most `windows_max` are worked on at once; `page_size` rows are asked for at a time.

    Over all windows there are at most `ceil(rows / page_size) + 2 × windows_max` requests, if pages come full: a window
    costs at most two that are not (its last, and one to see that nothing is left where another took over), and a split
    that could exceed this is not made.
    """

    start_s: int
    end_s: int
    page_size: int
    windows_max: int
    windows: list[PagedWindow] = field(default_factory=list, init=False)
    serial_reason: str | None = None
    is_changed: bool = True
    _newest_first: bool | None = None
    _spent: int = 0

    def __post_init__(self) -> None:
        self.windows.append(PagedWindow(number=0, start_s=self.start_s, end_s=self.end_s))

    def restore(self, windows: Sequence[tuple[int, int, int]], serial_reason: str | None) -> None:
        """Goes on with windows (number, start, end) of an earlier attempt; then `take` their pages again, in order."""
        self.windows[:] = [PagedWindow(number=number, start_s=start, end_s=end) for number, start, end in windows]
        self.windows.sort(key=lambda window: window.number)
        self.serial_reason, self.is_changed = serial_reason, False

    @property
    def is_done(self) -> bool:
        return all(window.is_done for window in self.windows)

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

    def take(self, window: PagedWindow, asked: tuple[int, int], rows: Rows, *, has_more: bool) -> Rows | None:
        """Notes a page that came for the window, and gives the rows of it that are the window's own.

        Rows beyond an end that moved while the page was under way are its new owner's. None: the page does not count,
        because the processor sent rows that were not asked for; the list is then read on as one.
        """
        if window.is_dropped:
            return None
        window.requests += 1
        times = [row.created for row in rows]
        own: Rows = rows
        if None in times:
            self._go_serial("rows without created")
        elif times:
            seconds = cast(list[int], times)
            if self._newest_first is None and seconds[0] != seconds[-1]:
                self._newest_first = seconds[0] > seconds[-1]
            # Lists are nearly always in order, which makes this fast and gives both ends.
            ordered = sorted(seconds, reverse=self._newest_first is not False)
            low, high = min(ordered[0], ordered[-1]), max(ordered[0], ordered[-1])
            if len(self.windows) > 1 and not (asked[0] <= low and high < asked[1]):
                self._drop_windows("the processor does not filter by created")
                return None
            self._note_order(window, seconds, is_ordered=seconds == ordered)
            if len(self.windows) > 1 and not (window.start_s <= low and high < window.end_s):
                own = [row for row, at in zip(rows, seconds, strict=True) if window.start_s <= at < window.end_s]
        window.rows += len(own)
        window.cursor = own[-1].id if own else window.cursor
        window.is_done = not has_more
        if window.is_done:
            self._spent += window.requests - window.rows // self.page_size
        return own

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
        stolen = PagedWindow(number=len(self.windows), start_s=taken[0], end_s=taken[1], density=self._density(window))
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

    def _note_order(self, window: PagedWindow, times: list[int], *, is_ordered: bool) -> None:
        before, newest_first = window.frontier_s, self._newest_first
        if before is not None:
            if newest_first is None and before != times[0]:
                newest_first = self._newest_first = before > times[0]
            is_ordered = is_ordered and (times[0] <= before if newest_first is not False else times[0] >= before)
        if not is_ordered:
            self._go_serial("rows in no order of created")
        window.frontier_s = times[-1]

    def _go_serial(self, reason: str) -> None:
        """No window is split any more; those that exist are read to their ends."""
        if self.serial_reason is None:
            self.serial_reason = reason
            self.is_changed = True

    def _drop_windows(self, reason: str) -> None:
        """The first window takes all of the span back: its list was never filtered, so its cursor still holds."""
        self._go_serial(reason)
        first, *others = self.windows
        for other in others:
            other.is_dropped = other.is_done = True
        first.start_s, first.end_s, first.is_done = self.start_s, self.end_s, False
        self.windows[:] = [first]
        self.is_changed = True

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
