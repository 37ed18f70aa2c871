"""What a recheck found, as JSON values and as lines of text. Pure."""

from typing import Any

from paykit_settle.recheck import RecheckedDay


def recheck_json(account: str, day: RecheckedDay) -> dict[str, Any]:
    """Return one day as JSON values: counts, and the ids of what there is to see."""
    return {
        "account": account,
        "date": day.day.isoformat(),
        "rows": day.row_count,
        "late": list(day.late_ids),
        "pending": list(day.pending_ids),
        "changed": [seen.transaction_id for seen in day.changed],
        "vanished": [seen.transaction_id for seen in day.vanished],
        "wrong": [{"id": seen.transaction_id, "detail": seen.detail} for seen in day.wrong],
        "reason": day.reason,
    }


def recheck_lines(day: RecheckedDay) -> list[str]:
    """Return the same for a person: one line for a day that is as it was settled."""
    if day.reason is not None:
        return [f"{day.day}  not read: {day.reason}"]
    found = [
        *(("late", identity) for identity in day.late_ids),
        *(("pending", identity) for identity in day.pending_ids),
        *((seen.kind, seen.transaction_id + (f"  {seen.detail}" if seen.detail else ""))
          for seen in (*day.changed, *day.vanished, *day.wrong)),
    ]  # fmt: skip
    rows = f"{day.day}  {day.row_count} row{'s' * (day.row_count != 1)}"
    return [rows + ("" if found else ", as they were settled"), *(f"    {kind:<9} {what}" for kind, what in found)]
