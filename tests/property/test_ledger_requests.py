"""The quick way to read a credit takes only what the careful way takes, and understands it the same.

Without these, a body that the strict reader refuses could be booked because it came in a common shape, or one request
could have two fingerprints, so that its retry would be a conflict.
"""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paykit_settle.errors import SettleError
from paykit_settle.ledger_requests import (
    CreditRequest,
    _read_any_credit,
    _read_plain_credit,
    read_credit,
)
from paykit_settle.money import AMOUNT_MAX
from paykit_settle.strict_json import loads

CURRENCIES = frozenset(["usd", "eur"])
TEXTS = (
    st.text(st.characters(codec="utf-8"), max_size=12)
    | st.text('ab "\\/:\n\t\x7f{}[]', max_size=8)
    | st.just("x" * 256)
)
LINES = st.fixed_dictionaries(
    {
        "amount_minor": st.integers(-AMOUNT_MAX - 2, AMOUNT_MAX + 2) | st.booleans(),
        "currency": st.sampled_from(["USD", "EUR", "usd"]),
    },
    optional={"desc": TEXTS | st.none(), "more": st.integers()},
)
BODIES = st.fixed_dictionaries(
    {"idempotency_key": TEXTS, "lines": st.lists(LINES, max_size=4)}, optional={"memo": TEXTS}
)
NOISE = st.sampled_from([
    b'"', b"\\", b",", b'"lines":[],', b'"currency":"USD",', b'"amount_minor":5,', b'"desc":"x",', b"\\u0022",
    b"1", b"-", b".0", b"e2", b"0", b" ", b"\n", b"\t", b"\x00", b"\xff", b"\xef\xbb\xbf", b"NaN", b"null", b"true",
    b"{", b"]",
])  # fmt: skip
TYPICAL = b'{"idempotency_key":"k-1","lines":[{"desc":"order 7","amount_minor":199,"currency":"USD"}]}'


def careful(body: bytes) -> CreditRequest | None:
    try:
        return _read_any_credit(loads(body), CURRENCIES)
    except SettleError:
        return None


def assert_the_quick_way_agrees(body: bytes) -> None:
    quick = _read_plain_credit(body, CURRENCIES)
    assert quick is None or quick == careful(body), body


@given(BODIES, st.booleans())
def test_any_body_is_read_the_same_in_both_ways(body: object, ascii_only: bool) -> None:
    assert_the_quick_way_agrees(json.dumps(body, ensure_ascii=ascii_only).encode())


@given(st.integers(0, len(TYPICAL)), st.integers(0, 4), NOISE)
def test_any_damage_to_a_typical_body_is_read_the_same_in_both_ways(at: int, dropped: int, noise: bytes) -> None:
    assert_the_quick_way_agrees(TYPICAL[:at] + noise + TYPICAL[at + dropped :])


@given(st.binary(max_size=40))
def test_any_bytes_are_read_the_same_in_both_ways(body: bytes) -> None:
    assert_the_quick_way_agrees(body)


def test_typical_body_goes_the_quick_way() -> None:
    """Otherwise the two tests above would hold by saying nothing."""
    quick = _read_plain_credit(TYPICAL, CURRENCIES)
    assert quick is not None
    assert quick == careful(TYPICAL) == read_credit(TYPICAL, CURRENCIES)
    assert quick.lines == '[{"amount_minor":199,"currency":"USD","desc":"order 7"}]'


@pytest.mark.parametrize(
    "body",
    [
        TYPICAL.replace(b"199,", b'199,"amount_minor":7,'),
        TYPICAL.replace(b'"lines"', b'"lines":[],"lines"'),
        TYPICAL.replace(b'"k-1"', b'"k-1","idempotency_key":"k-2"'),
        TYPICAL.replace(b"order 7", b"order\\u00207"),
        TYPICAL.replace(b"order 7", "órder".encode()),
        TYPICAL.replace(b'"lines"', b'"memo":1,"lines"'),
        TYPICAL.replace(b'"order 7"', b"null"),
    ],
)
def test_whatever_two_readers_could_see_differently_goes_the_careful_way(body: bytes) -> None:
    assert _read_plain_credit(body, CURRENCIES) is None
