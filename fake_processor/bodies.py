"""Reads the body of a POST, JSON or form, into one plain value.

JSON numbers that are no integers are kept as their text only to be refused, so that no binary float is ever made
from money. A form's values are all text; what they mean is decided by who reads them.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from urllib.parse import parse_qsl

from fake_processor.wire import JSON_TYPE, invalid

FORM_TYPE = "application/x-www-form-urlencoded"
INTEGER_TEXT_MAX = 20
FORM_FIELDS_MAX = 10_000

_FORM_NAME = re.compile(r"([a-z_]+)(?:\[([0-9]{1,4})\]\[([a-z_]+)\])?")


@dataclass(frozen=True, slots=True)
class NotAnInteger:
    """A JSON number with a point, an exponent, too many digits or no finite value, as written."""

    text: str


@dataclass(frozen=True, slots=True)
class Repeated:
    """An object in which this member stands twice."""

    member: str


@dataclass(frozen=True, slots=True)
class FormText:
    """A value of a form: text that may mean an integer."""

    text: str


def read_body(body: bytes, content_type: str) -> object:
    """The value of a body. Refusal (400) for another content type, or when it is not what that type says."""
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type == JSON_TYPE:
        return decode_json(body)
    if media_type == FORM_TYPE:
        return decode_form(body)
    raise invalid(f"Content-Type must be {JSON_TYPE} or {FORM_TYPE}.", param="Content-Type")


def decode_json(body: bytes) -> object:
    """The JSON value of `body`; UTF-8 only, numbers that are no integers kept as text.

    Raises Refusal (400) for anything that is not one JSON document.
    """
    try:
        return json.loads(
            body.decode("utf-8"),
            parse_int=_integer,
            parse_float=NotAnInteger,
            parse_constant=NotAnInteger,
            object_pairs_hook=_unique_members,
        )
    except (ValueError, RecursionError) as error:
        raise invalid("The body is not a JSON document.", param="body", code="invalid_json") from error


def decode_form(body: bytes) -> object:
    """A form as the value it stands for: `date=..`, `lines[0][currency]=..`; `lines=` is an empty array.

    Raises Refusal (400) for bytes that are no form and for names of another shape.
    """
    try:
        text = body.decode("ascii")
        fields = parse_qsl(
            text, keep_blank_values=True, strict_parsing=bool(text), errors="strict", max_num_fields=FORM_FIELDS_MAX
        )
    except ValueError as error:
        raise invalid(f"The body is not {FORM_TYPE}.", param="body", code="invalid_form") from error
    members: dict[str, object] = {}
    arrays: dict[str, dict[int, dict[str, object]]] = {}
    for name, value in fields:
        matched = _FORM_NAME.fullmatch(name)
        if matched is None:
            raise invalid(f"Received unknown parameter: {name}", param=name, code="parameter_unknown")
        top, index, inner = matched.groups()
        target = members if index is None else arrays.setdefault(top, {}).setdefault(int(index), {})
        member = top if index is None else inner
        if member in target or (index is not None and top in members):
            return Repeated(name)
        target[member] = [] if value == "" else FormText(value)
    for name, items in arrays.items():
        members[name] = [items[index] for index in sorted(items)]
    return members


def canonical(value: object) -> str:
    """One spelling for one value: two bodies that mean the same give the same text.

    Raises Refusal (400) for a value that is nested too deeply.
    """
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), default=repr)
    except RecursionError as error:
        raise invalid("The body is nested too deeply.", param="body", code="invalid_json") from error


def _integer(text: str) -> int | NotAnInteger:
    # An integer too long for any amount is kept as text too, so that its member can be named.
    return int(text) if len(text) <= INTEGER_TEXT_MAX else NotAnInteger(text)


def _unique_members(pairs: list[tuple[str, object]]) -> object:
    members: dict[str, object] = {}
    for name, value in pairs:
        if name in members:
            return Repeated(name)
        members[name] = value
    return members
