"""Settlements posted as a form, as Stripe's SDK posts everything: the same checks as for JSON, by the same names.

A form has texts only. One that were read more leniently than JSON would let a client pass that sends the wrong amounts.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from fake_processor import FakeProcessor
from tests.contract.plain import plain_client

URL = "/v1/settlements"
ACCESS = {"Authorization": "Bearer sk_test_contract"}
LINE = {"currency": "gbp", "charged": 8000, "refunded": 0, "fees": 280, "net": 7720, "net_settlement": 9772}
FORM = (
    "account=acct_123&date=2026-01-15&settlement_currency=usd&total_net=9772"
    "&lines[0][currency]=gbp&lines[0][charged]=8000&lines[0][refunded]=0&lines[0][fees]=280"
    "&lines%5B0%5D%5Bnet%5D=7720&lines[0][net_settlement]=9772"
)
FORM_TYPE = "application/x-www-form-urlencoded"


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with FakeProcessor() as fake, plain_client(fake.url, headers=ACCESS) as client:
        yield client


async def post(client: httpx.AsyncClient, body: bytes, *, key: str = "key-1") -> httpx.Response:
    headers = {"Content-Type": FORM_TYPE, "Idempotency-Key": key}
    return await client.post(URL, content=body, headers=headers)


async def received(client: httpx.AsyncClient) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = (await client.get(URL)).json()["data"]
    return rows


async def test_form_is_taken_as_the_value_it_stands_for(client: httpx.AsyncClient) -> None:
    answer = await post(client, FORM.encode())
    assert (answer.status_code, answer.json()["total_net"]) == (200, 9772)
    assert (await received(client))[0]["lines"] == [LINE]
    again = await post(client, FORM.encode())
    assert again.headers["Idempotent-Replayed"] == "true"
    period = FORM.replace("2026-01-15", "2026-01-16") + "&lines[0][period]=2026-01-15"
    assert (await post(client, period.encode(), key="key-2")).status_code == 200


@pytest.mark.parametrize(
    ("old", "new", "param"),
    [
        ("total_net=9772", "total_net=9772.0", "total_net"),
        ("total_net=9772", "total_net=9771", "total_net"),
        ("total_net=9772", "total_net=", "total_net"),
        ("total_net=9772", "", "body"),
        ("total_net=9772", "total_net=9772&total_net=9772", "total_net"),
        ("[fees]=280", "[fees]=+280", "lines[0].fees"),
        ("[fees]=280", "[fees]=280&lines[0][fees]=280", "lines[0][fees]"),
        ("[fees]=280", "[fees]=99999999999999999999", "lines[0].fees"),
        ("lines[0][fees]", "lines[][fees]", "lines[][fees]"),
        ("&date", "&memo=x&date", "memo"),
        ("acct_123", "acct_\xff", "body"),
    ],
)
async def test_form_that_is_wrong_is_refused_by_name(client: httpx.AsyncClient, old: str, new: str, param: str) -> None:
    answer = await post(client, FORM.replace(old, new, 1).encode("latin-1"))
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    assert await received(client) == []


async def test_json_under_a_forms_content_type_is_refused(client: httpx.AsyncClient) -> None:
    assert (await post(client, b'{"account": "acct_123"}')).status_code == 400
