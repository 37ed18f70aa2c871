"""The processor's wire: its bodies as records and our settlement as its bytes. Pure; the client sends and receives.

Reading is strict: whatever the contract does not allow raises `ValueError` saying where, and the client adds the
exchange in which it happened. Amounts on this side of the wire are in the processor's own scale.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime

import msgspec

from paykit_settle.endpoint import is_header_safe
from paykit_settle.errors import InvalidJson, InvalidRequest, SettleError
from paykit_settle.models import BalanceTransaction, Settlement
from paykit_settle.money import ScaleProfile
from paykit_settle.rates import Rates
from paykit_settle.strict_json import json_type, loads

IDEMPOTENCY_KEY_LENGTH_MAX = 255
NAME_LENGTH_MAX = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page of a list: its rows, whether more follow, and its bytes as they came. Pages count from 1."""

    number: int
    rows: list[BalanceTransaction]
    has_more: bool
    body: bytes

    @property
    def next_cursor(self) -> str | None:
        """What to ask for next: the id of the last row, None on the last page."""
        return self.rows[-1].id if self.has_more else None


class PageReader:
    """Reads the pages of one list, in order, and stops one that would go on for ever.

    `read` raises `ValueError`, as `decode_page` does, for rows promised but none sent, for a cursor that came before,
    and when more than `pages_max` pages are wanted.
    """

    def __init__(self, *, pages_max: int) -> None:
        self._pages_max = pages_max
        self._cursors: set[str] = set()

    def read(self, body: bytes) -> Page:
        number = len(self._cursors) + 1
        page = decode_page(body, number)
        if not page.has_more:
            return page
        if not page.rows:
            raise ValueError(f"page {number} has no rows, yet says that more follow")
        cursor = page.rows[-1].id
        if cursor in self._cursors:
            raise ValueError(f"page {number} ends at {cursor}, as an earlier page did: paging goes in circles")
        if number >= self._pages_max:
            raise ValueError(f"page {number} says that more follow, but {self._pages_max} pages are the limit")
        self._cursors.add(cursor)
        return page


class _PageBody(msgspec.Struct):
    data: list[BalanceTransaction]
    has_more: bool


_page_decoder = msgspec.json.Decoder(_PageBody)
_any_decoder = msgspec.json.Decoder(float_hook=lambda _text: None)
_any_encoder = msgspec.json.Encoder()
_ROW_PATH = re.compile(r"(?P<what>.*) - at `\$\.data\[(?P<index>\d+)\](?:\.(?P<field>\w+))?")


def decode_page(body: bytes, number: int) -> Page:
    """Rows and `has_more` of one list page; `ValueError` naming the page, the row and the field at fault.

    Types are exact: a boolean, a text, `1.0` or `1e2` is no amount, and neither is an integer beyond 64 bits. A member
    that is named twice is refused, in an unknown member too, and so is a name that cannot be printed.
    """
    try:
        body.decode("utf-8", "strict")
        decoded = _page_decoder.decode(body)
        _refuse_repeated_members(body)
    except UnicodeDecodeError as error:
        raise ValueError(f"page {number}: not UTF-8 at byte {error.start}") from None
    except RecursionError:
        raise ValueError(f"page {number}: nested too deeply") from None
    except msgspec.DecodeError as error:
        raise ValueError(f"page {number}{_explain(str(error), body)}") from None
    except InvalidJson as error:
        raise ValueError(f"page {number}: {error}") from None
    for index, row in enumerate(decoded.data):
        if not (row.id.isprintable() and row.type.isprintable() and (row.reporting_category or "").isprintable()):
            raise ValueError(f"page {number} row {index + 1} ({row.id!a:.60}): a name holds a control character")
    return Page(number=number, rows=decoded.data, has_more=decoded.has_more, body=body)


def _refuse_repeated_members(body: bytes) -> None:
    """`InvalidJson` when a member is named twice: the typed decoder would take the last one without a word.

    Every member that a decoder drops takes two quotes of its name with it, so counting them finds one without a walk in
    Python. Where an escaped quote could balance the count, the slow strict reader decides.
    """
    kept = _any_encoder.encode(_any_decoder.decode(body))
    if kept.count(b'"') != body.count(b'"') or b"\\u0022" in body:
        loads(body)


def _explain(message: str, body: bytes) -> str:
    matched = _ROW_PATH.match(message)
    if matched is None:
        return f": {message}"
    index = int(matched["index"])
    field = f" field {matched['field']}" if matched["field"] else ""
    return f" row {index + 1}{_row_id(body, index)}{field}: {matched['what']}"


def _row_id(body: bytes, index: int) -> str:
    """The id of a row that does not decode, so that a person can find it; empty when it has none to show."""
    try:
        page = loads(body)
    except InvalidJson:
        return ""
    rows = page.get("data") if isinstance(page, dict) else None
    row = rows[index] if isinstance(rows, list) and index < len(rows) else None
    identity = row.get("id") if isinstance(row, dict) else None
    return f" ({identity:.60})" if isinstance(identity, str) else ""


def decode_rates(body: bytes) -> Rates:
    """The rate table of one answer, each rate digit for digit as published, number or text."""
    table = decode_object(body)
    try:
        return rates_table(table)
    except SettleError as error:
        raise ValueError(f"rates answer: {error}") from None


def rates_table(table: object) -> Rates:
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
    return Rates(table.get("base", ""), quotes, as_of=_as_of(as_of), source=source)


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
                **{name: scale.to_wire(getattr(line, name), line.currency) for name in _LINE_AMOUNTS},
                "net_settlement": scale.to_wire(line.net_settlement, target),
            }
            for line in settlement.lines
        ],
        "total_net": scale.to_wire(settlement.total_net, target),
    }


_LINE_AMOUNTS = ("charged", "refunded", "fees", "net")


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
    return _name_in(answer, "id"), _name_in(answer, "status")


def _name_in(answer: Mapping[str, object], member: str) -> str:
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


def decode_error(body: bytes) -> ErrorBody:
    """The `error` object of an answer, leniently: an error page that is no JSON must not hide the status."""
    try:
        error = decode_object(body).get("error")
    except ValueError:
        error = None
    members = error if isinstance(error, dict) else {}
    texts = {name: members.get(name) for name in ("type", "code", "message")}
    return ErrorBody(**{name: value if isinstance(value, str) else "" for name, value in texts.items()})
