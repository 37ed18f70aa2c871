"""What corrections add to an earlier day, for `verify`: by code of its own, over the bytes that are the evidence. Pure.

Shares nothing with `corrections.py`, on purpose: what both agree on is right twice.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

NOT_SETTLED = ("payout", "payout_cancel", "payout_failure", "topup", "topup_reversal")


def correction_rows(corrections: Sequence[tuple[bytes | None, bytes | None]]) -> list[dict[str, Any]]:
    """Return the rows that pairs of what was settled and what is there now come to, amounts as on the wire.

    Each has currency, amount and fee, and is summed like any row of the day.
    """
    added = []
    for was, now in corrections:
        old, new = _counted(was), _counted(now)
        if old and new and old["currency"].lower() == new["currency"].lower():
            sides = [_row(new, new["amount"] - old["amount"], new["fee"] - old["fee"])]
        else:
            sides = [_row(old, -old["amount"], -old["fee"])] if old else []
            sides += [_row(new, new["amount"], new["fee"])] if new else []
        added += [row for row in sides if (row["amount"], row["fee"]) != (0, 0)]
    return added


def _counted(side: bytes | None) -> Mapping[str, Any] | None:
    row = None if side is None else json.loads(side)
    return row if row and row["status"] == "available" and row["type"] not in NOT_SETTLED else None


def _row(row: Mapping[str, Any], amount: int, fee: int) -> dict[str, Any]:
    return {"currency": row["currency"].lower(), "amount": amount, "fee": fee}
