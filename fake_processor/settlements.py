"""Reads the body of `POST /v1/settlements` and checks that its amounts agree.

A refusal names the member at fault (`lines[0].net`). Amounts are integers of minor units within
64 bits; a number written in any other way is kept as its text only to be refused, so that no binary
float is ever made from money.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from fake_processor.query import read_currency, read_date
from fake_processor.wire import invalid

AMOUNT_MAX = 2**63 - 1
INTEGER_TEXT_MAX = 20
MEMBERS = ("account", "date", "settlement_currency", "lines", "total_net")
AMOUNTS = ("charged", "refunded", "fees", "net", "net_settlement")
LINE_MEMBERS = ("currency", *AMOUNTS)


@dataclass(frozen=True, slots=True)
class _NotAnInteger:
    """A JSON number with a point, an exponent, too many digits or no finite value, as written."""

    text: str


@dataclass(frozen=True, slots=True)
class _Repeated:
    """A JSON object in which this member stands twice."""

    member: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SettlementLine:
    """One currency's share: minor units of `currency`, and `net_settlement` of the settlement's."""

    currency: str
    charged: int
    refunded: int
    fees: int
    net: int
    net_settlement: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SettlementRequest:
    """A settlement whose lines add up. Amounts are minor units."""

    account: str
    date: str
    settlement_currency: str
    lines: tuple[SettlementLine, ...]
    total_net: int


def decode(body: bytes) -> object:
    """The JSON value of `body`; UTF-8 only, numbers that are no integers kept as text.

    Raises Refusal (400) for anything that is not one JSON document.
    """
    try:
        return json.loads(
            body.decode("utf-8"),
            parse_int=_integer,
            parse_float=_NotAnInteger,
            parse_constant=_NotAnInteger,
            object_pairs_hook=_unique_members,
        )
    except (ValueError, RecursionError) as error:
        raise invalid("The body is not a JSON document.", param="body", code="invalid_json") from error


def canonical(value: object) -> str:
    """One spelling for one JSON value: two bodies that mean the same give the same text.

    Raises Refusal (400) for a value that is nested too deeply.
    """
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), default=repr)
    except RecursionError as error:
        raise invalid("The body is nested too deeply.", param="body", code="invalid_json") from error


def read_settlement(value: object) -> SettlementRequest:
    """A decoded body as a checked settlement.

    Raises Refusal (400) naming the first member that is missing, unknown, repeated, of a wrong type
    or at odds with the others.
    """
    body = _members(value, MEMBERS, path="")
    account = body["account"]
    if not isinstance(account, str) or not account:
        raise invalid("account must be a non-empty string.", param="account")
    date = read_date(body["date"], param="date").isoformat()
    settlement_currency = read_currency(body["settlement_currency"], param="settlement_currency")
    written_lines = body["lines"]
    if not isinstance(written_lines, list):
        raise invalid("lines must be an array.", param="lines")
    lines = tuple(
        _line(line, path=f"lines[{index}]", settlement_currency=settlement_currency)
        for index, line in enumerate(written_lines)
    )
    _refuse_repeated_currencies(lines)
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


def _line(value: object, *, path: str, settlement_currency: str) -> SettlementLine:
    members = _members(value, LINE_MEMBERS, path=path)
    currency = read_currency(members["currency"], param=f"{path}.currency")
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
        charged=charged,
        refunded=refunded,
        fees=fees,
        net=net,
        net_settlement=net_settlement,
    )


def _members(value: object, names: tuple[str, ...], *, path: str) -> dict[str, object]:
    prefix = f"{path}." if path else ""
    if isinstance(value, _Repeated):
        raise invalid(f"Member {value.member} stands twice.", param=f"{prefix}{value.member}")
    if not isinstance(value, dict):
        raise invalid("A JSON object is expected here.", param=path or "body")
    for name in value:
        if name not in names:
            raise invalid(
                f"Received unknown parameter: {prefix}{name}",
                param=f"{prefix}{name}",
                code="parameter_unknown",
            )
    for name in names:
        if name not in value:
            raise invalid(f"Missing required param: {prefix}{name}.", param=f"{prefix}{name}", code="parameter_missing")
    return value


def _amount(value: object, *, param: str) -> int:
    # `type(...) is int`, because JSON's true is an int to isinstance.
    if type(value) is not int:
        raise invalid("An amount is an integer of minor units.", param=param, code="parameter_invalid_integer")
    if not -AMOUNT_MAX <= value <= AMOUNT_MAX:
        raise invalid("An amount has at most 64 bits.", param=param, code="parameter_invalid_integer")
    return value


def _refuse_repeated_currencies(lines: tuple[SettlementLine, ...]) -> None:
    seen: set[str] = set()
    for index, line in enumerate(lines):
        if line.currency in seen:
            raise invalid(f"There is already a line for {line.currency}.", param=f"lines[{index}].currency")
        seen.add(line.currency)


def _disagree(param: str, expected: str) -> Exception:
    return invalid(f"{param} must equal {expected}.", param=param, code="amount_mismatch")


def _integer(text: str) -> int | _NotAnInteger:
    # An integer too long for any amount is kept as text too, so that its member can be named.
    return int(text) if len(text) <= INTEGER_TEXT_MAX else _NotAnInteger(text)


def _unique_members(pairs: list[tuple[str, object]]) -> object:
    members: dict[str, object] = {}
    for name, value in pairs:
        if name in members:
            return _Repeated(name)
        members[name] = value
    return members
