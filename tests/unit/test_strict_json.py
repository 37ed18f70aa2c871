"""What counts as JSON at an edge: a body that two readers understand differently must not move money.

Without these, the last of two members would win, NaN would be a number, and 1e2 an amount.
"""

import pytest

from paykit_settle.errors import InvalidJson, InvalidRequest, UnsupportedCurrency
from paykit_settle.money import canonical_currency, check_amount
from paykit_settle.strict_json import NESTING_MAX, FieldReader, JsonNumber, Required, json_type, loads, read_fields


def test_ordinary_json_is_read_as_it_is() -> None:
    value = loads('{"a": [1, -2, true, null, "é", {"b": 9007199254740993}]}'.encode())
    assert value == {"a": [1, -2, True, None, "é", {"b": 9007199254740993}]}


@pytest.mark.parametrize("text", ["1.0", "1e2", "1E+2", "-0.0", "0.1", "19.99"])
def test_fraction_and_exponent_stay_text_and_are_no_amount(text: str) -> None:
    """JSN-02."""
    value = loads(text.encode())
    assert isinstance(value, JsonNumber)
    assert value == text
    with pytest.raises(InvalidRequest):
        check_amount(value)


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b"", "malformed"),
        (b"{", "malformed"),
        (b"{'a': 1}", "malformed"),
        (b'{"a": 1} x', "malformed"),
        (b'{"a": 1,}', "malformed"),
        (b"01", "malformed"),
        (b'{"amount":NaN}', "NaN"),  # JSN-03
        (b'{"amount":100,"x":Infinity}', "Infinity"),
        (b'{"amount":-Infinity}', "-Infinity"),
        (b'{"amount":4,"currency":"USD","amount":10000}', "'amount' appears twice"),  # JSN-05
        (b'{"a":{"b":1,"b":2}}', "'b' appears twice"),
        (b'{"a":1,"\\u0061":2}', "'a' appears twice"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        ("{}".encode("utf-16"), "not UTF-8"),
        ('{"a":1}'.encode("utf-16-le"), "malformed"),
        (b'{"a":"\xff"}', "not UTF-8"),
        (b'{"a":"\\ud800"}', "lone surrogate"),
        (b'{"\\ud800":1}', "lone surrogate"),
        (b'["a\\u0000b"]', "NUL"),
        (b"[" * 100_000, "nested"),
        (b"[" * (NESTING_MAX + 1) + b"]" * (NESTING_MAX + 1), "nested"),
        (b'{"a":' * (NESTING_MAX + 1) + b"1" + b"}" * (NESTING_MAX + 1), "nested"),
        (b"9" * 10_000, "too many digits"),
    ],
)
def test_ambiguous_or_broken_json_is_refused_and_named(body: bytes, named: str) -> None:
    with pytest.raises(InvalidJson, match=named):
        loads(body)


def test_surrogate_pair_is_one_character() -> None:
    assert loads(b'"\\ud83d\\ude00"') == "\U0001f600"


def test_nesting_within_the_limit_is_read() -> None:
    assert loads(b"[" * NESTING_MAX + b"]" * NESTING_MAX)


FIELDS: dict[str, tuple[FieldReader, object]] = {
    "amount": (check_amount, Required),
    "currency": (canonical_currency, "usd"),
}


def test_fields_are_read_with_their_defaults() -> None:
    assert read_fields({"amount": 5}, FIELDS) == {"amount": 5, "currency": "usd"}
    assert read_fields({"amount": 5, "x": 1}, FIELDS, allow_unknown=True) == {"amount": 5, "currency": "usd"}


def test_every_field_at_fault_is_named() -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_fields({"currency": "xqq", "more": 1}, FIELDS)
    assert [fault.field for fault in caught.value.fields] == ["amount", "currency", "more"]
    assert caught.value.code == "invalid_request"
    for name in ("amount is missing", "XQQ", "more is unknown"):
        assert name in str(caught.value)


def test_a_single_fault_keeps_its_own_code() -> None:
    with pytest.raises(UnsupportedCurrency) as caught:
        read_fields({"amount": 1, "currency": "xqq"}, FIELDS)
    assert caught.value.details["fields"]


@pytest.mark.parametrize("value", [[], "text", 1, None, True, JsonNumber("1.5")])
def test_anything_but_an_object_is_refused_by_its_type(value: object) -> None:
    with pytest.raises(InvalidRequest, match=json_type(value)):
        read_fields(value, FIELDS)
