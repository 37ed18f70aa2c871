"""The pages of a run as they came: stored compressed and chained, read back in order, pruned to their ids.

Called inside the store's own units of work, so compression and hashing happen in the writer's thread, off the event
loop. What is here is never changed but by `prune`, and that keeps ids and digests.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import apsw
import msgspec

from paykit_settle.errors import StoreUnavailable
from paykit_settle.models import BalanceTransaction
from paykit_settle.page_wire import decode_page
from paykit_settle.store.packing import Packer, unpack, unpack_ids
from paykit_settle.store.queries import load_queries

_SQL = load_queries("runs.sql")

PAGES_AT_ONCE = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class PageKey:
    """Which list of pages a page belongs to: of this run's pull, asked for this day."""

    run: int
    pull: int
    period: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredWindow:
    """A window that a day was read in, `[start_s, end_s)`; `serial_reason`: why the day has no more of them."""

    period: str
    number: int
    start_s: int
    end_s: int
    serial_reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPage:
    """One page of the evidence; `body` is None once it was pruned, and `available_ids` then says what it settled.

    Its own rows are those created in `[window_start_s, window_end_s)`, and those without a time.
    """

    number: int
    window: int
    cursor: str | None
    last_id: str | None
    row_count: int
    has_more: bool
    window_start_s: int
    window_end_s: int
    body: bytes | None
    available_ids: tuple[str, ...]
    body_sha256: str
    chain_sha256: str
    received_at_ms: int


class NewPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page to store: its window, the cursor it was asked with, its last own row's id, and its bytes."""

    number: int
    window: int
    cursor: str | None
    last_id: str | None
    row_count: int
    has_more: bool
    window_start_s: int
    window_end_s: int
    body: bytes
    received_at_ms: int


def store_pages(
    connection: apsw.Connection, key: PageKey, pages: Sequence[NewPage], windows: Sequence[StoredWindow]
) -> None:
    """Adds pages in the order of their numbers, and replaces the day's windows unless there are none.

    A page's digest is chained to the page before, so that none can be taken out or exchanged unseen.
    """
    list_of = (key.run, key.pull, key.period)
    if windows:
        connection.execute(_SQL["forget_windows"], list_of)
        rows = [(*list_of, each.number, each.start_s, each.end_s, each.serial_reason) for each in windows]
        connection.executemany(_SQL["insert_window"], rows)
    if not pages:
        return
    before = connection.execute(_SQL["last_chain"], (*list_of, pages[0].number - 1)).get or ""
    if not before and pages[0].number > 1:
        # Its own commit failed: without it these must not stand, or the next pull would go on behind a hole.
        raise StoreUnavailable(f"page {pages[0].number} cannot be stored: the page before it was not")
    pack = Packer().pack
    rows_of_pages = []
    for page in pages:
        digest = hashlib.sha256(page.body).hexdigest()
        before = chain(before, digest)
        rows_of_pages.append(
            (
                *list_of,
                page.number,
                page.window,
                page.cursor,
                page.last_id,
                page.row_count,
                int(page.has_more),
                page.window_start_s,
                page.window_end_s,
                pack(page.body),
                digest,
                before,
                page.received_at_ms,
            )
        )
    connection.executemany(_SQL["insert_page"], rows_of_pages)


def stored_windows(connection: apsw.Connection, run: int, pull: int) -> list[StoredWindow]:
    """The windows of a pull, by day and time."""
    rows = connection.execute(_SQL["windows"], (run, pull))
    return [
        StoredWindow(period=period, number=number, start_s=start_s, end_s=end_s, serial_reason=reason)
        for period, number, start_s, end_s, reason in rows
    ]


def chain(before: str, digest: str) -> str:
    """The digest of a list up to this page: of the chain before it and of the page's own digest, as hex texts."""
    return hashlib.sha256(f"{before}{digest}".encode("ascii")).hexdigest()


def stored_page(connection: apsw.Connection, run: int, pull: int, period: str, number: int) -> StoredPage:
    """One page, which must exist."""
    return _page(connection.execute(_SQL["pages"], (run, pull, period, number - 1, 1)).fetchall()[0])


def stored_pages(connection: apsw.Connection, run: int, pull: int, period: str) -> Iterator[StoredPage]:
    """The pages of one day of a pull, in order, a few at a time: memory does not grow with the day."""
    number = 0
    while True:
        rows: list[Any] = connection.execute(_SQL["pages"], (run, pull, period, number, PAGES_AT_ONCE)).fetchall()
        for row in rows:
            yield _page(row)
        if len(rows) < PAGES_AT_ONCE:
            return
        number = rows[-1][3]


def own_rows(page: StoredPage) -> list[BalanceTransaction]:
    """The rows that this page, and no other, counts; empty once it was pruned."""
    rows = [] if page.body is None else decode_page(page.body, page.number).rows
    return [row for row in rows if row.created is None or page.window_start_s <= row.created < page.window_end_s]


def evidence_digest(connection: apsw.Connection, run: int, pull: int) -> str:
    """One digest for all pages of a pull: of each day's chain, in order of day."""
    pages = connection.execute(_SQL["page_digests"], (run, pull))
    ends = {period: chained for period, _, _, _, chained, *_ in pages}  # the last of each day
    return hashlib.sha256(json.dumps(sorted(ends.items())).encode("ascii")).hexdigest()


def _page(row: tuple[Any, ...]) -> StoredPage:
    number, window, cursor, last_id, row_count, has_more, start_s, end_s, body, ids, digest, chained, at_ms = row[3:]
    return StoredPage(
        number=number,
        window=window,
        cursor=cursor,
        last_id=last_id,
        row_count=row_count,
        has_more=bool(has_more),
        window_start_s=start_s,
        window_end_s=end_s,
        body=None if body is None else unpack(body),
        available_ids=() if ids is None else unpack_ids(ids),
        body_sha256=digest,
        chain_sha256=chained,
        received_at_ms=at_ms,
    )
