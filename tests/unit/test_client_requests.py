"""What the client puts on the wire and how it is set up, without a socket: headers, encoding, secrets, settings.

Without these the key could show in a repr, a proxy could sit between us and a local processor, or a retry could be
counted wrongly.
"""

import asyncio
from collections.abc import Iterator
from datetime import date

import httpx
import pytest
import respx
import stamina
from hypothesis import given
from hypothesis import strategies as st

from paykit_settle.client import ProcessorClient
from paykit_settle.endpoint import LOOPBACK_API_KEY, check_base_url, is_loopback
from paykit_settle.errors import (
    InvalidConfig,
    InvalidRequest,
    InvariantViolated,
    OutcomeUnknown,
    ProcessorError,
    ProcessorUnavailable,
    ProtocolError,
)
from paykit_settle.retry import RetryPolicy
from paykit_settle.version import __version__
from paykit_settle.window import day_window, load_zone

URL = "http://127.0.0.1:8787"
KEY = "sk_test_Secret"
PAGE = {"data": [], "has_more": False}


@pytest.fixture
def wire() -> Iterator[respx.MockRouter]:
    with respx.mock(base_url=URL, assert_all_called=False) as router:
        yield router


@pytest.fixture(autouse=True)
def no_waits() -> Iterator[None]:
    """Stamina's own testing mode: up to three attempts, and no wait between them."""
    with stamina.set_testing(True, attempts=3, cap=True):
        yield


async def test_get_carries_key_version_and_the_one_encoding_we_read(wire: respx.MockRouter) -> None:
    route = wire.get("/v1/thing").respond(json={})
    async with ProcessorClient(URL + "/", api_key=KEY) as client:
        assert await client.get("/v1/thing") == {}
    sent = route.calls.last.request
    assert sent.headers["authorization"] == f"Bearer {KEY}"
    assert sent.headers["accept"] == "application/json"
    assert sent.headers["accept-encoding"] == "gzip"
    assert sent.headers["user-agent"] == f"paykit-settle/{__version__}"
    assert not {"content-type", "idempotency-key", "cookie"} & set(sent.headers)
    assert sent.content == b""


async def test_post_carries_json_under_its_key(wire: respx.MockRouter) -> None:
    route = wire.post("/v1/settlements").respond(json={"id": "setl_1", "status": "created"})
    async with ProcessorClient(URL) as client:
        await client.post("/v1/settlements", {"b": "é", "a": 2**63}, idempotency_key="key-1")
    sent = route.calls.last.request
    assert sent.content == b'{"b":"\\u00e9","a":9223372036854775808}'
    assert (sent.headers["content-type"], sent.headers["idempotency-key"]) == ("application/json", "key-1")
    assert sent.headers["authorization"] == f"Bearer {LOOPBACK_API_KEY}"


async def test_bytes_are_posted_as_they_are(wire: respx.MockRouter) -> None:
    route = wire.post("/v1/settlements").respond(json={"id": "setl_1", "status": "created"})
    async with ProcessorClient(URL) as client:
        body = b'{ "frozen" : 1 }\n'
        assert await client.create_settlement(body, idempotency_key="key-1") == ("setl_1", "created")
    assert route.calls.last.request.content == body


@pytest.mark.parametrize("account", ["a&b=c", "a&limit=1", "é 中", "a+b%20", "a#b", "\n"])
async def test_account_is_one_parameter_whatever_its_name(wire: respx.MockRouter, account: str) -> None:
    route = wire.get("/v1/balance_transactions").respond(json=PAGE)
    async with ProcessorClient(URL) as client:
        assert [row async for row in client.balance_transactions(account)] == []
    assert route.calls.last.request.url.params.multi_items() == [("account", account), ("limit", "100")]


async def test_rates_are_asked_for_the_day(wire: respx.MockRouter) -> None:
    route = wire.get("/v1/fx/rates").respond(json={"base": "usd", "rates": {}})
    async with ProcessorClient(URL) as client:
        await client.rates(base="usd", day=date(2026, 1, 15))
    assert route.calls.last.request.url.params.multi_items() == [("base", "usd"), ("date", "2026-01-15")]


async def test_float_in_a_body_is_refused_before_it_is_sent(wire: respx.MockRouter) -> None:
    async with ProcessorClient(URL) as client:
        with pytest.raises(TypeError):
            await client.post("/v1/settlements", {"total_net": 1.0}, idempotency_key="key-1")
    assert not wire.calls


@pytest.mark.parametrize("key", ["", "a\nb", "é", "k" * 256])
async def test_idempotency_key_that_is_no_header_is_refused_before_it_is_sent(wire: respx.MockRouter, key: str) -> None:
    async with ProcessorClient(URL) as client:
        with pytest.raises(InvalidRequest):
            await client.post("/v1/settlements", {}, idempotency_key=key)
    assert not wire.calls


async def test_window_and_page_size_go_out_with_every_page_and_rows_come_in_order(wire: respx.MockRouter) -> None:
    row = {"type": "charge", "amount": 1, "currency": "usd", "fee": 0, "status": "available"}
    pages = [{"data": [{"id": name, **row}], "has_more": more} for name, more in (("b", True), ("a", False))]
    route = wire.get("/v1/balance_transactions").mock(side_effect=[httpx.Response(200, json=page) for page in pages])
    window = day_window(date(2026, 1, 15), load_zone("Europe/Berlin"))
    async with ProcessorClient(URL) as client:
        rows = [row async for row in client.balance_transactions("acct_123", window=window, page_size=1)]
    assert [row.id for row in rows] == ["b", "a"]
    filters = {"account": "acct_123", "limit": "1", "created[gte]": "1768431600", "created[lt]": "1768518000"}
    queries = [dict(call.request.url.params) for call in route.calls]
    assert queries == [filters, filters | {"starting_after": "b"}]


@pytest.mark.parametrize(
    ("body", "encoding", "named"),
    [
        (b"{}", "br", "br was not asked for"),
        (b"[]", "", "expected an object, got array"),
        (b'{"' + KEY.encode() + b'"', "", "it is malformed, and repeats the API key"),
    ],
)
async def test_answer_that_cannot_be_used_says_why_and_not_the_key(
    wire: respx.MockRouter, body: bytes, encoding: str, named: str
) -> None:
    headers = {b"Content-Encoding": encoding.encode(), b"Request-Id": f"req {KEY}\xe9".encode("latin-1")}
    stream = httpx.ByteStream(body)  # as from a network: undecoded
    wire.get("/v1/thing").mock(return_value=httpx.Response(200, headers=headers, stream=stream))
    async with ProcessorClient(URL, api_key=KEY) as client:
        with pytest.raises(ProtocolError, match=named) as caught:
            await client.get("/v1/thing")
    assert KEY not in f"{caught.value} {caught.value.details}"
    assert caught.value.details["request_id"] == "req [api key]é"


# Attempts.


@pytest.mark.parametrize(
    ("failures", "kind", "attempts"),
    [
        ([httpx.ConnectError("no")] * 3, ProcessorUnavailable, 3),
        ([httpx.PoolTimeout("no")] * 3, ProcessorUnavailable, 3),
        ([httpx.ConnectError("no"), httpx.ReadError("no"), httpx.ConnectError("no")], OutcomeUnknown, 3),
        ([httpx.ConnectError("no"), 401], ProcessorError, 2),
        ([httpx.ReadError("no"), 401], OutcomeUnknown, 2),
        ([429, httpx.ConnectError("no"), 429], ProcessorUnavailable, 3),
        ([httpx.ReadError("no"), httpx.UnsupportedProtocol("bug")], OutcomeUnknown, 2),
        ([httpx.UnsupportedProtocol("bug")], InvariantViolated, 1),
    ],
)
async def test_what_is_certain_follows_from_all_attempts(
    wire: respx.MockRouter, failures: list[Exception | int], kind: type[Exception], attempts: int
) -> None:
    effects = [httpx.Response(each) if isinstance(each, int) else each for each in failures]
    route = wire.post("/v1/settlements").mock(side_effect=effects)
    async with ProcessorClient(URL) as client:
        with pytest.raises(kind) as caught:
            await client.post("/v1/settlements", b"{}", idempotency_key="key-1")
    assert route.call_count == attempts
    if isinstance(caught.value, ProcessorError):
        assert isinstance(caught.value, OutcomeUnknown) == (kind is OutcomeUnknown)
        assert caught.value.exchange is not None
        assert caught.value.exchange.attempt == attempts


async def test_get_is_never_unknown(wire: respx.MockRouter) -> None:
    wire.get("/v1/thing").mock(side_effect=[httpx.ReadError("no"), httpx.Response(500), httpx.ReadTimeout("no")])
    async with ProcessorClient(URL) as client:
        with pytest.raises(ProcessorUnavailable):
            await client.get("/v1/thing")


async def test_deadline_in_the_first_attempt_is_unknown_for_a_post_only(wire: respx.MockRouter) -> None:
    async def never(_request: httpx.Request) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError

    wire.post("/v1/settlements").mock(side_effect=never)
    wire.get("/v1/thing").mock(side_effect=never)
    async with ProcessorClient(URL, policy=RetryPolicy(deadline_s=0.01)) as client:
        with pytest.raises(ProcessorUnavailable, match=r"no answer within 0\.01 s in all; before: nothing"):
            await client.get("/v1/thing")
        with pytest.raises(OutcomeUnknown, match=r"may have taken effect; its last attempt: no answer within 0\.01 s"):
            await client.post("/v1/settlements", b"{}", idempotency_key="key-1")


# How it is set up.


def test_repr_shows_the_processor_and_no_secret() -> None:
    assert repr(ProcessorClient(URL + "/", api_key=KEY)) == f"ProcessorClient('{URL}')"


def test_key_is_needed_for_a_processor_elsewhere() -> None:
    with pytest.raises(InvalidConfig, match="PAYKIT_PROCESSOR_KEY"):
        ProcessorClient("https://api.example.com")


@pytest.mark.parametrize("url", ["http://256.1.1.1", "http://[v1.a]", "http://xn--a", "http://[::zz]"])
def test_url_that_httpx_cannot_use_is_refused_at_once(url: str) -> None:
    with pytest.raises(InvalidConfig):
        ProcessorClient(url, api_key=KEY)


def test_proxy_that_cannot_be_used_is_named_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy"):
        monkeypatch.setenv(name, "gopher://user:Secret@proxy:1")
    with pytest.raises(InvalidConfig, match="proxy or certificate settings") as caught:
        ProcessorClient("https://api.example.com", api_key=KEY)
    assert "Secret" not in f"{caught.value} {caught.value.__cause__}"


async def test_no_proxy_sits_between_us_and_a_processor_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "gopher://proxy:1")
    await ProcessorClient(URL).aclose()


async def test_injected_http_client_stays_open_and_our_own_does_not() -> None:
    async with httpx.AsyncClient() as http:
        async with ProcessorClient(URL, http=http):
            pass
        assert not http.is_closed
    client = ProcessorClient(URL)
    await client.aclose()
    await client.aclose()


@given(st.text("htps:/127.0.1localhost[]:@\\#?%;", max_size=24).map(lambda text: "http://" + text))
def test_what_we_take_for_this_machine_is_where_httpx_goes(url: str) -> None:
    """A key is let out without asking only when both parsers read the same host."""
    try:
        kept, loopback = check_base_url(url)
        host = httpx.URL(kept).host
    except (InvalidConfig, httpx.InvalidURL, ValueError):
        return
    assert is_loopback(host) == loopback
