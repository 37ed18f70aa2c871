"""The freeze: settlement, exact bytes, key, rates and rows taken in, stored in one commit before anything is sent."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date as Date

import apsw

from paykit_settle.booking import settlement_journal
from paykit_settle.corrections import Correction
from paykit_settle.lifecycle import Event
from paykit_settle.store.differences import (
    Seen,
    are_free,
    live_ids,
    note_differences,
    note_moved,
    note_unchanged,
    take_corrections,
)
from paykit_settle.store.evidence import evidence_digest
from paykit_settle.store.posting import post_journal
from paykit_settle.store.queries import load_queries
from paykit_settle.store.relisting import OwedRow, are_owed, register_outstanding, take_late_rows, take_owed
from paykit_settle.store.rows import change, change_many
from paykit_settle.store.runs import Attempt, Run, move
from paykit_settle.store.settled import frozen_count, mark_indexed

_SQL = load_queries("runs.sql")
_SETTLED = load_queries("settled.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    """What a freeze stores: `settlement` as JSON, `outstanding` rows that are owed.

    `frozen_count` is how often other runs of the account were frozen when it was decided which rows are free; `moved`
    are rows of the own day that were passed over, with the run that holds each and whether it is shown otherwise now;
    `settled_owed` rows of the own day that were owed; `listings` earlier days that were listed whole, as (day, when it
    began, pages). `differences`, `moved_ids` and `shown_ids` are for the register of differences.
    """

    idempotency_key: str
    body: bytes
    body_sha256: str
    settlement: str
    rates_body: bytes | None
    scales: Mapping[str, int]
    program: str
    outstanding: Sequence[OwedRow]
    late_rows: Sequence[tuple[Date, str]]
    frozen_count: int = 0
    moved: Sequence[tuple[str, int | None, bool]] = ()
    settled_owed: Sequence[str] = ()
    listings: Sequence[tuple[Date, int, int]] = ()
    differences: Sequence[Seen] = ()
    moved_ids: Collection[str] = ()
    shown_ids: Collection[str] = ()
    written_off_available: Collection[str] = ()
    corrections: Sequence[Correction] = ()


def freeze(connection: apsw.Connection, run: Run, frozen: Frozen, *, now_ms: int) -> Run | None:
    """Freezes the run's current attempt; None, with nothing stored, when what it takes may not be free any more.

    Another run of the account was frozen since it was looked, a person has written a row off, or has taken back that
    one is to be corrected.
    """
    if frozen_count(connection, run) != frozen.frozen_count or not are_free(connection, run, frozen.corrections):
        return None
    if not are_owed(connection, run, frozen.settled_owed) or not take_late_rows(connection, run, frozen.late_rows):
        return None
    take_corrections(connection, run, frozen.corrections)
    take_owed(connection, run, [*frozen.settled_owed, *(identity for _, identity in frozen.late_rows)])
    register_outstanding(connection, run, frozen.outstanding, now_ms=now_ms)
    note_seen(connection, run, frozen, now_ms=now_ms)
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
    mark_indexed(connection, run)
    return move(connection, run, Event.FREEZE, now_ms=now_ms)


def note_seen(connection: apsw.Connection, run: Run, frozen: Frozen, *, now_ms: int) -> None:
    """Stores what the run passed over, which days it listed, and what it saw that differs from what was settled."""
    change_many(
        connection,
        _SETTLED["insert_moved_row"],
        [
            {
                "run": run.number,
                "transaction_id": identity,
                "period": run.date.isoformat(),
                "held_by_run": holder,
                "is_different": int(is_different),
            }
            for identity, holder, is_different in frozen.moved
        ],
    )
    change_many(
        connection,
        _SETTLED["insert_listing"],
        [
            {
                "account": run.account,
                "period": period.isoformat(),
                "run": run.number,
                "began_at_ms": began_at_ms,
                "page_count": page_count,
            }
            for period, began_at_ms, page_count in frozen.listings
        ],
    )
    change_many(
        connection,
        _SETTLED["mark_available"],
        [{"account": run.account, "transaction_id": each, "run": run.number} for each in frozen.written_off_available],
    )
    note_differences(connection, run, frozen.differences, now_ms=now_ms)
    live = live_ids(connection, run.account)
    note_moved(connection, run.account, live & set(frozen.moved_ids), now_ms=now_ms)
    odd = {seen.transaction_id for seen in frozen.differences}
    note_unchanged(connection, run.account, (live & set(frozen.shown_ids)) - odd, now_ms=now_ms)


def mark_sent(connection: apsw.Connection, run: Run, *, now_ms: int) -> None:
    """Notes, before the first send, that the attempt may be at the processor from now on."""
    change(connection, _SQL["mark_sent"], now_ms=now_ms, run=run.number, number=run.attempt)


def spend_key(
    connection: apsw.Connection,
    run: Run,
    *,
    first_empty_at_ms: int | None,
    refusal: str | None = None,
    now_ms: int,
) -> None:
    """Notes that the current attempt is not sent again under its key, and since when the processor shows nothing of it.

    `refusal`: why the processor refused its content, which it does not say of what was sent before.
    """
    change(
        connection,
        _SQL["spend_key"],
        first_empty_at_ms=first_empty_at_ms,
        refusal=refusal,
        now_ms=now_ms,
        run=run.number,
        number=run.attempt,
    )


def set_attention(connection: apsw.Connection, run: Run, attention: str | None) -> None:
    """Notes what somebody should look at although the run is posted; None: nothing any more."""
    change(connection, _SQL["set_attention"], attention=attention, number=run.number)


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
