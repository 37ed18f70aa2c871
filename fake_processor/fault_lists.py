"""An account's rows as an odd processor shows them: its filter, its order, its pages, and single rows of them.

The data stay as they are: a fault shows them in another way as long as it lasts. What one request sees the next one
sees too, so that cursors mean the same place in whatever order there is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from fake_processor.dice import mix
from fake_processor.faults import Fired
from fake_processor.generated_listing import GeneratedListing
from fake_processor.listing import Listing, Page, PageQuery, Row, place
from fake_processor.wire import invalid

ORDERED_ROWS_MAX = 1_000_000
PICKED_FROM_MAX = 1_000
KEPT_MAX = 4  # orders and changed listings, for the pages to come

OF_ONE_ROW = ("row_moves", "row_vanishes", "row_amended")

AnyListing = Listing | GeneratedListing


@dataclass(frozen=True, slots=True, kw_only=True)
class OddListing:
    """A listing as the faults show it, in the order in which they were set."""

    listing: AnyListing
    faults: list[Fired]

    def page(self, query: PageQuery) -> Page:
        """The page that the faults make of it. Refusal: 400 for a cursor that names no row that is shown."""
        listing = self._changed(query)
        for fault in self.faults:
            query = _asked(query, fault)
        order = next((fault for fault in reversed(self.faults) if fault.name == "list_order"), None)
        page = listing.page(query) if order is None else _ordered_page(listing, query, order)
        if any(fault.name == "created_missing" for fault in self.faults):
            page = Page(rows=[self._stripped(row) for row in page.rows], has_more=page.has_more)
        return page

    def find(self, row_id: str) -> Row | None:
        """The row of that id as it is shown, or None."""
        listing = self._changed(None)
        row = listing.find(row_id)
        if row is None:
            return None
        for fault in self.faults:
            if fault.name == "other_row":
                row = _beside(listing, row, keep_id=bool(fault.number("keep_id")))
        return self._stripped(row)

    def _changed(self, query: PageQuery | None) -> AnyListing:
        listing = self.listing
        for fault in self.faults:
            if fault.name in OF_ONE_ROW and (row_id := _row_of(fault, self.listing, query)):
                by = 0
                if fault.name != "row_vanishes":
                    by = fault.number("by_s" if fault.name == "row_moves" else "by")
                listing = _changed(listing, fault.name, row_id, by)
        return listing

    def _stripped(self, row: Row) -> Row:
        for fault in self.faults:
            if fault.name == "created_missing" and _draw(fault.rule.seed, row) % fault.number("every") == 0:
                return {name: value for name, value in row.items() if name != "created"}
        return row


def _asked(query: PageQuery, fault: Fired) -> PageQuery:
    """What the fault takes the question for."""
    match fault.name:
        case "filter_ignored":
            return _bounds_changed(query, fault.text("bound"), start=lambda _: None, end=lambda _: None)
        case "filter_off_by_one":
            step = 1 if fault.text("side") == "inner" else -1
            return _bounds_changed(query, fault.text("bound"), start=lambda s: s + step, end=lambda s: s - step)
        case "created_missing" if fault.number("unfiltered"):
            return query._replace(start_s=None, end_s=None)
        case "page_short":
            return query._replace(limit=min(query.limit, fault.number("rows")))
        case _:
            return query


def _bounds_changed(
    query: PageQuery, bound: str, *, start: Callable[[int], int | None], end: Callable[[int], int | None]
) -> PageQuery:
    if bound != "lt" and query.start_s is not None:
        query = query._replace(start_s=start(query.start_s))
    if bound != "gte" and query.end_s is not None:
        query = query._replace(end_s=end(query.end_s))
    return query


def _row_of(fault: Fired, listing: AnyListing, query: PageQuery | None) -> str:
    """The row that a fault is about: the named one, else one of the first list that it hits, and that one from then on.

    Empty when there is none yet: a row asked for by its id is no list.
    """
    rule = fault.rule
    if not (fault.text("id") or rule.picked or query is None):
        rows = listing.page(query._replace(limit=PICKED_FROM_MAX, starting_after=None, ending_before=None)).rows
        picked = min(rows, key=lambda row: _draw(rule.seed, row), default=None)
        rule.picked = "" if picked is None else str(picked.get("id"))
    return fault.text("id") or rule.picked


# The same listing for all pages, so that what is kept of its order is found again.
@lru_cache(maxsize=KEPT_MAX)
def _changed(listing: AnyListing, name: str, row_id: str, by: int) -> AnyListing:
    row = listing.find(row_id)
    if row is None:
        return listing
    if name == "row_vanishes":
        return listing.replace(row_id, None)
    members = ("created",) if name == "row_moves" else ("amount", "net")
    found = {member: row.get(member) for member in members}
    return listing.replace(row_id, {member: value + by for member, value in found.items() if type(value) is int})


def _beside(listing: AnyListing, row: Row, *, keep_id: bool) -> Row:
    """The next older row, or the next newer one; the row itself where it is the only one."""
    row_id = str(row.get("id"))
    older = listing.page(PageQuery(limit=1, starting_after=row_id)).rows
    beside = (older or listing.page(PageQuery(limit=1, ending_before=row_id)).rows or [row])[0]
    return {**beside, "id": row.get("id")} if keep_id else beside


class _Ordered(NamedTuple):
    rows: list[Row]
    positions: dict[str, int]


def _ordered_page(listing: AnyListing, query: PageQuery, fault: Fired) -> Page:
    order, seed = fault.text("order"), fault.rule.seed
    window = query._replace(limit=ORDERED_ROWS_MAX, starting_after=None, ending_before=None)
    rows, positions = _ordered(listing, window, order, seed)
    param = "starting_after" if query.starting_after is not None else "ending_before"
    cursor = query.starting_after or query.ending_before
    low, high = 0, len(rows)
    if cursor is not None:
        at = positions.get(cursor)
        if at is None:
            # A cursor may lie outside of what is asked for: then it stands where it would be listed.
            outside = listing.find(cursor)
            if outside is None:
                raise invalid(f"No such balance transaction: '{cursor}'", param=param, code="resource_missing")
            rows = _in_order([*rows, outside], order, seed)
            at, high = rows.index(outside), len(rows)
        low, high = (at + 1, high) if query.starting_after is not None else (0, at)
    if query.ending_before is not None:
        return Page(rows=rows[max(low, high - query.limit) : high], has_more=high - low > query.limit)
    return Page(rows=rows[low : min(high, low + query.limit)], has_more=high - low > query.limit)


@lru_cache(maxsize=KEPT_MAX)
def _ordered(listing: AnyListing, window: PageQuery, order: str, seed: int) -> _Ordered:
    page = listing.page(window)
    if page.has_more:
        raise ValueError(f"list_order orders {ORDERED_ROWS_MAX} rows at most")
    rows = _in_order(page.rows, order, seed)
    return _Ordered(rows, {str(row.get("id")): position for position, row in enumerate(rows)})


def _in_order(rows: list[Row], order: str, seed: int) -> list[Row]:
    newest_first = sorted(rows, key=place)
    match order:
        case "shuffled":
            return sorted(newest_first, key=lambda row: _draw(seed, row))
        case "oldest_first":
            return newest_first[::-1]
        case "ties":
            return sorted(newest_first, key=lambda row: (*place(row)[:2], _draw(seed, row)))
        case _:
            return _nearly(newest_first, seed)


def _nearly(rows: list[Row], seed: int) -> list[Row]:
    """Newest first, but one row, drawn by the seed, stands beyond one of another second, where it does not belong."""
    drawn = sorted(range(len(rows)), key=lambda position: _draw(seed, rows[position]))
    for other in drawn[1:]:
        if place(rows[other])[:2] != place(rows[drawn[0]])[:2]:
            moved = rows.copy()
            moved.insert(other, moved.pop(drawn[0]))
            return moved
    return rows


def _draw(seed: int, row: Row) -> int:
    """A number of the row's own that follows from the seed and its id, wherever the row stands."""
    digest = hashlib.sha256(str(row.get("id")).encode("utf-8", "surrogatepass")).digest()
    return mix(seed, int.from_bytes(digest[:8], "big"))
