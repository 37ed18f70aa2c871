"""What `verify` counts, against a count by brute force that keeps every row: for any pages at all, torn as they may be.

Without it, a mix that nobody thought of (a repeat that is cut, a row without a time on three pages, a moved row twice)
could be counted twice or not at all while every test of one thing passes.
"""

import json
from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from paykit_settle.verify_pages import WHOLE, DayPages, Evidence, EvidenceDay, EvidencePage, EvidenceWindow
from paykit_settle.verify_rows import DayCount

DAY, END = "2026-01-15", 100
IDS = st.sampled_from("abcdefgh")


@st.composite
def rows(draw: st.DrawFn) -> dict[str, object]:
    """A row of the day, of the seconds around it, or without a time; few ids, so that they meet."""
    row: dict[str, object] = {
        "id": draw(IDS),
        "type": draw(st.sampled_from(["charge", "charge", "payout"])),
        "amount": draw(st.sampled_from([-5, 0, 7])),
        "fee": draw(st.sampled_from([0, 1])),
        "currency": draw(st.sampled_from(["usd", "USD", "eur"])),
        "status": draw(st.sampled_from(["available", "available", "pending"])),
    }
    at = draw(st.sampled_from([None, -1, 0, 30, 49, 50, 51, 99, 100]))
    return row if at is None else row | {"created": at}


@st.composite
def sheets(draw: st.DrawFn) -> list[tuple[tuple[int, int], list[dict[str, object]]]]:
    """Pages, each with the span that it owns; their rows are drawn from a few, so that copies are often alike."""
    known = draw(st.lists(rows(), min_size=1, max_size=8))
    spans = st.sampled_from([(0, END), (0, 50), (50, END)])
    return draw(st.lists(st.tuples(spans, st.lists(st.sampled_from(known), max_size=6)), max_size=5))


def by_force(
    pages: Sequence[tuple[tuple[int, int], Sequence[Mapping[str, object]]]], late: set[str] | None, moved: set[str]
) -> tuple[dict[str, tuple[int, int, int]], set[str], set[str], set[str]]:
    """Sums by currency, and the ids counted nowhere, counted twice differently, and wanted but on no page."""
    owned: dict[str, list[Mapping[str, object]]] = {}
    cut = set()
    for (start, end), listed in pages:
        for row in listed:
            at = row.get("created")
            if late is not None and row["id"] not in late:
                continue
            if at is None or (isinstance(at, int) and start <= at < end):
                owned.setdefault(str(row["id"]), []).append(row)
            elif isinstance(at, int) and 0 <= at < END:
                cut.add(str(row["id"]))
    sums: dict[str, tuple[int, int, int]] = {}
    for identity, copies in owned.items():
        row = copies[0]
        if identity in moved or row["status"] != "available" or row["type"] == "payout":
            continue
        currency, amount, fee = str(row["currency"]).lower(), int(str(row["amount"])), int(str(row["fee"]))
        charged, refunded, fees = sums.get(currency, (0, 0, 0))
        sums[currency] = (charged + max(amount, 0), refunded + min(amount, 0), fees + fee)
    differing = {identity for identity, copies in owned.items() if any(copy != copies[0] for copy in copies)}
    return sums, cut - set(owned), differing, ((late or set()) | moved) - set(owned)


@given(sheets(), st.none() | st.sets(IDS, max_size=5), st.sets(IDS, max_size=3))
def test_every_id_counts_once_or_is_named(
    pages: list[tuple[tuple[int, int], list[dict[str, object]]]], late: set[str] | None, moved: set[str]
) -> None:
    moved = set() if late is not None else moved
    stored = [
        EvidencePage(
            period=DAY,
            number=number,
            body=json.dumps({"data": listed}).encode(),
            body_sha256="",
            chain_sha256="",
            has_more=False,
            window=0,
            window_start_s=span[0],
            window_end_s=span[1],
        )
        for number, (span, listed) in enumerate(pages, start=1)
    ]
    window = EvidenceWindow(number=0, start_s=0, end_s=END)
    day = EvidenceDay(start_s=0, end_s=END, windows=[window], first_page=1, outcome=WHOLE)
    read = DayPages(Evidence(days={DAY: day}, pages=lambda _day: iter(stored)), DAY, is_own=late is None)
    count = DayCount(DAY, read, tuple, late=late, moved=moved)
    count.count()
    sums, lost, differing, missing = by_force(pages, late, moved)
    named = {
        "counted nowhere": {fault[0] for fault in count.faults if fault.endswith("counted nowhere")},
        "different content": {fault[0] for fault in count.faults if fault.endswith("with different content")},
        "on no page": {fault[0] for fault in count.faults if "stands on no page" in fault},
    }
    assert named == {"counted nowhere": lost, "different content": differing, "on no page": missing}
    if not differing:
        assert {currency: tuple(each) for currency, each in count.sums.by_currency.items()} == sums
