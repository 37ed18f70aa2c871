"""The processor's other bodies, read strictly, and ours, written in one spelling.

Without these a rate would lose its digits, an answer without an id would pass for a settlement, or two hosts would
write one settlement under two keys.
"""

import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from paykit_settle.errors import InvalidAmount, InvalidRequest
from paykit_settle.money import ScaleProfile
from paykit_settle.rates import Rates
from paykit_settle.settlement import roll_up
from paykit_settle.wire import (
    IDEMPOTENCY_KEY_LENGTH_MAX,
    check_idempotency_key,
    decode_created,
    decode_error,
    decode_object,
    decode_rates,
    encode_body,
    rates_table,
    settlement_key,
    settlement_payload,
)
from tests.rows import row, settled


def table(**members: object) -> bytes:
    whole = {"base": "usd", "as_of": "2026-01-15T16:00:00Z", "source": "test", "rates": {"eur": "0.92"}}
    return json.dumps(whole | members).encode()


def test_rates_are_kept_as_published_whether_text_or_number() -> None:
    body = b'{"base":"USD","as_of":"2026-01-15T17:00:00+01:00","rates":{"EUR":0.9200,"jpy":150,"gbp":"7.9e-1"}}'
    rates = decode_rates(body)
    assert {code: rates.rate(code).text for code in ("eur", "jpy", "gbp")} == {
        "eur": "0.9200", "jpy": "150", "gbp": "7.9e-1",
    }  # fmt: skip
    assert (rates.base, rates.as_of, rates.source) == ("usd", datetime(2026, 1, 15, 16, tzinfo=UTC), "")


@pytest.mark.parametrize(
    "as_of",
    ["2026-01-15T16:00:00Z", "2026-01-15 16:00:00+00:00", "2026-01-15T16:00:00.000Z", "20260115T160000Z",
     "2026-01-15T21:30:00+05:30"],
)  # fmt: skip
def test_time_of_a_table_is_read_in_every_iso_form_that_names_its_zone(as_of: str) -> None:
    assert decode_rates(table(as_of=as_of)).as_of == datetime(2026, 1, 15, 16, tzinfo=UTC)


def test_undated_table_is_read_and_refused_later() -> None:
    assert decode_rates(table(as_of=None)).as_of is None


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b"[]", "expected an object, got array"),
        (b'{"base":"usd","base":"eur"}', "member 'base' appears twice"),
        (table(rates=None), "rates must be an object, got null"),
        (table(rates={"eur": "1", "EUR": "1"}), "names EUR twice"),
        (table(base=""), "rates answer: currency must be three ASCII letters"),
        (table(base="xau"), "XAU has no exponent"),
        (table(as_of="2026-01-15T16:00:00"), "as_of names no time zone"),
        (table(as_of="2026-01-15"), "as_of names no time zone"),
        (table(as_of="15 Jan 2026"), "as_of is not an ISO 8601 time: '15 Jan 2026'"),
        (table(as_of=""), "as_of is not an ISO 8601 time"),
        (table(as_of=1768492800), "as_of is not an ISO 8601 time"),
        (table(source=7), "source must be printable text of at most 255 characters"),
        (table(source="\x1b"), "source must be printable text"),
        (table(source="x" * 256), "source must be printable text"),
    ],
)
def test_malformed_table_is_refused_and_named(body: bytes, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        decode_rates(body)


def test_table_that_is_no_object_is_refused() -> None:
    with pytest.raises(ValueError, match="rate table must be an object, got text"):
        rates_table("usd")


# What we send.


def test_payload_has_the_contracts_members_in_the_processors_scale() -> None:
    rates = Rates("usd", {"isk": "140"}, as_of=datetime(2026, 1, 15, tzinfo=UTC))
    totals = roll_up([row("a", 8400, 140, currency="isk"), row("b", -100)])
    payload = settlement_payload(settled(totals, rates), ScaleProfile(overrides={"isk": 2}))
    assert encode_body(payload) == (
        b'{"account":"acct_123","date":"2026-01-15","settlement_currency":"usd","lines":['
        b'{"currency":"isk","charged":840000,"refunded":0,"fees":14000,"net":826000,"net_settlement":5900},'
        b'{"currency":"usd","charged":0,"refunded":-100,"fees":0,"net":-100,"net_settlement":-100}],"total_net":5800}'
    )


def test_amount_that_the_scale_cannot_express_is_not_sent() -> None:
    with pytest.raises(InvalidAmount, match="not a multiple of 100"):
        settlement_payload(settled(roll_up([row("a", 101)])), ScaleProfile(overrides={"usd": 0}))


def test_body_is_one_spelling_in_ascii() -> None:
    assert encode_body({"b": "é\n", "a": [1, True, None, -(2**63)]}) == (
        b'{"b":"\\u00e9\\n","a":[1,true,null,-9223372036854775808]}'
    )


@pytest.mark.parametrize("value", [1.0, float("nan"), {"a": {"b": [1, 2.5]}}, [(1, 0.5)], {1.5: "a"}])
def test_float_is_never_sent(value: object) -> None:
    with pytest.raises(TypeError, match="must not hold a float"):
        encode_body({"a": value})


@pytest.mark.parametrize("value", [Decimal(1), b"a", {1, 2}, object()])
def test_value_that_json_does_not_know_is_a_type_error(value: object) -> None:
    with pytest.raises(TypeError):
        encode_body({"a": value})


def test_key_follows_from_account_date_and_attempt_alone() -> None:
    day = date(2026, 1, 15)
    key = settlement_key("acct_123", day)
    # Pinned: another key after an upgrade would settle a day twice.
    assert key == "settlement_2026-01-15_1_5e40972bebcbb88e8fc805e75bd70267"
    assert key == settlement_key("acct_123", day, attempt=1)
    others = [settlement_key("acct_124", day), settlement_key("acct_123", date(2026, 1, 16)),
              settlement_key("acct_123", day, attempt=2), settlement_key('acct_123","2026-01-15', day)]  # fmt: skip
    assert len({key, *others}) == 5


@pytest.mark.parametrize("account", ["a", "x" * 255, "ünï 中 \n", "\u202e"])
def test_key_of_any_account_can_be_a_header(account: str) -> None:
    assert check_idempotency_key(settlement_key(account, date(9999, 12, 31), attempt=10**9))


@pytest.mark.parametrize("key", ["", " ", "a\nb", "é", "x" * (IDEMPOTENCY_KEY_LENGTH_MAX + 1), " a"])
def test_key_that_cannot_be_a_header_is_refused(key: str) -> None:
    with pytest.raises(InvalidRequest, match=r"1 to 255 printable ASCII"):
        check_idempotency_key(key)


def test_longest_key_is_taken() -> None:
    assert check_idempotency_key("k" * IDEMPOTENCY_KEY_LENGTH_MAX) == "k" * IDEMPOTENCY_KEY_LENGTH_MAX


# Other answers.


def test_created_settlement_is_its_id_and_status() -> None:
    assert decode_created(b'{"status":"created","id":"setl_0001","more":1.5}') == ("setl_0001", "created")


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b"{}", "id must be printable text of 1 to 255 characters, got null"),
        (b'{"id":"","status":"created"}', "id must be"),
        (b'{"id":1,"status":"created"}', "id must be .* got integer"),
        (b'{"id":1.0,"status":"created"}', "id must be .* got number"),
        (b'{"id":"a","status":true}', "status must be .* got boolean"),
        (b'{"id":"a\\n","status":"created"}', "id must be printable"),
        (b'{"id":"' + b"x" * 256 + b'","status":"created"}', "id must be"),
        (b"[]", "expected an object, got array"),
    ],
)
def test_answer_without_id_and_status_is_refused(body: bytes, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        decode_created(body)


@pytest.mark.parametrize("decode", [decode_object, decode_rates, decode_created])
@pytest.mark.parametrize(
    "body", [b"", b"{", b"<html>", b"\xef\xbb\xbf{}", b'{"a":"\xff"}', b'{"a":1,"a":1}', b'{"a":NaN}']
)
def test_every_answer_is_strict_json(decode: Callable[[bytes], object], body: bytes) -> None:
    with pytest.raises(ValueError, match=r"malformed|not UTF-8|byte order mark|appears twice|not JSON"):
        decode(body)


def test_error_object_is_read() -> None:
    said = decode_error(b'{"error":{"type":"a","code":"b","message":"c","param":"d"}}')
    assert (said.type, said.code, said.message) == ("a", "b", "c")


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b"{}", b'{"error":"no"}', b'{"error":{"type":1,"code":null,"message":[]}}']
)
def test_answer_that_explains_nothing_gives_empty_texts(body: bytes) -> None:
    said = decode_error(body)
    assert (said.type, said.code, said.message) == ("", "", "")
