"""The freeze: settlement, exact bytes, key, rates and rows taken in, stored in one commit before anything is sent."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date as Date

import apsw

from paykit_settle.booking import settlement_journal
from paykit_settle.corrections import Correction
from paykit_settle.lifecycle import Event
from paykit_settle.store.differences import are_free, take_corrections
from paykit_settle.store.evidence import evidence_digest
from paykit_settle.store.posting import post_journal
from paykit_settle.store.queries import load_queries
from paykit_settle.store.relisting import register_outstanding, take_late_rows
from paykit_settle.store.rows import change
from paykit_settle.store.runs import Attempt, Run, move

_SQL = load_queries("runs.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    """What a freeze stores: `settlement` as JSON, `outstanding` rows as (id, period, type, currency, amount, fee)."""

    idempotency_key: str
    body: bytes
    body_sha256: str
    settlement: str
    rates_body: bytes | None
    scales: Mapping[str, int]
    program: str
    outstanding: Sequence[tuple[str, str, str, str, int, int]]
    late_rows: Sequence[tuple[Date, str]]
    corrections: Sequence[Correction] = ()


def freeze(connection: apsw.Connection, run: Run, frozen: Frozen, *, now_ms: int) -> Run | None:
    """Freezes the run's current attempt; None, with nothing stored, when a late row or a correction is free no more.

    Another run has taken it, a person has written the row off, or taken back that it is to be corrected.
    """
    if not are_free(connection, run, frozen.corrections) or not take_late_rows(connection, run, frozen.late_rows):
        return None
    take_corrections(connection, run, frozen.corrections)
    register_outstanding(connection, run, frozen.outstanding, now_ms=now_ms)
    change(
        connection,
        _SQL["insert_attempt"],
        run=run.number,
        number=run.attempt,
        pull=run.pull,
        idempotency_key=frozen.idempotency_key,
        body=frozen.body,
        body_sha256=frozen.body_sha256,
        settlement=frozen.settlement,
        rates_body=frozen.rates_body,
        scales=json.dumps(dict(frozen.scales)),
        evidence_sha256=evidence_digest(connection, run.number, run.pull),
        program=frozen.program,
        now_ms=now_ms,
    )
    return move(connection, run, Event.FREEZE, now_ms=now_ms)


def mark_sent(connection: apsw.Connection, run: Run, *, now_ms: int) -> None:
    """Notes, before the first send, that the attempt may be at the processor from now on."""
    change(connection, _SQL["mark_sent"], now_ms=now_ms, run=run.number, number=run.attempt)


def next_attempt(connection: apsw.Connection, run: Run, idempotency_key: str, *, now_ms: int) -> None:
    """The same settlement as a further attempt under another key; the earlier one is kept."""
    change(
        connection,
        _SQL["copy_attempt"],
        idempotency_key=idempotency_key,
        now_ms=now_ms,
        run=run.number,
        number=run.attempt,
    )
    change(connection, _SQL["next_attempt"], attempt=run.attempt, now_ms=now_ms, number=run.number, owner=run.owner)


def end_attempt(
    connection: apsw.Connection,
    run: Run,
    outcome: str,
    *,
    now_ms: int,
    detail: str | None = None,
    settlement_id: str | None = None,
    status: str | None = None,
) -> None:
    """Notes what became of the current attempt."""
    change(
        connection,
        _SQL["end_attempt"],
        outcome=outcome,
        detail=detail,
        settlement_id=settlement_id,
        status=status,
        now_ms=now_ms,
        run=run.number,
        number=run.attempt,
    )


def book_attempt(connection: apsw.Connection, run: Run, attempt: Attempt, *, settlement_id: str, now_ms: int) -> None:
    """Books a frozen settlement that the processor has; booking it again changes nothing."""
    post_journal(
        connection,
        settlement_journal(
            attempt.settlement,
            tenant=run.tenant,
            idempotency_key=attempt.idempotency_key,
            body_sha256=attempt.body_sha256,
            settlement_id=settlement_id,
            now_ms=now_ms,
        ),
    )
