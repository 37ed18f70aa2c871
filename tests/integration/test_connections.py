"""The fast way to the processor keeps every promise of the default one: certainty, bounds, secrecy, no leaks.

`run` and `serve` use it, so what `test_client_network.py` proves of httpx must hold here as well: a POST that may have
arrived is unknown, nothing waits for ever, no connection is left open, and the API key shows in no error.
"""

import asyncio
import gzip
import socket
import ssl
import threading
from itertools import repeat
from pathlib import Path

import pytest
import trustme

from paykit_settle.body_reader import BodyLimits
from paykit_settle.client import ProcessorClient
from paykit_settle.config import Settings, is_proxied
from paykit_settle.direct import DirectConnections
from paykit_settle.errors import OutcomeUnknown, ProcessorError, ProcessorRejected, ProcessorUnavailable, ProtocolError
from paykit_settle.retry import RetryPolicy
from paykit_settle.sending import Unreachable
from paykit_settle.version import __version__
from tests.integration.scripted_server import (
    KEY,
    OK,
    QUICK,
    Action,
    ScriptedServer,
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

IMPATIENT = RetryPolicy(attempts_max=3, wait_first_ms=1, request_timeout_s=60, deadline_s=600)
HURRIED = RetryPolicy(attempts_max=3, wait_first_ms=1, request_timeout_s=600, deadline_s=60)


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
        async with scripted(then=outlasting(60), policy=IMPATIENT, fast=True) as (server, client):
            with pytest.raises(kind, match="Timeout"):
                await ask(client)
            assert len(server.requests) == IMPATIENT.attempts_max
            await server.all_closed()


async def test_answer_that_drips_for_ever_is_cut_off_at_the_total_deadline() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n"
    for ask, kind in ((get, ProcessorUnavailable), (post, OutcomeUnknown)):
        async with scripted(then=drip(head, b" ", seconds_each=6), policy=HURRIED, fast=True) as (server, client):
            with pytest.raises(kind, match="no answer within 60 s in all"):
                await ask(client)
            await server.all_closed()


async def test_processor_that_is_not_there_was_never_reached() -> None:
    sender = DirectConnections("http://127.0.0.1:9", connections_max=4, timeout_s=60)
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


BODY = b'{"total_net":1}'
WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n" + BODY


@pytest.mark.parametrize(
    "written",
    [
        WHOLE,
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </>\r\n\r\n" + WHOLE,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n" + BODY[:4] + b"\r\nb;x=y\r\n" + BODY[4:]
        + b"\r\n0\r\nStatus: 500\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: a\r\nX: b\r\ncontent-length:15\r\n\r\n" + BODY,
    ],
    ids=["plain", "informational first", "chunked with a trailer", "odd head"],
)  # fmt: skip
@pytest.mark.parametrize("piece", [1, 7, 10_000])
async def test_answer_is_the_same_in_whatever_pieces_it_comes(written: bytes, piece: int) -> None:
    async def in_pieces(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for start in range(0, len(written), piece):
            writer.write(written[start : start + piece])
            await writer.drain()
            await asyncio.sleep(0)

    async with scripted(then=in_pieces, fast=True) as (server, client):
        for _ in range(2):
            assert await get(client) == {"total_net": 1}
        assert [request.connection for request in server.requests] == [1, 1]


async def test_body_that_ends_with_its_connection_is_taken_and_the_connection_is_not() -> None:
    async def until_the_end(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n" + BODY)
        writer.close()

    async with scripted(until_the_end, OK, fast=True) as (server, client):
        assert await get(client) == {"total_net": 1}
        await get(client)
        assert [request.connection for request in server.requests] == [1, 2]


async def test_connection_that_is_to_be_closed_is_not_used_again() -> None:
    async with scripted(answer({}, headers={"Connection": "close"}), OK, fast=True) as (server, client):
        await get(client)
        await get(client)
        assert [request.connection for request in server.requests] == [1, 2]


@pytest.mark.parametrize("more", [WHOLE, b"x", b"HTTP/1.1 2"])
async def test_answer_that_nobody_asked_for_is_never_taken_for_the_next_one(more: bytes) -> None:
    wrong = WHOLE.replace(b"1}", b"9}")
    for together in (True, False):

        async def twice(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, together: bool = together) -> None:
            writer.write(WHOLE + more if together else WHOLE)
            if not together:
                writer.write(wrong)
                await reader.read()  # the client lets go

        async with scripted(twice, then=WHOLE, fast=True) as (server, client):
            assert await get(client) == {"total_net": 1}
            for _ in range(20):
                await asyncio.sleep(0)
            assert await get(client) == {"total_net": 1}
            assert server.requests[-1].connection > 1


async def test_head_and_framing_are_bounded() -> None:
    heads = (b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX: ")
    for head in heads:
        async with scripted(then=drip(head, b"x" * 20_000), fast=True) as (server, client):
            with pytest.raises(ProcessorUnavailable, match="head does not end"):
                await get(client)
            await server.all_closed()


async def test_body_over_the_limit_is_left_at_once() -> None:
    limits = BodyLimits(wire_bytes_max=1000, bytes_max=1000)
    endless = drip(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"400\r\n" + b"x" * 1024 + b"\r\n")
    async with scripted(then=endless, limits=limits, fast=True) as (server, client):
        with pytest.raises(ProtocolError, match="body is over 1000 bytes"):
            await get(client)
        await server.all_closed()


async def test_connection_that_idled_too_long_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with scripted(then=OK, fast=True) as (server, client):
        await get(client)
        monkeypatch.setattr("paykit_settle.direct.KEEP_ALIVE_S", 0)
        await get(client)
        assert [request.connection for request in server.requests] == [1, 2]


async def test_no_more_connections_than_allowed() -> None:
    async def slow(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(5):
            await asyncio.sleep(0)
        writer.write(OK)

    async with scripted(then=slow, fast=True) as (server, client):
        await asyncio.gather(*(get(client) for _ in range(40)))
        assert len(server.requests) == 40
        assert {request.connection for request in server.requests} <= {1, 2, 3, 4}


async def test_header_that_would_end_early_is_never_sent() -> None:
    async with scripted(then=OK, fast=True) as (server, _):
        sender = DirectConnections(server.url, connections_max=1, timeout_s=60)
        for method, url, headers in (
            ("GET", f"{server.url}/a", {"X": "a\r\nY: b"}),
            ("GET", f"{server.url}/a b\n", {}),
            ("GET\r\n", f"{server.url}/a", {}),
            ("GET", "http://elsewhere.example/a", {}),
        ):
            with pytest.raises(Unreachable, match="not one that can be written"):
                await sender.send(method, url, headers, None, body_bytes_max=10)
        await sender.aclose()
        assert server.requests == []


async def tls_server(certificate: trustme.LeafCert) -> asyncio.Server:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(WHOLE)
        await writer.drain()
        writer.close()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)


async def test_tls_is_spoken_and_only_with_whom_we_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority, stranger = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    for issuer, name, is_trusted in (
        (authority, "localhost", True), (stranger, "localhost", False), (authority, "elsewhere.example", False)
    ):  # fmt: skip
        async with await tls_server(issuer.issue_cert(name)) as server:
            url = f"https://localhost:{server.sockets[0].getsockname()[1]}"
            sender = DirectConnections(url, connections_max=1, timeout_s=60)
            async with ProcessorClient(url, api_key=KEY, policy=QUICK, sender=sender) as client:
                if is_trusted:
                    assert await get(client) == {"total_net": 1}
                    continue
                with pytest.raises(ProcessorUnavailable, match=r"could not be reached.*CERTIFICATE_VERIFY_FAILED"):
                    await post(client)


async def test_proxy_of_the_environment_is_used_but_never_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "NO_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    async with ScriptedServer(repeat(OK)) as proxy, ScriptedServer(repeat(OK)) as near:
        for name in ("http_proxy", "HTTP_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        for url in ("http://processor.example", near.url):
            async with Settings(processor_url=url, processor_key=KEY).make_client() as client:
                await get(client)
        monkeypatch.setenv("no_proxy", "processor.example")
        assert not is_proxied("http://processor.example")
    assert [request.target for request in proxy.requests] == ["http://processor.example/v1/thing"]
    assert [request.target for request in near.requests] == ["/v1/thing"]


@pytest.mark.parametrize(
    "announced",
    [
        b'HTTP/1.1 104 Odd\r\nTransfer-Encoding: chunked\r\n\r\n7\r\n{"b":2}\r\n0\r\n\r\n',
        b"HTTP/1.1 199 Odd\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 000 Odd\r\nContent-Length: 0\r\n\r\n",
    ],
)
async def test_body_before_the_answer_is_never_taken_for_the_answers_own(announced: bytes) -> None:
    for answered in (WHOLE, b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"):
        async with scripted(then=announced + answered, fast=True) as (_, client):
            with pytest.raises(OutcomeUnknown, match="only announces another"):
                await post(client)


class Eager(threading.Thread):
    """A server with a thread of its own: answers, then sends `more` or leaves, and answers the next connection."""

    def __init__(self, more: bytes) -> None:
        super().__init__(daemon=True)
        self.more = more
        self.answered, self.sent = threading.Event(), threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    def run(self) -> None:
        first, _ = self.listener.accept()
        first.recv(65_536)
        first.sendall(WHOLE)
        self.answered.wait(30)
        first.sendall(self.more)
        first.shutdown(socket.SHUT_WR)
        self.sent.set()
        second, _ = self.listener.accept()
        second.recv(65_536)
        second.sendall(WHOLE)
        for each in (first, second, self.listener):
            each.close()


@pytest.mark.parametrize("more", [WHOLE.replace(b"1}", b"9}"), b"HTTP/1.1 400 Idle\r\nContent-Length: 0\r\n\r\n", b""])
async def test_what_came_while_nobody_looked_is_not_the_next_answer(more: bytes) -> None:
    server = Eager(more)
    server.start()
    sender = DirectConnections(server.url, connections_max=2, timeout_s=60)
    once = RetryPolicy(attempts_max=1)
    async with ProcessorClient(server.url, api_key=KEY, policy=once, sender=sender) as client:
        assert await get(client) == {"total_net": 1}
        server.answered.set()
        assert server.sent.wait(30)  # the event loop is held up meanwhile, as by a large page
        assert await post(client) == {"total_net": 1}
    server.join(30)


async def test_nothing_is_sent_after_the_client_was_closed() -> None:
    reached = asyncio.Event()

    async def hang_and_tell(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.set()
        await hang(reader, writer)

    async with scripted(then=hang_and_tell, fast=True) as (server, client):
        asked = asyncio.ensure_future(post(client))
        await reached.wait()
        await client.aclose()
        with pytest.raises(OutcomeUnknown):
            await asked
        with pytest.raises(ProcessorUnavailable, match="the client is closed"):
            await get(client)
        await server.all_closed()
        assert len(server.requests) == 1


async def test_space_around_a_header_is_no_part_of_it() -> None:
    failed = answer({}, status=500, headers={"Idempotent-Replayed": " true\t "})
    async with scripted(then=failed, fast=True) as (_, client):
        with pytest.raises(ProcessorUnavailable) as caught:
            await get(client)
        assert caught.value.replayed


async def test_certificates_that_cannot_be_read_are_an_error_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable() -> ssl.SSLContext:
        raise FileNotFoundError(2, "no such file")

    monkeypatch.setattr(ssl, "create_default_context", unreadable)
    sender = DirectConnections("https://localhost:9", connections_max=1, timeout_s=60)
    async with ProcessorClient("https://localhost:9", api_key=KEY, policy=QUICK, sender=sender) as client:
        with pytest.raises(ProcessorUnavailable, match="no such file"):
            await post(client)


async def test_scheme_in_upper_case_is_the_same_scheme() -> None:
    async with ScriptedServer([OK]) as server:
        url = server.url.replace("http", "HTTP")
        async with Settings(processor_url=url, processor_key=KEY).make_client() as client:
            await get(client)
        assert len(server.requests) == 1
