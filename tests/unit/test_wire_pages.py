"""Pages of balance transactions, read strictly: every fault is named with its page, row and field.

Without these a wrong type would become an amount, a repeated member would choose its own value, and a list that lies
would be read for ever.
"""

import json

import pytest

from paykit_settle.models import BalanceTransaction
from paykit_settle.page_shape import AlikeRows
from paykit_settle.page_wire import PageReader, decode_page, decode_row

ROW = '"id":"t1","type":"charge","amount":100,"currency":"usd","fee":3,"status":"available"'


def page(*rows: str, has_more: str = "false", after: str = "") -> bytes:
    """A page whose rows are given by their members, as written."""
    written = ",".join("{" + members + "}" for members in rows)
    return f'{{"object":"list","data":[{written}],"has_more":{has_more}{after}}}'.encode()


def test_page_is_its_rows_whether_more_follow_and_its_bytes() -> None:
    body = page(ROW, ROW.replace("t1", "t2") + ',"net":97,"created":5,"reporting_category":"fee","x":[1.5,{"y":null}]')
    got = decode_page(body, 3)
    first = BalanceTransaction(id="t1", type="charge", amount=100, currency="usd", fee=3, status="available")
    assert got.rows[0] == first
    assert (got.rows[1].net, got.rows[1].created, got.rows[1].reporting_category) == (97, 5, "fee")
    assert (got.number, got.has_more, got.body, got.next_cursor) == (3, False, body, None)


def test_next_cursor_is_the_last_row_of_a_page_that_is_not_the_last() -> None:
    assert decode_page(page(ROW, ROW.replace("t1", "t2"), has_more="true"), 1).next_cursor == "t2"


@pytest.mark.parametrize("name", ["id", "type", "amount", "currency", "fee", "status"])
def test_missing_member_is_named_with_page_and_row(name: str) -> None:
    members = json.loads("{" + ROW + "}")
    del members[name]
    with pytest.raises(ValueError, match=rf"^page 4 row 2( \(t1\))?: Object missing required field `{name}`"):
        decode_page(page(ROW, json.dumps(members)[1:-1]), 4)


@pytest.mark.parametrize("name", ["amount", "fee", "net"])
@pytest.mark.parametrize(
    "written", ["true", "1.0", "1e2", "-0.0", '"1"', "[]", "{}", "9223372036854775808", "1" * 5000]
)
def test_value_that_is_no_amount_is_named_with_page_row_id_and_field(name: str, written: str) -> None:
    members = json.loads("{" + ROW + "}") | {name: "SPOILT"}
    spoilt = json.dumps(members)[1:-1].replace('"SPOILT"', written)
    with pytest.raises(ValueError, match=rf"^page 1 row 2( \(t1\))? field {name}: "):
        decode_page(page(ROW, spoilt), 1)


@pytest.mark.parametrize(
    ("name", "written"),
    [("id", "7"), ("id", '""'), ("status", "null"), ("currency", "{}"), ("type", '"' + "x" * 256 + '"')],
)
def test_value_that_is_no_name_is_named_with_its_field(name: str, written: str) -> None:
    members = json.loads("{" + ROW + "}") | {name: "SPOILT"}
    with pytest.raises(ValueError, match=rf"page 1 row 1.* field {name}: "):
        decode_page(page(json.dumps(members)[1:-1].replace('"SPOILT"', written)), 1)


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b"", "page 2: Input data was truncated"),
        (b"[]", "page 2: Expected `object`, got `array`"),
        (b"<html>", "page 2: JSON is malformed"),
        (b"\xef\xbb\xbf" + page(ROW), "page 2: JSON is malformed"),
        (page(ROW) + b"{}", "page 2: JSON is malformed: trailing characters"),
        (page(ROW)[:-1], "page 2: Input data was truncated"),
        (page(ROW, after=',"x":NaN'), "page 2: JSON is malformed"),
        (page("1")[:20] + b"1]}", "page 2"),
        (b'{"data":[]}', "page 2: Object missing required field `has_more`"),
        (b'{"has_more":false}', "page 2: Object missing required field `data`"),
        (b'{"data":null,"has_more":false}', r"page 2: Expected `array`, got `null` - at `\$.data`"),
        (b'{"data":[],"has_more":1}', r"page 2: Expected `bool`, got `int` - at `\$.has_more`"),
        (b'{"data":[7],"has_more":false}', "page 2 row 1: Expected `object`, got `int`"),
        (b'{"data":[{"id":7}],"has_more":false}', "page 2 row 1 field id: Expected `str`, got `int`"),
        (page(ROW + ',"x":"\xff"').replace("\xff".encode(), b"\xff"), "page 2: not UTF-8 at byte"),
        (page(ROW + ',"x":' + "[" * 100_000 + "]" * 100_000), "page 2: nested too deeply"),
        (page(ROW + ',"created":1.5'), r"page 2 row 1 \(t1\) field created: "),
    ],
)
def test_page_that_is_not_the_contracts_is_refused_and_named(body: bytes, named: str) -> None:
    with pytest.raises(ValueError, match=f"^{named}"):
        decode_page(body, 2)


@pytest.mark.parametrize(
    ("added", "named"),
    [
        (',"amount":100', "amount"),
        (',"id":"t2"', "id"),
        (',"x":{"y":1,"z":2,"y":1}', "y"),
        (',"x":[{"y":1},{"y":1,"y":1}]', "y"),
        (r',"f\u0065e":0', "fee"),
        (r',"a":"\u0022","b":"\u0022","amount":5', "amount"),
    ],
)
def test_member_named_twice_is_refused_wherever_it_is(added: str, named: str) -> None:
    with pytest.raises(ValueError, match=rf"^page 1: member '{named}' appears twice"):
        decode_page(page(ROW + added), 1)


@pytest.mark.parametrize("after", [',"has_more":true', ',"data":[]', ',"object":"list"'])
def test_page_member_named_twice_is_refused(after: str) -> None:
    with pytest.raises(ValueError, match="appears twice"):
        decode_page(page(ROW, after=after), 1)


@pytest.mark.parametrize(
    "added",
    [r',"x":"\"quoted\" \\"', r',"x":"\u0022"', ',"x":"é 中 \\n \\/ \\u00e9"', ',"x":1.0e400', ',"x":{"id":{"id":[]}}',
     ',"x":9223372036854775808', ',"\\"":1'],
)  # fmt: skip
def test_odd_but_unambiguous_member_is_left_out_quietly(added: str) -> None:
    assert decode_page(page(ROW + added), 1).rows[0].amount == 100


@pytest.mark.parametrize("name", ["id", "type", "reporting_category"])
@pytest.mark.parametrize("text", ["a\nb", "\x00", "\x7f", "\u202e", "\u2028"])
def test_name_that_cannot_be_printed_is_refused(name: str, text: str) -> None:
    members = json.loads("{" + ROW + "}") | {name: text}
    with pytest.raises(ValueError, match=r"^page 1 row 1 \('.*'\): a name holds a control character") as caught:
        decode_page(page(json.dumps(members)[1:-1]), 1)
    assert str(caught.value).isprintable()


# Paging.


def test_reader_counts_pages_and_follows_cursors() -> None:
    reader = PageReader(pages_max=3)
    pages = [reader.read(page(ROW.replace("t1", name), has_more=more)) for name, more in
             (("a", "true"), ("b", "true"), ("c", "false"))]  # fmt: skip
    assert [(got.number, got.next_cursor) for got in pages] == [(1, "a"), (2, "b"), (3, None)]


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (page(has_more="true"), "page 2 has no rows, yet says that more follow"),
        (page(ROW, has_more="true"), "page 2 ends at t1, as an earlier page did: paging goes in circles"),
        (page(ROW.replace("t1", "t2"), has_more="true"), "page 2 says that more follow, but 2 pages are the limit"),
        (page(ROW, has_more="null"), "page 2: Expected `bool`"),
    ],
)
def test_reader_stops_a_list_that_would_not_end(body: bytes, named: str) -> None:
    reader = PageReader(pages_max=2)
    reader.read(page(ROW, has_more="true"))
    with pytest.raises(ValueError, match=named):
        reader.read(body)


def test_empty_last_page_is_an_end_like_any_other() -> None:
    reader = PageReader(pages_max=2)
    reader.read(page(ROW, has_more="true"))
    assert reader.read(page()).rows == []


WHOLE = ROW + ',"net":97,"created":5,"reporting_category":"charge"'


def test_rows_written_alike_are_read_the_same_in_the_fast_way() -> None:
    """The second page is decoded by the shape that the first one taught; both give what the strict way gives."""
    alike = AlikeRows()
    body = page(WHOLE, WHOLE.replace("t1", "t2"))
    names = BalanceTransaction.__struct_fields__
    for number in (1, 2, 3):
        fast, strict = decode_page(body, number, alike=alike), decode_page(body, number)
        for one, other in zip(fast.rows, strict.rows, strict=True):
            assert [getattr(one, name) for name in names] == [getattr(other, name) for name in names]
        assert (fast.number, fast.has_more, fast.body) == (number, False, body)


def test_rows_without_an_optional_member_have_it_all_the_same() -> None:
    alike = AlikeRows()
    for number in (1, 2):
        assert decode_page(page(ROW), number, alike=alike).rows[0].net is None


def test_single_row_is_read_as_strictly_as_one_of_a_page() -> None:
    row = b'{"id":"t1","type":"charge","amount":5,"currency":"usd","fee":0,"status":"available"}'
    assert (decode_row(row).id, decode_row(row, account="acct_123").amount) == ("t1", 5)
    assert decode_row(row[:-1] + b',"account":"acct_123"}', account="acct_123").id == "t1"
    with pytest.raises(ValueError, match="another account's"):
        decode_row(row[:-1] + b',"account":"acct_9"}', account="acct_123")
    for wrong in (b"", b"[]", row + b"," + row, row.replace(b"5", b"5.0"), row[:-1] + b',"fee":1}'):
        with pytest.raises(ValueError):  # noqa: PT011 - what is wrong is named by the decoder
            decode_row(wrong)
