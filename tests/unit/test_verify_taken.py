"""A settlement that was taken from the processor is held together: its bytes, what is shown, what is booked, its pages.

Without it, whoever changes the taken bytes, a line or an entry would be believed, for nothing is recomputed of it.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from paykit_settle.verify import Basis, Claimed
from paykit_settle.verify_pages import WHOLE, Evidence, EvidenceDay, EvidencePage, EvidenceWindow
from paykit_settle.verify_taken import copy_differs, taken_differences

DAY = "2026-01-15"
NAMES = ("charged", "refunded", "fees", "net", "net_settlement")
LINES = [("usd", None, (100, 0, 3, 97, 97)), ("eur", "2026-01-14", (92, -10, 0, 82, 89))]
TOTAL = 186
ENTRIES = (
    ("@processor.charged", "usd", -100),
    ("@processor.fees", "usd", 3),
    ("@processor.charged", "eur", -92),
    ("@processor.refunded", "eur", 10),
    ("@fx", "eur", 82),
    ("@fx", "usd", -89),
    ("balance", "usd", TOTAL),
)
BY_TOTAL = (("@processor.unitemised", "usd", -TOTAL), ("balance", "usd", TOTAL))


def entry(**changes: object) -> dict[str, Any]:
    lines = [
        {"currency": currency.upper(), **dict(zip(NAMES, amounts, strict=True))} | ({"period": day} if day else {})
        for currency, day, amounts in LINES
    ]
    members = {"id": "setl_9", "status": "created", "account": "acct_123", "date": DAY, "settlement_currency": "USD"}
    return {**members, "lines": lines, "total_net": TOTAL, **changes}


def a_claim(members: object, *, is_itemised: bool = True) -> Claimed:
    body = json.dumps(members).encode()
    shown = [
        {"currency": currency, "period": day, **dict(zip(NAMES, amounts, strict=True))}
        for currency, day, amounts in LINES
    ]
    return Claimed(
        basis=Basis(account="acct_123", date=DAY, settlement_currency="usd", rates=None, scales={}),
        attempt=2,
        body=body,
        body_sha256=hashlib.sha256(body).hexdigest(),
        idempotency_key="",
        evidence_sha256=_evidence()[1],
        shown_lines=shown if is_itemised else [],
        shown_total=TOTAL,
        entries=ENTRIES if is_itemised else BY_TOTAL,
    )


def _evidence(body: bytes = b'{"data":[],"has_more":false}') -> tuple[Evidence, str]:
    digest = hashlib.sha256(body).hexdigest()
    chain = hashlib.sha256(digest.encode()).hexdigest()
    page = EvidencePage(
        period=DAY, number=1, body=body, body_sha256=digest, chain_sha256=chain, has_more=False, window=1,
        window_start_s=0, window_end_s=10,
    )  # fmt: skip
    window = EvidenceWindow(number=1, start_s=0, end_s=10)
    day = EvidenceDay(start_s=0, end_s=10, windows=[window], first_page=1, outcome=WHOLE)
    whole = hashlib.sha256(json.dumps([[DAY, chain]]).encode()).hexdigest()
    return Evidence(days={DAY: day}, pages=lambda _period: [page]), whole


def faults(claim: Claimed, *, is_itemised: bool = True, settlement_id: str = "setl_9") -> list[str]:
    return taken_differences(claim, _evidence()[0], settlement_id=settlement_id, is_itemised=is_itemised)


def test_taken_settlement_that_belongs_together_has_no_fault() -> None:
    assert faults(a_claim(entry())) == []
    assert faults(a_claim(entry(lines=None), is_itemised=False), is_itemised=False) == []


def _with_line(**changes: object) -> dict[str, Any]:
    members = entry()
    members["lines"][0] |= changes
    return members


@pytest.mark.parametrize(
    ("members", "told"),
    [
        (entry(id="setl_8"), "not the one that the run is posted as"),
        (entry(settlement_currency="eur"), "not the one that the run is posted as"),
        (entry(total_net=185), "lines do not come to its total"),
        (_with_line(net_settlement=98), "lines do not come to its total"),
        (_with_line(fees=4), "line 1 of the taken settlement is not the sum of its parts"),
        (_with_line(charged=101, fees=4), "the settlement that is shown is not the one"),
        (entry(lines=[]), "what is booked is not what was sent"),
        (entry(lines=None), "bytes are no settlement"),
        (entry(total_net=None), "bytes are no settlement"),
        (entry(settlement_currency=7), "bytes are no settlement"),
        (_with_line(currency="xxx"), "bytes are no settlement"),
        ([], "bytes are no settlement"),
    ],
)
def test_changed_bytes_are_found(members: object, told: str) -> None:
    assert any(told in fault for fault in faults(a_claim(members)))


def _entries(claim: Claimed) -> Claimed:
    return replace(claim, entries=[*(claim.entries or ())][:-1])


def _shown(claim: Claimed) -> Claimed:
    return replace(claim, shown_total=TOTAL + 1)


def _digest(claim: Claimed) -> Claimed:
    return replace(claim, body_sha256="ab" * 32)


def _pages(claim: Claimed) -> Claimed:
    return replace(claim, evidence_sha256="ab" * 32)


@pytest.mark.parametrize("is_itemised", [True, False])
@pytest.mark.parametrize(
    ("change", "told"),
    [
        (_entries, "what is booked is not what was sent"),
        (_entries, "entries sum to"),
        (_shown, "the settlement that is shown is not the one that was sent"),
        (_digest, "digest is not that of its bytes"),
        (_pages, "the pages are not the ones"),
    ],
)
def test_what_was_changed_beside_the_bytes_is_found(
    change: Callable[[Claimed], Claimed], told: str, *, is_itemised: bool
) -> None:
    claim = change(a_claim(entry(), is_itemised=is_itemised))
    assert any(told in fault for fault in faults(claim, is_itemised=is_itemised))


def test_copy_of_the_processor_differs_in_what_it_says_of_money_only() -> None:
    taken = json.dumps(entry()).encode()
    assert not copy_differs(taken, json.dumps(entry(status="paid", more=1), indent=1, sort_keys=True).encode())
    assert copy_differs(taken, json.dumps(entry(total_net=TOTAL + 1)).encode())
    assert copy_differs(taken, json.dumps(_with_line(fees=4)).encode())
    assert copy_differs(taken, json.dumps(entry(settlement_currency="eur")).encode())
