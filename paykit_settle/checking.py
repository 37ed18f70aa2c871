"""`verify`: gathers a run's evidence from the store, and on request the processor's copy, and holds all of it together.

The recomputation itself is in `verify.py`, which shares no code with the run.
"""

import apsw

from paykit_settle.booking import settlement_journal
from paykit_settle.client import ProcessorClient
from paykit_settle.errors import InvalidRequest, InvariantViolated
from paykit_settle.lifecycle import State
from paykit_settle.models import SettlementLine
from paykit_settle.store.accounts import check_processor
from paykit_settle.store.history import History, day_spans, evidence_pages
from paykit_settle.store.runs import Attempt
from paykit_settle.store.store import Store
from paykit_settle.verify import Claimed, EvidencePage, EvidenceWindow, differences


async def verify_run(store: Store, history: History, *, remote: ProcessorClient | None = None) -> list[str]:
    """Every difference between what was settled and what the evidence gives; empty: all agree.

    With `remote` the processor is asked for its copy too, which must be the account's (`SettlementConflict`).
    `InvalidRequest` while nothing is frozen yet.
    """
    if remote is not None and remote.identity != history.run.processor:
        check_processor(history.account, remote.identity, what=history.run.id)
    attempt = history.attempt
    if attempt is None or attempt.number != history.run.attempt:
        raise InvalidRequest(f"{history.run.id} is {history.run.state}: there is nothing to verify yet")
    pages = await store.read(lambda connection: _pages(connection, history))
    pruned = sum(not page.is_kept for page in history.pages)
    days = await store.read(lambda connection: day_spans(connection, history.run))
    found = differences(_claimed(history, attempt), pages, _windows(history), days)
    if pruned:
        found.append(f"{pruned} of {len(history.pages)} pages were pruned: the lines cannot be recomputed any more")
    found += _journal_faults(history, attempt)
    if remote is not None:
        found += await _remote_faults(remote, history, attempt)
    return found


def _pages(connection: apsw.Connection, history: History) -> list[EvidencePage]:
    return [
        EvidencePage(
            period=period,
            number=page.number,
            body=page.body,
            body_sha256=page.body_sha256,
            chain_sha256=page.chain_sha256,
            has_more=page.has_more,
            window=page.window,
            window_start_s=page.window_start_s,
            window_end_s=page.window_end_s,
        )
        for period, page in evidence_pages(connection, history.run)
    ]


def _windows(history: History) -> list[EvidenceWindow]:
    return [
        EvidenceWindow(period=each.period, number=each.number, start_s=each.start_s, end_s=each.end_s)
        for each in history.windows
    ]


def _claimed(history: History, attempt: Attempt) -> Claimed:
    late: dict[str, list[str]] = {}
    for period, identity in history.late_rows:
        late.setdefault(period, []).append(identity)
    return Claimed(
        account=history.run.account,
        date=history.run.date.isoformat(),
        attempt=attempt.number,
        settlement_currency=history.run.settlement_currency,
        body=attempt.body,
        body_sha256=attempt.body_sha256,
        idempotency_key=attempt.idempotency_key,
        rates=attempt.rates_body,
        scales=attempt.scales,
        late_ids=late,
        evidence_sha256=attempt.evidence_sha256,
        shown_lines=[_shown(line) for line in attempt.settlement.lines],
        shown_total=attempt.settlement.total_net,
        entries=[(entry.account, entry.currency, entry.amount) for entry in history.entries]
        if history.run.state is State.POSTED
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
        if not own or not own[0].has_body(attempt.body):
            return [f"the processor's copy of {history.run.settlement_id} is missing or differs"]
    elif not found:
        return ["the processor has no settlement for this day"]
    elif others := [each.id for each in found if not each.has_body(attempt.body)]:
        return [f"the processor has another settlement for this day: {', '.join(others)}"]
    if len(found) > 1:
        return [f"the processor has {len(found)} settlements for this day: {', '.join(each.id for each in found)}"]
    return []
