"""Each fault of how an answer travels does to a plain client what its one line says: waits, drips, broken connections.

These are seen on a bare socket: a library would hide whether a connection was closed or reset, and what came before.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from fake_processor import FakeProcessor
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


async def raw(fake: FakeProcessor, request: str) -> tuple[bytes, bool]:
    """All bytes that come back on a connection of its own, and whether it ended by a reset."""
    host, port = fake.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = f"{request} HTTP/1.1\r\nHost: fake\r\nAuthorization: Bearer sk_test_raw\r\nConnection: close\r\n"
    writer.write(f"{head}\r\n".encode())
    received = b""
    try:
        while chunk := await reader.read(65_536):
            received += chunk
        return received, False
    except ConnectionResetError:
        return received, True
    finally:
        writer.close()


@pytest.mark.parametrize("path", [f"{URL}?created=2026-01-15&limit=2", "/v1/balance", "/"])
async def test_head_on_a_kept_connection_is_the_one_that_aiohttp_makes(fake: FakeProcessor, path: str) -> None:
    """A connection that closes gets its head from aiohttp, a kept one from the fake; only `Connection` may differ."""
    host, port = fake.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET {path} HTTP/1.1\r\nHost: fake\r\nAuthorization: Bearer sk_test_raw\r\n\r\n".encode())
    kept = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    writer.close()
    closed = (await raw(fake, f"GET {path}"))[0].partition(b"\r\n\r\n")[0].decode().split("\r\n")
    own = ("Request-Id", "Date")
    assert [line.partition(":")[0] if line.startswith(own) else line for line in [*kept[:-2], "Connection: close"]] == [
        line.partition(":")[0] if line.startswith(own) else line for line in closed
    ]
    assert len(next(line for line in kept if line.startswith("Date"))) == len("Date: Thu, 15 Jan 2026 06:00:00 GMT")


async def test_latency_waits_before_it_works(fake: FakeProcessor, client: httpx.AsyncClient) -> None:
    fake.fault("latency", count=1, wait_ms=60)
    started_ns = time.monotonic_ns()
    await page(client)
    assert time.monotonic_ns() - started_ns >= 60_000_000


async def test_jitter_waits_between_its_bounds_by_the_seed(fake: FakeProcessor) -> None:
    fake.fault("latency_jittered", wait_min_ms=5, wait_max_ms=50, seed=3)

    def waits() -> list[int]:
        from fake_processor.wire import Request

        found = []
        for _ in range(8):
            with fake.processor.exchange(Request(method="GET", path="/")) as exchange:
                found.append(exchange.wait_ms)
        return found

    first = waits()
    assert all(5 <= wait_ms <= 50 for wait_ms in first)
    assert len(set(first)) > 1
    fake.heal()
    fake.fault("latency_jittered", wait_min_ms=5, wait_max_ms=50, seed=4)
    assert waits() != first


async def test_drip_sends_the_same_body_in_pieces(
    fake: FakeProcessor, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fake's waits between two pieces last until the first of them has come."""
    whole = await client.get(URL, params=DAY)
    fake.fault("drip", piece_bytes=500, wait_ms=3_600_000)
    pieces = []
    come, really_sleep = asyncio.Semaphore(0), asyncio.sleep

    async def sleep(delay: float) -> None:
        await (come.acquire() if delay == 3_600 else really_sleep(delay))

    monkeypatch.setattr(asyncio, "sleep", sleep)
    async with client.stream("GET", URL, params=DAY) as answer:
        async for piece in answer.aiter_raw():
            pieces.append(piece)
            come.release()
    assert b"".join(pieces) == whole.content
    assert len(pieces) > 3
    assert int(answer.headers["Content-Length"]) == len(whole.content)


async def test_reset_before_headers_breaks_off_with_no_effect(fake: FakeProcessor, client: httpx.AsyncClient) -> None:
    fake.fault("reset_before_headers", count=2)
    assert await raw(fake, f"GET {URL}") == (b"", True)
    with pytest.raises(httpx.ReadError):
        await post(client)
    assert fake.state.settlements() == []
    assert [record.status for record in fake.requests] == [0, 0]
    assert (await post(client)).status_code == 200


async def test_reset_after_the_effect_breaks_off_and_has_settled(
    fake: FakeProcessor, client: httpx.AsyncClient
) -> None:
    fake.fault("reset_after_effect", count=1)
    with pytest.raises(httpx.ReadError):
        await post(client)
    assert len(fake.state.settlements()) == 1
    again = await post(client)
    assert (again.json()["id"], again.headers["Idempotent-Replayed"]) == ("setl_0001", "true")


async def test_reset_mid_body_breaks_off_after_half_of_it(fake: FakeProcessor) -> None:
    fake.fault("reset_mid_body", count=1)
    received, was_reset = await raw(fake, f"GET {URL}?limit=4")
    head, _, body = received.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
    assert was_reset
    assert len(body) == length // 2
    assert body.startswith(b'{"object": "list"')


@pytest.mark.parametrize("name", ["drip", "reset_mid_body", "reset_after_effect"])
async def test_client_that_goes_away_first_does_no_harm(
    fake: FakeProcessor, client: httpx.AsyncClient, name: str
) -> None:
    options: dict[str, Any] = {"piece_bytes": 200, "wait_ms": 1} if name == "drip" else {}
    fake.fault(name, count=1, **options)
    host, port = fake.url.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET {URL} HTTP/1.1\r\nHost: fake\r\nAuthorization: Bearer sk_test_raw\r\n\r\n".encode())
    await writer.drain()
    writer.transport.abort()
    assert await ids(client) == ["txn_01", "txn_02", "txn_03", "txn_04"]
