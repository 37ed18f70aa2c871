"""The order of an account's transactions, and pages cut out of it.

Newest first, and by id within one second: a strict total order, so a cursor always means the same
place and a page size never changes which rows come. Rows are served as they were given; nothing
here may correct or refuse one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice

from fake_processor.wire import invalid

Row = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class PageQuery:
    """One page's wish. `start_s` is the first second wanted, `end_s` the first one not wanted."""

    limit: int = 10
    starting_after: str | None = None
    ending_before: str | None = None
    start_s: int | None = None
    end_s: int | None = None
    currency: str | None = None
    type: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Rows newest first; `has_more` tells whether there are more in the direction of travel."""

    rows: list[Row]
    has_more: bool


class Listing:
    """One account's rows in listing order. Built once; a change of rows needs a new one.

    A row whose `created` is missing or no integer stands after all others and lies in every window:
    it has to be served to somebody, and only a test puts one in. Rows that share an id ought to
    share their second too, since a cursor can only name an id.
    """

    def __init__(self, rows: Iterable[Mapping[str, object]]) -> None:
        self.rows: list[Row] = sorted((dict(row) for row in rows), key=_place)
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
        for place in places:
            row = self.rows[place]
            if query.currency is not None and row.get("currency") != query.currency:
                continue
            if query.type is not None and row.get("type") != query.type:
                continue
            yield row


def _place(row: Mapping[str, object]) -> tuple[bool, int, str]:
    created = row.get("created")
    if type(created) is int:
        return False, -created, str(row.get("id"))
    return True, 0, str(row.get("id"))
