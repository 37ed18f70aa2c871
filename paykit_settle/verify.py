"""Recomputes a settlement from its evidence by other means than the run used, and names every difference.

Pure, and on purpose apart: it shares neither the roll-up's loop nor the conversion's integer arithmetic (fractions and
plain sums over parsed JSON instead), nor the writer of the body. What both agree on is right twice.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from paykit_settle.money import EXPONENTS
from paykit_settle.verify_corrections import correction_rows

NOT_SETTLED = ("payout", "payout_cancel", "payout_failure", "topup", "topup_reversal")


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidencePage:
    """A stored page: the day it was asked for, its bytes (None: pruned), and the digests that were stored with it."""

    period: str
    number: int
    body: bytes | None
    body_sha256: str
    chain_sha256: str
    has_more: bool
    window: int
    window_start_s: int
    window_end_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceWindow:
    """A window that a day was read in: `[start_s, end_s)` in unix seconds."""

    period: str
    number: int
    start_s: int
    end_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """What was stored, sent and booked, to be held against the evidence.

    `rates` is the stored table, None if none was used; `shown_lines` and `shown_total` are what people are shown, and
    `entries` what the ledger has (None: nothing is booked yet), all three in ISO minor units.
    """

    account: str
    date: str
    attempt: int
    settlement_currency: str
    body: bytes
    body_sha256: str
    idempotency_key: str
    rates: bytes | None
    scales: Mapping[str, int]
    late_ids: Mapping[str, Sequence[str]]
    evidence_sha256: str
    shown_lines: Sequence[Mapping[str, object]]
    shown_total: int
    entries: Sequence[tuple[str, str, int]] | None
    corrections: Mapping[str, Sequence[tuple[bytes | None, bytes | None]]] = field(default_factory=dict)
    """Of each earlier day the rows, as they were settled and as they are, whose difference is settled here."""


def differences(
    claimed: Claimed,
    pages: Sequence[EvidencePage],
    windows: Sequence[EvidenceWindow],
    days: Mapping[str, tuple[int, int]],
) -> list[str]:
    """Every way in which the stored settlement does not follow from the evidence; empty: it does, byte for byte.

    `days` are the spans, in unix seconds, of the days that were read: windows must tile them, each read to its end.
    Where pages were pruned, their digests are held to their chain, and the lines cannot be recomputed.
    """
    found = _digest_faults(pages, claimed.evidence_sha256) + _window_faults(pages, windows, days)
    if all(page.body is not None for page in pages):
        found += _body_faults(claimed, pages)
    if hashlib.sha256(claimed.body).hexdigest() != claimed.body_sha256:
        found.append("the body's digest is not that of the body")
    identity = hashlib.sha256(_compact([claimed.account, claimed.date, claimed.attempt])).hexdigest()
    if claimed.idempotency_key != f"settlement_{claimed.date}_{claimed.attempt}_{identity[:32]}":
        found.append("the idempotency key is not that of this account, date and attempt")
    return found + _shown_faults(claimed)


def _body_faults(claimed: Claimed, pages: Sequence[EvidencePage]) -> list[str]:
    lines = _lines(claimed, pages)
    body = _compact(
        {
            "account": claimed.account,
            "date": claimed.date,
            "settlement_currency": claimed.settlement_currency,
            "lines": lines,
            "total_net": sum(line["net_settlement"] for line in lines),
        }
    )
    if body == claimed.body:
        return []
    stored = claimed.body.decode("utf-8", "replace")
    return [f"the body differs: the evidence gives {body.decode()}, stored is {stored}"]


def _shown_faults(claimed: Claimed) -> list[str]:
    """Whether what is shown and what is booked is what was sent: its amounts, turned into ISO minor units."""
    try:
        body = json.loads(claimed.body)
        lines = [_in_iso(claimed, line) for line in body["lines"]]
        total = _to_iso(claimed, body["total_net"], claimed.settlement_currency)
    except (ValueError, KeyError, TypeError):
        return ["the body is no settlement"]
    faults = []
    if [dict(line) for line in claimed.shown_lines] != lines or claimed.shown_total != total:
        faults.append("the settlement that is shown is not the one that was sent")
    if claimed.entries is not None:
        booked = _sums(claimed.entries)
        if booked != _sums(_movements(claimed, lines, total)):
            faults.append("what is booked is not what was sent")
        for currency in sorted({currency for _, currency in booked}):
            left = sum(amount for (_, own), amount in booked.items() if own == currency)
            faults += [f"the journal's {currency} entries sum to {left}, not to zero"] * bool(left)
    return faults


def _movements(claimed: Claimed, lines: Sequence[Mapping[str, Any]], total: int) -> list[tuple[str, str, int]]:
    """What each account gains: the processor owes charges and refunds, keeps fees, and each net is exchanged."""
    target = claimed.settlement_currency
    moves = [("balance", target, total)]
    for line in lines:
        currency = line["currency"]
        moves += [
            ("@processor.charged", currency, -line["charged"]),
            ("@processor.refunded", currency, -line["refunded"]),
            ("@processor.fees", currency, line["fees"]),
        ]
        if currency != target:
            moves += [("@fx", currency, line["net"]), ("@fx", target, -line["net_settlement"])]
    return moves


def _sums(moves: Sequence[tuple[str, str, int]]) -> dict[tuple[str, str], int]:
    sums: dict[tuple[str, str], int] = {}
    for account, currency, amount in moves:
        sums[account, currency] = sums.get((account, currency), 0) + amount
    return {name: amount for name, amount in sums.items() if amount}


def _in_iso(claimed: Claimed, line: Mapping[str, Any]) -> dict[str, Any]:
    currency, target = line["currency"], claimed.settlement_currency
    shown = {name: _to_iso(claimed, line[name], currency) for name in ("charged", "refunded", "fees", "net")}
    shown["net_settlement"] = _to_iso(claimed, line["net_settlement"], target)
    return {"currency": currency, "period": line.get("period"), **shown}


def _to_iso(claimed: Claimed, amount: int, currency: str) -> int:
    exact = Fraction(amount * 10 ** EXPONENTS[currency], 10 ** _decimals(claimed, currency))
    if exact.denominator != 1:
        raise ValueError(f"{amount} {currency} has no ISO value")
    return exact.numerator


def _digest_faults(pages: Sequence[EvidencePage], evidence_sha256: str) -> list[str]:
    faults = []
    ends = {}
    for period in sorted({page.period for page in pages}):
        own = [page for page in pages if page.period == period]
        before = ""
        for expected, page in enumerate(own, start=1):
            digest = page.body_sha256 if page.body is None else hashlib.sha256(page.body).hexdigest()
            before = hashlib.sha256((before + digest).encode()).hexdigest()
            if page.number != expected:
                faults.append(f"page {expected} of {period} is missing")
                break
            if digest != page.body_sha256 or before != page.chain_sha256:
                faults.append(f"page {page.number} of {period} is not the one that was received")
                break
        ends[period] = own[-1].chain_sha256
    whole = hashlib.sha256(json.dumps(sorted(ends.items())).encode()).hexdigest()
    if whole != evidence_sha256 and not faults:
        faults.append("the pages are not the ones that the settlement was made from")
    return faults


def _window_faults(
    pages: Sequence[EvidencePage], windows: Sequence[EvidenceWindow], days: Mapping[str, tuple[int, int]]
) -> list[str]:
    """Whether every second of each day was read: windows that meet end to end, each with a last page that ends it."""
    faults = []
    for period, (start_s, end_s) in days.items():
        edge = start_s
        for window in sorted((each for each in windows if each.period == period), key=lambda each: each.start_s):
            own = [page for page in pages if page.period == period and page.window == window.number]
            if window.start_s != edge:
                faults.append(f"the windows of {period} do not meet at {edge}")
            if not own or own[-1].has_more:
                faults.append(f"window {window.number} of {period} ends although more rows follow")
            elif (own[-1].window_start_s, own[-1].window_end_s) != (window.start_s, window.end_s):
                faults.append(f"window {window.number} of {period} was not read to its end")
            edge = window.end_s
        if edge != end_s:
            faults.append(f"the windows of {period} end at {edge}, not at {end_s}")
    return faults


def _lines(claimed: Claimed, pages: Sequence[EvidencePage]) -> list[dict[str, Any]]:
    """The lines of the body, amounts as on the wire: the day's own first, then each earlier day's, by currency."""
    lines = []
    periods = {page.period for page in pages} | {*claimed.corrections, claimed.date}
    for period in sorted(periods, key=lambda day: (day != claimed.date, day)):
        late = period != claimed.date
        taken = set(claimed.late_ids.get(period, ()))
        rows = {
            row["id"]: row
            for page in pages
            if page.period == period and page.body is not None
            for row in json.loads(page.body)["data"]
            if row.get("created") is None or page.window_start_s <= row["created"] < page.window_end_s
        }
        counted = [
            row
            for row in rows.values()
            if row["status"] == "available" and row["type"] not in NOT_SETTLED and (not late or row["id"] in taken)
        ] + correction_rows(claimed.corrections.get(period, ()))
        for currency in sorted({row["currency"].lower() for row in counted}):
            own = [row for row in counted if row["currency"].lower() == currency]
            line: dict[str, Any] = {"currency": currency}
            line["charged"] = sum(row["amount"] for row in own if row["amount"] >= 0)
            line["refunded"] = sum(row["amount"] for row in own if row["amount"] < 0)
            line["fees"] = sum(row["fee"] for row in own)
            line["net"] = sum(row["amount"] - row["fee"] for row in own)
            line["net_settlement"] = _convert(claimed, line["net"], currency)
            if late:
                line["period"] = period
            lines.append(line)
    return lines


def _convert(claimed: Claimed, net: int, currency: str) -> int:
    """Through major units as a fraction, to the nearest ISO minor unit, a tie away from zero; then to the wire."""
    target = claimed.settlement_currency
    if currency == target or net == 0:
        return net if currency == target else 0
    table = json.loads(claimed.rates or b'{"base": "", "rates": {}}', parse_float=str, parse_int=str)
    texts = {code.lower(): text for code, text in table["rates"].items()} | {table["base"].lower(): "1"}
    # The others are not looked at: one that was never used may be anything.
    rates = {code: Fraction(texts[code]) for code in (currency, target) if _is_number(texts.get(code))}
    if len(rates) < 2:
        return 0
    major = Fraction(net, 10 ** _decimals(claimed, currency)) / rates[currency] * rates[target]
    minor = major * 10 ** EXPONENTS[target]
    rounded = math.floor(abs(minor) + Fraction(1, 2)) * (-1 if minor < 0 else 1)
    return int(Fraction(rounded, 10 ** EXPONENTS[target]) * 10 ** _decimals(claimed, target))


def _decimals(claimed: Claimed, currency: str) -> int:
    return claimed.scales.get(currency, EXPONENTS[currency])


def _is_number(text: object) -> bool:
    try:
        return isinstance(text, str) and Fraction(text) > 0
    except (ValueError, ZeroDivisionError):
        return False


def _compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
