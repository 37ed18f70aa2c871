"""What the ledger's API is asked for, read strictly from parsed JSON, a path or a query; every wrong field is named.

Pure: knows neither HTTP nor the database. Currencies come in upper case here, as the API's contract says, and leave in
the canonical form.
"""

from collections.abc import Callable, Collection
from typing import Annotated
from urllib.parse import parse_qsl, unquote_to_bytes

import msgspec

from paykit_settle.errors import EmptyLines, InvalidAmount, InvalidKey, InvalidRequest, UnsupportedCurrency
from paykit_settle.faults import FieldError
from paykit_settle.journal import (
    TEXT_MAX,
    Transfer,
    canonical,
    digest,
    fingerprint,
    is_counter_account,
    is_plain_text,
)
from paykit_settle.money import AMOUNT_MAX, canonical_currency
from paykit_settle.strict_json import FieldReader, Required, json_type, loads, read_fields

LINES_MAX = 1_000
"""Lines in one credit."""
DESCRIPTION_MAX = 1_000
"""Characters in the `desc` of a line."""
LIST_LIMIT_DEFAULT, LIST_LIMIT_MAX = 10, 100
"""Objects on a page of a list."""


class CreditRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A credit: its key, amounts in one currency, and the fingerprint of all that was sent.

    `lines` is what the lines say, as canonical JSON.
    """

    key: str
    currency: str
    amounts: tuple[int, ...]
    fingerprint: bytes
    lines: str


class AccountRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The terms of an account to open."""

    name: str
    currency: str
    floor_minor: int = 0


class ListRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A page of a list: how many objects, after which one (None: from the start)."""

    limit: int = LIST_LIMIT_DEFAULT
    starting_after: str | None = None


def read_credit(body: bytes, currencies: Collection[str]) -> CreditRequest:
    """A credit in one of the accepted currencies (canonical form), from the bytes of its body.

    Unknown members are left out, but count in the fingerprint. Raises `InvalidJson`; `InvalidRequest` that names each
    wrong field, for a single fault of its own kind: `InvalidKey`, `EmptyLines`, `InvalidAmount` or
    `UnsupportedCurrency`.
    """
    return _read_plain_credit(body, currencies) or _read_any_credit(loads(body), currencies)


def _read_any_credit(value: object, currencies: Collection[str]) -> CreditRequest:
    """The careful way, which can say what is wrong."""
    members = read_fields(value, {"idempotency_key": (_key, Required), "lines": (_array, Required)}, allow_unknown=True)
    fields = _line_fields(currencies)
    lines, faults = list[dict[str, object]](), list[InvalidRequest]()
    for index, line in enumerate(members["lines"]):  # type: ignore[arg-type, var-annotated]  # an array, says _array
        try:
            if not isinstance(line, dict):
                raise InvalidRequest(f"must be an object, got {json_type(line)}")
            lines.append(read_fields(line, fields, allow_unknown=True))
        except InvalidRequest as error:
            faults.append(_inside(error, f"lines[{index}]"))
    if faults:
        raise _together(faults)
    if len({line["currency"] for line in lines}) > 1:
        raise UnsupportedCurrency("the lines of a credit have one currency")
    said = [{name: line[name] for name in fields if name in line} for line in members["lines"]]  # type: ignore[attr-defined]  # each was read as a list of objects
    return CreditRequest(
        key=members["idempotency_key"],  # type: ignore[arg-type]  # a text, says _key
        currency=lines[0]["currency"],  # type: ignore[arg-type]  # a text, says read_currency
        amounts=tuple(line["amount_minor"] for line in lines),  # type: ignore[misc]  # integers, says _amount
        fingerprint=fingerprint(value),
        lines=canonical(said),
    )


class _PlainLine(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    amount_minor: Annotated[int, msgspec.Meta(ge=-AMOUNT_MAX, le=AMOUNT_MAX)]
    currency: str
    desc: Annotated[str, msgspec.Meta(max_length=DESCRIPTION_MAX)] | None = None


class _PlainCredit(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    idempotency_key: Annotated[str, msgspec.Meta(min_length=1, max_length=TEXT_MAX)]
    lines: Annotated[list[_PlainLine], msgspec.Meta(min_length=1, max_length=LINES_MAX)]


_decode_plain = msgspec.json.Decoder(_PlainCredit).decode


def _read_plain_credit(body: bytes, currencies: Collection[str]) -> CreditRequest | None:
    """The quick way for what nearly every client sends, in a tenth of the time; None leaves it to the careful way.

    Taken only where no two readers can differ: printable ASCII on one line, no escapes, no unknown members, and as
    many quotation marks as the members found account for, so none is repeated. A test holds the two ways together.
    """
    try:
        if b"\\" in body or not body.decode("ascii").isprintable():
            return None
        credit = _decode_plain(body)
    except (UnicodeDecodeError, msgspec.DecodeError):
        return None
    key, lines = credit.idempotency_key, credit.lines
    code = lines[0].currency
    currency, marks, texts, amounts = code.lower(), 6, [], []
    for line in lines:
        if line.currency != code:
            return None
        amounts.append(line.amount_minor)
        if line.desc is None:
            marks += 6
            texts.append(f'{{"amount_minor":{line.amount_minor},"currency":"{code}"}}')
        else:
            marks += 10
            texts.append(f'{{"amount_minor":{line.amount_minor},"currency":"{code}","desc":"{line.desc}"}}')
    if currency not in currencies or not code.isupper() or body.count(b'"') != marks or key.isspace():
        return None
    said = f"[{','.join(texts)}]"
    return CreditRequest(
        key=key,
        currency=currency,
        amounts=tuple(amounts),
        fingerprint=digest(f'{{"idempotency_key":"{key}","lines":{said}}}'),
        lines=said,
    )


def read_account(value: object) -> AccountRequest:
    """The terms of an account; `InvalidRequest` names every missing, wrong or unknown member."""
    members = read_fields(
        value, {"name": (_account, Required), "currency": (read_currency, Required), "floor_minor": (_amount, 0)}
    )
    return AccountRequest(**members)  # type: ignore[arg-type]  # the readers above give these very types


def read_transfer(value: object) -> Transfer:
    """A transfer; `InvalidRequest` names every missing, wrong or unknown member."""
    members = read_fields(
        value,
        {
            "id": (_key, Required),
            "source": (_account, Required),
            "target": (_account, Required),
            "amount_minor": (_positive_amount, Required),
            "currency": (read_currency, Required),
        },
    )
    members["amount"] = members.pop("amount_minor")
    transfer = Transfer(**members)  # type: ignore[arg-type]  # the readers above give these very types
    if transfer.source == transfer.target:
        fault = FieldError(field="target", detail="is the source")
        raise InvalidRequest("target is the source", fields=[fault])
    return transfer


def read_query(raw: str, readers: dict[str, FieldReader]) -> dict[str, object]:
    """The parameters of a raw query string, each through its reader; an unknown or repeated one is refused."""
    try:
        pairs = parse_qsl(raw, keep_blank_values=True, errors="strict", max_num_fields=10) if raw else []
    except ValueError:
        raise InvalidRequest("the query cannot be read: not UTF-8, or too many parameters") from None
    texts = dict(pairs)
    if len(texts) != len(pairs):
        raise InvalidRequest("a parameter of the query is repeated")
    return read_fields(texts, {name: (reader, None) for name, reader in readers.items()})


def read_list(raw: str) -> ListRequest:
    """The page that a query asks for: `limit`, `starting_after`."""
    asked = read_query(raw, {"limit": _limit, "starting_after": _key})
    return ListRequest(limit=asked["limit"] or LIST_LIMIT_DEFAULT, starting_after=asked["starting_after"])  # type: ignore[arg-type]  # the readers above give these types


def read_path_text(value: str, raw_path: Callable[[], str], what: str) -> str:
    """A segment of the path, decoded: 1 to 255 characters, none of control, and sent as valid UTF-8."""
    if "%" in value:
        # What cannot be decoded is left encoded by the router, and would be taken for the text "%FF".
        try:
            unquote_to_bytes(raw_path()).decode()
        except UnicodeDecodeError:
            raise InvalidRequest("the path is not UTF-8") from None
    if not is_plain_text(value):
        raise InvalidRequest(f"{what} must be 1 to {TEXT_MAX} characters, none of control, not all blank")
    return value


def read_currency(value: object) -> str:
    """The canonical form of a currency in upper case; `UnsupportedCurrency` for any other way to write it."""
    if type(value) is not str or value != value.upper():
        raise UnsupportedCurrency("must be a currency in upper case, like USD")
    return canonical_currency(value)


def _line_fields(currencies: Collection[str]) -> dict[str, tuple[FieldReader, object]]:
    def currency(value: object) -> str:
        code = read_currency(value)
        if code not in currencies:
            raise UnsupportedCurrency(f"must be one of {', '.join(sorted(currencies)).upper()}")
        return code

    return {"amount_minor": (_amount, Required), "currency": (currency, Required), "desc": (_description, None)}


def _key(value: object) -> str:
    if not is_plain_text(value):
        raise InvalidKey(f"must be a text of 1 to {TEXT_MAX} characters, none of control, not all blank")
    return value


def _account(value: object) -> str:
    name = _key(value)
    if is_counter_account(name):
        raise ValueError("must not begin with '@': that is a counter-account")
    return name


def _array(value: object) -> list[object]:
    if not isinstance(value, list):
        raise ValueError(f"must be an array of lines, got {json_type(value)}")
    if not value:
        raise EmptyLines("must hold a line")
    if len(value) > LINES_MAX:
        raise ValueError(f"holds more than {LINES_MAX} lines")
    return value


def _amount(value: object) -> int:
    if type(value) is not int:
        raise InvalidAmount(f"must be an integer of minor units, got {json_type(value)}")
    if not -AMOUNT_MAX <= value <= AMOUNT_MAX:
        raise InvalidAmount(f"is beyond ±{AMOUNT_MAX}")
    return value


def _positive_amount(value: object) -> int:
    amount = _amount(value)
    if amount <= 0:
        raise InvalidAmount("must be positive")
    return amount


def _description(value: object) -> str:
    if type(value) is not str or len(value) > DESCRIPTION_MAX:
        raise ValueError(f"must be a text of at most {DESCRIPTION_MAX} characters")
    return value


def _limit(value: object) -> int:
    text = str(value)
    if not (text.isascii() and text.isdigit() and len(text) <= 3 and 1 <= int(text) <= LIST_LIMIT_MAX):
        raise ValueError(f"must be an integer from 1 to {LIST_LIMIT_MAX}")
    return int(text)


def _inside(error: InvalidRequest, place: str) -> InvalidRequest:
    """The same error with its fields named from the outside; a fault of the place itself is a field of its own."""
    fields = [FieldError(field=f"{place}.{fault.field}", detail=fault.detail) for fault in error.fields]
    return type(error)(str(error), fields=fields or [FieldError(field=place, detail=str(error))])


def _together(errors: list[InvalidRequest]) -> InvalidRequest:
    """All faults as one error, which keeps its kind when there is only one."""
    fields = [fault for error in errors for fault in error.fields]
    kind = type(errors[0]) if len(errors) == 1 else InvalidRequest
    return kind("; ".join(f"{fault.field} {fault.detail}" for fault in fields), fields=fields)
