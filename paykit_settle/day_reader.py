"""Reads one day of a run: the stored pages first, then the processor's, through several windows at once.

What is asked where is planned in `paging.py`. Every page that came is stored, also when another one failed, so that the
next attempt goes on from there. A reading that cannot be trusted to be whole is given up, once, and the day is read
anew as one list. At its end every id that stands on one of its pages has been counted.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

import apsw
import msgspec

from paykit_settle.client import ProcessorClient
from paykit_settle.errors import InvariantViolated, ProtocolError
from paykit_settle.filter_check import refuse_unless_filtered
from paykit_settle.id_hashes import IdHashes
from paykit_settle.lifecycle import Step
from paykit_settle.models import BalanceTransaction
from paykit_settle.page_buffer import PageBuffer, new_page
from paykit_settle.page_shape import AlikeRows
from paykit_settle.page_slots import read_windows
from paykit_settle.page_wire import PageReader, decode_page
from paykit_settle.paging import NOT_COUNTED, NOT_FILTERED, OTHER_SPAN, PagedWindow, PagePlan, ReadingSpoiled, Rows
from paykit_settle.run import RunOptions
from paykit_settle.store.evidence import (
    GIVEN_UP,
    WHOLE,
    PageKey,
    Reading,
    StoredPage,
    page_count,
    stored_pages,
    stored_reading,
    stored_windows,
)
from paykit_settle.store.runs import Run
from paykit_settle.store.store import Store, clock_ms

SMALL_DAY_PAGES = 10
"""Pages of a day that is checked where it was read: another thread would take longer than the checks."""

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


class RowSink(Protocol):
    """What the rows of a day go into, page by page, each row once but for repeats that the processor sends."""

    def add(self, rows: Rows) -> bool:
        """Take the rows of a page in, and return whether the page's bytes are needed later."""
        ...


SinkT = TypeVar("SinkT", bound=RowSink)


@dataclass(frozen=True, slots=True, kw_only=True)
class DayRead(Generic[SinkT]):
    """A day that was read whole.

    `sink` has all of its rows. `page_count` counts the pages that count; the reading began at `began_at_ms`.
    `is_unusual`: it was read as one list for a reason (`serial_reason`), or an id came twice.
    """

    sink: SinkT
    page_count: int
    began_at_ms: int
    is_unusual: bool
    serial_reason: str | None


class DayReader:
    """Reads one day, once. `span` is read instead of the day's own, in unix seconds."""

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
        span: tuple[int, int] | None = None,
    ) -> None:
        self._client = client
        self._store = store
        self._key = PageKey(run=run.number, pull=run.pull, period=day.date.isoformat())
        self._account = day.account
        self._options = options
        self._at_step = at_step
        self._on_progress = on_progress
        self._alike = AlikeRows()
        self._span = span or (day.window_start_s, day.window_end_s)
        self._plan = PagePlan(
            start_s=self._span[0],
            end_s=self._span[1],
            page_size=options.page_size,
            windows_max=options.windows_max,
        )
        self._buffer = PageBuffer(store, self._key, self._plan)
        self._reading = Reading(first_page=1, began_at_ms=clock_ms())
        self._page_count = 0
        self._start_over()

    def _start_over(self) -> None:
        self._readers: dict[int, PageReader] = {}
        self._counted, self._cut = IdHashes(), IdHashes()
        self._is_dated = True

    async def read(self, make_sink: Callable[[], SinkT]) -> DayRead[SinkT]:
        """Return the sink that every row of the day went into; `make_sink` is called anew for each reading.

        Raises a `ProcessorError` if the day could not be read whole, `RunRefused` if it has rows without `created` and
        the processor does not filter by it, `InvariantViolated` if a row was lost on the way.
        """
        try:
            sink, plan = make_sink(), self._plan
            try:
                await self._store.read(lambda connection: self._replay(connection, sink))
                await self._read_whole(sink)
            except ReadingSpoiled as spoiled:
                if self._plan is plan:
                    self._begin_anew(str(spoiled))
                sink = make_sink()
                await self._read_whole(sink)
            if self._reading.outcome is None:
                await self._check_filter()
                self._reading = replace(self._reading, outcome=WHOLE)
                self._buffer.note(self._reading, self._plan)
        finally:
            await self._buffer.flush()
        self._buffer.check()
        reason = self._plan.serial_reason
        return DayRead(
            sink=sink,
            page_count=self._pages_read,
            began_at_ms=self._reading.began_at_ms,
            is_unusual=reason is not None or await self._off_loop(lambda: bool(self._counted.repeated())),
            serial_reason=reason,
        )

    def stored_rows(self, connection: apsw.Connection) -> Iterator[Rows]:
        """Return the rows that were counted, once more, from the stored pages."""
        for page, rows in self._stored(connection):
            yield self._split(rows, page.owned_span)[0]

    @property
    def _pages_read(self) -> int:
        return self._page_count - self._reading.first_page + 1

    async def _read_whole(self, sink: RowSink) -> None:
        plan = self._plan
        await read_windows(plan, lambda window: self._read_page(plan, window, sink))
        plan.check_whole()
        if await self._off_loop(lambda: self._counted.lacks_any(self._cut)):
            if len(plan.windows) > 1:
                raise ReadingSpoiled(NOT_COUNTED)
            raise InvariantViolated(f"a row of {self._key.period} stands on a page and was not counted")

    async def _check_filter(self) -> None:
        """`RunRefused` when rows without `created` may be of other days, unless the settings accept them."""
        if not self._is_dated and self._options.rows_without_created != "accept":
            page_size = self._options.page_size
            await refuse_unless_filtered(
                self._client, self._account, self._span, page_size=page_size, is_own=self._counted.__contains__
            )

    async def _off_loop(self, check: Callable[[], bool]) -> bool:
        """The check's result; of a large day from another thread."""
        if self._pages_read <= SMALL_DAY_PAGES:
            return check()
        return await self._store.read(lambda _connection: check())

    def _begin_anew(self, reason: str) -> None:
        """Gives the reading up; the day is read as one list from its first row. Commits with the pages that came."""
        self._plan = self._plan.anew(reason)
        self._reading = Reading(first_page=self._page_count + 1, began_at_ms=clock_ms())
        self._buffer.note(self._reading, self._plan)
        self._start_over()

    async def _read_page(self, plan: PagePlan, window: PagedWindow, sink: RowSink) -> None:
        self._check_current(plan)
        asked, cursor = plan.asked_span(window), window.cursor
        reader = self._readers.get(window.number)
        if reader is None:
            reader = self._client.page_reader(pages_read=window.requests, alike=self._alike)
            self._readers[window.number] = reader
        page = await self._client.page(
            self._account, span=asked, page_size=self._options.page_size, after=cursor, reader=reader
        )
        self._check_current(plan)
        self._page_count += 1
        try:
            own = plan.take(window, asked, page.rows, has_more=page.has_more)
        except ReadingSpoiled as spoiled:
            # In one commit with the page that shows it: nobody can go on with this reading.
            self._buffer.add(new_page(page, window, self._page_count, asked=asked, cursor=cursor, row_count=0))
            self._begin_anew(str(spoiled))
            raise
        if page.has_more and window.cursor != page.rows[-1].id:
            del self._readers[window.number]  # it goes on from an earlier row, and may come by this one again
        is_needed = self._take(own, page.rows, window.span, sink)
        if self._pages_read >= self._client.pages_max and not plan.is_done:
            raise ProtocolError(f"{self._pages_read} pages are read and more follow, but that is the limit")
        kept = new_page(page, window, self._page_count, asked=asked, cursor=cursor, row_count=len(own))
        await self._buffer.put(kept if is_needed else msgspec.structs.replace(kept, is_needed=False))
        self._at_step(Step.PAGE_STORED)
        self._tell()

    def _check_current(self, plan: PagePlan) -> None:
        """`ReadingSpoiled` when another window has ended this reading meanwhile: whatever comes is discarded."""
        if plan is not self._plan:
            raise ReadingSpoiled

    def _take(self, own: Rows, rows: Rows, span: tuple[int, int], sink: RowSink) -> bool:
        """Counts the rows that are a page's own, and remembers the others: somebody must have counted them."""
        self._counted.add([row.id for row in own])
        if self._plan.serial_reason is not None:  # as it is from the first row without created on
            self._is_dated = self._is_dated and all(row.created is not None for row in own)
        if len(own) < len(rows):
            self._cut.add([row.id for row in self._split(rows, span)[1]])
        return sink.add(own)

    def _tell(self) -> None:
        if self._on_progress is not None:
            plan = self._plan
            self._on_progress(
                PullProgress(
                    rows=sum(window.rows for window in plan.windows),
                    pages=self._pages_read,
                    windows=len(plan.windows),
                    seconds_read=plan.seconds_read,
                    seconds=plan.end_s - plan.start_s,
                )
            )

    def _replay(self, connection: apsw.Connection, sink: RowSink) -> None:
        """Takes the stored pages in, and sets the plan to where they end."""
        plan, key = self._plan, self._key
        reading = stored_reading(connection, key)
        if reading is None:
            self._buffer.note(self._reading, plan)
        else:
            # A day that was given up is tried once more.
            self._reading = replace(reading, outcome=None, reason=None) if reading.outcome == GIVEN_UP else reading
        self._page_count = page_count(connection, key)
        stored = [each for each in stored_windows(connection, key.run, key.pull) if each.period == key.period]
        if stored:
            plan.restore([(each.number, each.start_s, each.end_s) for each in stored], stored[0].serial_reason)
        windows = {window.number: window for window in plan.windows}
        if not plan.is_tiled:
            raise ReadingSpoiled(OTHER_SPAN)
        for page, rows in self._stored(connection):
            window = windows.get(page.window)
            asked = page.asked_span
            if window is None or (plan.serial_reason is not None and asked != self._span):
                # As an older version read on where a processor does not filter: with cursors of windows.
                raise ReadingSpoiled(plan.serial_reason or NOT_FILTERED)
            self._take(self._split(rows, page.owned_span)[0], rows, page.owned_span, sink)
            is_last = not page.has_more and asked[0] <= window.start_s and window.end_s <= asked[1]
            # An older version did not note what it asked for, but it was never more than the day.
            plan.take(window, self._span if page.asked_start_s is None else asked, rows, has_more=not is_last)

    def _stored(self, connection: apsw.Connection) -> Iterator[tuple[StoredPage, Rows]]:
        key = self._key
        for page in stored_pages(connection, key.run, key.pull, key.period, first=self._reading.first_page):
            if page.body is None:
                raise ProtocolError(f"stored page {page.number} was pruned and cannot be read again")
            yield page, decode_page(page.body, page.number).rows

    def _split(self, rows: Rows, span: tuple[int, int]) -> tuple[Rows, Rows]:
        """The rows of a page that owns this span: those that are its own, and those that others count."""
        (start, end), (first, last) = span, self._span
        own: list[BalanceTransaction] = []
        others: list[BalanceTransaction] = []
        for row in rows:
            # A row outside of the day is nobody else's: it is counted, and refuses the run.
            is_own = row.created is None or start <= row.created < end or not first <= row.created < last
            (own if is_own else others).append(row)
        return own, others
