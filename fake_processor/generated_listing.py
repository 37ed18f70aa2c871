"""The listing of a generated account: pages written straight from the generator, and the changes that a test made.

Rows that were added, changed or taken away are kept beside the generated ones and merged into their places. Without
such changes a page costs no more than the rows on it, wherever it lies.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import islice

from fake_processor.generator import GeneratedRows
from fake_processor.listing import Listing, Page, PageQuery, Row, Totals, matches, place
from fake_processor.templates import add_up
from fake_processor.wire import invalid

_NOTHING = Listing(())
Place = tuple[bool, int, str]


class GeneratedListing:
    """A generated account's rows in listing order; `gone` are positions no longer listed, `beside` rows put in."""

    def __init__(
        self, generated: GeneratedRows, *, gone: frozenset[int] = frozenset(), beside: Listing = _NOTHING
    ) -> None:
        self._generated = generated
        self._gone = gone
        self._beside = beside

    @property
    def rows(self) -> list[Row]:
        """All of them, made for the purpose."""
        return [row for _, row in self._merged(range(len(self._generated)), PageQuery())]

    def page(self, query: PageQuery) -> Page:
        """At most `query.limit` rows beside the cursor; Refusal (400) for a cursor or payout that names no row."""
        plain = not (self._gone or self._beside.rows or query.selects)
        positions = self._within_time(query)
        if query.ending_before is not None:
            return self._backwards(query, positions, plain=plain)
        if plain:
            start = positions.start
            if query.starting_after is not None:
                start = max(start, self._cursor(query.starting_after, "starting_after") + 1)
            stop = max(start, min(positions.stop, start + query.limit))
            return self._written(start, stop, has_more=stop < positions.stop)
        after = None if query.starting_after is None else self._place(query.starting_after, "starting_after")
        found = self._merged(self._chosen(query, positions, after=after), query, after=after)
        rows = [row for _, row in islice(found, query.limit + 1)]
        return Page(rows=rows[: query.limit], has_more=len(rows) > query.limit)

    def _backwards(self, query: PageQuery, positions: range, *, plain: bool) -> Page:
        assert query.ending_before is not None  # noqa: S101 - the caller asked; this tells the type checker
        if plain:
            stop = min(positions.stop, self._cursor(query.ending_before, "ending_before"))
            start = min(stop, max(positions.start, stop - query.limit))
            return self._written(start, stop, has_more=start > positions.start)
        before = self._place(query.ending_before, "ending_before")
        chosen = self._chosen(query, positions, before=before)
        found = self._merged(chosen, query, before=before, backwards=True)
        rows = [row for _, row in islice(found, query.limit + 1)]
        return Page(rows=rows[: query.limit][::-1], has_more=len(rows) > query.limit)

    def find(self, row_id: str) -> Row | None:
        """The row of that id, or None."""
        position = self._position(row_id)
        return self._beside.find(row_id) if position is None else self._row(position)

    def add(self, rows: Iterable[Mapping[str, object]]) -> GeneratedListing:
        """A listing with these rows too."""
        return GeneratedListing(self._generated, gone=self._gone, beside=self._beside.add(rows))

    def replace(self, row_id: str, fields: Mapping[str, object] | None) -> GeneratedListing:
        """A listing in which fields of one row are others; None takes the row away. KeyError when it is missing."""
        position = self._position(row_id)
        if position is None:
            return GeneratedListing(self._generated, gone=self._gone, beside=self._beside.replace(row_id, fields))
        changed = [] if fields is None else [{**self._row(position), **fields}]
        return GeneratedListing(self._generated, gone=self._gone | {position}, beside=self._beside.add(changed))

    def release(self) -> GeneratedListing:
        """A listing in which every pending row has become available."""
        released = GeneratedRows(self._generated.plan, released=True)
        return GeneratedListing(released, gone=self._gone, beside=self._beside.release())

    def totals(self) -> Totals:
        """Σ net by status and currency."""
        totals = self._generated.totals()
        add_up(totals, self._beside.totals())
        for position in self._gone:
            draft = self._generated.draft(position)
            status = "pending" if draft.pending and not self._generated.released else "available"
            totals[status][draft.currency] = totals[status].get(draft.currency, 0) - draft.net
        return totals

    def _written(self, start: int, stop: int, *, has_more: bool) -> Page:
        edges = (self._generated.row_id(start), self._generated.row_id(stop - 1)) if start < stop else None
        return Page(texts=self._generated.texts(start, stop), has_more=has_more, edges=edges)

    def _row(self, position: int) -> Row:
        row: Row = json.loads(bytes(self._generated.texts(position, position + 1)[0]))
        return row

    def _position(self, row_id: str) -> int | None:
        """Where a generated row stands that is still listed, else None."""
        position = self._generated.position(row_id)
        return None if position in self._gone else position

    def _cursor(self, row_id: str, param: str) -> int:
        position = self._position(row_id)
        if position is None:
            raise invalid(f"No such balance transaction: '{row_id}'", param=param, code="resource_missing")
        return position

    def _place(self, row_id: str, param: str) -> Place:
        beside = self._beside.find(row_id)
        return self._place_at(self._cursor(row_id, param)) if beside is None else place(beside)

    def _place_at(self, position: int) -> Place:
        return False, -self._generated.created(position), self._generated.row_id(position)

    def _within_time(self, query: PageQuery) -> range:
        newest = 0 if query.end_s is None else self._generated.count_from(query.end_s)
        oldest = len(self._generated) if query.start_s is None else self._generated.count_from(query.start_s)
        return range(newest, max(newest, oldest))

    def _chosen(
        self, query: PageQuery, positions: range, *, after: Place | None = None, before: Place | None = None
    ) -> Iterable[int]:
        """The generated rows that may be wanted, a little wider than the cursor asks for."""
        if after is not None:
            positions = range(max(positions.start, self._generated.count_from(1 - after[1])), positions.stop)
        if before is not None:
            positions = range(positions.start, min(positions.stop, self._generated.count_from(-before[1])))
        chosen: Sequence[int] = positions
        if query.source is not None:
            position = self._position(f"txn_{query.source.rpartition('_')[2]}")
            chosen = [position] if position is not None and position in positions else []
        elif query.payout is not None:
            chosen = self._of_payout(query.payout, positions)
        return chosen if before is None else reversed(chosen)

    def _of_payout(self, payout_id: str, positions: range) -> list[int]:
        position = self._position(f"txn_{payout_id.removeprefix('po_')}")
        taken = None if position is None else self._generated.payout_rows(position)
        if position is None or taken is None:
            raise invalid(f"No such payout: '{payout_id}'", param="payout", code="resource_missing")
        start, stop, currency = taken
        drafts = ((row, self._generated.draft(row)) for row in range(start, stop))
        paid = [row for row, draft in drafts if draft.currency == currency and not draft.pending]
        return [row for row in (position, *paid) if row in positions]

    def _merged(
        self,
        chosen: Iterable[int],
        query: PageQuery,
        *,
        after: Place | None = None,
        before: Place | None = None,
        backwards: bool = False,
    ) -> Iterator[tuple[Place, Row]]:
        generated: Iterator[tuple[Place, int | Row]] = (
            (self._place_at(position), position)
            for position in chosen
            if position not in self._gone and self._may_match(position, query)
        )
        rows = self._beside.rows if query.payout is None else []
        beside: list[tuple[Place, int | Row]] = [
            (place(row), row) for row in rows if _in_time(row, query) and matches(row, query)
        ]
        both = merge(generated, reversed(beside) if backwards else beside, key=lambda item: item[0], reverse=backwards)
        for where, item in both:
            if (after is not None and where <= after) or (before is not None and where >= before):
                continue
            row = self._row(item) if isinstance(item, int) else item
            if query.source is None or row.get("source") == query.source:
                yield where, row

    def _may_match(self, position: int, query: PageQuery) -> bool:
        if query.currency is None and query.type is None:
            return True
        draft = self._generated.draft(position)
        return (query.currency in (None, draft.currency)) and (query.type in (None, draft.kind))


def _in_time(row: Row, query: PageQuery) -> bool:
    created = row.get("created")
    if type(created) is not int:
        return True
    return (query.start_s is None or created >= query.start_s) and (query.end_s is None or created < query.end_s)
