"""JSON read strictly: what two readers could understand differently is refused, not guessed.

Used for request bodies, rate tables and files; the rows of a page have a faster typed decoder in the client. Numbers
with a fraction or an exponent stay text (`JsonNumber`), so no binary float is ever made.
"""

import json
from collections.abc import Callable, Mapping
from typing import NoReturn

from paykit_settle.errors import InvalidJson, InvalidRequest
from paykit_settle.faults import FieldError

NESTING_MAX = 64

_TYPE_NAMES = {
    dict: "object",
    list: "array",
    str: "text",
    bool: "boolean",
    int: "integer",
    type(None): "null",
}


class JsonNumber(str):
    """A JSON number with a fraction or an exponent, digit for digit as written; never an amount."""

    __slots__ = ()


def loads(data: bytes) -> object:
    """The value of one strict JSON text in UTF-8: dict, list, str, int, bool, None or `JsonNumber`.

    Raises `InvalidJson` naming the fault: not UTF-8, a byte order mark, malformed, a repeated member name (after
    unescaping), NaN or Infinity, a lone surrogate, NUL in a text, nesting beyond NESTING_MAX, an endless integer.
    """
    try:
        text = data.decode("utf-8", "strict")
    except UnicodeDecodeError as error:
        raise InvalidJson(f"not UTF-8: byte {error.start} cannot be decoded") from None
    if text.startswith("\ufeff"):
        raise InvalidJson("starts with a byte order mark")
    try:
        value: object = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise InvalidJson(f"malformed at line {error.lineno} column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise InvalidJson(f"nested deeper than {NESTING_MAX} levels") from None
    except ValueError:  # the interpreter's own bound on the digits of an integer
        raise InvalidJson("an integer has too many digits") from None
    # Only an escape can bring in NUL or half a surrogate pair, and only brackets nest.
    if "\\u" in text or text.count("[") + text.count("{") > NESTING_MAX:
        _check_texts(value, NESTING_MAX)
    return value


def _unique_members(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise InvalidJson(f"member {repeated!a:.60} appears twice")
    return members


def _no_constant(name: str) -> NoReturn:
    raise InvalidJson(f"{name} is not JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_unique_members, parse_constant=_no_constant, parse_float=JsonNumber)


def _check_texts(value: object, depth_left: int) -> None:
    """Refuses texts that no database and no other reader takes as they are, and depth that would break a walk."""
    if isinstance(value, str):
        if "\x00" in value:
            raise InvalidJson("a text holds NUL")
        if not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
            raise InvalidJson("a text holds a lone surrogate")
    elif isinstance(value, dict | list):
        if depth_left == 0:
            raise InvalidJson(f"nested deeper than {NESTING_MAX} levels")
        if isinstance(value, dict):
            for name, member in value.items():
                _check_texts(name, depth_left)
                _check_texts(member, depth_left - 1)
        else:
            for item in value:
                _check_texts(item, depth_left - 1)


def json_type(value: object) -> str:
    """The JSON name of a value's type, for messages."""
    return "number" if isinstance(value, JsonNumber) else _TYPE_NAMES.get(type(value), type(value).__name__)


FieldReader = Callable[[object], object]
"""Reads one member: gives the value to use, or raises `ValueError` or a `SettleError` saying what it must be."""


class Required:
    """Marks, as the default in a table of fields, a member that must be present."""


def read_fields(
    value: object, fields: Mapping[str, tuple[FieldReader, object]], *, allow_unknown: bool = False
) -> dict[str, object]:
    """The members of a request object, each through its reader; every missing, wrong or unknown one is named.

    `fields` maps name → (reader, default), the default being `Required` for a member that must be there.
    Raises `InvalidRequest` with one `FieldError` for each field at fault; a single fault keeps its own error class.
    """
    if not isinstance(value, dict):
        raise InvalidRequest(f"the body must be a JSON object, got {json_type(value)}")
    members: dict[str, object] = {}
    faults: list[FieldError] = []
    kinds: set[type[InvalidRequest]] = set()
    for name, (reader, default) in fields.items():
        if name not in value:
            if default is Required:
                faults.append(FieldError(field=name, detail="is missing"))
            else:
                members[name] = default
            continue
        try:
            members[name] = reader(value[name])
        except (ValueError, InvalidRequest) as error:
            faults.append(FieldError(field=name, detail=str(error)))
            kinds.add(type(error) if isinstance(error, InvalidRequest) else InvalidRequest)
    if not allow_unknown:
        faults += [FieldError(field=name, detail="is unknown") for name in value if name not in fields]
    if faults:
        named = "; ".join(f"{fault.field} {fault.detail}" for fault in faults)
        raise (kinds.pop() if len(faults) == 1 and kinds else InvalidRequest)(named, fields=faults)
    return members
