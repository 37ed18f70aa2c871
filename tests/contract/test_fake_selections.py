"""Sources, payouts, expansion, links and balances of the fake: what real clients ask beside plain pages.

A payout or a balance that did not agree with the rows would send whoever reconciles them looking for a mistake of their
own.
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


async def test_source_names_its_one_row(client: httpx.AsyncClient) -> None:
    assert await ids(client, source="re_03") == ["txn_03"]
    assert await ids(client, source="re_03", currency="eur") == []
    assert await ids(client, source="ch_none") == []


async def test_payout_selects_what_it_paid_out(client: httpx.AsyncClient) -> None:
    # Since the payout before it, in its currency, and available: of the 14th and 13th too, but no pending row.
    found = await ids(client, payout="po_09", limit=100)
    assert found == ["txn_09", "txn_1401", "txn_1404", "txn_1407", "txn_1301"]
    assert await ids(client, payout="po_09", created="2026-01-14", limit=1) == ["txn_1401"]


@pytest.mark.parametrize("name", ["expand[]", "expand[0]", "expand%5B%5D"])
async def test_source_can_be_expanded(client: httpx.AsyncClient, name: str) -> None:
    answer = await client.get(f"{URL}?created=2026-01-15&limit=3&{name}=data.source")
    refund = answer.json()["data"][2]
    assert refund["source"] == {
        "id": "re_03",
        "object": "refund",
        "amount": 3000,
        "balance_transaction": "txn_03",
        "created": refund["created"],
        "currency": "usd",
        "livemode": False,
    }
    one = await client.get(f"{URL}/txn_03?{name}=source")
    assert one.json() == refund
    assert (await client.get(f"{URL}/txn_03?{name}=data.source")).status_code == 400


async def test_link_leads_to_the_next_page_in_the_direction_of_travel(client: httpx.AsyncClient) -> None:
    answer = await client.get(f"{URL}?account=acct_123&created[gte]={DAY_START_S}&created[lt]={DAY_END_S}&limit=5")
    seen = [row["id"] for row in answer.json()["data"]]
    while "Link" in answer.headers:
        target, _, rel = answer.headers["Link"].partition(">; ")
        assert rel == 'rel="next"'
        answer = await client.get(target.removeprefix("<"))
        seen += [row["id"] for row in answer.json()["data"]]
    assert seen == DAY_IDS
    back = await client.get(URL, params={"ending_before": "txn_13", "limit": 2, "type": "a&b=c"})
    assert "Link" not in back.headers
    back = await client.get(URL, params={"ending_before": "txn_13", "limit": 2})
    assert back.headers["Link"] == f'<{URL}?limit=2&ending_before=txn_11>; rel="prev"'


async def test_link_encodes_what_was_asked() -> None:
    rows = [{"id": name, "created": 5, "type": "a b&c"} for name in ("txn 1", "txn 2")]
    state = ProcessorState(accounts={"acct_123": rows})
    async with FakeProcessor(state) as fake, plain_client(fake.url, headers=ACCESS) as client:
        answer = await client.get(URL, params={"type": "a b&c", "limit": 1})
        assert answer.headers["Link"] == f'<{URL}?type=a%20b%26c&limit=1&starting_after=txn%201>; rel="next"'
        expanded = (await client.get(URL, params={"expand[]": "data.source"})).json()["data"]
        assert expanded == rows


async def test_balance_is_the_sum_of_the_rows(client: httpx.AsyncClient) -> None:
    rows = (await listed(client, limit=100))["data"]
    balance = (await client.get("/v1/balance")).json()
    assert (balance["object"], balance["livemode"]) == ("balance", False)
    for status in ("available", "pending"):
        sums: dict[str, int] = {}
        for row in rows:
            if row["status"] == status:
                sums[row["currency"]] = sums.get(row["currency"], 0) + row["net"]
        assert {entry["currency"]: entry["amount"] for entry in balance[status]} == sums
    other = await client.get("/v1/balance", headers={"Stripe-Account": "acct_456"})
    assert other.json() == (await client.get("/v1/balance?account=acct_456")).json() != balance
    assert (await client.get("/v1/balance?account=acct_none")).status_code == 404
    assert (await client.get("/v1/balance?limit=1")).status_code == 400
