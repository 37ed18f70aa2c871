"""How an answer travels: whole, drop by drop, or not to its end.

A broken connection is broken as a failing machine breaks it, with a TCP reset, and not with a polite close.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from contextlib import suppress
from email.utils import formatdate
from functools import lru_cache

from aiohttp import HttpVersion11, web
from aiohttp.http import SERVER_SOFTWARE

from fake_processor.processor import Reply
from fake_processor.wire import Answer

MS_PER_S = 1_000
NS_PER_S = 1_000_000_000


def whole(answer: Answer) -> web.Response:
    """An answer that aiohttp sends as it is."""
    headers = {**answer.headers, "Content-Type": answer.content_type}
    return web.Response(status=answer.status, body=answer.body, headers=headers)


async def deliver(incoming: web.BaseRequest, reply: Reply) -> web.StreamResponse:
    """Sends the reply as it says. What is returned has been sent already, or is sent by aiohttp, whole."""
    answer = reply.answer
    if answer is None:
        _reset(incoming)
        return web.Response()
    if not reply.reset_mid_body and reply.drip is None:
        is_usual = answer.status == 200 and incoming.method == "GET"
        if is_usual and incoming.version == HttpVersion11 and incoming.keep_alive:
            return await _sent(incoming, answer)
        return whole(answer)
    response = _begun(answer)
    try:
        await response.prepare(incoming)
        if reply.reset_mid_body:
            await response.write(answer.body[: len(answer.body) // 2])
            _reset(incoming)
        else:
            await _drip(response, answer.body, reply.drip or (len(answer.body), 0))
    except ConnectionError:
        pass  # the client went away first: nothing is left to be done
    return response


class _Sent(web.StreamResponse):
    """What aiohttp gets to see of an answer that has been written past it."""

    @property
    def keep_alive(self) -> bool:
        return True

    async def prepare(self, request: web.BaseRequest) -> None:
        pass

    async def write_eof(self, data: bytes = b"") -> None:
        pass


_SENT = _Sent()


async def _sent(incoming: web.BaseRequest, answer: Answer) -> web.StreamResponse:
    """Sends the usual answer, with the head that aiohttp would give it and for a fraction of the time it takes."""
    headers = {
        **answer.headers,
        "Content-Type": answer.content_type,
        "Content-Length": len(answer.body),
        "Date": _date(time.time_ns() // NS_PER_S),
        "Server": SERVER_SOFTWARE,
    }
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    with suppress(ConnectionError):  # the client went away first: nothing is left to be done
        await incoming.writer.write_eof(b"HTTP/1.1 200 OK\r\n%b\r\n%b" % (lines.encode(), answer.body))
    return _SENT


@lru_cache(maxsize=1)
def _date(now_s: int) -> str:
    return formatdate(now_s, usegmt=True)


def _begun(answer: Answer) -> web.StreamResponse:
    response = web.StreamResponse(status=answer.status, headers=answer.headers)
    response.content_type = answer.content_type
    response.content_length = len(answer.body)
    return response


async def _drip(response: web.StreamResponse, body: bytes, drip: tuple[int, int]) -> None:
    piece_bytes, wait_ms = drip
    for start in range(0, len(body), piece_bytes):
        if start:
            await asyncio.sleep(wait_ms / MS_PER_S)
        await response.write(body[start : start + piece_bytes])
    await response.write_eof()


def _reset(incoming: web.BaseRequest) -> None:
    transport = incoming.transport
    if transport is None:
        return
    connection = transport.get_extra_info("socket")
    if connection is not None:
        # Linger on, for no time at all: closing then sends RST.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
