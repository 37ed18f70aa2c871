"""Reads one day of a run: the stored pages first, then the processor's, through several windows at once.

What is asked where is planned in `paging.py`. Every page that came is stored, also when another one failed, so that the
next attempt goes on from there.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import apsw

from paykit_settle.accumulator import Accumulator
from paykit_settle.client import ProcessorClient
from paykit_settle.errors import ProtocolError
from paykit_settle.lifecycle import Step
from paykit_settle.models import RollUp
from paykit_settle.page_buffer import PageBuffer
from paykit_settle.page_shape import AlikeRows
from paykit_settle.page_wire import Page, PageReader, decode_page
from paykit_settle.paging import PagedWindow, PagePlan, Rows
from paykit_settle.run import RunOptions
from paykit_settle.store.evidence import NewPage, PageKey, StoredPage, stored_pages, stored_windows
from paykit_settle.store.runs import Run
from paykit_settle.store.store import Store, clock_ms

SMALL_DAY_ROWS = 1_000
"""Rows of a day that is rolled up where it was read: another thread would take longer than the sums."""

AtStep = Callable[[Step], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PullProgress:
    """How far the pull of a run's own day is: `seconds_read` of the `seconds` of its window are behind it."""

    rows: int
    pages: int
    windows: int
    seconds_read: int
    seconds: int


OnProgress = Callable[[PullProgress], None]


class DayReader:
    """Reads one day, once. `note` is given each page's own rows, after they were added to the roll-up."""

    def __init__(
        self,
        client: ProcessorClient,
        store: Store,
        run: Run,
        day: Run,
        *,
        options: RunOptions,
        at_step: AtStep,
        on_progress: OnProgress | None = None,
    ) -> None:
        self._client = client
        self._store = store
        self._key = PageKey(run=run.number, pull=run.pull, period=day.date.isoformat())
        self._account = day.account
        self._page_size = options.page_size
        self._at_step = at_step
        self._on_progress = on_progress
        self._alike = AlikeRows()
        self._readers: dict[int, PageReader] = {}
        self._page_count = 0
        self._active = 0
        self._plan = PagePlan(
            start_s=day.window_start_s,
            end_s=day.window_end_s,
            page_size=options.page_size,
            windows_max=options.windows_max,
        )
        self._span = (day.window_start_s, day.window_end_s)
        self._buffer = PageBuffer(store, self._key, self._plan)

    async def read(self, into: Accumulator, note: Callable[[Rows], None]) -> RollUp:
        """The roll-up of every row of the day. Raises `RunRefused`, or a `ProcessorError` if it was not read whole."""

        def take(rows: Rows) -> None:
            into.add(rows)
            note(rows)

        await self._store.read(lambda connection: self._replay(connection, take))
        try:
            # Again, when a window was opened anew after its slot had gone: the processor had ignored a filter.
            while not self._plan.is_done:
                await self._read_windows(take)
        finally:
            await self._buffer.flush()
        self._buffer.check()
        self._plan.check_whole()
        if into.row_count <= SMALL_DAY_ROWS and not into.may_repeat():
            return into.finish(lambda: ())
        return await self._store.read(lambda connection: into.finish(lambda: self._stored_rows(connection)))

    async def _read_windows(self, take: Callable[[Rows], None]) -> None:
        idle = [window for window in self._plan.windows if not window.is_done]
        try:
            async with asyncio.TaskGroup() as group:
                self._start_slots(group, idle, take)
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None

    def _start_slots(self, group: asyncio.TaskGroup, idle: list[PagedWindow], take: Callable[[Rows], None]) -> None:
        while self._active < self._plan.windows_max and (window := self._next(idle)) is not None:
            self._active += 1
            group.create_task(self._work(group, idle, window, take))

    def _next(self, idle: list[PagedWindow]) -> PagedWindow | None:
        return idle.pop() if idle else self._plan.steal()

    async def _work(
        self,
        group: asyncio.TaskGroup,
        idle: list[PagedWindow],
        first: PagedWindow,
        take: Callable[[Rows], None],
    ) -> None:
        """One slot: reads a window to its end, then takes another, until there is none."""
        window: PagedWindow | None = first
        while window is not None:
            while not window.is_done:
                await self._read_page(window, take)
                self._start_slots(group, idle, take)
            window = self._next(idle)
        self._active -= 1

    async def _read_page(self, window: PagedWindow, take: Callable[[Rows], None]) -> None:
        asked, cursor = window.span, window.cursor
        reader = self._readers.get(window.number)
        if reader is None:
            reader = self._client.page_reader(pages_read=window.requests, alike=self._alike)
            self._readers[window.number] = reader
        page = await self._client.page(
            self._account, span=asked, page_size=self._page_size, after=cursor, reader=reader
        )
        own = self._plan.take(window, asked, page.rows, has_more=page.has_more)
        if own is None:
            self._readers.clear()  # the list is read on from an earlier row: its pages may end where others did
            return
        take(own)
        self._page_count += 1
        if self._page_count >= self._client.pages_max and not self._plan.is_done:
            raise ProtocolError(f"{self._page_count} pages are read and more follow, but that is the limit")
        await self._buffer.put(_new_page(page, window, self._page_count, cursor, len(own)))
        self._at_step(Step.PAGE_STORED)
        self._tell()

    def _tell(self) -> None:
        if self._on_progress is not None:
            plan = self._plan
            self._on_progress(
                PullProgress(
                    rows=sum(window.rows for window in plan.windows),
                    pages=self._page_count,
                    windows=len(plan.windows),
                    seconds_read=plan.seconds_read,
                    seconds=plan.end_s - plan.start_s,
                )
            )

    def _replay(self, connection: apsw.Connection, take: Callable[[Rows], None]) -> None:
        """Takes the stored pages in, and sets the plan to where they end."""
        plan, key = self._plan, self._key
        stored = [each for each in stored_windows(connection, key.run, key.pull) if each.period == key.period]
        if stored:
            plan.restore([(each.number, each.start_s, each.end_s) for each in stored], stored[0].serial_reason)
        windows = {window.number: window for window in plan.windows}
        for page, rows in self._stored(connection):
            take([row for row in rows if self._is_own(page.window_start_s, page.window_end_s, row.created)])
            self._page_count = page.number
            if page.window in windows:
                window = windows[page.window]
                # The last page of a window ends it only if the window is today what it was then: it may have taken
                # others' time back since.
                is_last = not page.has_more and (page.window_start_s, page.window_end_s) == window.span
                plan.take(window, self._span, rows, has_more=not is_last)

    def _stored_rows(self, connection: apsw.Connection) -> Iterator[Rows]:
        for page, rows in self._stored(connection):
            yield [row for row in rows if self._is_own(page.window_start_s, page.window_end_s, row.created)]

    def _stored(self, connection: apsw.Connection) -> Iterator[tuple[StoredPage, Rows]]:
        for page in stored_pages(connection, self._key.run, self._key.pull, self._key.period):
            if page.body is None:
                raise ProtocolError(f"stored page {page.number} was pruned and cannot be read again")
            yield page, decode_page(page.body, page.number).rows

    def _is_own(self, start_s: int, end_s: int, created: int | None) -> bool:
        # A row outside of the day is nobody else's: it is counted, and refuses the run.
        return created is None or start_s <= created < end_s or not self._span[0] <= created < self._span[1]


def _new_page(page: Page, window: PagedWindow, number: int, cursor: str | None, row_count: int) -> NewPage:
    return NewPage(
        number=number,
        window=window.number,
        cursor=cursor,
        last_id=window.cursor,
        row_count=row_count,
        has_more=page.has_more,
        window_start_s=window.start_s,
        window_end_s=window.end_s,
        body=page.body,
        received_at_ms=clock_ms(),
    )
