"""The processor's wire: its bodies as records and our settlement as its bytes. Pure; the client sends and receives.

Reading is strict: whatever the contract does not allow raises `ValueError` saying where, and the client adds the
exchange in which it happened. Amounts on this side of the wire are in the processor's own scale.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from itertools import chain

import msgspec

from paykit_settle.endpoint import is_header_safe
from paykit_settle.errors import InvalidJson, InvalidRequest, SettleError
from paykit_settle.models import Settlement
from paykit_settle.money import ScaleProfile
from paykit_settle.rates import Rates
from paykit_settle.strict_json import json_type, loads
from paykit_settle.window import parse_date

IDEMPOTENCY_KEY_LENGTH_MAX = 255
NAME_LENGTH_MAX = 255
SETTLEMENT_PAGES_MAX = 100
"""Pages of one look-up: a day has one settlement, but a processor that does not filter lists them all."""


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
                **{name: scale.to_wire(getattr(line, name), line.currency) for name in _LINE_AMOUNTS},
                "net_settlement": scale.to_wire(line.net_settlement, target),
                **({"period": line.period.isoformat()} if line.period else {}),
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


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSettlement:
    """A settlement as the processor has it: `members` as it shows them, `received` the bytes that it sent of it."""

    id: str
    status: str
    members: Mapping[str, object]
    received: bytes = b""

    @property
    def idempotency_key(self) -> str | None:
        """The key that it says it came under; None where it says none."""
        key = self.members.get("idempotency_key")
        return key if isinstance(key, str) else None

    def has_body(self, body: bytes) -> bool:
        """Whether it is the settlement of that body: all that was sent is there, with that value.

        Lines are matched by currency and period; it may have more members. Where it tells the digest of the bytes that
        it received, and that is the body's, it is.
        """
        if self.members.get("body_sha256") == hashlib.sha256(body).hexdigest():
            return True
        return _has_all(decode_object(body), self.members)

    def is_of(self, body: bytes, key: str) -> bool:
        """Whether it is the settlement of that body, sent under that key: by the key, only its amounts must be."""
        if self.has_body(body):
            return True
        return self.idempotency_key == key and _amounts_in(decode_object(body)) == _amounts_in(self.members)


def _has_all(sent: Mapping[str, object], shown: Mapping[str, object]) -> bool:
    for name, value in sent.items():
        there = shown.get(name)
        if isinstance(value, list):
            if not isinstance(there, list) or not _has_lines(value, there):
                return False
        elif type(there) is not type(value) or there != value:  # JSON's true is no 1
            return False
    return True


def _has_lines(sent: list[object], shown: list[object]) -> bool:
    """Whether two lists hold the same lines, in any order; a line is a currency, or one of an earlier period."""
    lines = {_line_key(line): line for line in shown if isinstance(line, dict)}
    if not len(lines) == len(shown) == len(sent):
        return False
    return all(
        isinstance(line, dict) and _line_key(line) in lines and _has_all(line, lines[_line_key(line)]) for line in sent
    )


def _line_key(line: Mapping[str, object]) -> tuple[str, str]:
    return repr(line.get("currency")), repr(line.get("period"))


def _amounts_in(members: Mapping[str, object]) -> list[object] | None:
    """The total and the amounts of the lines, whatever else is said of them; None where one is no amount."""
    total, lines = members.get("total_net"), members.get("lines")
    if not isinstance(lines, list) or not all(isinstance(line, dict) for line in lines):
        return None
    amounts = [[line.get(name) for name in (*_LINE_AMOUNTS, "net_settlement")] for line in lines]
    if not all(type(each) is int for each in [total, *chain.from_iterable(amounts)]):
        return None
    return [total, *sorted(amounts)]


class SettlementList:
    """The settlements of one account and day, read from a list's pages; the list is whole once `read` gives None.

    Entries of another account or day are dropped, for a processor that does not filter; one that does not say which it
    belongs to counts. An entry that comes again counts once.
    """

    def __init__(self, account: str, day: date) -> None:
        self._account = account
        self._day = day
        self._entries: dict[str, FoundSettlement] = {}
        self.page_count = 0

    @property
    def found(self) -> list[FoundSettlement]:
        """What was read so far, in the processor's order."""
        return [each for each in self._entries.values() if not self._is_of_another(each.members)]

    def read(self, body: bytes) -> str | None:
        """Take one page in and return the cursor of the next; `ValueError` for a page that leads nowhere."""
        answer = decode_object(body)
        entries, has_more = answer.get("data"), answer.get("has_more")
        if not isinstance(entries, list) or type(has_more) is not bool:
            raise ValueError("settlements: expected a list, with data and has_more")
        try:
            received = msgspec.json.decode(body, type=_ReceivedPage).data
        except msgspec.DecodeError as error:
            raise ValueError(f"settlements: {error}") from None
        page = [_found_settlement(entry, bytes(raw)) for entry, raw in zip(entries, received, strict=True)]
        new = {each.id: each for each in page if each.id not in self._entries}
        if has_more and not new:
            raise ValueError("settlements: more are promised, and none come")
        if has_more and self.page_count + 1 >= SETTLEMENT_PAGES_MAX:
            raise ValueError(f"settlements: the list of one day has more than {SETTLEMENT_PAGES_MAX} pages")
        self._entries |= new
        self.page_count += 1
        return page[-1].id if has_more else None

    def _is_of_another(self, members: Mapping[str, object]) -> bool:
        account, day = members.get("account"), members.get("date")
        try:
            is_other_day = parse_date(day) != self._day
        except ValueError:
            is_other_day = False  # not a day as we write it: nothing is known from it
        return is_other_day or (isinstance(account, str) and account != self._account)


class _ReceivedPage(msgspec.Struct):
    """The entries of a page as they came."""

    data: list[msgspec.Raw]


def _found_settlement(entry: object, received: bytes) -> FoundSettlement:
    if not isinstance(entry, dict):
        raise ValueError(f"settlements: an entry must be an object, got {json_type(entry)}")
    return FoundSettlement(id=_name_in(entry, "id"), status=_name_in(entry, "status"), members=entry, received=received)


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
