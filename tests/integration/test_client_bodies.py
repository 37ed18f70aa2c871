"""Bodies that a broken or hostile processor sends: the client takes a whole, strict, bounded JSON object or none.

Without these, half an answer would be read as a whole one, or a few kilobytes would unpack to all the memory there is.
"""

import gzip
import json
import zlib

import pytest

from paykit_settle.body_reader import BodyLimits
from paykit_settle.errors import OutcomeUnknown, ProcessorRejected, ProtocolError
from tests.integration.scripted_server import (
    QUICK,
    answer,
    drip,
    get,
    post,
    scripted,
)

NOT_AN_OBJECT = [
    b"", b"{", b'{"a":1', b"[]", b"null", b"1", b'"a"', b"<html><body>It works!</body></html>", b'{"a":1}{"b":2}',
    b"\xef\xbb\xbf{}", b'{"a":"\xff"}', b'{"a":"\xed\xa0\x80"}', b'{"a":1,"a":2}', b'{"a":NaN}', b'{"a":"\\ud800"}',
    b'{"a":"\\u0000"}', b"[" * 100_000, b'{"a":' + b"[" * 70 + b"]" * 70 + b"}", b'{"a":' + b"9" * 5000 + b"}",
    "{}".encode("utf-16"),
]  # fmt: skip


@pytest.mark.parametrize("body", NOT_AN_OBJECT, ids=lambda body: repr(body[:24]))
async def test_body_that_is_no_strict_json_object_is_never_taken(body: bytes) -> None:
    for ask, kind, attempts in ((get, ProtocolError, 1), (post, OutcomeUnknown, QUICK.attempts_max)):
        async with scripted(then=answer(body)) as (server, client):
            with pytest.raises(kind, match="cannot be used") as caught:
                await ask(client)
        assert type(caught.value) is kind
        assert (len(server.requests), caught.value.status) == (attempts, 200)


@pytest.mark.parametrize("content_type", ["text/html", "", "application/json; charset=utf-16", "x" * 5000])
async def test_body_decides_and_not_the_type_that_it_claims(content_type: str) -> None:
    async with scripted(answer({"a": "é"}, headers={"Content-Type": content_type})) as (_, client):
        assert await get(client) == {"a": "é"}


@pytest.mark.parametrize("status", [202, 203, 204, 206, 226, 300, 302, 303, 304])
async def test_success_outside_the_contract_is_no_success(status: int) -> None:
    content = b"" if status in (204, 304) else b'{"id":"setl_0001","status":"created"}'
    for ask, kind in ((get, ProtocolError), (post, OutcomeUnknown)):
        async with scripted(then=answer(content, status=status)) as (_, client):
            with pytest.raises(kind, match=f"answered {status}") as caught:
                await ask(client)
        assert type(caught.value) is kind


async def test_gzip_is_asked_for_and_unpacked() -> None:
    packed = gzip.compress(json.dumps({"a": 2**60 + 1}).encode())
    async with scripted(answer(packed, headers={"Content-Encoding": "gzip"})) as (server, client):
        assert await get(client) == {"a": 2**60 + 1}
    assert server.requests[0].headers["accept-encoding"] == "gzip"


BOMB = gzip.compress(b" " * 30_000_000)


@pytest.mark.parametrize(
    ("body", "encoding", "named"),
    [
        (BOMB, "gzip", "unpacks to over 1000000 bytes"),
        (gzip.compress(b"{}" * 5000)[:-9], "gzip", "cut short"),
        (gzip.compress(b"{}") + b"{}", "gzip", "bytes after its end"),
        (b"{}", "gzip", "not gzip"),
        (gzip.compress(BOMB), "gzip, gzip", "was not asked for"),
        (zlib.compress(b"{}"), "deflate", "was not asked for"),
        (b"{}", "br", "br was not asked for"),
        (b"{}", "\xe9\xff" * 500, "was not asked for"),
        (b" " * 200_000, "", "over 100000 bytes"),
    ],
    ids=["bomb", "truncated", "trailing", "plain", "twice", "deflate", "br", "odd", "huge"],
)
async def test_body_that_cannot_be_unpacked_within_its_bounds_is_refused(
    body: bytes, encoding: str, named: str
) -> None:
    limits = BodyLimits(wire_bytes_max=100_000, bytes_max=1_000_000)
    headers = {"Content-Encoding": encoding} if encoding else {}
    for ask, kind in ((get, ProtocolError), (post, OutcomeUnknown)):
        async with scripted(then=answer(body, headers=headers), limits=limits) as (_, client):
            with pytest.raises(kind, match=named) as caught:
                await ask(client)
        assert type(caught.value) is kind
        assert len(str(caught.value)) < 1000


async def test_body_without_end_stops_at_the_limit() -> None:
    endless = drip(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"2000\r\n" + b" " * 0x2000 + b"\r\n")
    async with scripted(endless, limits=BodyLimits(wire_bytes_max=50_000)) as (server, client):
        with pytest.raises(ProtocolError, match="over 50000 bytes"):
            await get(client)
        await server.all_closed()


async def test_status_counts_more_than_a_body_that_cannot_be_read() -> None:
    refusal = answer(b"nonsense", status=403, headers={"Content-Encoding": "gzip"})
    async with scripted(refusal) as (_, client):
        with pytest.raises(ProcessorRejected, match="answered 403"):
            await post(client)
