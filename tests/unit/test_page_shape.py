"""The fast decoder of alike rows gives what the plain one gives, or nothing: never a page with a member named twice.

Without it the fast way could take the last of two amounts without a word, which the slow way is there to refuse.
"""

import json

import pytest

from paykit_settle.page_shape import MISSES_MAX, TEXTS_MAX, AlikeRows
from paykit_settle.page_wire import PageReader, decode_page

ROW = {"id": "t1", "object": "balance_transaction", "amount": 100, "currency": "usd", "fee": 3, "type": "charge",
       "status": "available", "net": 97, "created": 1_768_521_600, "reporting_category": None,
       "fee_details": [{"amount": 3, "type": "stripe_fee"}], "exchange_rate": 1.25}  # fmt: skip
COMPACT = (",", ":")
SPACED = (", ", ": ")


def page(rows: list[dict[str, object]], separators: tuple[str, str] = COMPACT) -> bytes:
    return json.dumps({"object": "list", "data": rows, "has_more": False}, separators=separators).encode()


def learned(separators: tuple[str, str] = COMPACT) -> AlikeRows:
    alike = AlikeRows()
    alike.learn(page([ROW], separators))
    return alike


@pytest.mark.parametrize("separators", [COMPACT, SPACED])
def test_alike_page_is_decoded_as_the_plain_decoder_does(separators: tuple[str, str]) -> None:
    body = page([ROW | {"id": "t2", "amount": -5, "net": -8, "fee_details": []}, ROW], separators)
    fast = learned(separators).decode(body)
    assert fast is not None
    plain = decode_page(body, 1)
    for name in plain.rows[0].__struct_fields__:
        assert [getattr(row, name) for row in fast.data] == [getattr(row, name) for row in plain.rows]
    assert fast.has_more is plain.has_more


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"fee":3', '"fee":3,"fee":3'),
        ('"fee":3', r'"fee":3,"f\u0065e":3'),
        ('"object":"balance', '"object":"x","object":"balance'),
        ('{"amount":3,', '{"amount":9,"amount":3,'),
        ('"has_more":false', '"has_more":true,"has_more":false'),
    ],
)
def test_member_named_twice_is_never_decoded_fast_and_always_refused(old: str, new: str) -> None:
    body = page([ROW]).decode().replace(old, new, 1).encode()
    alike = learned()
    assert alike.decode(body) is None
    with pytest.raises(ValueError, match="appears twice"):
        PageReader(pages_max=9, alike=alike).read(body)


@pytest.mark.parametrize("amount", [True, "100", 1.0, 2**63, None])
def test_wrong_amount_is_refused_on_the_fast_way_too(amount: object) -> None:
    reader = PageReader(pages_max=9, alike=learned())
    with pytest.raises(ValueError, match="page 1 row 1"):
        reader.read(page([ROW | {"amount": amount}]))


def test_rows_in_another_order_or_with_other_members_are_decoded_all_the_same() -> None:
    reader = PageReader(pages_max=99, alike=learned())
    for row in ({**ROW, "more": 1}, dict(reversed(ROW.items())), {k: v for k, v in ROW.items() if k != "net"}):
        assert reader.read(page([row])).rows[0].amount == 100


def test_rows_that_are_never_alike_are_not_tried_for_ever() -> None:
    alike = learned()
    for number in range(MISSES_MAX):
        assert alike.decode(page([ROW | {f"m{number}": 1}])) is None
    assert alike.decode(page([ROW])) is None


def test_member_that_is_no_name_in_python_is_left_to_the_plain_decoder() -> None:
    alike = AlikeRows()
    alike.learn(page([ROW | {"a-b": 1}]))
    assert alike.decode(page([ROW | {"a-b": 1}])) is None


def rows(*currencies: str | None, **members: object) -> list[dict[str, object]]:
    return [ROW | {"id": f"t{index}", "currency": each, **members} for index, each in enumerate(currencies)]


def test_text_that_few_rows_differ_in_is_known_again_and_a_new_one_is_learned() -> None:
    alike = AlikeRows()
    reader = PageReader(pages_max=99, alike=alike)
    reader.read(page(rows(*["usd"] * 8)))
    assert alike.decode(page(rows("usd", "eur"))) is None
    assert [row.currency for row in reader.read(page(rows(*["eur"] * 8))).rows] == ["eur"] * 8
    fast = alike.decode(page(rows("usd", "eur")))
    assert fast is not None
    assert [row.currency for row in fast.data] == ["usd", "eur"]


def test_text_that_differs_in_many_rows_is_any_text() -> None:
    alike = AlikeRows()
    alike.learn(page(rows("usd", "eur", "gbp", "jpy")))
    assert alike.decode(page(rows("chf"))) is not None


def test_member_with_more_and_more_texts_is_any_text_in_the_end() -> None:
    alike = AlikeRows()
    for number in range(TEXTS_MAX + 1):
        alike.learn(page(rows(*[f"c{number}"] * 8)))
    assert alike.decode(page(rows("new"))) is not None


@pytest.mark.parametrize("status", ["", "x" * 256, None, 5])
def test_what_the_plain_decoder_refuses_is_never_learned_as_a_text(status: object) -> None:
    reader = PageReader(pages_max=9, alike=AlikeRows())
    reader.read(page(rows(*["usd"] * 8)))
    for _ in range(2):
        with pytest.raises(ValueError, match="field status"):
            reader.read(page(rows(*["usd"] * 8, status=status)))


def test_colon_in_a_text_is_no_member() -> None:
    flat = {"description": "at 10:30", "fee_details": "none", "exchange_rate": None}
    alike = AlikeRows()
    body = page(rows(*["usd"] * 8, **flat))
    alike.learn(body)
    assert alike.decode(body) is not None
    repeated = body.replace(b'"fee":3,', b'"fee":3,"fee":4,', 1).replace(b"10:30", b"10 30", 1)
    assert repeated.count(b":") == body.count(b":")
    assert alike.decode(repeated) is None


def test_member_that_no_double_could_hold_is_learned_from_all_the_same() -> None:
    body = page(rows(*["usd"] * 8)).replace(b"1.25", b"1e999")
    reader = PageReader(pages_max=9, alike=AlikeRows())
    assert [len(reader.read(body).rows) for _ in range(2)] == [8, 8]
