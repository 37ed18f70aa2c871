"""The order of an account's transactions, and pages cut out of it.

Newest first, and by id within one second: a strict total order, so a cursor always means the same
place and a page size never changes which rows come. Rows are served as they were given; nothing
here may correct or refuse one.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import NamedTuple, Protocol

from fake_processor.wire import invalid

Row = dict[str, object]
Totals = dict[str, dict[str, int]]


class PageQuery(NamedTuple):
    """One page's wish. `start_s` is the first second wanted, `end_s` the first one not wanted."""

    limit: int = 10
    starting_after: str | None = None
    ending_before: str | None = None
    start_s: int | None = None
    end_s: int | None = None
    currency: str | None = None
    type: str | None = None
    source: str | None = None
    payout: str | None = None

    @property
    def selects(self) -> bool:
        """Whether more than the time decides which rows are wanted."""
        return not (self.currency is self.type is self.source is self.payout is None)


class Page:
    """Rows newest first; `has_more` tells whether there are more in the direction of travel.

    Made from rows or from their JSON (`texts`: parts of one or more rows with commas between); the other follows.
    `edges` are the first and the last row's ids.
    """

    def __init__(
        self,
        *,
        has_more: bool,
        rows: list[Row] | None = None,
        texts: Sequence[bytes | memoryview] | None = None,
        edges: tuple[str, str] | None = None,
    ) -> None:
        self.has_more = has_more
        self.edges = edges
        self._rows = rows
        self._texts = texts or ()
        if rows:
            self.edges = str(rows[0].get("id")), str(rows[-1].get("id"))

    @property
    def rows(self) -> list[Row]:
        if self._rows is None:
            self._rows = json.loads(b"[%b]" % b",".join(self._texts))
        return self._rows

    @property
    def texts(self) -> Sequence[bytes | memoryview]:
        if self._rows is None:
            return self._texts
        return [json.dumps(row).encode("ascii") for row in self._rows]


class Shown(Protocol):
    """An account's rows as requests see them."""

    def page(self, query: PageQuery) -> Page:
        """At most `query.limit` rows beside the cursor; Refusal (400) for a cursor that names no row."""

    def find(self, row_id: str) -> Row | None:
        """The row of that id, or None."""


class Listing:
    """One account's rows in listing order. Built once; a change of rows needs a new one.

    A row whose `created` is missing or no integer stands after all others and lies in every window:
    it has to be served to somebody, and only a test puts one in. Rows that share an id ought to
    share their second too, since a cursor can only name an id.
    """

    def __init__(self, rows: Iterable[Mapping[str, object]]) -> None:
        self.rows: list[Row] = sorted((dict(row) for row in rows), key=place)
        times = [row.get("created") for row in self.rows]
        # Newest first means falling seconds; bisect wants a rising list, hence the sign.
        self._negated_s = [-created for created in times if type(created) is int]
        self._first: dict[str, int] = {}
        self._last: dict[str, int] = {}
        for position, row in enumerate(self.rows):
            row_id = str(row.get("id"))
            self._first.setdefault(row_id, position)
            self._last[row_id] = position

    def page(self, query: PageQuery) -> Page:
        """At most `query.limit` rows beside the cursor.

        The cursor's own row need not match the filter. Raises Refusal (400 `resource_missing`) for a
        cursor that names no row of this account.
        """
        low, high = 0, len(self.rows)
        if query.starting_after is not None:
            low = self._position(self._last, query.starting_after, param="starting_after") + 1
        if query.ending_before is not None:
            high = self._position(self._first, query.ending_before, param="ending_before")
        backwards = query.ending_before is not None
        wanted = self._matching(query, low=low, high=high, backwards=backwards)
        found = list(islice(wanted, query.limit + 1))
        rows = found[: query.limit]
        if backwards:
            rows.reverse()
        return Page(rows=rows, has_more=len(found) > query.limit)

    def find(self, row_id: str) -> Row | None:
        """The row of that id, or None."""
        position = self._first.get(row_id)
        return None if position is None else self.rows[position]

    def add(self, rows: Iterable[Mapping[str, object]]) -> Listing:
        """A listing with these rows too."""
        return Listing([*self.rows, *rows])

    def replace(self, row_id: str, fields: Mapping[str, object] | None) -> Listing:
        """A listing in which fields of one row are others; None takes the row away. KeyError when it is missing."""
        if row_id not in self._first:
            raise KeyError(row_id)
        others = [row for row in self.rows if row.get("id") != row_id]
        changed = [] if fields is None else [{**row, **fields} for row in self.rows if row.get("id") == row_id]
        return Listing([*others, *changed])

    def release(self) -> Listing:
        """A listing in which every pending row has become available."""
        return Listing({**row, "status": "available"} if row.get("status") == "pending" else row for row in self.rows)

    def totals(self) -> Totals:
        """Σ net by status and currency, of the rows that have all three."""
        totals: Totals = {"available": {}, "pending": {}}
        for row in self.rows:
            status, currency, net = row.get("status"), row.get("currency"), row.get("net")
            if isinstance(status, str) and status in totals and isinstance(currency, str) and type(net) is int:
                totals[status][currency] = totals[status].get(currency, 0) + net
        return totals

    def _position(self, positions: Mapping[str, int], row_id: str, *, param: str) -> int:
        if row_id not in positions:
            raise invalid(f"No such balance transaction: '{row_id}'", param=param, code="resource_missing")
        return positions[row_id]

    def _matching(self, query: PageQuery, *, low: int, high: int, backwards: bool) -> Iterator[Row]:
        dated = len(self._negated_s)
        newest, oldest = 0, dated
        if query.end_s is not None:
            newest = bisect_left(self._negated_s, 1 - query.end_s)
        if query.start_s is not None:
            oldest = bisect_left(self._negated_s, 1 - query.start_s)
        within = range(max(low, newest), min(high, oldest))
        undated = range(max(low, dated), high)
        places = chain(reversed(undated), reversed(within)) if backwards else chain(within, undated)
        payout = None if query.payout is None else self._payout(query.payout)
        for position in places:
            row = self.rows[position]
            if matches(row, query) and (payout is None or self._is_in_payout(position, payout)):
                yield row

    def _payout(self, payout_id: str) -> int:
        """Where the payout itself stands. Refusal: 400 when there is none of that id."""
        for position, row in enumerate(self.rows):
            if row.get("type") == "payout" and row.get("source") == payout_id:
                return position
        raise invalid(f"No such payout: '{payout_id}'", param="payout", code="resource_missing")

    def _is_in_payout(self, position: int, payout: int) -> bool:
        """An automatic payout takes what became available in its currency since the one before it."""
        currency = self.rows[payout].get("currency")
        if position == payout:
            return True
        row = self.rows[position]
        if position < payout or row.get("currency") != currency or row.get("status") != "available":
            return False
        between = self.rows[payout + 1 : position + 1]
        return not any(row.get("type") == "payout" and row.get("currency") == currency for row in between)


def matches(row: Mapping[str, object], query: PageQuery) -> bool:
    """Whether a row is of the currency, type and source asked for."""
    return (
        (query.currency is None or row.get("currency") == query.currency)
        and (query.type is None or row.get("type") == query.type)
        and (query.source is None or row.get("source") == query.source)
    )


def place(row: Mapping[str, object]) -> tuple[bool, int, str]:
    """Where a row stands: the listing order is the order of these."""
    created = row.get("created")
    if type(created) is int:
        return False, -created, str(row.get("id"))
    return True, 0, str(row.get("id"))
