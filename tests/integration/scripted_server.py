"""A raw server on a real socket that answers by a script: for all that no HTTP server library would ever send.

It keeps every request, so a test can count attempts and compare their bytes. An answer is the bytes to write, or an
action: to close, to reset, to stay silent, to drip.
"""

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Self

from paykit_settle.body_reader import BodyLimits
from paykit_settle.client import ProcessorClient
from paykit_settle.direct import DirectConnections
from paykit_settle.retry import RetryPolicy
from tests.loop_clock import everybody_waits, pass_time

KEY = "sk_test_Secret_4242"
QUICK = RetryPolicy(attempts_max=3, wait_first_ms=1, request_timeout_s=30, deadline_s=60)

PIECES_MAX = 1_000

BODY = b'{"total_net":145199}'

Action = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Ask = Callable[[ProcessorClient], Awaitable[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One request that came in whole: `connection` counts from 1, header names are in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes
    connection: int


class ScriptedServer:
    """Answers the n-th request with the n-th entry of its script, whatever the request is.

    A request beyond the script is closed without a byte, and still recorded.
    """

    def __init__(self, script: Iterable[bytes | Action]) -> None:
        self.requests: list[Seen] = []
        self.url = ""
        self._script: Iterator[bytes | Action] = iter(script)
        self._connections: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def all_closed(self) -> None:
        """Returns once the client has let go of every connection it made."""
        await asyncio.gather(*self._connections)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.append(task)
        try:
            while await self._take(reader, len(self._connections)):
                action = next(self._script, close)
                if isinstance(action, bytes):
                    writer.write(action)
                    await writer.drain()
                else:
                    await action(reader, writer)
        except (ConnectionError, asyncio.CancelledError):
            pass  # the client left, as some tests want it to, or the test is over
        finally:
            writer.close()

    async def _take(self, reader: asyncio.StreamReader, connection: int) -> bool:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except asyncio.IncompleteReadError:
            return False
        first, *lines = head.rstrip("\r\n").split("\r\n")
        method, target, _version = first.split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        self.requests.append(Seen(method=method, target=target, headers=headers, body=body, connection=connection))
        return True


@asynccontextmanager
async def scripted(
    *script: bytes | Action,
    then: bytes | Action | None = None,
    policy: RetryPolicy = QUICK,
    limits: BodyLimits | None = None,
    fast: bool = False,
) -> AsyncIterator[tuple[ScriptedServer, ProcessorClient]]:
    """A server that answers by the script (and ever after with `then`), and its client; `fast`: by `direct.py`."""
    whole = script if then is None else chain(script, repeat(then))
    async with ScriptedServer(whole) as server:
        sender = None
        if fast:
            sender = DirectConnections(server.url, connections_max=4, timeout_s=policy.request_timeout_s)
        async with ProcessorClient(server.url, api_key=KEY, policy=policy, limits=limits, sender=sender) as client:
            yield server, client


async def get(client: ProcessorClient) -> object:
    """One of the two ways to ask: without an effect."""
    return await client.get("/v1/thing")


async def post(client: ProcessorClient) -> object:
    """The other way: with an effect, under a key."""
    return await client.post("/v1/settlements", BODY, idempotency_key="key-1")


async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """The connection ends without a byte, as a kept-alive one does that has idled too long."""
    writer.close()
    await reader.read()


async def reset(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """The connection is torn down after the request was taken: its effect may exist."""
    sock: socket.socket = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def hang(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    """No answer, for as long as the client will wait."""
    await reader.read()


def outlasting(patience_s: int) -> Action:
    """No answer either, and once the client waits for it so many seconds pass in a moment."""

    async def action(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await everybody_waits()
        pass_time(patience_s)
        await reader.read()

    return action


def drip(head: bytes, piece: bytes, *, seconds_each: int = 0) -> Action:
    """`head`, then `piece` again and again: always something, and no end before PIECES_MAX, where any client has left.

    With each piece `seconds_each` pass on the loop's clock, so that a deadline of minutes comes at once.
    """

    async def action(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        for _ in range(PIECES_MAX):
            writer.write(piece)
            await writer.drain()
            pass_time(seconds_each)
            await asyncio.sleep(0.001)
        writer.close()

    return action


def answer(body: object, *, status: int = 200, headers: Mapping[str, str] | None = None) -> bytes:
    """One whole HTTP answer; a body that is not bytes is written as JSON."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    sent = {"Content-Type": "application/json", "Request-Id": "req_1", "Content-Length": str(len(content))}
    lines = "".join(f"{name}: {value}\r\n" for name, value in (sent | dict(headers or {})).items())
    return f"HTTP/1.1 {status} Scripted\r\n{lines}\r\n".encode("latin-1") + content


OK = answer({"id": "setl_0001", "status": "created"})


def page(*rows: Mapping[str, object] | str, has_more: bool = False) -> bytes:
    """A page of a list; a row given as text goes out as it is written."""
    texts = (row if isinstance(row, str) else json.dumps(row) for row in rows)
    text = f'{{"object":"list","data":[{",".join(texts)}],"has_more":{json.dumps(has_more)}}}'
    return answer(text.encode())


def row(identity: str, amount: int = 100, **members: object) -> dict[str, object]:
    """A row that is in order, of the reference day or with other members."""
    known = {"id": identity, "type": "charge", "amount": amount, "currency": "usd", "fee": 0, "status": "available"}
    return {**known, "created": 1768478400, **members}
