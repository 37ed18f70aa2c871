"""The object that a transaction's `source` stands for, for `expand[]=data.source`.

Only what follows from the row itself: the fake has no charges, refunds or payouts of their own.
"""

from __future__ import annotations

from collections.abc import Mapping

OBJECTS = {
    "ch": "charge",
    "py": "charge",
    "re": "refund",
    "pyr": "refund",
    "du": "dispute",
    "po": "payout",
    "fee": "application_fee",
}


def with_source(row: Mapping[str, object]) -> dict[str, object]:
    """The row with its source as an object; unchanged when it has none."""
    source = row.get("source")
    if not isinstance(source, str):
        return dict(row)
    amount = row.get("amount")
    expanded = {
        "id": source,
        "object": OBJECTS.get(source.partition("_")[0], "source"),
        "amount": abs(amount) if type(amount) is int else amount,
        "balance_transaction": row.get("id"),
        "created": row.get("created"),
        "currency": row.get("currency"),
        "livemode": False,
    }
    return {**row, "source": expanded}
