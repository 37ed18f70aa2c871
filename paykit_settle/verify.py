"""Recomputes a settlement from its evidence by other means than the run used, and names every difference.

Pure, and on purpose apart: it shares neither the roll-up's loop nor the conversion's integer arithmetic (fractions and
plain sums over parsed JSON instead), nor the writer of the body. What both agree on is right twice. The evidence is
gone through page by page (`verify_pages.py`), and of its rows no more is kept than 8 bytes each (`verify_rows.py`).
"""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from paykit_settle.money import EXPONENTS
from paykit_settle.verify_pages import DayPages, Evidence, RowAnswer, evidence_faults
from paykit_settle.verify_rows import UNREADABLE, DayCount, Pair, Sums


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """What a body is recomputed from, beside the evidence: whose day it is, and what else decides its lines.

    `rates` is the table as stored, None if none was used. Of earlier days only the rows `late_ids` count, of the own
    day all but `moved_ids`, which another run holds. `corrections` are differences of settled rows, by the row's day.
    """

    account: str
    date: str
    settlement_currency: str
    rates: bytes | None
    scales: Mapping[str, int]
    late_ids: Mapping[str, Iterable[str]] = field(default_factory=dict)
    moved_ids: Iterable[str] = ()
    corrections: Mapping[str, Sequence[Pair]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """What was stored, sent and booked, to be held against the evidence.

    `shown_lines` and `shown_total` are what people are shown, and `entries` what the ledger has (None: nothing is
    booked yet), all three in ISO minor units.
    """

    basis: Basis
    attempt: int
    body: bytes
    body_sha256: str
    idempotency_key: str
    evidence_sha256: str
    shown_lines: Sequence[Mapping[str, object]]
    shown_total: int
    entries: Sequence[tuple[str, str, int]] | None


def differences(claimed: Claimed, evidence: Evidence) -> list[str]:
    """Return every way in which the stored settlement does not follow from the evidence; none: it does, byte for byte.

    Where bytes that are needed were pruned, their digests are held to their chain, and the lines cannot be recomputed.
    """
    found = body_faults(claimed.basis, claimed.body, evidence, evidence_sha256=claimed.evidence_sha256)
    if hashlib.sha256(claimed.body).hexdigest() != claimed.body_sha256:
        found.append("the body's digest is not that of the body")
    account, date = claimed.basis.account, claimed.basis.date
    identity = hashlib.sha256(_compact([account, date, claimed.attempt])).hexdigest()
    if claimed.idempotency_key != f"settlement_{date}_{claimed.attempt}_{identity[:32]}":
        found.append("the idempotency key is not that of this account, date and attempt")
    return found + _shown_faults(claimed)


def body_faults(basis: Basis, body: bytes, evidence: Evidence, *, evidence_sha256: str | None = None) -> list[str]:
    """Return what is wrong with the evidence, and with its rows, and whether they give another body.

    Each id that stands in a day's pages must count exactly once. Without `evidence_sha256` nothing is frozen yet.
    """
    periods = sorted({basis.date, *evidence.days, *basis.late_ids, *basis.corrections})
    days = {period: DayPages(evidence, period, is_own=period == basis.date) for period in periods}
    counts = {period: _counted(basis, period, days[period], evidence) for period in periods}
    found = evidence_faults(days.values(), evidence.answers(), evidence_sha256)
    if pruned := sum(pages.pruned for pages in days.values()):
        total = sum(pages.page_count for pages in days.values())
        return [*found, f"{pruned} of {total} pages were pruned: the lines cannot be recomputed any more"]
    for period, late in basis.late_ids.items():
        counts[basis.date].name_settled_too(late, period)
    found += [fault for count in counts.values() for fault in count.faults]
    try:
        lines = _lines(basis, {period: count.sums for period, count in counts.items()})
    except UNREADABLE as error:
        return [*found, f"the body cannot be recomputed: {error!r:.100}"]
    recomputed = _compact(
        {
            "account": basis.account,
            "date": basis.date,
            "settlement_currency": basis.settlement_currency,
            "lines": lines,
            "total_net": sum(line["net_settlement"] for line in lines),
        }
    )
    if recomputed != body:
        stored = body.decode("utf-8", "replace")
        found.append(f"the body differs: the evidence gives {recomputed.decode()}, stored is {stored}")
    return found


def _counted(basis: Basis, period: str, pages: DayPages, evidence: Evidence) -> DayCount:
    is_own = period == basis.date

    def answers() -> Iterable[RowAnswer]:
        return (answer for answer in evidence.answers() if answer.period == period)

    count = DayCount(
        period,
        pages,
        answers,
        late=None if is_own else basis.late_ids.get(period, ()),
        moved=basis.moved_ids if is_own else (),
    )
    count.count()
    count.correct(basis.corrections.get(period, ()))
    return count


def _shown_faults(claimed: Claimed) -> list[str]:
    """Whether what is shown and what is booked is what was sent: its amounts, turned into ISO minor units."""
    try:
        body = json.loads(claimed.body)
        lines = [in_iso(claimed, line) for line in body["lines"]]
        total = to_iso(claimed, body["total_net"], claimed.basis.settlement_currency)
    except (ValueError, KeyError, TypeError):
        return ["the body is no settlement"]
    return held_against(claimed, lines, total, movements(claimed, lines, total))


def held_against(
    claimed: Claimed, lines: Sequence[Mapping[str, Any]], total: int, moves: Iterable[tuple[str, str, int]]
) -> list[str]:
    """Return how what is shown differs from these lines and this total, in ISO minor units, or what is booked from
    these moves."""
    faults = []
    if [dict(line) for line in claimed.shown_lines] != list(lines) or claimed.shown_total != total:
        faults.append("the settlement that is shown is not the one that was sent")
    if claimed.entries is not None:
        booked = _sums(claimed.entries)
        if booked != _sums(moves):
            faults.append("what is booked is not what was sent")
        for currency in sorted({currency for _, currency in booked}):
            left = sum(amount for (_, own), amount in booked.items() if own == currency)
            faults += [f"the journal's {currency} entries sum to {left}, not to zero"] * bool(left)
    return faults


def movements(claimed: Claimed, lines: Sequence[Mapping[str, Any]], total: int) -> list[tuple[str, str, int]]:
    """Return what each account gains: the processor owes charges and refunds, keeps fees, and each net is exchanged."""
    target = claimed.basis.settlement_currency
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


def _sums(moves: Iterable[tuple[str, str, int]]) -> dict[tuple[str, str], int]:
    sums: dict[tuple[str, str], int] = {}
    for account, currency, amount in moves:
        sums[account, currency] = sums.get((account, currency), 0) + amount
    return {name: amount for name, amount in sums.items() if amount}


def in_iso(claimed: Claimed, line: Mapping[str, Any]) -> dict[str, Any]:
    """Return a line of a body with its amounts in ISO minor units. Raises what a body that is no settlement raises."""
    currency, target = line["currency"], claimed.basis.settlement_currency
    shown = {name: to_iso(claimed, line[name], currency) for name in ("charged", "refunded", "fees", "net")}
    shown["net_settlement"] = to_iso(claimed, line["net_settlement"], target)
    return {"currency": currency, "period": line.get("period"), **shown}


def to_iso(claimed: Claimed, amount: int, currency: str) -> int:
    """Return an amount of the wire in ISO minor units; `ValueError` when it has no exact value there."""
    exact = Fraction(amount * 10 ** EXPONENTS[currency], 10 ** _decimals(claimed.basis, currency))
    if exact.denominator != 1:
        raise ValueError(f"{amount} {currency} has no ISO value")
    return exact.numerator


def _lines(basis: Basis, sums: Mapping[str, Sums]) -> list[dict[str, Any]]:
    """The lines of the body, amounts as on the wire: the day's own first, then each earlier day's, by currency."""
    lines = []
    for period in sorted(sums, key=lambda day: (day != basis.date, day)):
        for currency, (charged, refunded, fees) in sorted(sums[period].by_currency.items()):
            net = charged + refunded - fees
            line: dict[str, Any] = {"currency": currency, "charged": charged, "refunded": refunded, "fees": fees}
            line |= {"net": net, "net_settlement": _convert(basis, net, currency)}
            lines.append(line if period == basis.date else line | {"period": period})
    return lines


def _convert(basis: Basis, net: int, currency: str) -> int:
    """Through major units as a fraction, to the nearest ISO minor unit, a tie away from zero; then to the wire."""
    target = basis.settlement_currency
    if currency == target or net == 0:
        return net if currency == target else 0
    table = json.loads(basis.rates or b'{"base": "", "rates": {}}', parse_float=str, parse_int=str)
    texts = {code.lower(): text for code, text in table["rates"].items()} | {table["base"].lower(): "1"}
    # The others are not looked at: one that was never used may be anything.
    rates = {code: Fraction(texts[code]) for code in (currency, target) if _is_number(texts.get(code))}
    if len(rates) < 2:
        return 0
    major = Fraction(net, 10 ** _decimals(basis, currency)) / rates[currency] * rates[target]
    minor = major * 10 ** EXPONENTS[target]
    rounded = math.floor(abs(minor) + Fraction(1, 2)) * (-1 if minor < 0 else 1)
    return int(Fraction(rounded, 10 ** EXPONENTS[target]) * 10 ** _decimals(basis, target))


def _decimals(basis: Basis, currency: str) -> int:
    return basis.scales.get(currency, EXPONENTS[currency])


def _is_number(text: object) -> bool:
    try:
        return isinstance(text, str) and Fraction(text) > 0
    except (ValueError, ZeroDivisionError):
        return False


def _compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
