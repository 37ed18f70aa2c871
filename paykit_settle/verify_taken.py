"""Holds a settlement that was taken from the processor together: its bytes, what is shown, what is booked. Pure.

Its lines are the processor's word: they are added up, not recomputed from the rows. It shares no code with the run.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from paykit_settle.verify import Claimed, held_against, in_iso, movements, to_iso
from paykit_settle.verify_pages import DayPages, Evidence, evidence_faults

MEMBERS = ("account", "date", "settlement_currency", "lines", "total_net")
"""What makes two copies of a settlement the same; its status may go on."""


def taken_differences(claimed: Claimed, evidence: Evidence, *, settlement_id: str, is_itemised: bool) -> list[str]:
    """Return every way in which pages, bytes, what is shown and what is booked do not belong together."""
    found = _page_faults(claimed, evidence)
    if hashlib.sha256(claimed.body).hexdigest() != claimed.body_sha256:
        found.append("the taken settlement's digest is not that of its bytes")
    try:
        entry = json.loads(claimed.body)
        named = entry["id"], entry["settlement_currency"].lower()
        total = to_iso(claimed, entry["total_net"], claimed.basis.settlement_currency)
        lines = [_line(claimed, line) for line in entry["lines"]] if is_itemised else []
    except (ValueError, KeyError, TypeError, AttributeError):
        return [*found, "the taken settlement's bytes are no settlement"]
    if named != (settlement_id, claimed.basis.settlement_currency):
        found.append("the taken settlement is not the one that the run is posted as")
    if not is_itemised:
        target = claimed.basis.settlement_currency
        booked = [("balance", target, total), ("@processor.unitemised", target, -total)]
        return found + held_against(claimed, [], total, booked)
    if sum(line["net_settlement"] for line in lines) != total:
        found.append("the taken settlement's lines do not come to its total")
    for number, line in enumerate(lines, start=1):
        if line["net"] != line["charged"] + line["refunded"] - line["fees"]:
            found.append(f"line {number} of the taken settlement is not the sum of its parts")
    return found + held_against(claimed, lines, total, movements(claimed, lines, total))


def copy_differs(taken: bytes, copy: bytes) -> bool:
    """Return whether the processor's settlement says anything else of money now than when it was taken."""
    return _said(json.loads(taken)) != _said(json.loads(copy))


def _said(entry: Mapping[str, Any]) -> list[str]:
    return [json.dumps(entry.get(name), sort_keys=True) for name in MEMBERS]


def _line(claimed: Claimed, line: Mapping[str, Any]) -> dict[str, Any]:
    return in_iso(claimed, {**line, "currency": line["currency"].lower()})


def _page_faults(claimed: Claimed, evidence: Evidence) -> list[str]:
    """What is wrong with the pages as such. Which rows they hold proves nothing of lines that were taken."""
    own = claimed.basis.date
    days = [DayPages(evidence, period, is_own=period == own) for period in sorted({own, *evidence.days})]
    for pages in days:
        for _ in pages.counted():
            pass
    return evidence_faults(days, evidence.answers(), claimed.evidence_sha256)
