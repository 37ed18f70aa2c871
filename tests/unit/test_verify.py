"""`verify` finds every kind of tampering and every slip of the roll-up, and shares no code with it.

Without these, a check that never fires would look exactly like a settlement that is right.
"""

import ast
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from paykit_settle import verify, verify_corrections
from paykit_settle.verify import Claimed, EvidencePage, EvidenceWindow, differences

DAY, BEFORE = "2026-01-15", "2026-01-14"
RATES = b'{"object":"fx_rates","base":"usd","rates":{"eur":"0.92","gbp":0.79,"jpy":"150"}}'
ROWS = {
    DAY: [
        {"id": "e1", "type": "charge", "amount": 14000, "fee": 465, "currency": "EUR", "status": "available"},
        {"id": "g1", "type": "charge", "amount": 8000, "fee": 280, "currency": "gbp", "status": "available"},
        {"id": "j1", "type": "charge", "amount": 150000, "fee": 0, "currency": "jpy", "status": "available"},
        {"id": "u1", "type": "charge", "amount": 25000, "fee": 785, "currency": "usd", "status": "available"},
        {"id": "u2", "type": "refund", "amount": -3500, "fee": 0, "currency": "usd", "status": "available"},
        {"id": "u2", "type": "refund", "amount": -3500, "fee": 0, "currency": "usd", "status": "available"},
        {"id": "p1", "type": "charge", "amount": 99900, "fee": 1, "currency": "usd", "status": "pending"},
        {"id": "o1", "type": "payout", "amount": -41000, "fee": 0, "currency": "usd", "status": "available"},
    ],
    BEFORE: [
        {"id": "l1", "type": "charge", "amount": 100, "fee": 0, "currency": "usd", "status": "available"},
        {"id": "l2", "type": "charge", "amount": 7, "fee": 2, "currency": "usd", "status": "available"},
    ],
}
LINES = [
    ("eur", None, 14000, 0, 465, 13535, 14712),
    ("gbp", None, 8000, 0, 280, 7720, 9772),
    ("jpy", None, 150000, 0, 0, 150000, 100000),
    ("usd", None, 25000, -3500, 785, 20715, 20715),
    ("usd", BEFORE, 7, 0, 2, 5, 5),
]
NAMES = ("currency", "period", "charged", "refunded", "fees", "net", "net_settlement")
TOTAL = 145204


def a_page(period: str, number: int, rows: list[Mapping[str, object]], before: str, *, more: bool) -> EvidencePage:
    body = json.dumps({"data": rows, "has_more": more}).encode()
    digest = hashlib.sha256(body).hexdigest()
    chained = hashlib.sha256(f"{before}{digest}".encode()).hexdigest()
    return EvidencePage(
        period=period,
        number=number,
        body=body,
        body_sha256=digest,
        chain_sha256=chained,
        has_more=more,
        window=1,
        window_start_s=0,
        window_end_s=86_400,
    )


def faults(claim: Claimed, pages: list[EvidencePage]) -> list[str]:
    """The differences, where each day was read in one window."""
    days = sorted({page.period for page in the_pages()} if len(pages) > 1 else {page.period for page in pages})
    windows = [EvidenceWindow(period=day, number=1, start_s=0, end_s=86_400) for day in days]
    return differences(claim, pages, windows, dict.fromkeys(days, (0, 86400)))


def the_pages() -> list[EvidencePage]:
    late = a_page(BEFORE, 1, list(ROWS[BEFORE]), "", more=False)
    first = a_page(DAY, 1, list(ROWS[DAY][:5]), "", more=True)
    return [late, first, a_page(DAY, 2, list(ROWS[DAY][5:]), first.chain_sha256, more=False)]


def digest_of(pages: list[EvidencePage]) -> str:
    ends = {page.period: page.chain_sha256 for page in pages}
    return hashlib.sha256(json.dumps(sorted(ends.items())).encode()).hexdigest()


def wire_line(line: Mapping[str, object]) -> dict[str, object]:
    order = ("currency", "charged", "refunded", "fees", "net", "net_settlement")
    wire = {name: line[name] for name in order}
    return wire | ({"period": line["period"]} if line["period"] else {})


def the_claim() -> Claimed:
    lines = [dict(zip(NAMES, line, strict=True)) for line in LINES]
    body = json.dumps(
        {
            "account": "acct_123",
            "date": DAY,
            "settlement_currency": "usd",
            "lines": [wire_line(line) for line in lines],
            "total_net": TOTAL,
        },
        separators=(",", ":"),
    ).encode()
    identity = hashlib.sha256(f'["acct_123","{DAY}",1]'.encode()).hexdigest()[:32]
    return Claimed(
        account="acct_123",
        date=DAY,
        attempt=1,
        settlement_currency="usd",
        body=body,
        body_sha256=hashlib.sha256(body).hexdigest(),
        idempotency_key=f"settlement_{DAY}_1_{identity}",
        rates=RATES,
        scales={},
        late_ids={BEFORE: ["l2"]},
        evidence_sha256=digest_of(the_pages()),
        shown_lines=lines,
        shown_total=TOTAL,
        entries=ENTRIES,
    )


ENTRIES = [
    ("@processor.charged", "eur", -14000), ("@processor.fees", "eur", 465), ("@fx", "eur", 13535),
    ("@fx", "usd", -14712), ("@processor.charged", "gbp", -8000), ("@processor.fees", "gbp", 280),
    ("@fx", "gbp", 7720), ("@fx", "usd", -9772), ("@processor.charged", "jpy", -150000), ("@fx", "jpy", 150000),
    ("@fx", "usd", -100000), ("@processor.charged", "usd", -25007), ("@processor.refunded", "usd", 3500),
    ("@processor.fees", "usd", 787), ("balance", "usd", TOTAL),
]  # fmt: skip


def test_right_settlement_has_no_differences() -> None:
    assert faults(the_claim(), the_pages()) == []


def test_settlement_that_is_not_booked_yet_has_no_differences() -> None:
    assert faults(replace(the_claim(), entries=None), the_pages()) == []


Change = Callable[[Claimed, list[EvidencePage]], tuple[Claimed, list[EvidencePage]]]


def claim_with(**changes: object) -> Change:
    return lambda claim, pages: (replace(claim, **changes), pages)  # type: ignore[arg-type]  # the test's own fields


def body_with(old: bytes, new: bytes) -> Change:
    def change(claim: Claimed, pages: list[EvidencePage]) -> tuple[Claimed, list[EvidencePage]]:
        body = claim.body.replace(old, new)
        assert body != claim.body
        return replace(claim, body=body, body_sha256=hashlib.sha256(body).hexdigest()), pages

    return change


def page_with(index: int, old: bytes, new: bytes, *, hide: bool = False) -> Change:
    """Changes a page's bytes; with `hide` its digests, its chain and the digest of the whole are made to fit."""

    def change(claim: Claimed, pages: list[EvidencePage]) -> tuple[Claimed, list[EvidencePage]]:
        assert pages[index].body is not None
        body = (pages[index].body or b"").replace(old, new)
        assert body != pages[index].body
        pages[index] = replace(pages[index], body=body)
        if hide:
            digest = hashlib.sha256(body).hexdigest()
            before = pages[index - 1].chain_sha256 if pages[index].number > 1 else ""
            chained = hashlib.sha256(f"{before}{digest}".encode()).hexdigest()
            pages[index] = replace(pages[index], body_sha256=digest, chain_sha256=chained)
        return claim, pages

    return change


def without_page(index: int) -> Change:
    return lambda claim, pages: (claim, pages[:index] + pages[index + 1 :])


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (page_with(2, b'"o1"', b'"o9"'), "page 2 of 2026-01-15 is not the one that was received"),
        (page_with(1, b"14000", b"14001"), "page 1 of 2026-01-15 is not the one that was received"),
        (page_with(0, b'"l1"', b'"l9"'), "page 1 of 2026-01-14 is not the one that was received"),
        (page_with(2, b'"o1"', b'"o9"', hide=True), "the pages are not the ones that the settlement was made from"),
        (page_with(2, b"-3500", b"-3501", hide=True), "the body differs"),
        (without_page(1), "page 1 of 2026-01-15 is missing"),
        (without_page(2), "window 1 of 2026-01-15 ends although more rows follow"),
        (without_page(0), "the pages are not the ones that the settlement was made from"),
        (body_with(b"145204", b"145205"), "the body differs"),
        (body_with(b'"net_settlement":14712', b'"net_settlement":14711'), "the body differs"),
        (body_with(b'"charged":14000', b'"charged": 14000'), "the body differs"),
        (body_with(b'"period":"2026-01-14"', b'"period":"2026-01-13"'), "the body differs"),
        (body_with(b"145204}", b"145204"), "the body is no settlement"),
        (claim_with(body_sha256="00" * 32), "the body's digest is not that of the body"),
        (claim_with(idempotency_key="settlement_2026-01-15_1_00"), "the idempotency key is not that of"),
        (claim_with(attempt=2), "the idempotency key is not that of"),
        (claim_with(account="acct_124"), "the idempotency key is not that of"),
        (claim_with(rates=RATES.replace(b'"0.92"', b'"0.93"')), "the body differs"),
        (claim_with(rates=RATES.replace(b'"eur"', b'"chf"')), "the body differs"),
        (claim_with(rates=RATES.replace(b'"150"', b'"-150"')), "the body differs"),
        (claim_with(rates=None), "the body differs"),
        (claim_with(scales={"jpy": 2}), "the body differs"),
        (claim_with(settlement_currency="eur"), "the body differs"),
        (claim_with(late_ids={}), "the body differs"),
        (claim_with(late_ids={BEFORE: ["l1", "l2"]}), "the body differs"),
        (claim_with(evidence_sha256="00" * 32), "the pages are not the ones that the settlement was made from"),
        (claim_with(shown_total=TOTAL + 1), "the settlement that is shown is not the one that was sent"),
        (claim_with(shown_lines=[]), "the settlement that is shown is not the one that was sent"),
        (claim_with(entries=ENTRIES[:-1]), "what is booked is not what was sent"),
        (claim_with(entries=[*ENTRIES, ("@fx", "usd", 1)]), "the journal's usd entries sum to 1, not to zero"),
        (
            claim_with(entries=[*ENTRIES, ("@external", "usd", -1), ("balance", "usd", 1)]),
            "what is booked is not what was sent",
        ),
        (claim_with(entries=[]), "what is booked is not what was sent"),
    ],
)
def test_each_kind_of_tampering_is_named(change: Change, named: str) -> None:
    found = faults(*change(the_claim(), the_pages()))
    assert [each for each in found if each.startswith(named)], found


def test_pruned_pages_are_held_to_their_digests() -> None:
    pruned = [replace(page, body=None) for page in the_pages()]
    assert faults(the_claim(), pruned) == []
    pruned[2] = replace(pruned[2], body_sha256="00" * 32)
    assert faults(the_claim(), pruned) == ["page 2 of 2026-01-15 is not the one that was received"]


def test_amounts_in_the_processors_own_scale_are_turned_into_iso() -> None:
    """A processor that sends yen with two decimals: the net is the same money, and so is what is booked."""
    row = {"id": "j1", "type": "charge", "amount": 15000000, "fee": 0, "currency": "jpy", "status": "available"}
    page = a_page(DAY, 1, [row], "", more=False)
    line = dict(zip(NAMES, ("jpy", None, 15000000, 0, 0, 15000000, 100000), strict=True))
    body = json.dumps(
        {"account": "acct_123", "date": DAY, "settlement_currency": "usd", "lines": [wire_line(line)],
         "total_net": 100000},
        separators=(",", ":"),
    ).encode()  # fmt: skip
    claim = replace(
        the_claim(),
        body=body,
        body_sha256=hashlib.sha256(body).hexdigest(),
        scales={"jpy": 2},
        late_ids={},
        evidence_sha256=digest_of([page]),
        shown_lines=[line | {"charged": 150000, "net": 150000}],
        shown_total=100000,
        entries=[
            ("@processor.charged", "jpy", -150000),
            ("@fx", "jpy", 150000),
            ("@fx", "usd", -100000),
            ("balance", "usd", 100000),
        ],
    )
    assert faults(claim, [page]) == []
    odd = replace(claim, body=body.replace(b"15000000", b"15000001"))
    assert "the body is no settlement" in faults(odd, [page])


@pytest.mark.parametrize(
    ("net", "rate", "expected"), [(1, "2", 1), (-1, "2", -1), (3, "2", 2), (-3, "2", -2), (1, "3", 0), (0, "7", 0)]
)
def test_tie_is_rounded_away_from_zero(net: int, rate: str, expected: int) -> None:
    claim = replace(the_claim(), rates=json.dumps({"base": "usd", "rates": {"eur": rate}}).encode())
    assert verify._convert(claim, net, "eur") == expected


def test_recomputation_shares_no_code_with_the_roll_up() -> None:
    def ours(module: ModuleType) -> set[str]:
        tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
        names = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        return {name for name in names if name.startswith("paykit_settle")}

    # The table of exponents, and nothing that computes but a part of its own.
    assert ours(verify) == {"paykit_settle.money", "paykit_settle.verify_corrections"}
    assert ours(verify_corrections) == set()


@pytest.mark.parametrize(
    ("windows", "named"),
    [
        ([(1, 0, 86_400)], None),
        ([(1, 0, 40_000)], "the windows of 2026-01-15 end at 40000, not at 86400"),
        ([(1, 60, 86_400)], "the windows of 2026-01-15 do not meet at 0"),
        ([(1, 0, 40_000), (2, 40_000, 86_400)], "window 1 of 2026-01-15 was not read to its end"),
        ([(2, 0, 86_400)], "window 2 of 2026-01-15 ends although more rows follow"),
        ([], "the windows of 2026-01-15 end at 0, not at 86400"),
    ],
)
def test_every_second_of_a_day_must_have_been_read(windows: list[tuple[int, int, int]], named: str | None) -> None:
    days = {DAY: (0, 86_400), BEFORE: (0, 86_400)}
    read = [EvidenceWindow(period=DAY, number=number, start_s=start, end_s=end) for number, start, end in windows]
    found = differences(
        the_claim(), the_pages(), [*read, EvidenceWindow(period=BEFORE, number=1, start_s=0, end_s=86_400)], days
    )
    assert found == [] if named is None else named in found


@pytest.mark.parametrize("rate", ['"x"', "null", '"0"', '"1/0"'])
def test_rate_that_is_no_number_cannot_be_recomputed_with(rate: str) -> None:
    rates = RATES.replace(b'"0.92"', rate.encode())
    assert rates != RATES
    found = faults(replace(the_claim(), rates=rates), the_pages())
    assert [each for each in found if each.startswith("the body")], found
