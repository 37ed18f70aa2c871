"""The client against the fake processor, over real sockets: what goes out is what the processor takes, and no more.

Without these, a parameter could be lost on the second page, an account's name could smuggle one in, or a key could be
printed where somebody else reads it.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import date
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from fake_processor import FakeProcessor, ProcessorState, load_fixtures
from paykit_settle.client import ProcessorClient
from paykit_settle.errors import InvalidRequest, ProcessorRejected, SettlementConflict
from paykit_settle.window import day_window
from paykit_settle.wire import encode_body

SETTLEMENTS = "/v1/settlements"
WINDOW = day_window(date(2026, 1, 15), ZoneInfo("Etc/UTC"))
STRANGE_NAMES = ["a&b=c", "a&limit=1", "ünï 中", "two words", "a+b", "100%25", "a#b", "a?b", "[x]", "é\u0301", "/.."]


@pytest.fixture
async def fake() -> AsyncIterator[FakeProcessor]:
    async with FakeProcessor() as processor:
        yield processor


@pytest.fixture
async def client(fake: FakeProcessor) -> AsyncIterator[ProcessorClient]:
    async with ProcessorClient(fake.url) as processor_client:
        yield processor_client


def settlement(amount: int = 19390, account: str = "acct_123") -> dict[str, Any]:
    line = {"currency": "usd", "charged": amount, "refunded": 0, "fees": 0, "net": amount, "net_settlement": amount}
    head = {"account": account, "date": "2026-01-15", "settlement_currency": "usd"}
    return {**head, "lines": [line], "total_net": amount}


async def test_post_sends_json_and_is_accepted(fake: FakeProcessor, client: ProcessorClient) -> None:
    answer = await client.post(SETTLEMENTS, settlement(), idempotency_key="key-1")
    assert (answer["id"], answer["status"]) == ("setl_0001", "created")
    (request,) = fake.requests
    assert (request.method, request.path, request.query) == ("POST", SETTLEMENTS, [])
    assert (request.content_type, request.idempotency_key) == ("application/json", "key-1")
    assert json.loads(request.body) == settlement()


async def test_post_response_is_parsed_and_body_roundtrips(client: ProcessorClient) -> None:
    answer = await client.post(SETTLEMENTS, settlement(2**53 + 1), idempotency_key="key-1")
    assert answer["total_net"] == 2**53 + 1
    received = await client.get(f"{SETTLEMENTS}/{answer['id']}")
    assert {name: received[name] for name in settlement()} == settlement(2**53 + 1)
    assert received["idempotency_key"] == "key-1"


async def test_same_key_and_body_is_answered_again_and_settled_once(client: ProcessorClient) -> None:
    body = encode_body(settlement())
    first = await client.create_settlement(body, idempotency_key="key-1")
    assert await client.create_settlement(body, idempotency_key="key-1") == first == ("setl_0001", "created")
    received = (await client.get(SETTLEMENTS, {"account": "acct_123"}))["data"]
    assert isinstance(received, list)
    assert len(received) == 1


async def test_same_key_with_another_body_is_a_settlement_conflict(client: ProcessorClient) -> None:
    await client.post(SETTLEMENTS, settlement(1), idempotency_key="key-1")
    with pytest.raises(SettlementConflict, match="idempotency_key_reused") as caught:
        await client.post(SETTLEMENTS, settlement(2), idempotency_key="key-1")
    assert caught.value.status == 400
    assert caught.value.code == "settlement_conflict"


async def test_body_that_does_not_add_up_is_rejected_once_with_the_processors_words(
    fake: FakeProcessor, client: ProcessorClient
) -> None:
    with pytest.raises(ProcessorRejected, match="total_net must equal the sum") as caught:
        await client.post(SETTLEMENTS, settlement() | {"total_net": 1}, idempotency_key="key-1")
    error = caught.value
    assert (error.status, error.exchange is not None and error.exchange.request_id) == (400, "req_000001")
    assert '"param": "total_net"' in error.body
    assert len(fake.requests) == 1


async def test_wrong_key_is_rejected_without_a_word_of_the_key() -> None:
    key = "sk_live_51HxSecretSecretSecret"
    async with FakeProcessor(api_keys=["sk_test_right"]) as fake, ProcessorClient(fake.url, api_key=key) as client:
        with pytest.raises(ProcessorRejected, match="answered 401") as caught:
            await client.get("/v1/balance_transactions", {"account": "acct_123"})
        assert caught.value.status == 401
        assert len(fake.requests) == 1
    told = f"{caught.value} {caught.value!r} {caught.value.body} {caught.value.details} {client!r}"
    assert key not in told
    assert "Secret" not in told


async def test_right_key_is_let_in() -> None:
    async with FakeProcessor(api_keys=["sk_a"]) as fake, ProcessorClient(fake.url, api_key="sk_a") as client:
        assert (await client.get("/v1/balance_transactions", {"limit": 1}))["has_more"] is True


@pytest.mark.parametrize("page_size", [1, 2, 3, 4, 5, 7, 12, 13, 14, 99, 100])
async def test_every_page_size_gives_the_same_rows_in_full_pages(
    fake: FakeProcessor, client: ProcessorClient, page_size: int
) -> None:
    pages = [page async for page in client.pages("acct_123", window=WINDOW, page_size=page_size)]
    assert [page.number for page in pages] == list(range(1, len(pages) + 1))
    assert all(len(page.rows) == page_size for page in pages[:-1])
    assert [page.has_more for page in pages] == [True] * (len(pages) - 1) + [False]
    rows = [row for page in pages for row in page.rows]
    ids = [row.id for row in rows]
    in_window = [row for row in fake.state.transactions("acct_123") if _is_in_window(row)]
    assert ids == [row["id"] for row in in_window]
    assert ids[:4] == ["txn_01", "txn_02", "txn_03", "txn_04"]
    assert rows[2].amount == -3000


def _is_in_window(row: dict[str, object]) -> bool:
    created = row["created"]
    assert isinstance(created, int)
    return WINDOW.start_unix_s <= created < WINDOW.end_unix_s


async def test_page_keeps_its_bytes_as_they_came(client: ProcessorClient) -> None:
    async for page in client.pages("acct_123", window=WINDOW, page_size=2):
        assert [row["id"] for row in json.loads(page.body)["data"]] == [row.id for row in page.rows]


async def test_filters_go_out_with_every_page(fake: FakeProcessor, client: ProcessorClient) -> None:
    """PAG-10: a filter lost on page two would pull the rows of other days into this one."""
    rows = [row async for row in client.balance_transactions("acct_123", window=WINDOW, page_size=5)]
    filters = {"account": "acct_123", "limit": "5", "created[gte]": "1768435200", "created[lt]": "1768521600"}
    queries = [dict(request.query) for request in fake.requests]
    assert queries == [filters, filters | {"starting_after": rows[4].id}, filters | {"starting_after": rows[9].id}]


async def test_rows_can_be_walked_without_a_window(fake: FakeProcessor, client: ProcessorClient) -> None:
    rows = [row async for row in client.balance_transactions("acct_123", page_size=6)]
    assert [row.id for row in rows] == [row["id"] for row in fake.state.transactions("acct_123")]


@pytest.mark.parametrize("name", STRANGE_NAMES)
async def test_strange_account_name_cannot_add_or_change_a_parameter(name: str) -> None:
    rows = load_fixtures().transactions("acct_123")
    async with FakeProcessor(ProcessorState(accounts={name: rows})) as fake, ProcessorClient(fake.url) as client:
        got = [row.id async for row in client.balance_transactions(name, page_size=50)]
        assert got == [row["id"] for row in rows]
        assert fake.requests[0].query == [("account", name), ("limit", "50")]


async def test_strange_row_ids_are_exact_cursors() -> None:
    rows = [{"id": name, "type": "charge", "amount": index, "currency": "usd", "fee": 0, "status": "available"}
            for index, name in enumerate(STRANGE_NAMES)]  # fmt: skip
    async with FakeProcessor(ProcessorState(accounts={"a": rows})) as fake, ProcessorClient(fake.url) as client:
        got = {row.id: row.amount async for row in client.balance_transactions("a", page_size=1)}
        assert got == {name: index for index, name in enumerate(STRANGE_NAMES)}
        assert len(fake.requests) == len(rows)


async def test_unknown_account_is_rejected_and_not_empty(client: ProcessorClient) -> None:
    with pytest.raises(ProcessorRejected, match="answered 404"):
        [row async for row in client.balance_transactions("acct_none")]


@pytest.mark.parametrize("page_size", [0, -1, 101])
async def test_page_size_outside_the_contract_is_rejected_and_named(client: ProcessorClient, page_size: int) -> None:
    with pytest.raises(ProcessorRejected, match="This value must be"):
        [row async for row in client.balance_transactions("acct_123", page_size=page_size)]


async def test_days_rates_are_kept_digit_for_digit(client: ProcessorClient) -> None:
    rates = await client.rates(base="usd", day=date(2026, 1, 15))
    assert rates.provenance()["base"] == "usd"
    assert (rates.rate("eur").text, rates.rate("gbp").text, rates.rate("jpy").text) == ("0.92", "0.79", "150")


async def test_day_without_a_rate_table_is_rejected(client: ProcessorClient) -> None:
    with pytest.raises(ProcessorRejected, match="No such rate table"):
        await client.rates(base="usd", day=date(1999, 1, 1))


async def test_lone_surrogate_is_refused_before_anything_is_sent(fake: FakeProcessor, client: ProcessorClient) -> None:
    with pytest.raises(InvalidRequest, match="surrogate"):
        [row async for row in client.balance_transactions("acct_\udcff")]
    assert fake.requests == []


async def test_one_client_serves_many_callers_at_once(fake: FakeProcessor, client: ProcessorClient) -> None:
    async def ids() -> list[str]:
        return [row.id async for row in client.balance_transactions("acct_123", page_size=3)]

    first, *others = await asyncio.gather(*(ids() for _ in range(12)))
    assert all(other == first for other in others)
    assert len(first) == len(fake.state.transactions("acct_123"))
