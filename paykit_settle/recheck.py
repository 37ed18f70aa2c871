"""`recheck`: days that were settled are listed again and held against what was settled of them. It settles nothing.

What differs goes into the register of differences, for a person to end.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date as Date
from typing import Any

import apsw

from paykit_settle.client import ProcessorClient
from paykit_settle.run import RunOptions
from paykit_settle.store.differences import Seen, note_differences, note_unchanged
from paykit_settle.store.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class RecheckedDay:
    """What one day shows when it is listed again. `reason`: why it could not be read whole; then nothing else counts.

    `late_ids` are rows that are available and that nobody has settled yet, `pending_ids` those that are owed;
    `unchanged_ids` rows with an open difference that are as they should be.
    """

    day: Date
    row_count: int = 0
    late_ids: Sequence[str] = ()
    pending_ids: Sequence[str] = ()
    changed: Sequence[Seen] = ()
    vanished: Sequence[Seen] = ()
    wrong: Sequence[Seen] = ()
    unchanged_ids: Sequence[str] = field(default=())
    reason: str | None = None

    @property
    def has_something_to_see(self) -> bool:
        """Whether somebody should look: rows that were not settled, or not as they are; pending ones are only named."""
        return bool(self.reason or self.late_ids or self.changed or self.vanished or self.wrong)


async def recheck(
    client: ProcessorClient, store: Store, account: str, first: Date, last: Date, options: RunOptions
) -> list[RecheckedDay]:
    """Return each day of the span, in order, as the processor lists it now; one without a posted run has a `reason`."""
    raise NotImplementedError


async def recheck_and_register(
    client: ProcessorClient, store: Store, account: str, first: Date, last: Date, options: RunOptions, *, now_ms: int
) -> list[RecheckedDay]:
    """Return the same, with what differs entered in the register of differences."""
    days = await recheck(client, store, account, first, last, options)

    def register(connection: apsw.Connection) -> None:
        for day in days:
            if day.reason is None:
                note_differences(connection, None, [*day.changed, *day.vanished, *day.wrong], now_ms=now_ms)
                note_unchanged(connection, account, day.unchanged_ids, now_ms=now_ms)

    await store.write(register)
    return days


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
