"""A settlement that the processor has and that is not ours, read strictly into what can be booked. Pure.

Its lines are believed only where they prove its total: each has all its members and its net is the sum of its parts, a
line in the settlement currency is its net, and the lines come to the total. Any other can be taken by its total alone,
and one whose total cannot be read cannot be taken at all. Amounts are read in the run's own scales.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date as Date

import msgspec

from paykit_settle.errors import InvalidAmount, UnsupportedCurrency
from paykit_settle.models import ITEMISED, TOTAL_ONLY, Settlement, SettlementLine
from paykit_settle.money import AMOUNT_MAX, ScaleProfile, canonical_currency
from paykit_settle.rates import Conversion
from paykit_settle.strict_json import json_type
from paykit_settle.window import parse_date

_AMOUNTS = ("charged", "refunded", "fees", "net", "net_settlement")


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenSettlement:
    """A settlement of the processor's. `why_not_itemised`: why its lines do not prove its total; None: they do."""

    settlement: Settlement
    why_not_itemised: str | None


def take_settlement(members: Mapping[str, object], frozen: Settlement, *, scale: ScaleProfile) -> TakenSettlement:
    """Return the entry of a list of settlements as a settlement of the day that we had `frozen` otherwise.

    What is known of the day's rows stays, but for what they come to. `ValueError` when the total or its currency cannot
    be read, or `scale` gives it no exact value.
    """
    try:
        target = canonical_currency(members.get("settlement_currency"))
        total = _amount(members, "total_net", target, scale)
    except (UnsupportedCurrency, InvalidAmount) as error:
        raise ValueError(str(error)) from None
    lines: tuple[SettlementLine, ...] = ()
    why = None
    try:
        lines = _lines(members.get("lines"), target, frozen.date, scale)
        if (sum_ := sum(line.net_settlement for line in lines)) != total:
            raise ValueError(f"its lines come to {sum_} {target}, and its total is {total}")
    except ValueError as error:
        lines, why = (), str(error)
    roll_up = msgspec.structs.replace(frozen.roll_up, lines=(), settled=(), unknown_types=())
    settlement = msgspec.structs.replace(
        frozen,
        settlement_currency=target,
        lines=lines,
        total_net=total,
        roll_up=roll_up,
        rates=None,
        late=(),
        taken=ITEMISED if why is None else TOTAL_ONLY,
    )
    return TakenSettlement(settlement=settlement, why_not_itemised=why)


def _lines(value: object, target: str, day: Date, scale: ScaleProfile) -> tuple[SettlementLine, ...]:
    if not isinstance(value, list):
        raise ValueError(f"its lines must be an array, got {json_type(value)}")
    lines = []
    for number, line in enumerate(value, start=1):
        try:
            lines.append(_line(line, target, day, scale))
        except (ValueError, UnsupportedCurrency, InvalidAmount) as error:
            raise ValueError(f"its line {number}: {error}") from None
    return tuple(lines)


def _line(value: object, target: str, day: Date, scale: ScaleProfile) -> SettlementLine:
    if not isinstance(value, dict):
        raise ValueError(f"must be an object, got {json_type(value)}")
    currency = canonical_currency(value.get("currency"))
    charged, refunded, fees, net = (_amount(value, name, currency, scale) for name in _AMOUNTS[:-1])
    converted = _amount(value, "net_settlement", target, scale)
    if net != charged + refunded - fees:
        raise ValueError(f"net {net} is not charged {charged} + refunded {refunded} - fees {fees}")
    if currency == target and converted != net:
        raise ValueError(f"net {net} is in {target} already, and net_settlement is {converted}")
    if net * converted < 0 or (not net and converted):
        raise ValueError(f"net {net} {currency} cannot be {converted} {target} at any rate")
    period = value.get("period")
    if period is not None and (period := parse_date(period)) >= day:
        raise ValueError(f"period {period} is not before the settlement's day")
    return SettlementLine(
        currency=currency,
        charged=charged,
        refunded=refunded,
        fees=fees,
        net=net,
        net_settlement=converted,
        conversion=_implied(net, converted, currency, target),
        period=period,
    )


def _implied(net: int, converted: int, currency: str, target: str) -> Conversion:
    """The ratio that the processor must have used, whatever its rate was: exact, and with nothing left by rounding."""
    is_exchanged = currency != target and net != 0
    return Conversion(
        source=currency,
        target=target,
        amount=net,
        numerator=abs(converted) if is_exchanged else 1,
        denominator=abs(net) if is_exchanged else 1,
        result=converted,
        published={},
    )


def _amount(members: Mapping[str, object], name: str, currency: str, scale: ScaleProfile) -> int:
    """An amount of the wire in ISO minor units; `InvalidAmount` unless it is an integer with an exact value."""
    value = members.get(name)
    if type(value) is not int:
        raise InvalidAmount(f"{name} must be an integer of minor units, got {json_type(value)}")
    if abs(value) > AMOUNT_MAX:
        raise InvalidAmount(f"{name} is beyond ±{AMOUNT_MAX}")
    return scale.from_wire(value, currency)
