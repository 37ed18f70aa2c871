"""What a posted settlement books: one balanced journal per day and account. Pure."""

from datetime import date as Date

from paykit_settle.journal import BALANCE, Entry, Journal, canonical, fingerprint
from paykit_settle.models import Settlement

SETTLEMENT = "settlement"
CHARGED, REFUNDED, FEES = "@processor.charged", "@processor.refunded", "@processor.fees"
"""Counter-accounts of what the processor owes a tenant; their sum is the processor's debt."""
FX = "@fx"
"""The counter-account between the currencies that came in and the one that is settled in."""


def settlement_journal(
    settlement: Settlement, *, tenant: str, idempotency_key: str, body_sha256: str, settlement_id: str, now_ms: int
) -> Journal:
    """A posted settlement as one balanced journal: what was charged, refunded and kept, the exchange, the balance.

    Dated by the settlement's date; its key is the account and the day, so a second booking of a day is a replay.
    What rounding cannot express in a minor unit stands in the entry's details and is not booked.
    """
    entries: list[Entry] = []
    for line in settlement.lines:
        entries += [
            Entry(CHARGED, line.currency, -line.charged),
            Entry(REFUNDED, line.currency, -line.refunded),
            Entry(FEES, line.currency, line.fees),
        ]
        if line.currency != settlement.settlement_currency:
            exchange = canonical(
                {
                    "rates": dict(line.conversion.published),
                    "fraction": f"{line.conversion.numerator}/{line.conversion.denominator}",
                    "remainder": f"{line.conversion.remainder}/{line.conversion.denominator}",
                    "period": line.period.isoformat() if line.period else None,
                }
            )
            entries.append(Entry(FX, line.currency, line.net, exchange))
            entries.append(Entry(FX, settlement.settlement_currency, -line.net_settlement, exchange))
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


_EPOCH_DAY = Date(1970, 1, 1)
