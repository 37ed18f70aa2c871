"""Pages on their way into the database: committed many at a time, in order, while the pull goes on.

Compression, digests and the commit happen in the writer's thread. A crash loses what waits here, at most
UNFLUSHED_PAGES_MAX pages or what came in the last BATCH_MS, and they are read again.
"""

import asyncio

from paykit_settle.page_wire import Page
from paykit_settle.paging import PagedWindow, PagePlan
from paykit_settle.store.evidence import NewPage, PageKey, Reading, StoredWindow, store_pages
from paykit_settle.store.store import Store, clock_ms

UNFLUSHED_PAGES_MAX = 128
"""Pages that may wait for their commit: what a crash at most makes us read again."""
BATCH_PAGES = 64
"""Pages that are committed as soon as so many have come: with fewer, commits take more time than they save."""
BATCH_MS = 100
"""How long a page waits for others at most, when they come slowly."""


class PageBuffer:
    """Stores the pages of one day. The windows go with them, as they are at that moment, whenever they have changed.

    So does what is noted of the reading: `note` puts it into the commit of the pages that came before.
    """

    def __init__(self, store: Store, key: PageKey, plan: PagePlan) -> None:
        self._store = store
        self._key = key
        self._plan = plan
        self._reading: Reading | None = None
        self._waiting: list[NewPage] = []
        self._writing: asyncio.Task[None] | None = None
        self._writing_count = 0
        self._error: BaseException | None = None
        self._timer: asyncio.TimerHandle | None = None

    def note(self, reading: Reading, plan: PagePlan) -> None:
        """Note how far the reading is, or that another one has begun, in windows of its own."""
        self._reading, self._plan = reading, plan

    def add(self, page: NewPage) -> None:
        """Take the page in, also where there is no room left for it."""
        self._waiting.append(page)

    async def put(self, page: NewPage) -> None:
        """Takes the page in, and returns when there is room for the next. Raises what an earlier commit raised."""
        self.add(page)
        self._write_soon()
        while len(self._waiting) + self._writing_count >= UNFLUSHED_PAGES_MAX and self._error is None:
            self._write()
            await self._written()
        self.check()

    async def flush(self) -> None:
        """Returns when everything is committed, or could not be: `check` tells."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._error is None and (self._waiting or self._writing or self._reading or self._plan.is_changed):
            self._write()
            await self._written()

    def check(self) -> None:
        """Raises what a commit raised."""
        if self._error is not None:
            raise self._error

    def _write_soon(self) -> None:
        if len(self._waiting) >= BATCH_PAGES:
            self._write()
        elif self._waiting and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(BATCH_MS / 1000, self._write_in_time)

    def _write_in_time(self) -> None:
        self._timer = None
        if self._waiting:
            self._write()

    def _write(self) -> None:
        if self._writing is None and self._error is None:
            pages, self._waiting = self._waiting, []
            self._writing_count = len(pages)
            windows = self._windows() if self._plan.is_changed else []
            self._plan.is_changed = False
            reading, self._reading = self._reading, None
            self._writing = asyncio.create_task(self._store_pages(pages, windows, reading))

    async def _store_pages(self, pages: list[NewPage], windows: list[StoredWindow], reading: Reading | None) -> None:
        try:
            await self._store.write(lambda connection: store_pages(connection, self._key, pages, windows, reading))
        except Exception as error:
            self._error = error
        finally:
            self._writing, self._writing_count = None, 0
            self._write_soon()

    async def _written(self) -> None:
        if self._writing is not None:
            await asyncio.wait((self._writing,))

    def _windows(self) -> list[StoredWindow]:
        return [
            StoredWindow(
                period=self._key.period,
                number=window.number,
                start_s=window.start_s,
                end_s=window.end_s,
                serial_reason=self._plan.serial_reason,
            )
            for window in self._plan.windows
        ]


def new_page(
    page: Page, window: PagedWindow, number: int, *, asked: tuple[int, int], cursor: str | None, row_count: int
) -> NewPage:
    """Return a page as it is stored: what was asked for it, and the window as it is now that it came."""
    return NewPage(
        number=number,
        window=window.number,
        cursor=cursor,
        last_id=window.cursor,
        row_count=row_count,
        has_more=page.has_more,
        window_start_s=window.start_s,
        window_end_s=window.end_s,
        asked_start_s=asked[0],
        asked_end_s=asked[1],
        body=page.body,
        received_at_ms=clock_ms(),
    )
