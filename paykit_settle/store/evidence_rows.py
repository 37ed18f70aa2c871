"""The rows in the stored pages: those that a page counts, and their bytes as the processor sent them. Reads only."""

from collections.abc import Collection, Iterator, Mapping

import apsw

from paykit_settle.corrections import decode_row, raw_rows
from paykit_settle.store.evidence import StoredPage, counted_pages, own_rows
from paykit_settle.store.packing import unpack
from paykit_settle.store.queries import load_queries
from paykit_settle.store.rows import rows
from paykit_settle.store.runs import Run

_SQL = load_queries("settled.sql")


def own_pages(connection: apsw.Connection, run: Run) -> Iterator[StoredPage]:
    """Yield the pages that count of the run's own day."""
    return counted_pages(connection, run.number, run.pull, run.date.isoformat())


def covered_ids(connection: apsw.Connection, run: Run) -> frozenset[str] | None:
    """Return the only rows of its own day that a run holds; None for every available one that it did not pass over.

    They are few where the run took the processor's settlement, and a person said which rows that holds.
    """
    if run.covers in (None, "all"):
        return None
    return frozenset(row["transaction_id"] for row in rows(connection, _SQL["covered_rows"], run=run.number))


def evidence_periods(connection: apsw.Connection, run: Run) -> list[str]:
    """Return the days, the run's own among them, of which its last pull has a page or a row, in order."""
    found = rows(connection, _SQL["evidence_periods"], run=run.number, pull=run.pull)
    return sorted(row["period"] for row in found)


def available_ids(page: StoredPage) -> Iterator[str]:
    """Yield the ids of the page's own rows that are available, also once its bytes were pruned."""
    if page.body is None:
        yield from page.available_ids
    else:
        yield from (row.id for row in own_rows(page) if row.status == "available")


def available_among(page: StoredPage, ids: Collection[str]) -> dict[str, bytes | None]:
    """Return those of the ids that are the page's own and available, with their bytes (None once they were pruned)."""
    if page.body is None:
        return {identity: None for identity in page.available_ids if identity in ids}
    own = {row.id for row in own_rows(page) if row.status == "available" and row.id in ids}
    return dict(raw_rows(page.body, own)) if own else {}


def sent_rows(connection: apsw.Connection, run: Run, period: str, ids: Collection[str]) -> dict[str, bytes]:
    """Return the bytes of rows that a run's last pull read on a day, by list or by id; not of pruned pages."""
    found: dict[str, bytes] = {}
    if ids:
        for page in counted_pages(connection, run.number, run.pull, period):
            if page.body is not None:
                found |= raw_rows(page.body, ids)
        found |= answered_rows(connection, run, period, ids)
    return found


def settled_rows(connection: apsw.Connection, run: Run, period: str, ids: Collection[str]) -> dict[str, bytes]:
    """Return the same of rows that were available then: what a run settled of a pending one, it has never seen."""
    found = sent_rows(connection, run, period, ids)
    return {identity: sent for identity, sent in found.items() if decode_row(sent).status == "available"}


def answered_rows(
    connection: apsw.Connection, run: Run, period: str, ids: Collection[str] | None = None
) -> Mapping[str, bytes]:
    """Return the bytes of the rows of a day that a run's last pull asked for by id; all of them without `ids`."""
    answers = rows(connection, _SQL["row_answers"], run=run.number, pull=run.pull, period=period)
    return {
        answer["transaction_id"]: unpack(answer["body"])
        for answer in answers
        if ids is None or answer["transaction_id"] in ids
    }
