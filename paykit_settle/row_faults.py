"""What makes one row of a list unfit to be counted, as a sentence. Pure."""

from paykit_settle.errors import InvalidAmount, UnsupportedCurrency
from paykit_settle.models import BalanceTransaction
from paykit_settle.money import ScaleProfile, canonical_currency

STATUSES = ("available", "pending")


def row_fault(row: BalanceTransaction, start_s: int, end_s: int, scale: ScaleProfile) -> str | None:
    """Return why a row of the day `[start_s, end_s)` cannot be counted; None when it can.

    Its currency must be known, its amounts must have an exact ISO value in the processor's `scale`, `net` must follow
    from them, its status must be one that is understood, and it must have been created within the day.
    """
    try:
        currency = canonical_currency(row.currency)
        scale.from_wire(row.amount, currency)
        scale.from_wire(row.fee, currency)
    except (UnsupportedCurrency, InvalidAmount) as error:
        return str(error)
    if row.net is not None and row.net != row.amount - row.fee:
        return f"net {row.net} is not amount {row.amount} - fee {row.fee}"
    if row.status not in STATUSES:
        return f"status {row.status!r:.40} is neither available nor pending"
    if row.created is not None and not start_s <= row.created < end_s:
        return f"created {row.created} is outside the window [{start_s}, {end_s})"
    return None
