"""Each fault does to a plain client what its one line says.

The client under test is judged by these faults. One that did less than it says would pass a client that breaks in
production; one that did more would be chased as a bug of the client.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from fake_processor import FAULTS, FakeProcessor
from tests.contract.plain import plain_client

URL = "/v1/balance_transactions"
FX = "/v1/fx/rates?base=usd&date=2026-01-15"
SETTLEMENTS = "/v1/settlements"
ACCESS = {"Authorization": "Bearer sk_test_contract"}
DAY = {"created": "2026-01-15"}
BODY = {"account": "acct_123", "date": "2026-01-12", "settlement_currency": "usd", "lines": [], "total_net": 0}


@pytest.fixture
async def fake() -> AsyncIterator[FakeProcessor]:
    async with FakeProcessor() as fake:
        yield fake


@pytest.fixture
async def client(fake: FakeProcessor) -> AsyncIterator[httpx.AsyncClient]:
    async with plain_client(fake.url, headers=ACCESS) as client:
        yield client


async def page(client: httpx.AsyncClient, **params: str | int) -> dict[str, Any]:
    answer = await client.get(URL, params={**DAY, "limit": 4, **params})
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


async def ids(client: httpx.AsyncClient, **params: str | int) -> list[str]:
    return [row["id"] for row in (await page(client, **params))["data"]]


async def post(client: httpx.AsyncClient, key: str = "key-1") -> httpx.Response:
    return await client.post(SETTLEMENTS, json=BODY, headers={"Idempotency-Key": key})


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("too_many_requests", 429),
        ("too_many_requests_date", 429),
        ("error_500", 500),
        ("error_502", 502),
        ("error_503", 503),
        ("unauthorized", 401),
        ("forbidden", 403),
        ("in_flight", 409),
        ("redirect", 302),
    ],
)
async def test_refusal_has_no_effect_and_ends_with_its_count(
    fake: FakeProcessor, client: httpx.AsyncClient, name: str, status: int
) -> None:
    fake.fault(name, route="POST /v1/settlements", count=1)
    refused = await post(client)
    assert refused.status_code == status
    assert refused.headers["Request-Id"] == "req_000001"
    assert fake.state.settlements() == []
    assert (await post(client, key="key-2")).status_code == 200


@pytest.mark.parametrize("should_retry", [0, 1])
async def test_429_carries_its_wait_in_seconds(
    fake: FakeProcessor, client: httpx.AsyncClient, should_retry: int
) -> None:
    fake.fault("too_many_requests", retry_after_s=7, should_retry=should_retry)
    answer = await client.get(URL)
    assert answer.headers["Retry-After"] == "7"
    assert answer.headers["Stripe-Rate-Limited-Reason"] == "global-rate"
    assert answer.headers.get("Stripe-Should-Retry") == ("true" if should_retry else None)
    assert answer.json()["error"]["code"] == "rate_limit"


async def test_429_carries_its_wait_as_a_date(fake: FakeProcessor, client: httpx.AsyncClient) -> None:
    fake.fault("too_many_requests_date", retry_after_s=90)
    before = datetime.now(UTC).replace(microsecond=0)
    text = (await client.get(URL)).headers["Retry-After"]
    assert text.endswith(" GMT")
    assert before <= parsedate_to_datetime(text) - timedelta(seconds=90) <= datetime.now(UTC)


async def test_503_carries_its_wait_unless_told_not_to(fake: FakeProcessor, client: httpx.AsyncClient) -> None:
    fake.fault("error_503", nth=1, retry_after_s=3)
    fake.fault("error_503", nth=2, retry_after_s=0)
    assert (await client.get(URL)).headers["Retry-After"] == "3"
    second = await client.get(URL)
    assert (second.status_code, "Retry-After" in second.headers) == (503, False)


async def test_502_is_a_gateways_page(fake: FakeProcessor, client: httpx.AsyncClient) -> None:
    fake.fault("error_502")
    answer = await client.get(URL)
    assert answer.headers["Content-Type"].startswith("text/html")
    assert answer.text.startswith("<!doctype html>")


async def test_redirect_points_elsewhere(fake: FakeProcessor, client: httpx.AsyncClient) -> None:
    fake.fault("redirect", location="https://elsewhere.example/")
    assert (await client.get(URL)).headers["Location"] == "https://elsewhere.example/"


async def test_deleted_cursor_refuses_only_what_has_one(fake: FakeProcessor, client: httpx.AsyncClient) -> None:
    fake.fault("deleted_cursor")
    assert await ids(client) == ["txn_01", "txn_02", "txn_03", "txn_04"]
    answer = await client.get(URL, params={**DAY, "starting_after": "txn_04"})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, "resource_missing", "starting_after")


async def test_rate_limit_refuses_what_is_over_it_and_counts_by_the_clock(
    fake: FakeProcessor, client: httpx.AsyncClient
) -> None:
    fake.clock.freeze()
    fake.fault("rate_limit", per_second=2)
    answers = [await client.get(URL) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert [answer.headers["RateLimit"] for answer in answers] == [
        '"default";r=1;t=1',
        '"default";r=0;t=1',
        '"default";r=0;t=1',
    ]
    assert answers[2].headers["Retry-After"] == "1"
    fake.clock.advance(1)
    assert (await client.get(URL)).status_code == 200
    fake.heal()
    assert "RateLimit" not in (await client.get(URL)).headers


async def test_rate_limit_bounds_how_many_are_in_flight(
    fake: FakeProcessor, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fake's latency, which keeps them in flight, lasts until all five have come."""
    fake.fault("rate_limit", per_second=0, in_flight=2)
    fake.fault("latency", wait_ms=3_600_000)
    come, really_sleep = asyncio.Barrier(5), asyncio.sleep

    async def sleep(delay: float) -> None:
        await (come.wait() if delay == 3_600 else really_sleep(delay))

    monkeypatch.setattr(asyncio, "sleep", sleep)
    answers = await asyncio.gather(*(client.get(URL) for _ in range(5)))
    assert sorted(answer.status_code for answer in answers) == [200, 200, 429, 429, 429]
    reasons = {answer.headers.get("Stripe-Rate-Limited-Reason") for answer in answers}
    assert reasons == {None, "global-concurrency"}


async def test_500_after_the_effect_has_settled(fake: FakeProcessor, client: httpx.AsyncClient) -> None:
    fake.fault("error_500_after_effect", count=1)
    assert (await post(client)).status_code == 500
    found = (await client.get(SETTLEMENTS, params={"account": "acct_123", "date": "2026-01-12"})).json()["data"]
    assert [row["idempotency_key"] for row in found] == ["key-1"]
    again = await post(client)
    assert (again.status_code, again.headers["Idempotent-Replayed"]) == (500, "true")


@pytest.mark.parametrize(
    ("name", "claim"),
    [
        ("truncated_json", lambda good, bad: bad.content == good.content[: len(good.content) // 2]),
        ("html", lambda _, bad: (bad.status_code, bad.content[:9]) == (200, b"<!doctype")),
        ("wrong_content_type", lambda good, bad: bad.content == good.content and "text/plain" in str(bad.headers)),
        ("gzip", lambda good, bad: bad.content == good.content and bad.headers["Content-Encoding"] == "gzip"),
        ("bom", lambda good, bad: bad.content == b"\xef\xbb\xbf" + good.content),
        ("invalid_utf8", lambda good, bad: bad.content.replace(b"\xff\xfe", b"") == good.content != bad.content),
        (
            "duplicate_member",
            lambda good, bad: bad.json() == good.json() and bad.content.count(b'"object": "list"') == 2,
        ),
    ],
)
async def test_bytes_are_spoiled_as_the_fault_says(
    fake: FakeProcessor, client: httpx.AsyncClient, name: str, claim: Any
) -> None:
    good = await client.get(URL, params=DAY)
    fake.fault(name, count=1)
    assert claim(good, await client.get(URL, params=DAY))
    assert (await client.get(URL, params=DAY)).content == good.content


async def test_truncated_gzip_is_the_first_half_of_a_packed_body(
    fake: FakeProcessor, client: httpx.AsyncClient
) -> None:
    good = await client.get(URL, params=DAY)
    fake.fault("gzip_truncated", count=1)
    async with client.stream("GET", URL, params=DAY) as answer:
        packed = b"".join([chunk async for chunk in answer.aiter_raw()])
    whole = gzip.compress(good.content, mtime=0)
    assert packed == whole[: len(whole) // 2]


def test_every_fault_is_shown_by_a_test_here_or_beside() -> None:
    source = "".join(path.read_text("utf-8") for path in Path(__file__).parent.glob("test_fake_fault*.py"))
    assert [name for name in FAULTS if f'"{name}"' not in source] == []
