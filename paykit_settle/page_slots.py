"""Works on the windows of a plan side by side: each slot reads one window to its end, then takes another.

Which there are is planned in `paging.py`; how a page is read is the caller's.
"""

import asyncio
from collections.abc import Awaitable, Callable

from paykit_settle.errors import ProcessorError
from paykit_settle.paging import PagedWindow, PagePlan, ReadingSpoiled

ReadPage = Callable[[PagedWindow], Awaitable[None]]


async def read_windows(plan: PagePlan, read_page: ReadPage) -> None:
    """Read all windows of the plan to their ends, at most `windows_max` at once.

    Raises what reading a page raises, after the others were cancelled. `ReadingSpoiled` goes before any
    `ProcessorError`: whatever else was under way is discarded.
    """
    try:
        async with asyncio.TaskGroup() as group:
            _Slots(plan, read_page, group).start()
    except BaseExceptionGroup as failures:
        raise min(failures.exceptions, key=_rank) from None


def _rank(error: BaseException) -> int:
    return 2 if isinstance(error, ProcessorError) else 1 if isinstance(error, ReadingSpoiled) else 0


class _Slots:
    def __init__(self, plan: PagePlan, read_page: ReadPage, group: asyncio.TaskGroup) -> None:
        self._plan = plan
        self._read_page = read_page
        self._group = group
        self._idle = [window for window in plan.windows if not window.is_done]
        self._active = 0

    def start(self) -> None:
        """Give each free slot a window, as long as there are any."""
        while self._active < self._plan.windows_max and (window := self._next()) is not None:
            self._active += 1
            self._group.create_task(self._work(window))

    def _next(self) -> PagedWindow | None:
        return self._idle.pop() if self._idle else self._plan.steal()

    async def _work(self, first: PagedWindow) -> None:
        window: PagedWindow | None = first
        while window is not None:
            while not window.is_done:
                await self._read_page(window)
                self.start()
            window = self._next()
        self._active -= 1
