"""`verify`: gathers a run's evidence from the store, and on request the processor's copy, and holds all of it together.

The recomputation itself is in `verify.py`, which shares no code with the run. Evidence is read and recomputed in one of
the store's reading threads, page by page: neither the event loop nor the writer waits for it.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date as Date

import apsw

from paykit_settle.booking import settlement_journal
from paykit_settle.client import ProcessorClient
from paykit_settle.errors import InvalidRequest, InvariantViolated
from paykit_settle.found_settlements import FoundSettlement
from paykit_settle.lifecycle import State
from paykit_settle.models import ITEMISED, TOTAL_ONLY, SettlementLine
from paykit_settle.store.accounts import check_processor
from paykit_settle.store.history import History
from paykit_settle.store.runs import Attempt, Run
from paykit_settle.store.store import Store
from paykit_settle.store.verifying import corrections_of, late_ids_of, moved_faults, moved_ids_of, stored_evidence
from paykit_settle.verify import Basis, Claimed, body_faults, differences
from paykit_settle.verify_rows import Pair
from paykit_settle.verify_taken import copy_differs, taken_differences

FAULTS_TOLD_MAX = 5
"""Differences that an error names; the others are counted."""


async def verify_run(store: Store, history: History, *, remote: ProcessorClient | None = None) -> list[str]:
    """Every difference between what was settled and what the evidence gives; empty: all agree.

    With `remote` the processor is asked for its copy too, which must be the account's (`SettlementConflict`).
    `InvalidRequest` while nothing is frozen yet.
    """
    run, attempt = history.run, history.attempt
    if remote is not None and remote.identity != run.processor:
        check_processor(history.account, remote.identity, what=run.id)
    if attempt is None or attempt.number != run.attempt:
        raise InvalidRequest(f"{run.id} is {run.state}: there is nothing to verify yet")

    def check(connection: apsw.Connection) -> list[str]:
        claimed = _claimed(connection, history, attempt)
        if attempt.taken is not None:
            return taken_differences(
                claimed,
                stored_evidence(connection, run),
                settlement_id=run.settlement_id or "",
                is_itemised=attempt.taken == ITEMISED,
            ) + moved_faults(connection, run)
        return differences(claimed, stored_evidence(connection, run)) + moved_faults(connection, run)

    found = await store.read(check) + _journal_faults(history, attempt)
    if remote is not None:
        found += await _remote_faults(remote, history, attempt)
    return found


def proof_text(attempt: Attempt | None) -> str | None:
    """Return what a settlement that was taken from the processor does not prove; None for one that we computed."""
    if attempt is None or attempt.taken is None:
        return None
    if attempt.taken == TOTAL_ONLY:
        return "it was taken from the processor by its total only: its lines are not proved"
    return "its lines were taken from the processor, not recomputed"


async def check_before_freeze(
    store: Store,
    run: Run,
    *,
    body: bytes,
    rates: bytes | None,
    scales: Mapping[str, int],
    late_rows: Sequence[tuple[Date, str]] = (),
    moved_ids: Iterable[str] = (),
    corrections: Iterable[tuple[Date, bytes | None, bytes | None]] = (),
) -> None:
    """Raise `InvariantViolated` unless the stored pages of the run's pull give the body that is about to be frozen.

    The pages must be committed, and the readings that count noted as whole. `late_rows` are taken in with it, as
    (day, id); `moved_ids` are rows of the own day that other runs hold; `corrections` are differences that it settles,
    as (day, was, is now).
    """
    late: dict[str, list[str]] = {}
    for period, identity in late_rows:
        late.setdefault(period.isoformat(), []).append(identity)
    corrected: dict[str, list[Pair]] = {}
    for period, was, is_now in corrections:
        corrected.setdefault(period.isoformat(), []).append((was, is_now))
    basis = Basis(
        account=run.account,
        date=run.date.isoformat(),
        settlement_currency=run.settlement_currency,
        rates=rates,
        scales=scales,
        late_ids=late,
        moved_ids=list(moved_ids),
        corrections=corrected,
    )
    found = await store.read(lambda connection: body_faults(basis, body, stored_evidence(connection, run)))
    if found:
        more = f" (and {len(found) - FAULTS_TOLD_MAX} more)" * (len(found) > FAULTS_TOLD_MAX)
        told = "; ".join(found[:FAULTS_TOLD_MAX])
        raise InvariantViolated(f"{run.id}: the stored pages do not give this settlement: {told}{more}")


def _claimed(connection: apsw.Connection, history: History, attempt: Attempt) -> Claimed:
    run = history.run
    return Claimed(
        basis=Basis(
            account=run.account,
            date=run.date.isoformat(),
            settlement_currency=run.settlement_currency,
            rates=attempt.rates_body,
            scales=attempt.scales,
            late_ids=late_ids_of(connection, run),
            moved_ids=moved_ids_of(connection, run),
            corrections=corrections_of(connection, run),
        ),
        attempt=attempt.number,
        body=attempt.body,
        body_sha256=attempt.body_sha256,
        idempotency_key=attempt.idempotency_key,
        evidence_sha256=attempt.evidence_sha256,
        shown_lines=[_shown(line) for line in attempt.settlement.lines],
        shown_total=attempt.settlement.total_net,
        entries=[(entry.account, entry.currency, entry.amount) for entry in history.entries]
        if run.state is State.POSTED
        else None,
    )


def _shown(line: SettlementLine) -> dict[str, object]:
    return {
        "currency": line.currency,
        "period": line.period.isoformat() if line.period else None,
        "charged": line.charged,
        "refunded": line.refunded,
        "fees": line.fees,
        "net": line.net,
        "net_settlement": line.net_settlement,
    }


def _journal_faults(history: History, attempt: Attempt) -> list[str]:
    """Whether what is booked is what this settlement books, entry by entry."""
    if history.run.state is not State.POSTED:
        return ["it is booked although it is not posted"] if history.entries else []
    try:
        expected = settlement_journal(
            attempt.settlement,
            tenant=history.run.tenant,
            idempotency_key=attempt.idempotency_key,
            body_sha256=attempt.body_sha256,
            settlement_id=history.run.settlement_id or "",
            now_ms=0,
        )
    except InvariantViolated as error:
        return [f"the settlement that is stored cannot be booked: {error}"]
    booked = [(entry.account, entry.currency, entry.amount) for entry in history.entries]
    if booked != [(entry.account, entry.currency, entry.amount) for entry in expected.entries]:
        return ["the journal is not the one of this settlement"]
    return []


async def _remote_faults(client: ProcessorClient, history: History, attempt: Attempt) -> list[str]:
    found = await client.find_settlements(history.run.account, history.run.date)
    if found is None:
        return ["the processor has no look-up of settlements"]
    if history.run.state is State.POSTED:
        own = [each for each in found if each.id == history.run.settlement_id]
        if not own or not _is_copy(own[0], attempt):
            return [f"the processor's copy of {history.run.settlement_id} is missing or differs"]
    elif not found:
        return ["the processor has no settlement for this day"]
    elif others := [each.id for each in found if not each.has_body(attempt.body)]:
        return [f"the processor has another settlement for this day: {', '.join(others)}"]
    if len(found) > 1:
        return [f"the processor has {len(found)} settlements for this day: {', '.join(each.id for each in found)}"]
    return []


def _is_copy(found: FoundSettlement, attempt: Attempt) -> bool:
    return not copy_differs(attempt.body, found.received) if attempt.taken else found.has_body(attempt.body)
