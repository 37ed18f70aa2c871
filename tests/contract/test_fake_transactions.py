"""The fake's list of balance transactions, asked over a real socket.

Everything that pages relies on what is claimed here: the order, the cursors, `has_more` and the
refusals. If the fake were lenient where a processor is strict, a broken client would pass its tests.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from fake_processor import FakeProcessor, ProcessorState
from tests.contract.plain import plain_client

URL = "/v1/balance_transactions"
DAY_START_S = 1768435200  # 2026-01-15T00:00:00Z
DAY_END_S = DAY_START_S + 86_400
ACCESS = {"Authorization": "Bearer sk_test_contract"}
DAY_IDS = [f"txn_{number:02d}" for number in range(1, 14)]


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with FakeProcessor() as fake, plain_client(fake.url, headers=ACCESS) as client:
        yield client


async def listed(client: httpx.AsyncClient, **params: str | int) -> dict[str, Any]:
    answer = await client.get(URL, params=params)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


async def ids(client: httpx.AsyncClient, **params: str | int) -> list[str]:
    return [row["id"] for row in (await listed(client, **params))["data"]]


async def refused(client: httpx.AsyncClient, query: str) -> dict[str, Any]:
    answer = await client.get(f"{URL}?{query}")
    assert answer.status_code == 400, answer.text
    error: dict[str, Any] = answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    return error


async def test_list_has_the_envelope_that_clients_page_by(client: httpx.AsyncClient) -> None:
    body = await listed(client, created="2026-01-15", limit=4)
    assert {key: body[key] for key in ("object", "url", "has_more")} == {
        "object": "list",
        "url": URL,
        "has_more": True,
    }
    assert [
        (row["id"], row["object"], row["type"], row["amount"], row["currency"], row["fee"], row["net"])
        for row in body["data"]
    ] == [
        ("txn_01", "balance_transaction", "charge", 20000, "usd", 610, 19390),
        ("txn_02", "balance_transaction", "charge", 5000, "usd", 175, 4825),
        ("txn_03", "balance_transaction", "refund", -3000, "usd", 0, -3000),
        ("txn_04", "balance_transaction", "charge", 10000, "eur", 320, 9680),
    ]
    assert body["data"][0]["created"] == DAY_END_S - 1
    assert body["data"][0]["status"] == "available"


async def test_limit_is_ten_when_it_is_not_given(client: httpx.AsyncClient) -> None:
    assert await ids(client, created="2026-01-15") == DAY_IDS[:10]


@pytest.mark.parametrize("limit", [1, 13, 14, 100])
async def test_limit_within_its_bounds_is_kept(client: httpx.AsyncClient, limit: int) -> None:
    body = await listed(client, created="2026-01-15", limit=limit)
    assert [row["id"] for row in body["data"]] == DAY_IDS[:limit]
    assert body["has_more"] is (limit < 13)


@pytest.mark.parametrize("limit", ["0", "-1", "101", "abc", "1.5", "", "1e1", "+5", "%2010", "0x10", "٣"])
async def test_limit_outside_its_bounds_is_refused_by_name(client: httpx.AsyncClient, limit: str) -> None:
    assert (await refused(client, f"limit={limit}"))["param"] == "limit"


async def test_both_cursors_at_once_are_refused(client: httpx.AsyncClient) -> None:
    error = await refused(client, "starting_after=txn_01&ending_before=txn_03")
    assert error["code"] == "parameters_exclusive"


@pytest.mark.parametrize("cursor", ["starting_after", "ending_before"])
@pytest.mark.parametrize("row_id", ["txn_none", "txn_456_1501"])
async def test_cursor_that_names_no_row_of_the_account_is_refused(
    client: httpx.AsyncClient, cursor: str, row_id: str
) -> None:
    error = await refused(client, f"{cursor}={row_id}")
    assert (error["code"], error["param"]) == ("resource_missing", cursor)


async def test_starting_after_goes_to_older_rows_until_there_are_none(client: httpx.AsyncClient) -> None:
    body = await listed(client, created="2026-01-15", starting_after="txn_04", limit=5)
    assert [row["id"] for row in body["data"]] == DAY_IDS[4:9]
    assert body["has_more"] is True
    rest = await listed(client, created="2026-01-15", starting_after="txn_09", limit=4)
    assert [row["id"] for row in rest["data"]] == DAY_IDS[9:]
    assert rest["has_more"] is False


async def test_ending_before_gives_the_nearest_newer_rows_newest_first(client: httpx.AsyncClient) -> None:
    body = await listed(client, created="2026-01-15", ending_before="txn_09", limit=3)
    assert [row["id"] for row in body["data"]] == ["txn_06", "txn_07", "txn_08"]
    assert body["has_more"] is True
    rest = await listed(client, created="2026-01-15", ending_before="txn_04", limit=3)
    assert [row["id"] for row in rest["data"]] == ["txn_01", "txn_02", "txn_03"]
    assert rest["has_more"] is False


async def test_cursor_at_either_end_gives_an_empty_last_page(client: httpx.AsyncClient) -> None:
    assert await listed(client, starting_after="txn_1305") == {
        "object": "list",
        "url": URL,
        "data": [],
        "has_more": False,
    }
    assert await ids(client, ending_before="txn_2001") == []


async def test_cursor_need_not_match_the_filter(client: httpx.AsyncClient) -> None:
    assert await ids(client, currency="eur", created="2026-01-15", starting_after="txn_05") == ["txn_10"]
    assert await ids(client, currency="eur", created="2026-01-15", ending_before="txn_05") == ["txn_04"]
    assert await ids(client, created="2026-01-15", starting_after="txn_1603", limit=1) == ["txn_01"]
    assert await ids(client, created="2026-01-15", ending_before="txn_1603") == []
    assert await ids(client, created="2026-01-15", ending_before="txn_1401", limit=1) == ["txn_13"]


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("params", [{"currency": "usd"}, {"type": "charge"}, {"created[lt]": DAY_END_S}])
async def test_filtered_rows_come_once_each_in_both_directions(
    client: httpx.AsyncClient, params: dict[str, str | int], size: int
) -> None:
    whole = await ids(client, **params, limit=100)
    forwards = [await listed(client, **params, limit=size)]
    while forwards[-1]["has_more"]:
        cursor = forwards[-1]["data"][-1]["id"]
        forwards.append(await listed(client, **params, limit=size, starting_after=cursor))
    assert [row["id"] for page in forwards for row in page["data"]] == whole
    backwards = [await listed(client, **params, limit=size, ending_before="txn_1305")]
    while backwards[-1]["has_more"]:
        cursor = backwards[-1]["data"][0]["id"]
        backwards.append(await listed(client, **params, limit=size, ending_before=cursor))
    newer = [row["id"] for page in reversed(backwards) for row in page["data"]]
    assert newer == [row_id for row_id in whole if row_id != "txn_1305"]


async def test_created_as_a_date_is_the_whole_utc_day(client: httpx.AsyncClient) -> None:
    day = await ids(client, created="2026-01-15", limit=100)
    assert day == DAY_IDS
    assert await ids(client, created="2026-01-14", limit=1) == ["txn_1401"]
    assert (await ids(client, created="2026-01-16", limit=100))[-1] == "txn_1603"
    assert await ids(client, created="2026-01-12") == []


async def test_created_as_an_integer_is_that_one_second(client: httpx.AsyncClient) -> None:
    assert await ids(client, created=DAY_START_S) == ["txn_13"]
    assert await ids(client, created=DAY_START_S + 1) == []


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ({"created[gte]": DAY_START_S, "created[lt]": DAY_END_S}, DAY_IDS),
        ({"created[gt]": DAY_START_S, "created[lt]": DAY_END_S}, DAY_IDS[:-1]),
        ({"created[gte]": DAY_START_S, "created[lte]": DAY_END_S}, ["txn_1603", *DAY_IDS]),
        ({"created[gt]": DAY_START_S - 1, "created[lte]": DAY_END_S - 1}, DAY_IDS),
        ({"created[gte]": DAY_START_S, "created[lt]": DAY_END_S - 1}, DAY_IDS[1:]),
        ({"created[gte]": DAY_END_S, "created[lt]": DAY_START_S}, []),
        ({"created[gte]": 0, "created[gt]": DAY_START_S, "created[lt]": DAY_END_S}, DAY_IDS[:-1]),
    ],
)
async def test_created_range_keeps_its_bounds_to_the_second(
    client: httpx.AsyncClient, bounds: dict[str, int], expected: list[str]
) -> None:
    assert await ids(client, **bounds, limit=100) == expected


@pytest.mark.parametrize("name", ["created[gte]", "created%5Bgte%5D"])
async def test_brackets_may_be_percent_encoded(client: httpx.AsyncClient, name: str) -> None:
    answer = await client.get(f"{URL}?{name}={DAY_START_S}&created%5Blt%5D={DAY_END_S}&limit=100")
    assert [row["id"] for row in answer.json()["data"]] == DAY_IDS


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("created=2026-1-15", "created"),
        ("created=2026-02-30", "created"),
        ("created=yesterday", "created"),
        ("created=", "created"),
        ("created[gte]=2026-01-15", "created[gte]"),
        ("created[lt]=1.0", "created[lt]"),
        ("created=1768435200&created[lt]=1768435300", "created"),
        ("created[ge]=1768435200", "created[ge]"),
        ("currency=USD", "currency"),
        ("currency=us", "currency"),
        ("type=", "type"),
        ("account=", "account"),
        ("source=", "source"),
        ("payout=po_none", "payout"),
        ("expand[]=data.customer", "expand[]"),
        ("expand=data.source", "expand"),
        ("page=2", "page"),
        ("Limit=2", "Limit"),
        ("limit=2&limit=2", "limit"),
        ("created[gte]=1&created%5Bgte%5D=2", "created[gte]"),
    ],
)
async def test_parameter_that_is_wrong_unknown_or_repeated_is_refused_by_name(
    client: httpx.AsyncClient, query: str, param: str
) -> None:
    assert (await refused(client, query))["param"] == param


async def test_unknown_parameter_has_its_own_code(client: httpx.AsyncClient) -> None:
    assert (await refused(client, "page=2"))["code"] == "parameter_unknown"


async def test_type_and_currency_narrow_the_list(client: httpx.AsyncClient) -> None:
    assert await ids(client, created="2026-01-15", type="refund") == ["txn_03", "txn_12"]
    assert await ids(client, created="2026-01-15", type="refund", currency="usd") == ["txn_03"]
    assert await ids(client, type="no_such_type") == []


async def test_account_comes_from_the_parameter_then_the_header_then_a_default(
    client: httpx.AsyncClient,
) -> None:
    other = ["txn_456_1501", "txn_456_1502", "txn_456_1503"]
    assert await ids(client, created="2026-01-15", account="acct_456") == other
    header = {"Stripe-Account": "acct_456"}
    by_header = await client.get(URL, params={"created": "2026-01-15"}, headers=header)
    assert [row["id"] for row in by_header.json()["data"]] == other
    both = await client.get(URL, params={"account": "acct_123", "limit": 1}, headers=header)
    assert both.json()["data"][0]["id"] == "txn_2001"
    assert await ids(client, limit=1) == ["txn_2001"]


async def test_unknown_account_is_missing(client: httpx.AsyncClient) -> None:
    answer = await client.get(URL, params={"account": "acct_none"})
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "resource_missing"
    assert answer.json()["error"]["param"] == "account"


async def test_one_transaction_is_the_row_of_the_list(client: httpx.AsyncClient) -> None:
    row = (await listed(client, created="2026-01-15", limit=1))["data"][0]
    assert (await client.get(f"{URL}/txn_01")).json() == row


@pytest.mark.parametrize("path", ["/txn_none", "/txn_456_1501", "/txn_01?account=acct_456"])
async def test_transaction_of_no_or_another_account_is_missing(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.get(URL + path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "resource_missing")


async def test_rows_of_one_second_stand_by_id_and_cursors_pass_between_them() -> None:
    rows = [{"id": f"txn_{name}", "created": 5} for name in ("c", "a", "b")]
    state = ProcessorState(accounts={"acct_123": rows})
    async with (
        FakeProcessor(state) as fake,
        plain_client(fake.url, headers=ACCESS) as client,
    ):
        assert await ids(client) == ["txn_a", "txn_b", "txn_c"]
        assert await ids(client, starting_after="txn_a", limit=1) == ["txn_b"]
        assert await ids(client, ending_before="txn_c", limit=1) == ["txn_b"]


async def test_row_added_while_serving_is_listed_at_its_place() -> None:
    async with FakeProcessor() as fake, plain_client(fake.url, headers=ACCESS) as client:
        fake.state.add_transactions("acct_123", [{"id": "txn_late", "created": DAY_END_S - 1, "amount": "1"}])
        body = await listed(client, created="2026-01-15", limit=2)
        assert [row["id"] for row in body["data"]] == ["txn_01", "txn_late"]
        assert body["data"][1] == {"id": "txn_late", "created": DAY_END_S - 1, "amount": "1"}
