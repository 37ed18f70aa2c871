"""The control plane: the fake's switches over HTTP, for clients that are not written in Python.

Whoever drives the fake from a shell script or another language relies on these answers; and every switch must do the
same as its Python method, or two test suites would test two different fakes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from fake_processor import FAULTS, FakeProcessor
from tests.contract.plain import plain_client

URL = "/v1/balance_transactions"
ACCESS = {"Authorization": "Bearer sk_test_contract"}


@pytest.fixture
async def fake() -> AsyncIterator[FakeProcessor]:
    async with FakeProcessor() as fake:
        yield fake


@pytest.fixture
async def client(fake: FakeProcessor) -> AsyncIterator[httpx.AsyncClient]:
    async with plain_client(fake.url) as client:
        yield client


async def listed(client: httpx.AsyncClient) -> int:
    return (await client.get(URL, headers=ACCESS)).status_code


async def test_every_fault_is_listed_with_its_line_and_options(client: httpx.AsyncClient) -> None:
    body = (await client.get("/_fake/faults")).json()
    assert body["rules"] == []
    assert set(body["faults"]) == set(FAULTS)
    for name, shown in body["faults"].items():
        assert shown == {
            "description": FAULTS[name].description,
            "route": FAULTS[name].route,
            "options": dict(FAULTS[name].options),
        }


async def test_fault_is_set_counted_and_healed(client: httpx.AsyncClient, fake: FakeProcessor) -> None:
    wish = {"fault": "error_503", "route": f"GET {URL}", "after": 1, "count": 1, "options": {"retry_after_s": 2}}
    answer = await client.post("/_fake/faults", json=wish)
    assert (answer.status_code, answer.json()["rule"], answer.json()["fired"]) == (200, 1, 0)
    assert [await listed(client) for _ in range(3)] == [200, 503, 200]
    rule = (await client.get("/_fake/faults")).json()["rules"][0]
    assert (rule["fault"], rule["seen"], rule["fired"], rule["options"]) == ("error_503", 3, 1, {"retry_after_s": 2})
    await client.post("/_fake/faults", json={"fault": "error_500", "nth": 2, "per_mille": 500, "seed": 9})
    assert len(fake.processor.faults.rules) == 2
    assert (await client.post("/_fake/heal")).json() == {"rules": []}
    await client.post("/_fake/faults", json={"fault": "error_500"})
    assert await listed(client) == 500
    await client.delete("/_fake/faults")
    assert await listed(client) == 200


@pytest.mark.parametrize(
    "wish",
    [
        {},
        {"fault": "nothing"},
        {"fault": 1},
        {"fault": "latency", "options": {"seconds": 1}},
        {"fault": "latency", "options": {"wait_ms": "1"}},
        {"fault": "latency", "options": [1]},
        {"fault": "latency", "nth": 0},
        {"fault": "latency", "count": 1.5},
        {"fault": "latency", "route": 5},
        {"fault": "latency", "route": "nowhere"},
        {"fault": "latency", "when": 1},
        [],
    ],
)
async def test_fault_that_cannot_be_set_is_refused(client: httpx.AsyncClient, wish: Any) -> None:
    answer = await client.post("/_fake/faults", json=wish)
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")
    assert (await client.get("/_fake/faults")).json()["rules"] == []


async def test_clock_is_frozen_advanced_and_let_go(client: httpx.AsyncClient, fake: FakeProcessor) -> None:
    frozen = await client.post("/_fake/clock", json={"freeze": "2026-01-16T06:00:00Z"})
    assert frozen.json() == {"now": "2026-01-16T06:00:00Z", "now_s": 1768543200, "frozen": True}
    later = await client.post("/_fake/clock", json={"advance_s": 86_400})
    assert later.json()["now"] == "2026-01-17T06:00:00Z"
    assert fake.clock.now_s == 1768629600
    assert (await client.post("/_fake/clock", json={"run": True})).json()["frozen"] is False
    assert (await client.post("/_fake/clock", json={"freeze": True})).json()["frozen"] is True
    assert (await client.get("/_fake/clock")).json()["now_s"] == fake.clock.now_s
    for wrong in ({"freeze": "yesterday"}, {"advance_s": -1}, {"forward": 1}):
        assert (await client.post("/_fake/clock", json=wrong)).status_code == 400


async def test_requests_are_shown_with_bodies_and_keys(client: httpx.AsyncClient, fake: FakeProcessor) -> None:
    fake.fault("wrong_content_type", route=URL)
    await client.get(URL, params={"limit": 1}, headers=ACCESS)
    headers = {**ACCESS, "Content-Type": "application/json", "Idempotency-Key": "key-1"}
    await client.post("/v1/settlements", content=b'{"\xff": 1}', headers=headers)
    first, second = (await client.get("/_fake/requests")).json()["requests"]
    assert first == {
        "request_id": "req_000001",
        "method": "GET",
        "path": URL,
        "query": [["limit", "1"]],
        "idempotency_key": None,
        "content_type": None,
        "body": "",
        "status": 200,
        "faults": ["wrong_content_type"],
    }
    assert (second["idempotency_key"], second["body"], second["status"]) == ("key-1", '{"\ufffd": 1}', 400)
    await client.delete("/_fake/requests")
    assert (await client.get("/_fake/requests")).json()["requests"] == []


async def test_rows_are_added_as_they_are_and_released(client: httpx.AsyncClient, fake: FakeProcessor) -> None:
    row = {"id": "txn_x", "created": 1768521599, "amount": "12", "status": "pending"}
    answer = await client.post("/_fake/transactions", json={"account": "acct_123", "rows": [row]})
    assert answer.json() == {"account": "acct_123", "added": 1}
    assert fake.state.transaction("acct_123", "txn_x") == row
    assert (await client.post("/_fake/release", json={"account": "acct_123"})).status_code == 200
    assert fake.state.transaction("acct_123", "txn_x")["status"] == "available"
    for path, wrong in (
        ("transactions", {"account": "acct_123", "rows": [1]}),
        ("transactions", {"account": 1, "rows": []}),
        ("release", {"account": "acct_none"}),
    ):
        assert (await client.post(f"/_fake/{path}", json=wrong)).status_code == 400


async def test_number_with_a_point_is_put_in_as_its_text(client: httpx.AsyncClient, fake: FakeProcessor) -> None:
    content = b'{"account": "acct_123", "rows": [{"id": "txn_x", "created": 5, "amount": 12.50}]}'
    assert (await client.post("/_fake/transactions", content=content)).status_code == 200
    assert fake.state.transaction("acct_123", "txn_x")["amount"] == "12.50"


async def test_right_settlement_is_told(client: httpx.AsyncClient, fake: FakeProcessor) -> None:
    body = (await client.get("/_fake/settlement", params={"date": "2026-01-15"})).json()
    assert body == fake.right_settlement(account="acct_123", date="2026-01-15")
    assert body["total_net"] == 145199
    other = {"date": "2026-01-15", "account": "acct_456", "settlement_currency": "eur"}
    assert (await client.get("/_fake/settlement", params=other)).json()["settlement_currency"] == "eur"
    assert (await client.get("/_fake/settlement")).json()["error"]["param"] == "date"
    assert (await client.get("/_fake/settlement", params={"date": "2026-01-15", "account": "x"})).status_code == 404


async def test_control_plane_has_no_faults_no_keys_and_no_record(
    client: httpx.AsyncClient, fake: FakeProcessor
) -> None:
    fake.fault("reset_before_headers")
    fake.fault("rate_limit", per_second=1)
    for _ in range(3):
        assert (await client.get("/_fake/clock")).status_code == 200
    assert fake.requests == []


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/_fake/", 404),
        ("GET", "/_fake/nothing", 404),
        ("PUT", "/_fake/clock", 405),
        ("GET", "/_fake/heal", 405),
    ],
)
async def test_switch_that_is_none_is_refused(client: httpx.AsyncClient, method: str, path: str, status: int) -> None:
    assert (await client.request(method, path)).status_code == status


async def test_body_that_is_no_object_is_refused(client: httpx.AsyncClient) -> None:
    for content in (
        b"",
        b"{",
        b"[]",
        b'{"fault": "bom", "fault": "bom"}',
        b'{"fault": "bom", "options": {"a":1,"a":1}}',
    ):
        assert (await client.post("/_fake/faults", content=content)).status_code == 400
