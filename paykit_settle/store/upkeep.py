"""What keeps the file small: the bytes of old pages are dropped, and those of pages that nobody needs."""

from datetime import date as Date
from datetime import timedelta

import apsw

from paykit_settle.store.earlier_plan import DAY_MS
from paykit_settle.store.evidence import own_rows, stored_page
from paykit_settle.store.packing import pack_ids
from paykit_settle.store.queries import load_queries
from paykit_settle.store.rows import change, rows
from paykit_settle.store.runs import Run

_SQL = load_queries("runs.sql")
_SETTLED = load_queries("settled.sql")

PRUNE_BATCH = 200
"""Pages pruned in one commit: the writer has others to serve."""


def prune(
    connection: apsw.Connection,
    *,
    today: Date,
    older_than_days: int,
    look_back_days: int = 3,
    look_back_listings: int = 3,
) -> int:
    """Drops the bytes of up to PRUNE_BATCH old pages and gives how many; ids and digests stay.

    Never touches a run that is not posted, nor a day that owes a row or that later runs are still to list again.
    """
    before = today - timedelta(days=older_than_days)
    pages = rows(
        connection,
        _SQL["prunable_pages"],
        before=before.isoformat(),
        listings=look_back_listings,
        age_ms=look_back_days * DAY_MS,
        limit=PRUNE_BATCH,
    )
    for key in pages:
        ids = [row.id for row in own_rows(stored_page(connection, **key)) if row.status == "available"]
        change(connection, _SQL["prune_page"], available_ids=pack_ids(ids), **key)
    return len(pages)


def drop_unneeded_pages(connection: apsw.Connection, run: Run) -> int:
    """Drops the bytes of up to PRUNE_BATCH pages of earlier days of which a frozen run takes nothing in."""
    pages = rows(connection, _SETTLED["droppable_pages"], run=run.number, limit=PRUNE_BATCH)
    for key in pages:
        change(connection, _SETTLED["drop_page"], **key)
    return len(pages)
