"""The pages of a run as they came: stored compressed and chained, read back in order, pruned to their ids.

Called inside the store's own units of work, so compression and hashing happen in the writer's thread, off the event
loop. What is here is never changed but by `prune`, and that keeps ids and digests.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import apsw
import msgspec

from paykit_settle.errors import StoreUnavailable
from paykit_settle.models import BalanceTransaction
from paykit_settle.page_wire import decode_page
from paykit_settle.store.packing import Packer, unpack, unpack_ids
from paykit_settle.store.queries import load_queries
from paykit_settle.store.rows import change, change_many, one, rows
from paykit_settle.store.runs import Run

_SQL = load_queries("runs.sql")

PAGES_AT_ONCE = 50
WHOLE, GIVEN_UP = "whole", "given up"


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

    Its own rows are those created in `[window_start_s, window_end_s)`, and those without a time. It was asked for
    `[asked_start_s, asked_end_s)`; None in files of versions that did not note it.
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

    @property
    def owned_span(self) -> tuple[int, int]:
        return self.window_start_s, self.window_end_s

    @property
    def asked_span(self) -> tuple[int, int]:
        if self.asked_start_s is None or self.asked_end_s is None:
            return self.owned_span
        return self.asked_start_s, self.asked_end_s


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
    asked_start_s: int | None = None
    asked_end_s: int | None = None
    body: bytes
    received_at_ms: int
    is_needed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One reading of a day: pages before `first_page` belong to one that was given up, and do not count.

    `outcome` is None while it is read, WHOLE or GIVEN_UP; the latter has a reason, and nothing of the day counts.
    """

    first_page: int
    began_at_ms: int
    outcome: str | None = None
    reason: str | None = None


def store_pages(
    connection: apsw.Connection,
    key: PageKey,
    pages: Sequence[NewPage],
    windows: Sequence[StoredWindow],
    reading: Reading | None = None,
) -> None:
    """Adds pages in the order of their numbers, and replaces the day's windows and its reading unless there are none.

    A page's digest is chained to the page before, so that none can be taken out or exchanged unseen.
    """
    list_of = {"run": key.run, "pull": key.pull, "period": key.period}
    if reading is not None:
        change(connection, _SQL["put_reading"], **list_of, **asdict(reading))
    if windows:
        change(connection, _SQL["forget_windows"], **list_of)
        change_many(connection, _SQL["insert_window"], [list_of | asdict(each) for each in windows])
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
            | msgspec.structs.asdict(page)
            | {
                "has_more": int(page.has_more),
                "is_needed": int(page.is_needed),
                "body": pack(page.body),
                "body_sha256": digest,
                "chain_sha256": before,
            }
        )
    change_many(connection, _SQL["insert_page"], new)


def stored_windows(connection: apsw.Connection, run: int, pull: int) -> list[StoredWindow]:
    """The windows of a pull, by day and time."""
    return [StoredWindow(**row) for row in rows(connection, _SQL["windows"], run=run, pull=pull)]


def stored_reading(connection: apsw.Connection, key: PageKey) -> Reading | None:
    """Return the reading of a day, None when none has begun or the pages are older than readings."""
    found = one(connection, _SQL["reading"], run=key.run, pull=key.pull, period=key.period)
    return None if found is None else Reading(**found)


def give_up_reading(connection: apsw.Connection, run: Run, period: str, reason: str) -> None:
    """Note that a day could not be read whole by a run's pull: nothing of it counts. Its pages stay."""
    key = PageKey(run=run.number, pull=run.pull, period=period)
    before = stored_reading(connection, key) or Reading(first_page=1, began_at_ms=run.pull_started_at_ms)
    given_up = Reading(first_page=before.first_page, began_at_ms=before.began_at_ms, outcome=GIVEN_UP, reason=reason)
    store_pages(connection, key, (), (), given_up)


def chain(before: str, digest: str) -> str:
    """The digest of a list up to this page: of the chain before it and of the page's own digest, as hex texts."""
    return hashlib.sha256(f"{before}{digest}".encode("ascii")).hexdigest()


def page_count(connection: apsw.Connection, key: PageKey) -> int:
    """Return how many pages of a day are stored, those that do not count included: the highest number."""
    found = one(connection, _SQL["page_count"], run=key.run, pull=key.pull, period=key.period)
    return found["number"] if found else 0


def stored_page(connection: apsw.Connection, run: int, pull: int, period: str, number: int) -> StoredPage:
    """One page, which must exist."""
    key = {"run": run, "pull": pull, "period": period}
    return _page(rows(connection, _SQL["pages"], **key, after=number - 1, limit=1)[0])


def counted_pages(connection: apsw.Connection, run: int, pull: int, period: str) -> Iterator[StoredPage]:
    """The pages of one day that count: not those of a reading that was begun anew, none of a day that was given up."""
    reading = stored_reading(connection, PageKey(run=run, pull=pull, period=period))
    if reading is None:
        return stored_pages(connection, run, pull, period)
    if reading.outcome == GIVEN_UP:
        return iter(())
    return stored_pages(connection, run, pull, period, first=reading.first_page)


def stored_pages(
    connection: apsw.Connection, run: int, pull: int, period: str, *, first: int = 1
) -> Iterator[StoredPage]:
    """All pages of one day of a pull from `first` on, in order, a few at a time: memory does not grow with the day."""
    key = {"run": run, "pull": pull, "period": period}
    number = first - 1
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
