"""Looking settlements up at the fake: how a client learns what became of a post whose answer it never got.

If a look-up named too few, a client would post again and settle twice; if too many, it would take another's for its
own.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from fake_processor import FakeProcessor
from tests.contract.plain import plain_client

URL = "/v1/settlements"
ACCESS = {"Authorization": "Bearer sk_test_contract"}
BODY = {"account": "acct_123", "date": "2026-01-15", "settlement_currency": "usd", "lines": [], "total_net": 0}


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with FakeProcessor() as fake, plain_client(fake.url, headers=ACCESS) as client:
        yield client


async def post(client: httpx.AsyncClient, body: dict[str, Any], *, key: str) -> httpx.Response:
    headers = {"Content-Type": "application/json", "Idempotency-Key": key}
    return await client.post(URL, content=json.dumps(body).encode(), headers=headers)


async def received(client: httpx.AsyncClient, **params: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = (await client.get(URL, params=params)).json()["data"]
    return rows


async def test_settlements_are_listed_by_account_and_date(client: httpx.AsyncClient) -> None:
    days = [("acct_123", "2026-01-15"), ("acct_123", "2026-01-16"), ("acct_456", "2026-01-15")]
    for number, (account, date) in enumerate(days):
        body = {**BODY, "account": account, "date": date}
        assert (await post(client, body, key=f"key-{number}")).status_code == 200
    assert [row["id"] for row in await received(client)] == ["setl_0001", "setl_0002", "setl_0003"]
    assert [row["id"] for row in await received(client, account="acct_123")] == ["setl_0001", "setl_0002"]
    assert [row["id"] for row in await received(client, date="2026-01-15")] == ["setl_0001", "setl_0003"]
    assert await received(client, account="acct_456", date="2026-01-16") == []


@pytest.mark.parametrize(
    ("path", "status", "param"),
    [
        ("?account=acct_none", 404, "account"),
        ("?date=today", 400, "date"),
        ("?day=2026-01-15", 400, "day"),
        ("/setl_0001", 404, "id"),
    ],
)
async def test_settlements_that_cannot_be_listed_are_refused(
    client: httpx.AsyncClient, path: str, status: int, param: str
) -> None:
    answer = await client.get(URL + path)
    assert (answer.status_code, answer.json()["error"]["param"]) == (status, param)
