"""What a run saw beside the rows that it settles, told in one line each, and as JSON. Pure."""

from collections.abc import Iterable
from typing import Any

from paykit_settle.models import ITEMISED, LatePeriod, MovedRow, RunNotes, Settlement

NAMED_MAX = 5


def notes_lines(settlement: Settlement) -> list[str]:
    """Return a line for everything that is named: a label of up to eight characters, two spaces, and the rest."""
    notes, lines = settlement.notes, list[str]()
    for index, day in enumerate(notes.earlier_days[:NAMED_MAX]):
        lines.append(f"{'earlier' if index == 0 else '':<8} {day.period} {day.how}: {day.why}")
    if len(notes.earlier_days) > NAMED_MAX:
        lines.append(f"{'':<8} and {len(notes.earlier_days) - NAMED_MAX} days more")
    for late in settlement.late:
        lines += _period_lines(late)
    for held in notes.held_back:
        lines.append(f"owed     {held.count} late row{_s(held.count)} of {held.period} for now: {held.why}")
    if notes.moved:
        lines.append(f"moved    {_count(notes.moved_count)} passed over: {_named(map(_moved, notes.moved))}")
    lines += [f"unread   {day.period}: {day.given_up}" for day in notes.earlier_days if day.given_up is not None]
    if notes.waiting:
        lines.append(f"waiting  days that later runs list: {_named(day.isoformat() for day in notes.waiting)}")
    if notes.written_off_available:
        lines.append(f"back     written off, and available now: {_named(notes.written_off_available)}")
    return lines


def taken_text(taken: str) -> str:
    """Return what is to be known of a settlement that was taken from the processor."""
    if taken == ITEMISED:
        return "the processor's settlement, not computed here: lines and ratios are its word"
    return "the processor's settlement, not computed here: only its total is known"


def earlier_days_lines(notes: RunNotes) -> list[str]:
    """Return a line for each earlier day that was read, with how and why."""
    return [f"{day.period} {day.how}: {day.why}" for day in notes.earlier_days]


def notes_json(notes: RunNotes) -> dict[str, Any]:
    """Return the same as JSON values."""
    return {
        "moved": [
            {
                "id": row.id,
                "period": row.period.isoformat(),
                "run_id": row.run,
                "held_under": row.held_under.isoformat() if row.held_under else None,
                "is_different": row.is_different,
            }
            for row in notes.moved
        ],
        "moved_count": notes.moved_count,
        "earlier_days": [
            {"period": day.period.isoformat(), "how": day.how, "why": day.why, "given_up": day.given_up}
            for day in notes.earlier_days
        ],
        "waiting_days": [day.isoformat() for day in notes.waiting],
        "held_back": [
            {"period": held.period.isoformat(), "count": held.count, "ids": list(held.ids), "why": held.why}
            for held in notes.held_back
        ],
        "written_off_available": list(notes.written_off_available),
    }


def _period_lines(late: LatePeriod) -> list[str]:
    named = (
        ("changed ", "settled rows", late.changed_ids),
        ("vanished", "rows", late.vanished_ids),
        ("wrong   ", "rows", late.wrong_ids),
        ("amended ", "owed rows", late.amended_ids),
    )
    return [f"{label} {what} of {late.period}: {_named(ids)}" for label, what, ids in named if ids]


def _moved(row: MovedRow) -> str:
    return f"{row.id} ({row.run}, {row.held_under})" if row.run else f"{row.id} (written off)"


def _named(names: Iterable[str]) -> str:
    known = list(names)
    more = len(known) - NAMED_MAX
    return ", ".join(known[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


def _count(count: int) -> str:
    return f"{count} row{_s(count)}"


def _s(count: int) -> str:
    return "s" * (count != 1)
