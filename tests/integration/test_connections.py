"""The fast way to the processor (aiohttp) keeps every promise of the default one: certainty, bounds, secrecy, no leaks.

`run` and `serve` use it, so what `test_client_network.py` proves of httpx must hold here as well: a POST that may have
arrived is unknown, nothing waits for ever, no connection is left open, and the API key shows in no error.
"""

import asyncio
import gzip

import pytest

from paykit_settle.body_reader import BodyLimits
from paykit_settle.client import ProcessorClient
from paykit_settle.connections import Connections
from paykit_settle.errors import OutcomeUnknown, ProcessorError, ProcessorRejected, ProcessorUnavailable, ProtocolError
from paykit_settle.retry import RetryPolicy
from paykit_settle.version import __version__
from tests.integration.scripted_server import (
    KEY,
    OK,
    QUICK,
    Action,
    answer,
    close,
    drip,
    get,
    hang,
    post,
    reset,
    scripted,
)

IMPATIENT = RetryPolicy(attempts_max=3, wait_first_ms=1, request_timeout_s=0.1, deadline_s=10)
HURRIED = RetryPolicy(attempts_max=3, wait_first_ms=1, request_timeout_s=10, deadline_s=0.2)


async def test_request_is_the_same_as_over_httpx() -> None:
    seen = []
    for fast in (False, True):
        async with scripted(OK, OK, fast=fast) as (server, client):
            await client.get("/v1/thing", {"account": "acct ü&1", "created[gte]": 5})
            await post(client)
            seen.append(server.requests)
    for plain, quick in zip(*seen, strict=True):
        assert (quick.method, quick.target, quick.body) == (plain.method, plain.target, plain.body)
        for name in ("authorization", "accept", "accept-encoding", "user-agent", "idempotency-key", "content-type"):
            assert quick.headers.get(name) == plain.headers.get(name), name
        assert "cookie" not in quick.headers
    assert seen[1][0].headers["user-agent"] == f"paykit-settle/{__version__}"


@pytest.mark.parametrize(
    "failure",
    [close, reset, b"garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{",
     b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n", b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000],
)  # fmt: skip
async def test_broken_answer_ends_in_what_is_certain(failure: bytes | Action) -> None:
    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if isinstance(failure, bytes):
            writer.write(failure)
            writer.close()
        else:
            await failure(reader, writer)

    for ask, kind in ((get, ProcessorUnavailable), (post, OutcomeUnknown)):
        async with scripted(then=once, fast=True) as (server, client):
            with pytest.raises(kind) as caught:
                await ask(client)
            assert len(server.requests) == QUICK.attempts_max
            assert len(str(caught.value)) < 1000
            await client.aclose()
            await server.all_closed()


async def test_silence_ends_in_what_is_certain() -> None:
    for ask, kind in ((get, ProcessorUnavailable), (post, OutcomeUnknown)):
        async with scripted(then=hang, policy=IMPATIENT, fast=True) as (server, client):
            with pytest.raises(kind, match="Timeout"):
                await ask(client)
            assert len(server.requests) == IMPATIENT.attempts_max
            await server.all_closed()


async def test_answer_that_drips_for_ever_is_cut_off_at_the_total_deadline() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n"
    for ask, kind in ((get, ProcessorUnavailable), (post, OutcomeUnknown)):
        async with scripted(then=drip(head, b" "), policy=HURRIED, fast=True) as (server, client):
            with pytest.raises(kind, match=r"no answer within 0\.2 s in all"):
                await ask(client)
            await server.all_closed()


async def test_processor_that_is_not_there_was_never_reached() -> None:
    sender = Connections(connections_max=4, timeout_s=5, trust_env=False)
    async with ProcessorClient("http://127.0.0.1:9", policy=QUICK, sender=sender) as client:
        with pytest.raises(ProcessorUnavailable, match="could not be reached"):
            await post(client)


async def test_redirect_is_not_followed_and_cookies_are_not_kept() -> None:
    moved = answer({}, status=302, headers={"Location": "http://127.0.0.1:9/", "Set-Cookie": "a=b"})
    async with scripted(moved, OK, fast=True) as (server, client):
        with pytest.raises(ProtocolError, match="never followed"):
            await get(client)
        await get(client)
        assert "cookie" not in server.requests[1].headers


async def test_gzip_is_unpacked_within_its_bound() -> None:
    packed = gzip.compress(b'{"total_net":1}')
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
    async with scripted(head % len(packed) + packed, fast=True) as (_, client):
        assert await get(client) == {"total_net": 1}
    bomb = gzip.compress(b'{"a":"' + b"0" * 2_000_000 + b'"}')
    limits = BodyLimits(wire_bytes_max=1_000_000, bytes_max=1_000_000)
    async with scripted(then=head % len(bomb) + bomb, limits=limits, fast=True) as (_, client):
        with pytest.raises(ProtocolError, match="unpacks to over 1000000 bytes"):
            await get(client)


async def test_key_that_the_processor_echoes_shows_in_no_error() -> None:
    echo = answer({"error": {"message": f"bad key {KEY}", "code": KEY}}, status=401, headers={"Request-Id": KEY})
    async with scripted(then=echo, fast=True) as (_, client):
        with pytest.raises(ProcessorRejected) as caught:
            await get(client)
    error: ProcessorError = caught.value
    assert KEY not in f"{error} {error!r} {error.body} {error.exchange}"


async def test_cancellation_passes_and_leaves_no_connection_open() -> None:
    reached = asyncio.Event()

    async def hang_and_tell(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.set()
        await hang(reader, writer)

    async with scripted(then=hang_and_tell, fast=True) as (server, client):
        task = asyncio.ensure_future(get(client))
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.all_closed()
