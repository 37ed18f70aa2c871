"""Pages that lie, over real sockets: a run settles every row of its window or nothing, and never goes on for ever.

Each case is a public one, with its right value; through the whole run, so that "refused" also means "nothing posted".
"""

import json
from collections.abc import Mapping
from datetime import UTC, date, datetime

import pytest

from fake_processor import FakeProcessor, ProcessorState
from paykit_settle.client import ProcessorClient
from paykit_settle.errors import ProcessorUnavailable, ProtocolError, RunRefused, SettleError
from paykit_settle.models import PostedSettlement
from paykit_settle.rates import Rates
from paykit_settle.run import RunOptions, run_settlement
from tests.integration.scripted_server import (
    OK,
    QUICK,
    Action,
    ScriptedServer,
    answer,
    page,
    row,
    scripted,
)

DAY = "2026-01-15"
BUSY = answer({}, status=500)


async def settle(client: ProcessorClient, currency: str = "usd", rates: Rates | None = None) -> PostedSettlement:
    return await run_settlement(client, rates, "acct_123", DAY, currency)


def posts(server: ScriptedServer) -> list[dict[str, object]]:
    return [json.loads(seen.body) for seen in server.requests if seen.method == "POST"]


async def refused(*script: bytes | Action, error: type[SettleError], named: str) -> SettleError:
    """A run against the script ends in this error, and posts nothing."""
    async with scripted(*script, then=OK) as (server, client):
        with pytest.raises(error, match=named) as caught:
            await settle(client)
    assert type(caught.value) is error
    assert posts(server) == []
    return caught.value


async def test_row_that_comes_on_two_pages_counts_once() -> None:
    """PAG-01."""
    pages = page(row("t3", 300), row("t2", 200), has_more=True), page(row("t2", 200), row("t1", 100))
    async with scripted(*pages, OK) as (server, client):
        posted = await settle(client)
    assert (posted.total_net, posted.settlement.roll_up.row_count) == (600, 3)
    assert [sent["total_net"] for sent in posts(server)] == [600]


async def test_more_promised_with_no_rows_stops_the_run() -> None:
    """PAG-03: no cursor to go on with, and rows are missing."""
    pages = page(row("t1"), has_more=True), page(has_more=True)
    error = await refused(*pages, error=ProtocolError, named="page 2 has no rows, yet says that more follow")
    assert isinstance(error, ProtocolError)
    assert error.exchange is not None
    assert error.exchange.request_id == "req_1"


async def test_windows_are_half_open() -> None:
    """PAG-06: a row on the edge belongs to the later window, and to one only."""
    created = {"t1": 1749513600, "t2": 1749599999, "t3": 1749600000, "t4": 1749686400}
    rows = [row(name, 100 * 2**index, created=created[name]) for index, name in enumerate(created)]
    async with FakeProcessor(ProcessorState({"a": rows})) as fake, ProcessorClient(fake.url) as client:
        totals = [(await run_settlement(client, None, "a", f"2025-06-{day}")).total_net for day in (10, 11, 12)]
    assert totals == [300, 400, 800]


async def test_pull_that_fails_in_the_middle_posts_nothing_and_the_next_run_settles_all() -> None:
    """PAG-14: all or nothing, and nothing is remembered of the broken pull."""
    first = page(row("t4", 400), row("t3", 300), has_more=True)
    rest = page(row("t2", 200), row("t1", 100))
    broken = [first, *[BUSY] * QUICK.attempts_max]
    async with scripted(*broken, first, rest, OK) as (server, client):
        with pytest.raises(ProcessorUnavailable, match="answered 500"):
            await settle(client)
        assert posts(server) == []
        assert (await settle(client)).total_net == 1000
    assert [sent["total_net"] for sent in posts(server)] == [1000]
    assert [seen.target for seen in server.requests].count(server.requests[0].target) == 2


async def test_pull_that_stumbles_goes_on_where_it_was() -> None:
    pages = page(row("t2", 200), has_more=True), BUSY, page(row("t1", 100))
    async with scripted(*pages, OK) as (server, client):
        assert (await settle(client)).total_net == 300
    assert server.requests[1] == server.requests[2]
    assert "starting_after=t2" in server.requests[2].target


async def test_cursor_that_came_before_stops_the_run() -> None:
    circle = page(row("t2"), has_more=True), page(row("t1"), has_more=True), page(row("t2"), has_more=True)
    await refused(*circle, error=ProtocolError, named="page 3 ends at t2, as an earlier page did")


async def test_more_pages_than_the_limit_stop_the_run() -> None:
    endless = (page(row(f"t{number}"), has_more=True) for number in range(100))
    async with ScriptedServer(endless) as server, ProcessorClient(server.url, pages_max=7) as client:
        with pytest.raises(ProtocolError, match="page 7 says that more follow, but 7 pages are the limit"):
            await settle(client)
        assert len(server.requests) == 7


async def test_as_many_pages_as_the_limit_are_read() -> None:
    script = page(row("t1"), has_more=True), page(row("t2")), OK
    async with ScriptedServer(script) as server, ProcessorClient(server.url, pages_max=2) as client:
        assert (await settle(client)).total_net == 200


async def test_page_larger_than_asked_for_is_read_whole() -> None:
    """A row too many is still a row of the account: it is counted, not cut off."""
    async with scripted(page(*(row(f"t{number}") for number in range(250))), OK) as (_, client):
        posted = await run_settlement(client, None, "acct_123", DAY, options=RunOptions(page_size=2))
    assert posted.total_net == 25_000


async def test_missing_has_more_stops_the_run() -> None:
    await refused(answer({"data": []}), error=ProtocolError, named=r"page 1: .*missing required field `has_more`")


@pytest.mark.parametrize("has_more", ["null", "0", '"false"', "[]"])
async def test_has_more_of_another_type_stops_the_run(has_more: str) -> None:
    body = f'{{"data":[],"has_more":{has_more}}}'.encode()
    await refused(answer(body), error=ProtocolError, named="has_more")


WRONG_AMOUNTS = {
    "true": "Expected `int`, got `bool`",  # JSN-01
    "false": "Expected `int`, got `bool`",
    "1999.0": "Expected `int`, got `float`",  # JSN-02
    "19.99": "Expected `int`, got `float`",
    "1e2": "Expected `int`, got `float`",
    "-0.0": "Expected `int`, got `float`",
    '"100"': "Expected `int`, got `str`",
    "null": "Expected `int`, got `null`",
    "9223372036854775808": "`int` <= 9223372036854775807",  # JSN-10
    "18446744073709551616": "Integer value out of range|`int` <=",
    "-9223372036854775808": "`int` >= -9223372036854775807",
    "-9223372036854775809": "`int` >=|Integer value out of range",
    "9" * 5000: "Integer value out of range",
}


@pytest.mark.parametrize("field", ["amount", "fee"])
@pytest.mark.parametrize("written", WRONG_AMOUNTS, ids=lambda written: written[:24])
async def test_amount_that_is_no_64_bit_integer_stops_the_run_naming_page_row_and_field(
    written: str, field: str
) -> None:
    spoilt = json.dumps(row("t_bad") | {field: "SPOILT"}).replace('"SPOILT"', written)
    pages = page(row("t1"), has_more=True), page(row("t2"), spoilt)
    named = f"page 2 row 2.* field {field}: .*({WRONG_AMOUNTS[written]})"
    await refused(*pages, error=ProtocolError, named=named)


@pytest.mark.parametrize("amount", [2**53 + 1, 2**63 - 1, -(2**63) + 1])
async def test_integers_above_2_to_53_stay_exact_to_the_last_digit(amount: int) -> None:
    """JSN-09 and the first value of JSN-10, through a conversion at rate 1 as well."""
    rates = Rates("usd", {"eur": "1"}, as_of=datetime(2026, 1, 15, tzinfo=UTC))
    async with scripted(page(row("t1", amount, currency="eur")), OK) as (server, client):
        assert (await settle(client, rates=rates)).total_net == amount
    assert f'"total_net":{amount}}}'.encode() in server.requests[-1].body


@pytest.mark.parametrize(
    ("added", "named"),
    [
        (',"amount":10000', "amount"),
        (',"id":"t2"', "id"),
        (',"x":{"y":1,"y":1}', "y"),
        (r',"amoun\u0074":1', "amount"),
        (r',"x":"\u0022\u0022","amount":1', "amount"),
    ],
)
async def test_row_that_names_a_member_twice_stops_the_run(added: str, named: str) -> None:
    """JSN-05 for rows: which of the two values is meant is not ours to guess."""
    await refused(
        page(json.dumps(row("t1"))[:-1] + added + "}"),
        error=ProtocolError,
        named=f"page 1: member '{named}' appears twice",
    )


async def test_page_that_holds_two_lists_stops_the_run() -> None:
    body = f'{{"data":[{json.dumps(row("t1"))}],"has_more":false,"data":[]}}'.encode()
    await refused(answer(body), error=ProtocolError, named="member 'data' appears twice")


@pytest.mark.parametrize(
    ("members", "named"),
    [
        ({"created": 2**63 - 1}, "created 9223372036854775807 is outside the window"),
        ({"created": -1}, "created -1 is outside the window"),
        ({"net": 99}, "net 99 is not amount 100 - fee 0"),
        ({"status": "failed"}, "status 'failed' is neither"),
        ({"currency": "xxx"}, "currency XXX has no exponent"),
        ({"currency": "us\x1bd"}, r"'us\\x1bd'"),
    ],
)
async def test_row_of_a_wrong_value_refuses_the_run(members: Mapping[str, object], named: str) -> None:
    await refused(page({**row("t1"), **members}), error=RunRefused, named=f"row t1: .*{named}")


@pytest.mark.parametrize("name", ["a\nb", "a\x1b[31m", "a\x00", "\u202eabc", "\u2028", "\x85"])
@pytest.mark.parametrize("field", ["id", "type", "reporting_category"])
async def test_name_that_cannot_be_printed_stops_the_run(name: str, field: str) -> None:
    """It would end up in logs, in a statement on a terminal and in a database."""
    await refused(
        page(row("t1") | {field: name}), error=ProtocolError, named=r"page 1 row 1 .*: a name holds a control character"
    )


@pytest.mark.parametrize("rate", ["1.015", '"1.015"', "1015e-3", "1.0150"])
@pytest.mark.parametrize(("amount", "converted"), [(100, 102), (-100, -102)])
async def test_rate_sent_as_a_json_number_is_as_exact_as_text(rate: str, amount: int, converted: int) -> None:
    """FX-08: exactly 101.5; through a binary float it would be a little less."""
    table = f'{{"object":"fx_rates","base":"usd","as_of":"2026-01-15T16:00:00Z","source":"t","rates":{{"eur":{rate}}}}}'
    async with scripted(page(row("t1", amount)), answer(table.encode()), OK) as (_, client):
        assert (await settle(client, "eur")).total_net == converted


@pytest.mark.parametrize(
    ("members", "named"),
    [
        ({"base": None}, "currency must be three ASCII letters"),
        ({"base": "xau"}, "XAU has no exponent"),
        ({"rates": []}, "rates must be an object, got array"),
        ({"rates": {"eur": "1", "EUR": "2"}}, "names EUR twice"),
        ({"as_of": "2026-01-15T16:00:00"}, "as_of names no time zone"),
        ({"as_of": "2026-01-15"}, "as_of names no time zone"),
        ({"as_of": 1768492800}, "as_of is not an ISO 8601 time"),
        ({"as_of": "yesterday"}, "as_of is not an ISO 8601 time"),
        ({"source": ["x"]}, "source must be printable text"),
        ({"source": "x" * 256}, "source must be printable text"),
        ({"source": "\x1b[2J"}, "source must be printable text"),
    ],
)
async def test_malformed_rate_table_is_a_protocol_error(members: Mapping[str, object], named: str) -> None:
    table = {"base": "usd", "as_of": "2026-01-15T16:00:00Z", "source": "t", "rates": {"eur": "0.92"}} | dict(members)
    async with scripted(answer(table)) as (_, client):
        with pytest.raises(ProtocolError, match=named):
            await client.rates(base="usd", day=date(2026, 1, 15))


@pytest.mark.parametrize(
    "created",
    [{}, {"id": "setl_1"}, {"id": "", "status": "created"}, {"id": 1, "status": "created"}, {"id": "x", "status": None},
     {"id": "setl\n1", "status": "created"}, {"id": "x" * 256, "status": "created"}, {"error": {"type": "api_error"}}],
)  # fmt: skip
async def test_answer_to_a_settlement_without_its_id_and_status_is_unknown(created: Mapping[str, object]) -> None:
    async with scripted(page(row("t1")), then=answer(dict(created))) as (server, client):
        with pytest.raises(SettleError, match=r"settlement answer: (id|status) must be") as caught:
            await settle(client)
    assert caught.value.code == "outcome_unknown"
    assert len(posts(server)) == QUICK.attempts_max
