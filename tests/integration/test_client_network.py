"""The client on a network at its worst, over real sockets: closed, reset, silent, garbled, dripping, cancelled.

What must hold every time: it ends, it leaves no connection open, and it says what is certain: a GET can be tried again,
a POST that may have arrived is unknown.
"""

import asyncio
from collections.abc import Awaitable, Iterable

import pytest

from paykit_settle.errors import OutcomeUnknown, ProcessorUnavailable
from paykit_settle.retry import RetryPolicy
from tests.integration.scripted_server import (
    OK,
    QUICK,
    Action,
    Ask,
    answer,
    close,
    drip,
    get,
    hang,
    outlasting,
    post,
    reset,
    scripted,
)
from tests.loop_clock import pass_time

IMPATIENT = RetryPolicy(attempts_max=3, wait_first_ms=1, request_timeout_s=60, deadline_s=600)
HURRIED = RetryPolicy(attempts_max=3, wait_first_ms=1, request_timeout_s=600, deadline_s=60)
BOTH = pytest.mark.parametrize("ask", [get, post])


def one_and_only(values: Iterable[object]) -> object:
    (value,) = set(values)
    return value


@BOTH
async def test_kept_alive_connection_closed_without_a_byte_is_retried(ask: Ask) -> None:
    """NET-05: httpx calls it a RemoteProtocolError, which is no NetworkError."""
    async with scripted(OK, close, OK) as (server, client):
        await ask(client)
        assert await ask(client) == {"id": "setl_0001", "status": "created"}
    assert [seen.connection for seen in server.requests] == [1, 1, 2]
    assert one_and_only(seen.headers.get("idempotency-key") for seen in server.requests) == (
        "key-1" if ask is post else None
    )


TRUNCATED = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{"


async def truncated(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(TRUNCATED)
    writer.close()


@pytest.mark.parametrize(
    "failure",
    [close, reset, truncated, b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
     b"garbage\r\n\r\n", b"HTTP/9.9 2000 What\r\n\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
     b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000, b"HTTP/1.1 200 OK\r\n" + b"X-Many: 1\r\n" * 20_000,
     b"HTTP/1.1 200 OK\r\nX: a\x00b\r\n\r\n", b"HTTP/1.1 200 OK\r\n no-name\r\n\r\n"],
)  # fmt: skip
async def test_broken_answer_ends_in_what_is_certain(failure: bytes | Action) -> None:
    for ask, kind in ((get, ProcessorUnavailable), (post, OutcomeUnknown)):
        async with scripted(then=failure) as (server, client):
            with pytest.raises(kind) as caught:
                await ask(client)
            assert len(server.requests) == QUICK.attempts_max
            assert len(str(caught.value)) < 1000
            await server.all_closed()


async def test_silence_ends_in_what_is_certain() -> None:
    for ask, kind in ((get, ProcessorUnavailable), (post, OutcomeUnknown)):
        async with scripted(then=outlasting(60), policy=IMPATIENT) as (server, client):
            with pytest.raises(kind, match="ReadTimeout"):
                await ask(client)
            assert len(server.requests) == IMPATIENT.attempts_max
            await server.all_closed()


@pytest.mark.parametrize(
    ("head", "piece"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n", b" "),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
        (b"HTTP/1.1 200 OK\r\nX: ", b"x"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"", b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" * 1000),
    ],
    ids=["body", "chunks", "header", "continue", "flood"],
)
async def test_answer_that_drips_for_ever_is_cut_off_at_the_total_deadline(head: bytes, piece: bytes) -> None:
    for ask, kind in ((get, ProcessorUnavailable), (post, OutcomeUnknown)):
        async with scripted(then=drip(head, piece, seconds_each=6), policy=HURRIED) as (server, client):
            with pytest.raises(kind, match="no answer within 60 s in all") as caught:
                await ask(client)
            assert len(server.requests) == 1
            assert caught.value.exchange is not None
            assert caught.value.exchange.attempt == 1
            await server.all_closed()


async def test_deadline_during_the_waits_names_the_failure_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    really_sleep = asyncio.sleep

    async def sleep(delay: float, result: object = None) -> object:
        waits.append(delay)
        pass_time(60)
        return await really_sleep(delay, result)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    policy = RetryPolicy(attempts_max=20, wait_first_ms=150_000, wait_max_s=600, request_timeout_s=60, deadline_s=60)
    async with scripted(then=answer({}, status=503), policy=policy) as (_, client):
        with pytest.raises(ProcessorUnavailable, match=r"no answer within 60 s in all; before: .* answered 503"):
            await get(client)
    assert len(waits) == 1
    assert waits[0] >= 150


@BOTH
async def test_cancellation_passes_and_leaves_no_connection_open(ask: Ask) -> None:
    reached = asyncio.Event()

    async def hang_and_tell(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.set()
        await hang(reader, writer)

    async with scripted(then=hang_and_tell) as (server, client):
        task = asyncio.create_task(_ended(ask(client)))
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.all_closed()
        assert len(server.requests) == 1


async def _ended(awaitable: Awaitable[object]) -> None:
    await awaitable
