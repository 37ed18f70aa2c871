"""Where the API key and the processor's texts may go: to the configured processor only, and into no message.

Without these, a redirect or a path would carry the key to a stranger, and an error that echoes it would write it into
every log on the way.
"""

from itertools import repeat
from typing import Any

import httpx
import pytest

from paykit_settle.client import ProcessorClient
from paykit_settle.errors import InvalidRequest, OutcomeUnknown, ProcessorError, ProcessorRejected, ProtocolError
from tests.integration.scripted_server import KEY, OK, Ask, ScriptedServer, answer, get, post, scripted

BOTH = pytest.mark.parametrize("ask", [get, post])


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@BOTH
async def test_redirect_is_not_followed_and_the_key_goes_nowhere_else(ask: Ask, status: int) -> None:
    async with ScriptedServer([]) as stranger:
        moved = answer({}, status=status, headers={"Location": f"{stranger.url}/v1/thing"})
        async with scripted(then=moved) as (_, client):
            with pytest.raises(ProcessorError, match="redirect, which is never followed"):
                await ask(client)
        assert stranger.requests == []


async def test_injected_client_that_follows_redirects_does_not_here() -> None:
    async with ScriptedServer([]) as stranger, httpx.AsyncClient(follow_redirects=True, timeout=60) as http:
        moved = answer({}, status=307, headers={"Location": stranger.url})
        async with ScriptedServer(repeat(moved)) as server:
            client = ProcessorClient(server.url, api_key=KEY, http=http)
            for ask in (get, post):
                with pytest.raises(ProtocolError, match="answered 307"):
                    await ask(client)
            await client.aclose()
        assert stranger.requests == []
        assert not http.is_closed


@pytest.mark.parametrize(
    "location",
    [
        "",
        "http://[bad",
        "//",
        "http://",
        "\xff\xfe",
        "javascript:alert(1)",
        "http://a..b/",
        "http://xn--a/",
        ":http://[::1S]",
        "://xn--h..X",
        "/" * 70_000,
    ],
)
async def test_redirect_to_nonsense_is_the_processors_error(location: str) -> None:
    """httpx parses it even though it is not followed, and raises whatever its URL parser raises."""
    async with scripted(then=answer({}, status=302, headers={"Location": location})) as (_, client):
        with pytest.raises(ProcessorError):
            await get(client)
        with pytest.raises(OutcomeUnknown):
            await post(client)


@pytest.mark.parametrize(
    "script",
    [
        answer({"error": {"type": KEY, "code": KEY, "message": f"no such key {KEY}"}}, status=401),
        answer(f"key {KEY} is wrong".encode(), status=403),
        answer({"error": {"message": KEY}}, status=503, headers={"Request-Id": KEY, "Retry-After": KEY}),
        answer(f'{{"{KEY}":1,"{KEY}":2}}'.encode()),
        answer(f'"{KEY}'.encode(), headers={"Request-Id": f"req {KEY}"}),
        answer({}, status=302, headers={"Location": f"http://[{KEY}"}),
        answer({}, headers={"Content-Encoding": KEY[:30]}),
        f"{KEY}\r\n\r\n".encode(),
    ],
)
@BOTH
async def test_echoed_key_is_in_no_error_no_traceback_and_no_log(
    ask: Ask, script: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with scripted(then=script) as (_, client):
        with pytest.raises(ProcessorError) as caught:
            await ask(client)
    error: BaseException | None = caught.value
    assert KEY not in f"{caught.value.details} {caught.value.body} {caught.value.exchange!r} {client!r}"
    while error is not None:
        assert KEY not in f"{error} {error!r}"
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    assert KEY not in caplog.text
    assert KEY not in str([vars(record) for record in caplog.records])


@BOTH
async def test_key_is_in_no_debug_log_of_any_library(ask: Ask, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    async with scripted(answer({}, status=503), OK) as (server, client):
        await ask(client)
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert any(record.name.startswith("httpcore") for record in caplog.records)
    assert KEY not in caplog.text
    assert KEY not in str([vars(record) for record in caplog.records])


async def test_texts_of_the_processor_are_bounded_and_without_control_characters() -> None:
    message = "\x1b[31m" + "line\r\nline\u202e" * 100_000
    refusal = answer(
        {"error": {"code": message, "message": message}}, status=400, headers={"Request-Id": "\xe9" * 50_000}
    )
    async with scripted(refusal) as (_, client):
        with pytest.raises(ProcessorRejected) as caught:
            await get(client)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 2000
    assert len(caught.value.body) <= 500


async def test_cookies_are_neither_kept_nor_sent() -> None:
    """A jar would grow with whatever a processor sets, until no request fits any more."""
    setting: dict[str, Any] = {"Set-Cookie": "a=1; Path=/"}
    async with scripted(answer({}, headers=setting), answer({}, headers={"Set-Cookie": "b=2"}), OK) as (server, client):
        for _ in range(3):
            await get(client)
    assert not [seen for seen in server.requests if "cookie" in seen.headers]


@pytest.mark.parametrize(
    "path", ["v1/thing", "@evil.example/x", ".evil.example/", "", ":1/x", "/a?b=c", "/a#b", "/a b"]
)
async def test_path_cannot_lead_elsewhere(path: str) -> None:
    async with scripted(then=OK) as (server, client):
        with pytest.raises(InvalidRequest, match="path must start with a slash"):
            await client.get(path)
        with pytest.raises(InvalidRequest, match="path must start with a slash"):
            await client.post(path, b"{}", idempotency_key="k")
    assert server.requests == []
