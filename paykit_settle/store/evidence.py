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
from paykit_settle.store.rows import change, change_many, one, rows

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
    asked_start_s: int | None = None
    asked_end_s: int | None = None
    is_needed: bool = True


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
    list_of = {"run": key.run, "pull": key.pull, "period": key.period}
    if windows:
        change(connection, _SQL["forget_windows"], **list_of)
        change_many(
            connection,
            _SQL["insert_window"],
            [
                list_of
                | {
                    "number": each.number,
                    "start_s": each.start_s,
                    "end_s": each.end_s,
                    "serial_reason": each.serial_reason,
                }
                for each in windows
            ],
        )
    if not pages:
        return
    last = one(connection, _SQL["last_chain"], **list_of, number=pages[0].number - 1)
    before = last["chain_sha256"] if last else ""
    if not before and pages[0].number > 1:
        # Its own commit failed: without it these must not stand, or the next pull would go on behind a hole.
        raise StoreUnavailable(f"page {pages[0].number} cannot be stored: the page before it was not")
    pack = Packer().pack
    new = []
    for page in pages:
        digest = hashlib.sha256(page.body).hexdigest()
        before = chain(before, digest)
        new.append(
            list_of
            | {
                "number": page.number,
                "window": page.window,
                "cursor": page.cursor,
                "last_id": page.last_id,
                "row_count": page.row_count,
                "has_more": int(page.has_more),
                "window_start_s": page.window_start_s,
                "window_end_s": page.window_end_s,
                "body": pack(page.body),
                "body_sha256": digest,
                "chain_sha256": before,
                "received_at_ms": page.received_at_ms,
            }
        )
    change_many(connection, _SQL["insert_page"], new)


def stored_windows(connection: apsw.Connection, run: int, pull: int) -> list[StoredWindow]:
    """The windows of a pull, by day and time."""
    return [StoredWindow(**row) for row in rows(connection, _SQL["windows"], run=run, pull=pull)]


def chain(before: str, digest: str) -> str:
    """The digest of a list up to this page: of the chain before it and of the page's own digest, as hex texts."""
    return hashlib.sha256(f"{before}{digest}".encode("ascii")).hexdigest()


def stored_page(connection: apsw.Connection, run: int, pull: int, period: str, number: int) -> StoredPage:
    """One page, which must exist."""
    key = {"run": run, "pull": pull, "period": period}
    return _page(rows(connection, _SQL["pages"], **key, after=number - 1, limit=1)[0])


def stored_pages(connection: apsw.Connection, run: int, pull: int, period: str) -> Iterator[StoredPage]:
    """The pages of one day of a pull, in order, a few at a time: memory does not grow with the day."""
    key = {"run": run, "pull": pull, "period": period}
    number = 0
    while True:
        found = rows(connection, _SQL["pages"], **key, after=number, limit=PAGES_AT_ONCE)
        for row in found:
            yield _page(row)
        if len(found) < PAGES_AT_ONCE:
            return
        number = found[-1]["number"]


def own_rows(page: StoredPage) -> list[BalanceTransaction]:
    """The rows that this page, and no other, counts; empty once it was pruned."""
    found = [] if page.body is None else decode_page(page.body, page.number).rows
    return [row for row in found if row.created is None or page.window_start_s <= row.created < page.window_end_s]


def evidence_digest(connection: apsw.Connection, run: int, pull: int) -> str:
    """One digest for all that a pull read: of each day's chain, in order of day, and of the rows asked for by id."""
    pages = rows(connection, _SQL["page_digests"], run=run, pull=pull)
    ends = {page["period"]: page["chain_sha256"] for page in pages}  # the last of each day
    parts = sorted(ends.items())
    answers = rows(connection, _SQL["row_answer_digests"], run=run, pull=pull)
    if answers:
        lines = "".join(f"{answer['transaction_id']}:{answer['body_sha256']}\n" for answer in answers)
        parts.append(("rows", hashlib.sha256(lines.encode()).hexdigest()))
    return hashlib.sha256(json.dumps(parts).encode("ascii")).hexdigest()


def _page(row: dict[str, Any]) -> StoredPage:
    del row["period"]
    body, ids = row["body"], row["available_ids"]
    return StoredPage(
        **row
        | {
            "has_more": bool(row["has_more"]),
            "is_needed": bool(row["is_needed"]),
            "body": None if body is None else unpack(body),
            "available_ids": () if ids is None else unpack_ids(ids),
        }
    )
