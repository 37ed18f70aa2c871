"""Rows that were asked for by their id, stored as the processor sent them: evidence beside the pages."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import apsw

from paykit_settle.store.packing import Packer
from paykit_settle.store.queries import load_queries
from paykit_settle.store.rows import change_many
from paykit_settle.store.runs import Run

_SQL = load_queries("settled.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class RowAnswer:
    """One row as it came, and the day that it is owed under."""

    transaction_id: str
    period: str
    body: bytes
    received_at_ms: int


def store_answers(connection: apsw.Connection, run: Run, answers: Sequence[RowAnswer]) -> None:
    """Store what a pull was answered; a row that it asks for again replaces its earlier answer."""
    pack = Packer().pack
    change_many(
        connection,
        _SQL["insert_row_answer"],
        [
            {
                "run": run.number,
                "pull": run.pull,
                "transaction_id": each.transaction_id,
                "period": each.period,
                "body": pack(each.body),
                "body_sha256": hashlib.sha256(each.body).hexdigest(),
                "received_at_ms": each.received_at_ms,
            }
            for each in answers
        ],
    )
