"""Reads the value of a posted settlement and checks that its amounts agree.

A refusal names the member at fault (`lines[0].net`). Amounts are integers of minor units within 64 bits; whatever is
written in any other way is refused, never turned into one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from fake_processor.bodies import FormText, Repeated
from fake_processor.query import read_currency, read_date
from fake_processor.wire import invalid

AMOUNT_MAX = 2**63 - 1
MEMBERS = ("account", "date", "settlement_currency", "lines", "total_net")
AMOUNTS = ("charged", "refunded", "fees", "net", "net_settlement")
LINE_MEMBERS = ("currency", *AMOUNTS)
LINE_MEMBERS_OPTIONAL = ("period",)

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,18})")


@dataclass(frozen=True, slots=True, kw_only=True)
class SettlementLine:
    """One currency's share: minor units of `currency`, and `net_settlement` of the settlement's.

    `period` is the earlier day that the rows belong to, None for the settlement's own day.
    """

    currency: str
    period: str | None
    charged: int
    refunded: int
    fees: int
    net: int
    net_settlement: int

    def as_received(self) -> dict[str, object]:
        """The line's members as they were posted: `period` only where there was one."""
        period = {} if self.period is None else {"period": self.period}
        return {"currency": self.currency, **period, **{name: getattr(self, name) for name in AMOUNTS}}


@dataclass(frozen=True, slots=True, kw_only=True)
class SettlementRequest:
    """A settlement whose lines add up. Amounts are minor units."""

    account: str
    date: str
    settlement_currency: str
    lines: tuple[SettlementLine, ...]
    total_net: int


def read_settlement(value: object) -> SettlementRequest:
    """A decoded body as a checked settlement.

    Raises Refusal (400) naming the first member that is missing, unknown, repeated, of a wrong type
    or at odds with the others.
    """
    body = _members(value, MEMBERS, path="")
    account = _text(body["account"])
    if not isinstance(account, str) or not account:
        raise invalid("account must be a non-empty string.", param="account")
    date = read_date(_text(body["date"]), param="date").isoformat()
    settlement_currency = read_currency(_text(body["settlement_currency"]), param="settlement_currency")
    written_lines = body["lines"]
    if not isinstance(written_lines, list):
        raise invalid("lines must be an array.", param="lines")
    lines = tuple(
        _line(line, path=f"lines[{index}]", date=date, settlement_currency=settlement_currency)
        for index, line in enumerate(written_lines)
    )
    _refuse_repeated_lines(lines)
    total_net = _amount(body["total_net"], param="total_net")
    if total_net != (expected := sum(line.net_settlement for line in lines)):
        raise _disagree("total_net", f"the sum of net_settlement, {expected}")
    return SettlementRequest(
        account=account,
        date=date,
        settlement_currency=settlement_currency,
        lines=lines,
        total_net=total_net,
    )


def _line(value: object, *, path: str, date: str, settlement_currency: str) -> SettlementLine:
    members = _members(value, LINE_MEMBERS, path=path, optional=LINE_MEMBERS_OPTIONAL)
    currency = read_currency(_text(members["currency"]), param=f"{path}.currency")
    period = _period(members, path=path, date=date)
    charged, refunded, fees, net, net_settlement = (_amount(members[name], param=f"{path}.{name}") for name in AMOUNTS)
    if charged < 0:
        raise invalid("charged must not be negative.", param=f"{path}.charged")
    if refunded > 0:
        raise invalid("refunded must not be positive.", param=f"{path}.refunded")
    if net != (expected := charged + refunded - fees):
        raise _disagree(f"{path}.net", f"charged + refunded - fees, {expected}")
    if currency == settlement_currency and net_settlement != net:
        raise _disagree(f"{path}.net_settlement", f"net, {net}, in the settlement currency")
    return SettlementLine(
        currency=currency,
        period=period,
        charged=charged,
        refunded=refunded,
        fees=fees,
        net=net,
        net_settlement=net_settlement,
    )


def _period(members: dict[str, object], *, path: str, date: str) -> str | None:
    if "period" not in members:
        return None
    period = read_date(_text(members["period"]), param=f"{path}.period").isoformat()
    if period >= date:
        raise invalid(f"period must be a day before {date}, the settlement's own.", param=f"{path}.period")
    return period


def _members(value: object, names: tuple[str, ...], *, path: str, optional: tuple[str, ...] = ()) -> dict[str, object]:
    prefix = f"{path}." if path else ""
    if isinstance(value, Repeated):
        raise invalid(f"Member {value.member} stands twice.", param=f"{prefix}{value.member}")
    if not isinstance(value, dict):
        raise invalid("A JSON object is expected here.", param=path or "body")
    for name in value:
        if name not in names and name not in optional:
            raise invalid(
                f"Received unknown parameter: {prefix}{name}",
                param=f"{prefix}{name}",
                code="parameter_unknown",
            )
    for name in names:
        if name not in value:
            raise invalid(f"Missing required param: {prefix}{name}.", param=f"{prefix}{name}", code="parameter_missing")
    return value


def _text(value: object) -> object:
    return value.text if isinstance(value, FormText) else value


def _amount(value: object, *, param: str) -> int:
    if isinstance(value, FormText) and _INTEGER.fullmatch(value.text):
        value = int(value.text)
    # `type(...) is int`, because JSON's true is an int to isinstance.
    if type(value) is not int:
        raise invalid("An amount is an integer of minor units.", param=param, code="parameter_invalid_integer")
    if not -AMOUNT_MAX <= value <= AMOUNT_MAX:
        raise invalid("An amount has at most 64 bits.", param=param, code="parameter_invalid_integer")
    return value


def _refuse_repeated_lines(lines: tuple[SettlementLine, ...]) -> None:
    seen: set[tuple[str, str | None]] = set()
    for index, line in enumerate(lines):
        if (line.currency, line.period) in seen:
            period = f" of {line.period}" if line.period else ""
            raise invalid(f"There is already a line for {line.currency}{period}.", param=f"lines[{index}].currency")
        seen.add((line.currency, line.period))


def _disagree(param: str, expected: str) -> Exception:
    return invalid(f"{param} must equal {expected}.", param=param, code="amount_mismatch")
