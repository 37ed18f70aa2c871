"""JSON over HTTP, in and out: the one way in which handlers read a body and write an answer."""

import asyncio
import json
import time
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus

from aiohttp import HttpVersion11, web
from aiohttp.http import SERVER_SOFTWARE

from paykit_settle.strict_json import loads

BODY_TIMEOUT_S = 30
"""How long the body of a request may take to arrive."""
NS_PER_S = 1_000_000_000


@dataclass(slots=True)
class _Reads:
    """The bodies that are on their way, by their deadlines."""

    deadlines: set[asyncio.Timeout] = field(default_factory=set)
    ended: bool = False


_reads: web.AppKey[_Reads] = web.AppKey("body_reads")

json_text = json.JSONEncoder(allow_nan=False).encode
"""A value as JSON text; no float gets that far, and NaN would be refused."""


def guard_bodies(app: web.Application) -> None:
    """Gives up on bodies that are still on their way when the application shuts down.

    From then on aiohttp drops what arrives, so such a request would hold the shutdown up until its time-out.
    """
    app[_reads] = _Reads()
    app.on_shutdown.append(_give_up_reads)


async def read_json(request: web.Request) -> object:
    """The body as strict JSON; `InvalidJson` if it is not, 415 if it is but does not say so, 408 if it is too slow.

    A JSON content type is insisted on because a web page cannot send one to us without the browser asking first.
    """
    value = loads(await read_body(request))
    require_json(request)
    return value


def require_json(request: web.Request) -> None:
    """415 unless the request says that its body is JSON."""
    if request.headers.get("Content-Type") != "application/json" and request.content_type != "application/json":
        raise web.HTTPUnsupportedMediaType(text="send JSON with Content-Type: application/json")


def json_response(body: object, *, status: int = 200) -> web.Response:
    """A JSON answer, written without any float."""
    return web.Response(text=json_text(body), status=status, content_type="application/json")


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


async def send_json(
    request: web.Request, text: str, *, status: int = 200, headers: tuple[tuple[str, str], ...] = ()
) -> web.StreamResponse:
    """Answers with JSON; what is returned has been sent already, or is sent by aiohttp.

    On a kept HTTP/1.1 connection, the usual one, it is written here, with the head that aiohttp would give it: to make,
    prepare and write a response takes aiohttp a fifth of the time of a credit. Where an access log or a signal wants to
    see the answer, aiohttp gets it.
    """
    is_watched = request.protocol.access_logger or any(app.on_response_prepare for app in request.match_info.apps)
    if is_watched or request.version != HttpVersion11 or not request.keep_alive:
        return web.Response(text=text, status=status, content_type="application/json", headers=dict(headers))
    body = text.encode()
    head = _head(status, headers, time.time_ns() // NS_PER_S)
    with suppress(ConnectionError):  # the client went away first: what was done for it stands
        await request.writer.write_eof(b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body))
    return _SENT


@lru_cache(maxsize=8)
def _head(status: int, headers: tuple[tuple[str, str], ...], now_s: int) -> bytes:
    lines = [
        *headers,
        ("Content-Type", "application/json; charset=utf-8"),
        ("Date", formatdate(now_s, usegmt=True)),
        ("Server", SERVER_SOFTWARE),
    ]
    fields = "".join([f"{name}: {value}\r\n" for name, value in lines])
    return f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n{fields}".encode("ascii")


async def read_body(request: web.Request) -> bytes:
    """The bytes of the body; 408 if they take longer than BODY_TIMEOUT_S, 413 if they are too many."""
    if request.content.is_eof():  # it came with the head of the request, as small bodies do
        body = request.content.read_nowait()
        if len(body) > request.client_max_size:
            raise web.HTTPRequestEntityTooLarge(max_size=request.client_max_size, actual_size=len(body))
        return body
    reads = request.app[_reads]
    try:
        async with asyncio.timeout(0 if reads.ended else BODY_TIMEOUT_S) as deadline:
            reads.deadlines.add(deadline)
            try:
                return await request.read()
            finally:
                reads.deadlines.discard(deadline)
    except TimeoutError:
        raise web.HTTPRequestTimeout(text="the body of the request did not arrive") from None
    except ConnectionError:  # nobody will read this answer; it is no fault of the service
        raise web.HTTPBadRequest(text="the connection ended before the body of the request did") from None


async def _give_up_reads(app: web.Application) -> None:
    now = asyncio.get_running_loop().time()
    app[_reads].ended = True
    for deadline in app[_reads].deadlines:
        deadline.reschedule(now)
