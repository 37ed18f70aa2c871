"""The fast way to a processor: connections of our own to one origin, and an HTTP parser written in C.

What `run` and `serve` inject into `ProcessorClient` when no proxy lies between. It sends what it is given and reads
answers raw; what they mean, retries, bounds and the API key's secrecy are the client's. TLS and name look-up are the
event loop's. No exception of its own leaves but `Unreachable`.
"""

import asyncio
import select
import socket
import ssl
from collections.abc import Mapping, Sequence
from typing import Self, cast
from urllib.parse import urlsplit

import httptools
from aiohappyeyeballs import AddrInfoType, start_connection

from paykit_settle.sending import Failure, RawAnswer, Unreachable

KEEP_ALIVE_S = 15
"""How long a connection may idle and still be used: servers close theirs sooner or later, some without a word."""
HEAD_BYTES_MAX = 64 * 1024
FRAMING_FACTOR = 8
"""Bytes received for each byte of body that are taken without suspicion: a chunk of one byte travels as six."""
_SECOND_ADDRESS_MS = 250
"""When a host's next address is tried beside one that has not answered: what RFC 8305 recommends."""


class DirectConnections:
    """Keeps at most `connections_max` connections to the origin of `base_url`, made when they are needed.

    `timeout_s` bounds connecting (name, TCP and TLS), and each wait for bytes. `aclose` closes them all.
    """

    def __init__(self, base_url: str, *, connections_max: int, timeout_s: float) -> None:
        url = urlsplit(base_url)
        self._origin = f"{url.scheme}://{url.netloc}"
        self._host_line = f"Host: {url.netloc}\r\n"
        self._host = url.hostname or ""
        self._is_tls = url.scheme == "https"
        self._port = url.port or (443 if self._is_tls else 80)
        self._timeout_s = timeout_s
        self._tls: ssl.SSLContext | None = None
        self._slots = asyncio.Semaphore(connections_max)
        self._open: set[_Connection] = set()
        self._idle: list[_Connection] = []
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes every connection for good, and returns when they are closed."""
        self._is_closed = True
        leaving = list(self._open)
        for connection in leaving:
            connection.close()
        if leaving:
            await asyncio.wait([connection.lost for connection in leaving], timeout=self._timeout_s)
        for connection in list(self._open):
            connection.abort()

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], content: bytes | None, *, body_bytes_max: int
    ) -> RawAnswer:
        """The answer, whole. Raises `Unreachable`."""
        request = self._written(method, url, headers, content)
        async with self._slots:
            self._refuse_when_closed()
            connection = self._take_idle() or await self._connect()
            try:
                self._refuse_when_closed()
                answer = await connection.ask(request, body_bytes_max)
            except BaseException:
                connection.abort()
                raise
            if connection.is_reusable:
                self._idle.append(connection)
            else:
                connection.close()
            return answer

    def _refuse_when_closed(self) -> None:
        if self._is_closed:
            raise Unreachable("the client is closed", Failure.NEVER_SENT)

    def _written(self, method: str, url: str, headers: Mapping[str, str], content: bytes | None) -> bytes:
        target = url.removeprefix(self._origin)
        lines = [f"{method} {target} HTTP/1.1", *map(": ".join, headers.items())]
        if not target.startswith("/") or not all(line.isascii() and line.isprintable() for line in lines):
            raise Unreachable("the request is not one that can be written", Failure.NEVER_SENT)
        if content is None:
            return ("\r\n".join(lines) + f"\r\n{self._host_line}\r\n").encode("ascii")
        head = "\r\n".join(lines) + f"\r\n{self._host_line}Content-Length: {len(content)}\r\n\r\n"
        return head.encode("ascii") + content

    def _take_idle(self) -> "_Connection | None":
        oldest = asyncio.get_running_loop().time() - KEEP_ALIVE_S
        while self._idle:
            connection = self._idle.pop()
            if connection.is_reusable and connection.used_at > oldest and not connection.has_unread_bytes():
                return connection
            connection.abort()
        return None

    async def _connect(self) -> "_Connection":
        loop = asyncio.get_running_loop()
        connection = _Connection(self._open, self._timeout_s)
        try:
            if self._is_tls and self._tls is None:
                self._tls = await asyncio.to_thread(ssl.create_default_context)
            async with asyncio.timeout(self._timeout_s):
                connected = await start_connection(
                    await self._addresses(), happy_eyeballs_delay=_SECOND_ADDRESS_MS / 1000
                )
                await loop.create_connection(
                    lambda: connection,
                    sock=connected,
                    ssl=self._tls,
                    server_hostname=self._host if self._is_tls else None,
                )
        except BaseException as error:
            self._open.discard(connection)
            if isinstance(error, TimeoutError):
                what = f"Timeout: no connection within {self._timeout_s} s"
                raise Unreachable(what, Failure.NEVER_SENT) from None
            if isinstance(error, OSError | UnicodeError):
                raise Unreachable(_words(error), Failure.NEVER_SENT) from None
            raise
        return connection

    async def _addresses(self) -> Sequence[AddrInfoType]:
        try:
            return socket.getaddrinfo(
                self._host, self._port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
            )
        except socket.gaierror:  # a name, not an address
            loop = asyncio.get_running_loop()
            return await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)


class _Connection(asyncio.Protocol):
    """One connection, one request at a time. `is_reusable` once an answer came whole and nothing speaks against it."""

    def __init__(self, open_ones: "set[_Connection]", timeout_s: float) -> None:
        self._open_ones = open_ones
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpResponseParser(self)
        self._timer: asyncio.TimerHandle | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._begin(0)
        self.lost: asyncio.Future[None] = self._loop.create_future()
        self.used_at = self._loop.time()

    def _begin(self, body_bytes_max: int) -> None:
        self._headers: dict[str, str] = {}
        self._body: bytes | bytearray = b""
        self._body_bytes_max = body_bytes_max
        self._received = self._status = 0
        self._has_head = self._is_whole = self._is_cut = self._is_spoiled = self._is_odd = False

    @property
    def is_reusable(self) -> bool:
        return self._is_whole and not self._is_spoiled and not self._transport.is_closing()

    def has_unread_bytes(self) -> bool:
        """Whether something came, or the other side closed, that the event loop has not had time to tell us."""
        return bool(self._poll.poll(0))

    def close(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    async def ask(self, request: bytes, body_bytes_max: int) -> RawAnswer:
        self._begin(body_bytes_max)
        self._waiter = waiter = self._loop.create_future()
        self._transport.write(request)
        self.used_at = self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_at(self.used_at + self._timeout_s, self._check_time)
        try:
            await waiter
        finally:
            self._waiter = None
        body, self._body = bytes(self._body), b""  # an idle connection keeps nothing
        return RawAnswer(self._status, self._headers, body, self._is_cut)

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is not one by name
        self._open_ones.add(self)
        self._poll = select.poll()
        self._poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)

    def data_received(self, data: bytes) -> None:
        waiter = self._waiter
        if waiter is None or waiter.done():
            self._is_spoiled = True  # nobody asked for this
            self._transport.abort()
            return
        self._received += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._is_spoiled = True
            if not self._is_whole:  # else the answer stands, and what follows it is nobody's
                self._fail(_words(error), Failure.BROKE)
                return
        if self._is_odd:
            self._fail("an answer that only announces another has a body, or no status", Failure.BROKE)
        elif self._is_whole or self._is_cut:
            waiter.set_result(None)
        elif self._received > HEAD_BYTES_MAX + FRAMING_FACTOR * len(self._body):
            self._fail("the answer's head does not end", Failure.BROKE)
        else:
            self.used_at = self._loop.time()

    def eof_received(self) -> None:
        """The processor has ended the connection; that may be how it ends a body."""
        framed = "content-length" in self._headers or "transfer-encoding" in self._headers
        if self._has_head and not framed and self._waiter is not None and not self._waiter.done():
            self._is_spoiled = True
            self._waiter.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        self._open_ones.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        self._fail(_words(error) if error else "the processor closed the connection", Failure.BROKE)
        if not self.lost.done():
            self.lost.set_result(None)

    # What the parser calls.

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._has_head:  # a trailer says nothing that is needed
            key, text = name.decode("latin-1").lower(), value.decode("latin-1").strip(" \t")
            self._headers[key] = f"{self._headers[key]}, {text}" if key in self._headers else text

    def on_headers_complete(self) -> None:
        if self._is_whole:
            return
        self._status = self._parser.get_status_code()
        self._has_head = True

    def on_body(self, chunk: bytes) -> None:
        if self._is_whole:
            return
        if self._status < 200:
            self._is_odd = True
            return
        if not self._body:
            self._body = chunk  # most often all of it
        elif isinstance(self._body, bytearray):
            self._body += chunk
        else:
            self._body = bytearray(self._body) + chunk
        if len(self._body) > self._body_bytes_max:
            self._is_cut = self._is_spoiled = True

    def on_message_complete(self) -> None:
        if self._status < 200:  # "continue" and the like: the answer is still to come
            self._headers, self._has_head = {}, False
            self._is_odd = self._is_odd or self._status < 100
        elif not self._is_whole:
            self._is_whole = True
            self._is_spoiled = self._is_spoiled or not self._parser.should_keep_alive()

    def on_message_begin(self) -> None:
        if self._is_whole:
            self._is_spoiled = True  # the beginning of a second answer, to no request

    # Failing.

    def _check_time(self) -> None:
        self._timer = None
        if self._waiter is None:
            return
        due = self.used_at + self._timeout_s
        if self._loop.time() < due:
            self._timer = self._loop.call_at(due, self._check_time)
        else:
            self._fail(f"Timeout: silent for {self._timeout_s} s", Failure.BROKE)

    def _fail(self, what: str, failure: Failure) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(Unreachable(what, failure))


def _words(error: BaseException) -> str:
    text = str(error)
    return type(error).__name__ + (f": {text}" if text else "")
