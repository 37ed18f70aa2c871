"""What a posted settlement books: one balanced journal per day and account. Pure."""

from datetime import date as Date

from paykit_settle.journal import BALANCE, Entry, Journal, canonical, fingerprint
from paykit_settle.models import TOTAL_ONLY, Settlement, SettlementLine

SETTLEMENT = "settlement"
CHARGED, REFUNDED, FEES = "@processor.charged", "@processor.refunded", "@processor.fees"
"""Counter-accounts of what the processor owes a tenant; their sum is the processor's debt."""
FX = "@fx"
"""The counter-account between the currencies that came in and the one that is settled in."""
UNITEMISED = "@processor.unitemised"
"""The counter-account of settlements of which only the total is known."""


def settlement_journal(
    settlement: Settlement, *, tenant: str, idempotency_key: str, body_sha256: str, settlement_id: str, now_ms: int
) -> Journal:
    """A posted settlement as one balanced journal: what was charged, refunded and kept, the exchange, the balance.

    Dated by the settlement's date; its key is the account and the day, so a second booking of a day is a replay.
    What rounding cannot express in a minor unit stands in the entry's details and is not booked. A settlement that was
    taken from the processor by its total alone has two entries.
    """
    entries = _total_entries(settlement) if settlement.taken == TOTAL_ONLY else _line_entries(settlement)
    entries.append(Entry(BALANCE, settlement.settlement_currency, settlement.total_net))
    day = settlement.date.isoformat()
    return Journal(
        tenant=tenant,
        operation=SETTLEMENT,
        key=f"{day} {settlement.account}",
        fingerprint=fingerprint([settlement.account, day, body_sha256]),
        entries=tuple(entry for entry in entries if entry.amount or entry.account == BALANCE),
        answer=canonical({"settlement_id": settlement_id, "idempotency_key": idempotency_key}),
        event_at_ms=(settlement.date - _EPOCH_DAY).days * 86_400_000,
        recorded_at_ms=now_ms,
    )


def _total_entries(settlement: Settlement) -> list[Entry]:
    return [Entry(UNITEMISED, settlement.settlement_currency, -settlement.total_net)]


def _line_entries(settlement: Settlement) -> list[Entry]:
    entries: list[Entry] = []
    for line in settlement.lines:
        entries += [
            Entry(CHARGED, line.currency, -line.charged),
            Entry(REFUNDED, line.currency, -line.refunded),
            Entry(FEES, line.currency, line.fees),
        ]
        if line.currency != settlement.settlement_currency:
            exchange = _exchange(line, is_taken=settlement.taken is not None)
            entries.append(Entry(FX, line.currency, line.net, exchange))
            entries.append(Entry(FX, settlement.settlement_currency, -line.net_settlement, exchange))
    return entries


def _exchange(line: SettlementLine, *, is_taken: bool) -> str:
    """How a net was exchanged; of a settlement that was taken only the ratio is known that its amounts imply."""
    conversion = line.conversion
    period = line.period.isoformat() if line.period else None
    fraction = f"{conversion.numerator}/{conversion.denominator}"
    if is_taken:
        return canonical({"source": "processor", "ratio": fraction, "period": period})
    return canonical(
        {
            "rates": dict(conversion.published),
            "fraction": fraction,
            "remainder": f"{conversion.remainder}/{conversion.denominator}",
            "period": period,
        }
    )


_EPOCH_DAY = Date(1970, 1, 1)
