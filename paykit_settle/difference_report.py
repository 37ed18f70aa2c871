"""Differences as machines and people see them: what a row was, what it is now, since when, and what came of it. Pure.

A row's amounts are in the processor's own scale for machines, as it sent them; people see them in major units.
"""

from datetime import UTC, datetime
from typing import Any

from paykit_settle.corrections import decode_row
from paykit_settle.errors import SettleError
from paykit_settle.money import ScaleProfile, canonical_currency, format_amount
from paykit_settle.store.decisions import state_text
from paykit_settle.store.differences import Difference

_STATES = {None: "open", "settle": "to_settle", "dismiss": "dismissed"}


def difference_json(difference: Difference) -> dict[str, Any]:
    """Return one entry of the register as JSON values; `difference_id` is the cursor of lists."""
    is_settled = difference.taken_by_run is not None
    decision = difference.decision
    return {
        "difference_id": difference.id,
        "account": difference.account,
        "id": difference.transaction_id,
        "revision": difference.revision,
        "period": difference.period.isoformat(),
        "kind": difference.kind,
        "was": _row_json(difference.was),
        "is": _row_json(difference.is_now),
        "detail": difference.detail,
        "since": _time(difference.seen_at_ms),
        "seen_by_run": _run_id(difference.seen_by_run),
        "held_by_run": _run_id(difference.held_by_run),
        "state": "settled" if is_settled else _STATES.get(decision, (decision or "").replace(" ", "_")),
        "decided_by": difference.decided_by,
        "decided_at": None if difference.decided_at_ms is None else _time(difference.decided_at_ms),
        "reason": difference.reason,
        "settled_in_run": _run_id(difference.taken_by_run),
        "settled_on": difference.taker_date.isoformat() if difference.taker_date else None,
    }


def difference_lines(difference: Difference, scale: ScaleProfile) -> list[str]:
    """Return the same for a person, in lines of at most 80 columns where names and reasons allow it."""
    seen = datetime.fromtimestamp(difference.seen_at_ms // 1000, UTC)
    holder = _run_id(difference.held_by_run)
    lines = [
        f"{difference.period}  {difference.transaction_id:<20} {difference.kind:<9} {state_text(difference)}",
        f"    since {seen:%Y-%m-%d %H:%M} UTC, " + (f"settled by {holder}" if holder else "never settled"),
        f"    was  {_row_text(difference.was, scale)}",
        f"    is   {_row_text(difference.is_now, scale)}",
    ]
    if difference.detail:
        lines.append(f"    why  {difference.detail}")
    said = ": ".join(text for text in (difference.decided_by, difference.reason) if text)
    return [*lines, f"    said {said}"] if said else lines


def _row_json(row: bytes | None) -> dict[str, Any] | None:
    if row is None:
        return None
    try:
        found = decode_row(row)
    except ValueError:
        return {"raw": row.decode("utf-8", "replace")}
    names = ("type", "reporting_category", "status", "currency", "amount", "fee", "net", "created")
    return {name: getattr(found, name) for name in names}


def _row_text(row: bytes | None, scale: ScaleProfile) -> str:
    if row is None:
        return "not there"
    try:
        found = decode_row(row)
    except ValueError:
        return f"no row: {row[:60]!r}"
    amount, fee = (_amount(value, found.currency, scale) for value in (found.amount, found.fee))
    return f"{found.type} {found.status} {amount}, fee {fee}"


def _amount(amount: int, currency: str, scale: ScaleProfile) -> str:
    try:
        canonical = canonical_currency(currency)
        return format_amount(scale.from_wire(amount, canonical), canonical)
    except SettleError:  # what is wrong with a row may be this very amount
        return f"{amount} {currency}"


def _run_id(number: int | None) -> str | None:
    return None if number is None else f"run_{number:06d}"


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
