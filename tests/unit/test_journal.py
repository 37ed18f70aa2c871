"""Journals balance or cannot be made, and a fingerprint tells a retry from another request.

Without these, money could appear from nothing in a booking, a client that orders its JSON differently would be told
that it used its key twice, and one that changed the amount would be told that all is well.
"""

import hashlib
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paykit_settle.errors import InvalidAmount, InvariantViolated
from paykit_settle.journal import (
    BALANCE,
    CREDIT,
    EXTERNAL,
    OPENING,
    TEXT_MAX,
    TRANSFER,
    Entry,
    Journal,
    Transfer,
    canonical,
    credit_journal,
    fingerprint,
    is_counter_account,
    is_plain_text,
    opening_journal,
    transfer_journal,
)
from paykit_settle.money import AMOUNT_MAX
from paykit_settle.strict_json import JsonNumber, loads

DIGEST = hashlib.sha256(b"request").digest()


def journal(*entries: Entry, digest: bytes = DIGEST) -> Journal:
    return Journal(
        tenant="t",
        operation=CREDIT,
        key="k",
        fingerprint=digest,
        entries=entries,
        answer="{}",
        event_at_ms=1,
        recorded_at_ms=2,
    )


def credit(*amounts: int, currency: str = "usd") -> Journal:
    return credit_journal("t", "k", currency=currency, amounts=amounts, fingerprint=DIGEST, at_ms=7, details="[1]")


def test_journal_sums_to_zero_in_each_currency() -> None:
    made = journal(Entry("a", "usd", -5), Entry("b", "usd", 5), Entry("a", "eur", 2), Entry("b", "eur", -2))
    assert len(made.entries) == 4


@pytest.mark.parametrize(
    "entries",
    [
        [Entry("a", "usd", 5)],
        [Entry("a", "usd", -5), Entry("b", "usd", 4)],
        [Entry("a", "usd", -5), Entry("b", "eur", 5)],
    ],
)
def test_journal_that_does_not_sum_to_zero_cannot_be_made(entries: list[Entry]) -> None:
    with pytest.raises(InvariantViolated, match="sum to zero"):
        journal(*entries)


@pytest.mark.parametrize("amount", [True, 1.0, "1", None, AMOUNT_MAX + 1, -AMOUNT_MAX - 1])
def test_entry_that_is_no_amount_cannot_be_booked(amount: object) -> None:
    with pytest.raises(InvariantViolated, match="no amount"):
        journal(Entry("a", "usd", amount), Entry("b", "usd", 0))  # type: ignore[arg-type]


def test_fingerprint_that_is_no_digest_cannot_be_stored() -> None:
    with pytest.raises(InvariantViolated, match="SHA-256"):
        journal(digest=b"short")


def test_credit_books_the_sum_of_its_lines_from_outside_onto_the_balance() -> None:
    made = credit(500, -200, 7)
    assert made.entries == (Entry(EXTERNAL, "usd", -307), Entry(BALANCE, "usd", 307))
    assert json.loads(made.answer) == {"currency": "USD", "amount_minor": 307}
    assert (made.operation, made.event_at_ms, made.recorded_at_ms) == (CREDIT, 7, 7)
    assert made.details == "[1]"


def test_credit_whose_running_sum_leaves_the_range_is_booked_when_its_sum_is_within() -> None:
    assert credit(AMOUNT_MAX, AMOUNT_MAX, -AMOUNT_MAX).entries[1].amount == AMOUNT_MAX


@pytest.mark.parametrize("amounts", [(AMOUNT_MAX, 1), (-AMOUNT_MAX, -1)])
def test_credit_whose_sum_is_beyond_the_range_is_refused(amounts: tuple[int, ...]) -> None:
    with pytest.raises(InvalidAmount, match="sum of the lines"):
        credit(*amounts)


def test_credit_answers_with_every_digit() -> None:
    assert '"amount_minor":9007199254740993}' in credit(9007199254740993).answer


def test_transfer_is_a_debit_and_a_credit_in_that_order() -> None:
    wanted = Transfer(id='x"1', source="a", target="b", amount=5, currency="usd")
    made = transfer_journal("t", wanted, at_ms=1_999)
    assert made.entries == (Entry("a", "usd", -5), Entry("b", "usd", 5))
    assert (made.operation, made.key) == (TRANSFER, 'x"1')
    assert json.loads(made.answer) == {
        "id": 'x"1', "object": "transfer", "source": "a", "target": "b", "amount_minor": 5, "currency": "USD",
        "created": 1,
    }  # fmt: skip


@pytest.mark.parametrize(("target", "amount"), [("a", 5), ("b", 0), ("b", -5)])
def test_transfer_that_moves_nothing_cannot_be_booked(target: str, amount: int) -> None:
    with pytest.raises(InvariantViolated, match="moves nothing"):
        transfer_journal("t", Transfer(id="x", source="a", target=target, amount=amount, currency="usd"), at_ms=1)


def test_fingerprint_of_a_transfer_covers_all_but_its_id() -> None:
    def made(**change: object) -> bytes:
        terms = {"id": "x", "source": "a", "target": "b", "amount": 5, "currency": "usd"} | change
        return transfer_journal("t", Transfer(**terms), at_ms=1).fingerprint  # type: ignore[arg-type]

    changes: list[dict[str, object]] = [{}, {"source": "c"}, {"target": "c"}, {"amount": 6}, {"currency": "eur"}]
    prints = [made(**change) for change in changes]
    assert len(set(prints)) == 5
    assert made(id="y") == prints[0]
    assert prints[0] == fingerprint(["a", "b", 5, "usd"])


def test_opening_balance_comes_from_outside() -> None:
    made = opening_journal("t", "a", currency="usd", amount=9, at_ms=3)
    assert (made.operation, made.key) == (OPENING, "a")
    assert made.entries == (Entry(EXTERNAL, "usd", -9), Entry("a", "usd", 9))


def test_account_cannot_open_below_zero() -> None:
    with pytest.raises(InvariantViolated):
        opening_journal("t", "a", currency="usd", amount=-1, at_ms=3)


def test_counter_accounts_begin_with_their_sign() -> None:
    assert is_counter_account("@external")
    assert not is_counter_account("balance")


@pytest.mark.parametrize("text", ["a", "a b", "é", "🙂", "a" * TEXT_MAX, "%FF", "a:b", "../x"])
def test_text_that_can_be_shown_may_name_things(text: str) -> None:
    assert is_plain_text(text)


@pytest.mark.parametrize(
    "text", ["", " ", "\t", "a" * (TEXT_MAX + 1), "a\x00", "a\n", "\x7f", "\x85x", "\u2028x", "\ud800", 1, None, True]
)
def test_text_that_no_log_can_show_may_not(text: object) -> None:
    assert not is_plain_text(text)


def test_member_order_white_space_and_escapes_are_no_other_request() -> None:
    first = loads(b'{"amount":100,"currency":"USD","memo":"x"}')
    second = loads(b'{ "memo" : "\\u0078",\n "currency":"USD", "amount":100 }')
    assert fingerprint(first) == fingerprint(second)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b'{"a":1}', b'{"a":1.0}'),
        (b'{"a":"1.0"}', b'{"a":1.0}'),
        (b'{"a":1}', b'{"a":"1"}'),
        (b'{"a":true}', b'{"a":1}'),
        (b'{"a":null}', b"{}"),
        (b'{"a":[1,2]}', b'{"a":[2,1]}'),
        (b'{"a":[[1],2]}', b'{"a":[1,[2]]}'),
        (b'{"a":"b","c":"d"}', b'{"a":"b\\",\\"c\\":\\"d"}'),
        (b'{"a":false}', b'{"a":0}'),
    ],
)
def test_another_value_is_another_request(one: bytes, other: bytes) -> None:
    assert fingerprint(loads(one)) != fingerprint(loads(other))


def test_canonical_form_never_changes() -> None:
    """Fingerprints are stored for ever: a new form would turn every retry into a conflict."""
    value = loads('{"z":[1,-2,true,false,null,1.50,"é\\n"],"a":{}}'.encode())
    assert canonical(value) == '{"a":{},"z":[1,-2,true,false,null,1.50,"\\u00e9\\n"]}'
    assert fingerprint(value).hex() == "bbc02644e03483b99781818c574b05e264d7d3689a2414d197c01e90f6c07735"


@pytest.mark.parametrize("value", [math.pi, b"x", object()])
def test_value_that_is_not_json_has_no_canonical_form(value: object) -> None:
    with pytest.raises(InvariantViolated):
        canonical(value)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
)


@given(VALUES)
def test_canonical_form_is_json_of_the_same_value(value: object) -> None:
    assert json.loads(canonical(value)) == value


def test_number_with_a_fraction_keeps_its_digits() -> None:
    assert canonical(JsonNumber("1.50")) == "1.50"
