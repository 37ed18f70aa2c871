"""Pages on their way into the database: committed a few at a time, in order, while the pull goes on.

Compression, digests and the commit happen in the writer's thread. A crash loses what waits here, at most
UNFLUSHED_PAGES_MAX pages, and they are read again.
"""

import asyncio

from paykit_settle.paging import PagePlan
from paykit_settle.store.evidence import NewPage, PageKey, StoredWindow, store_pages
from paykit_settle.store.store import Store

UNFLUSHED_PAGES_MAX = 32
"""Pages that may wait for their commit: what a crash at most makes us read again."""
BATCH_PAGES = 16


class PageBuffer:
    """Stores the pages of one day. The windows go with them, as they are at that moment, whenever they have changed."""

    def __init__(self, store: Store, key: PageKey, plan: PagePlan) -> None:
        self._store = store
        self._key = key
        self._plan = plan
        self._waiting: list[NewPage] = []
        self._writing: asyncio.Task[None] | None = None
        self._writing_count = 0
        self._error: BaseException | None = None

    async def put(self, page: NewPage) -> None:
        """Takes the page in, and returns when there is room for the next. Raises what an earlier commit raised."""
        self._waiting.append(page)
        if len(self._waiting) >= BATCH_PAGES:
            self._write()
        while len(self._waiting) + self._writing_count >= UNFLUSHED_PAGES_MAX and self._error is None:
            self._write()
            await self._written()
        self.check()

    async def flush(self) -> None:
        """Returns when everything is committed, or could not be: `check` tells."""
        while self._error is None and (self._waiting or self._writing or self._plan.is_changed):
            self._write()
            await self._written()

    def check(self) -> None:
        """Raises what a commit raised."""
        if self._error is not None:
            raise self._error

    def _write(self) -> None:
        if self._writing is None and self._error is None:
            pages, self._waiting = self._waiting, []
            self._writing_count = len(pages)
            windows = self._windows() if self._plan.is_changed else []
            self._plan.is_changed = False
            self._writing = asyncio.create_task(self._store_pages(pages, windows))

    async def _store_pages(self, pages: list[NewPage], windows: list[StoredWindow]) -> None:
        try:
            await self._store.write(lambda connection: store_pages(connection, self._key, pages, windows))
        except Exception as error:
            self._error = error
        finally:
            self._writing, self._writing_count = None, 0
            if len(self._waiting) >= BATCH_PAGES:
                self._write()

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
