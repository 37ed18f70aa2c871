"""What is known of a posted day's rows: which of them are settled, and as what. Reads only."""

from collections.abc import Callable

import apsw

from paykit_settle.corrections import decode_row
from paykit_settle.models import BalanceTransaction
from paykit_settle.store.differences import settled_content
from paykit_settle.store.evidence import counted_pages, own_rows
from paykit_settle.store.evidence_rows import answered_rows, available_ids, covered_ids, own_pages
from paykit_settle.store.queries import load_queries
from paykit_settle.store.rows import rows
from paykit_settle.store.runs import Run, run_by_number

_SQL = load_queries("settled.sql")
_RUNS = load_queries("runs.sql")

SETTLED_AS_NOTHING = -1
"""Stands for the content of a row whose settlement was taken back: no row's hash is -1 in Python."""

ContentHash = Callable[[BalanceTransaction], int]


def known_rows(connection: apsw.Connection, day: Run, content_hash: ContentHash) -> dict[str, int | None]:
    """Return the rows of a posted day that are settled: available in its own pull, or taken in later.

    The value is a hash of what a row was; None where only the id was kept.
    """
    period = day.date.isoformat()
    known: dict[str, int | None] = {}
    for page in own_pages(connection, day):
        if page.body is None:
            known |= dict.fromkeys(available_ids(page))
        else:
            known |= {row.id: content_hash(row) for row in own_rows(page) if row.status == "available"}
    for moved in rows(connection, _SQL["moved_rows_of"], run=day.number):
        if moved["period"] == period:
            known.pop(moved["transaction_id"], None)
    covered = covered_ids(connection, day)
    if covered is not None:
        known = {identity: known.get(identity) for identity in covered}
    for row in rows(connection, _RUNS["late_rows_of_day"], account=day.account, period=period):
        known[row["transaction_id"]] = None
    known |= _late_content(connection, day, content_hash)
    corrected = rows(connection, _SQL["corrected_ids"], account=day.account, period=period)
    ids = [row["transaction_id"] for row in corrected]
    for identity, sent in settled_content(connection, day.account, ids).items():
        known[identity] = SETTLED_AS_NOTHING if sent is None else content_hash(decode_row(sent))
    return known


def _late_content(connection: apsw.Connection, day: Run, content_hash: ContentHash) -> dict[str, int | None]:
    """Return the rows of a day that were taken in late, with what they were where the bytes are still there."""
    period = day.date.isoformat()
    taken: dict[int, set[str]] = {}
    for late_row in rows(connection, _RUNS["late_rows_of_day"], account=day.account, period=period):
        taken.setdefault(late_row["run"], set()).add(late_row["transaction_id"])
    found: dict[str, int | None] = {}
    for number, ids in taken.items():
        run = run_by_number(connection, number)
        for page in counted_pages(connection, run.number, run.pull, period):
            if page.body is not None:
                late = [row for row in own_rows(page) if row.id in ids]
                found |= {row.id: content_hash(row) for row in late if row.status == "available"}
        for identity, sent in answered_rows(connection, run, period, ids).items():
            if (row := decode_row(sent)).status == "available":
                found[identity] = content_hash(row)
    return found
