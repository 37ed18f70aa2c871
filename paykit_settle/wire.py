"""The processor's wire: its bodies as records and our settlement as its bytes. Pure; the client sends and receives.

Reading is strict: whatever the contract does not allow raises `ValueError` saying where, and the client adds the
exchange in which it happened. Amounts on this side of the wire are in the processor's own scale.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime

from paykit_settle.endpoint import is_header_safe
from paykit_settle.errors import InvalidJson, InvalidRequest, SettleError
from paykit_settle.models import Settlement
from paykit_settle.money import ScaleProfile
from paykit_settle.rates import Rates
from paykit_settle.strict_json import json_type, loads

IDEMPOTENCY_KEY_LENGTH_MAX = 255
NAME_LENGTH_MAX = 255


def decode_rates(body: bytes) -> Rates:
    """The rate table of one answer, each rate digit for digit as published, number or text."""
    table = decode_object(body)
    try:
        return rates_table(table, received=body)
    except SettleError as error:
        raise ValueError(f"rates answer: {error}") from None


def rates_table(table: object, *, received: bytes | None = None) -> Rates:
    """A rate table from its parsed JSON object, as the processor sends it and as a file holds it.

    `ValueError` or `InvalidRequest` for a wrong shape; a malformed rate is refused only when it is needed.
    """
    if not isinstance(table, dict):
        raise ValueError(f"rate table must be an object, got {json_type(table)}")
    quotes = table.get("rates")
    if not isinstance(quotes, dict):
        raise ValueError(f"rate table: rates must be an object, got {json_type(quotes)}")
    as_of = table.get("as_of")
    source = table.get("source", "")
    if not isinstance(source, str) or not source.isprintable() or len(source) > NAME_LENGTH_MAX:
        raise ValueError(f"rate table: source must be printable text of at most {NAME_LENGTH_MAX} characters")
    return Rates(table.get("base", ""), quotes, as_of=_as_of(as_of), source=source, received=received)


def _as_of(value: object) -> datetime | None:
    if value is None:
        return None
    try:
        if not isinstance(value, str):
            raise ValueError
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise ValueError(f"rate table: as_of is not an ISO 8601 time: {value!r:.40}") from None
    if moment.utcoffset() is None:
        raise ValueError(f"rate table: as_of names no time zone: {value:.40}")
    return moment


def settlement_payload(settlement: Settlement, scale: ScaleProfile) -> dict[str, object]:
    """The members of a settlement as the processor takes them, amounts in its own scale.

    `InvalidAmount` when an amount cannot be expressed in that scale exactly.
    """
    target = settlement.settlement_currency
    return {
        "account": settlement.account,
        "date": settlement.date.isoformat(),
        "settlement_currency": target,
        "lines": [
            {
                "currency": line.currency,
                **{name: scale.to_wire(getattr(line, name), line.currency) for name in LINE_AMOUNTS},
                "net_settlement": scale.to_wire(line.net_settlement, target),
                **({"period": line.period.isoformat()} if line.period else {}),
            }
            for line in settlement.lines
        ],
        "total_net": scale.to_wire(settlement.total_net, target),
    }


LINE_AMOUNTS = ("charged", "refunded", "fees", "net")


def encode_body(payload: object) -> bytes:
    """A JSON body in one spelling: members in the order given, no white space, ASCII, never a float."""
    _refuse_floats(payload)
    return json.dumps(payload, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode("ascii")


def _refuse_floats(value: object) -> None:
    if isinstance(value, float):
        raise TypeError("a body for the processor must not hold a float")
    if isinstance(value, Mapping):
        for name, member in value.items():
            _refuse_floats(name)
            _refuse_floats(member)
    elif isinstance(value, list | tuple):
        for item in value:
            _refuse_floats(item)


def settlement_key(account: str, day: date, *, attempt: int = 1) -> str:
    """The idempotency key of a settlement, from what it *is*: account, date, attempt.

    Not from when or how often it is sent, nor from its content: a second host that computes another body for the same
    day must meet the first one's key, so that the processor refuses it rather than settle twice.
    """
    identity = json.dumps([account, day.isoformat(), attempt], separators=(",", ":"))
    return f"settlement_{day.isoformat()}_{attempt}_{hashlib.sha256(identity.encode()).hexdigest()[:32]}"


def check_idempotency_key(key: str) -> str:
    """The key itself when it can be a header; `InvalidRequest` otherwise."""
    if len(key) > IDEMPOTENCY_KEY_LENGTH_MAX or not is_header_safe(key):
        raise InvalidRequest(f"idempotency key must be 1 to {IDEMPOTENCY_KEY_LENGTH_MAX} printable ASCII characters")
    return key


def decode_created(body: bytes) -> tuple[str, str]:
    """`(id, status)` of a settlement the processor accepted."""
    answer = decode_object(body)
    return name_in(answer, "id"), name_in(answer, "status")


def name_in(answer: Mapping[str, object], member: str) -> str:
    """An id or a status of an answer; `ValueError` when it is empty, too long, or holds what no terminal should see."""
    value = answer.get(member)
    if type(value) is not str or not value.isprintable() or not 1 <= len(value) <= NAME_LENGTH_MAX:
        what = f"printable text of 1 to {NAME_LENGTH_MAX} characters, got {json_type(value)}"
        raise ValueError(f"settlement answer: {member} must be {what}")
    return value


def decode_object(body: bytes) -> dict[str, object]:
    """Any JSON object of the processor, strictly; fractions stay text (`JsonNumber`)."""
    try:
        answer = loads(body)
    except InvalidJson as error:
        raise ValueError(str(error)) from None
    if not isinstance(answer, dict):
        raise ValueError(f"expected an object, got {json_type(answer)}")
    return answer


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorBody:
    """What an error answer says of itself; empty texts where it does not."""

    type: str
    code: str
    message: str
    is_json: bool


def decode_error(body: bytes) -> ErrorBody:
    """The `error` object of an answer, leniently: an error page that is no JSON must not hide the status."""
    is_json, error = True, None
    try:
        error = decode_object(body).get("error")
    except ValueError:
        is_json = False
    members = error if isinstance(error, dict) else {}
    kind, code, message = (
        value if isinstance(value, str) else "" for value in map(members.get, ("type", "code", "message"))
    )
    return ErrorBody(type=kind, code=code, message=message, is_json=is_json)
