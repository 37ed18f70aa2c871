"""Corrections: what a settled row that changed, or is gone, adds to its day. Pure.

A row is kept as the bytes that the processor sent. A correction has the row that was settled and the row that is
there now, and comes to the difference of the two: amount and fee new - old, where a side that is missing, or is of a
kind that is not settled, counts nothing. In another currency it is one row in each. The sign of the difference decides
its column, as with any row.
"""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from datetime import date as Date

import msgspec

from paykit_settle.errors import RunRefused, SettleError
from paykit_settle.faults import Problem
from paykit_settle.models import BalanceTransaction, CurrencyTotals, LatePeriod, RollUp, RowGroup
from paykit_settle.money import AMOUNT_MAX, ScaleProfile, canonical_currency
from paykit_settle.transaction_types import KNOWN_TYPES, MOVES_BALANCE

CORRECTION = "correction"
"""The reporting category under which corrections are counted, so that people see them apart from the day's rows."""

Content = tuple[str, int, str, int, str]
"""What makes a row the same row as before: type, amount, currency, fee and status; its time is not looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """A difference that a person decided to settle: the row as it was settled and as it is, None where there is none.

    Both are the row's JSON as the processor sent it. A row is corrected once for each of its revisions.
    """

    transaction_id: str
    revision: int
    period: Date
    was: bytes | None
    is_now: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Corrected:
    """Earlier days with corrections added: the days in order, the corrections in them, and those left out, with why."""

    late: Sequence[LatePeriod]
    taken: Sequence[Correction]
    left_out: Sequence[tuple[Correction, str]]


class _RawPage(msgspec.Struct):
    data: list[msgspec.Raw]


class _RowId(msgspec.Struct):
    id: str


_row_decoder = msgspec.json.Decoder(BalanceTransaction)
_raw_page_decoder = msgspec.json.Decoder(_RawPage)
_row_id_decoder = msgspec.json.Decoder(_RowId)


def decode_row(row: bytes) -> BalanceTransaction:
    """Return the row of its JSON; `ValueError` when it has not the members of one."""
    return _row_decoder.decode(row)


def raw_rows(body: bytes, ids: Container[str]) -> dict[str, bytes]:
    """Return the rows with these ids, each as it stands in the body of its page; the page must have been decoded."""
    rows = ((_row_id_decoder.decode(row).id, row) for row in _raw_page_decoder.decode(body).data)
    return {identity: bytes(row) for identity, row in rows if identity in ids}


def content_of(row: bytes | None) -> Content | bytes | None:
    """Return what is compared of a row: its content, None for no row, and the bytes where they are no row."""
    if row is None:
        return None
    try:
        decoded = decode_row(row)
    except ValueError:
        return row
    return decoded.type, decoded.amount, decoded.currency.lower(), decoded.fee, decoded.status


def is_counted(row: BalanceTransaction) -> bool:
    """Whether a settlement counts such a row: it is available, and not of a kind that only moves the balance."""
    return row.status == "available" and row.type not in MOVES_BALANCE


def correction_fault(correction: Correction, scale: ScaleProfile) -> str | None:
    """Return why a correction cannot be computed, such as an unknown currency; None when it can."""
    try:
        correction_groups(correction, scale)
    except (SettleError, ValueError) as error:
        return str(error)
    return None


def correction_groups(correction: Correction, scale: ScaleProfile) -> list[RowGroup]:
    """Return what a correction adds in ISO minor units: no row, one, or one in each of two currencies.

    Raises `UnsupportedCurrency` or `InvalidAmount` when it has no exact value, `ValueError` for a side that is no row.
    """
    sums: dict[str, tuple[str, int, int]] = {}
    for side, sign in ((correction.was, -1), (correction.is_now, 1)):
        row = None if side is None else decode_row(side)
        if row is None or not is_counted(row):
            continue
        if row.net is not None and row.net != row.amount - row.fee:
            raise ValueError(f"net {row.net} is not amount {row.amount} - fee {row.fee}")
        currency = canonical_currency(row.currency)
        _, amount, fee = sums.get(currency, ("", 0, 0))
        amount += sign * scale.from_wire(row.amount, currency)
        fee += sign * scale.from_wire(row.fee, currency)
        sums[currency] = (row.type, amount, fee)
    groups = []
    for currency, (kind, amount, fee) in sorted(sums.items()):
        if max(abs(amount), abs(fee), abs(amount - fee)) > AMOUNT_MAX:
            raise ValueError(f"the difference of {correction.transaction_id} is beyond ±{AMOUNT_MAX}")
        if amount or fee:
            groups.append(_group(currency, kind, amount, fee))
    return groups


def with_corrections(late: LatePeriod | None, corrections: Sequence[Correction], *, scale: ScaleProfile) -> LatePeriod:
    """Return an earlier day with corrections of that same day added to the rows taken in late (None: there are none).

    Raises what `correction_groups` raises, and `RunRefused` when a sum leaves the range of an amount.
    """
    (period,) = {each.period for each in corrections} | ({late.period} if late else set())
    new = [group for each in corrections for group in correction_groups(each, scale)]
    before = late.roll_up if late else _NOTHING
    settled = _merged([*before.settled, *new])
    roll_up = msgspec.structs.replace(
        before,
        lines=tuple(_line(currency, settled) for currency in sorted({group.currency for group in settled})),
        settled=tuple(settled),
        unknown_types=tuple(sorted({*before.unknown_types, *({group.type for group in new} - KNOWN_TYPES)})),
        row_count=before.row_count + len(new),
    )
    if late is None:
        return LatePeriod(period=period, roll_up=roll_up)
    return msgspec.structs.replace(late, roll_up=roll_up)


_NOTHING = RollUp(lines=(), settled=(), pending=(), left_out=(), unknown_types=(), row_count=0, repeat_count=0)


def corrected(late: Iterable[LatePeriod], corrections: Iterable[Correction], *, scale: ScaleProfile) -> Corrected:
    """Return earlier days with each correction added to its own, oldest first.

    A correction that has no exact value, or takes a sum beyond the range of an amount, is left out with its reason, and
    so are the later ones of its row: it must not hold up the day that is settled. A day whose corrections come to no
    row needs no lines and is not added.
    """
    days = {each.period: each for each in late}
    taken: list[Correction] = []
    left_out: list[tuple[Correction, str]] = []
    for correction in sorted(corrections, key=lambda each: (each.period, each.transaction_id, each.revision)):
        before = days.get(correction.period)
        if any(each.transaction_id == correction.transaction_id for each, _ in left_out):
            left_out.append((correction, "an earlier correction of the row is left out"))
            continue
        try:
            after = with_corrections(before, [correction], scale=scale)
        except (SettleError, ValueError) as error:
            left_out.append((correction, str(error)))
            continue
        taken.append(correction)
        if before is not None or after.roll_up.row_count:
            days[correction.period] = after
    return Corrected(late=[days[day] for day in sorted(days)], taken=taken, left_out=left_out)


def _group(currency: str, kind: str, amount: int, fee: int) -> RowGroup:
    is_charged = amount >= 0
    return RowGroup(
        currency=currency,
        type=kind,
        reporting_category=CORRECTION,
        status="available",
        charged_count=int(is_charged),
        charged=amount if is_charged else 0,
        refunded_count=int(not is_charged),
        refunded=0 if is_charged else amount,
        fees=fee,
    )


def _merged(groups: Sequence[RowGroup]) -> list[RowGroup]:
    """The groups in order, those of one currency, type and category as one."""
    merged: dict[tuple[str, str, str, bool], list[RowGroup]] = {}
    for group in groups:
        category = group.reporting_category
        merged.setdefault((group.currency, group.type, category or "", category is None), []).append(group)
    return [
        msgspec.structs.replace(first, **{name: sum(getattr(each, name) for each in (first, *rest)) for name in _SUMS})
        for _, (first, *rest) in sorted(merged.items())
    ]


_SUMS = ("charged_count", "charged", "refunded_count", "refunded", "fees")


def _line(currency: str, settled: Sequence[RowGroup]) -> CurrencyTotals:
    own = [group for group in settled if group.currency == currency]
    sums = {name: sum(getattr(group, name) for group in own) for name in ("charged", "refunded", "fees", "net")}
    problems = [
        Problem(kind="line", subject=currency, detail=f"{name} is beyond ±{AMOUNT_MAX}")
        for name, amount in sums.items()
        if abs(amount) > AMOUNT_MAX
    ]
    if problems:
        raise RunRefused(problems)
    return CurrencyTotals(currency=currency, **sums)
