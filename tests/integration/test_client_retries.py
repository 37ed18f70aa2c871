"""What the client retries, how long it waits, and what is certain when it gives up, over real sockets.

Each case is somebody's real loss: a permanent error repeated until the budget was gone, a day slept through on the
processor's word, a settlement posted twice because its answer was lost. A retry carries the same bytes and key.
"""

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta, tzinfo
from email.utils import format_datetime

import pytest

from paykit_settle import client as client_module
from paykit_settle.client import ProcessorClient
from paykit_settle.errors import (
    OutcomeUnknown,
    ProcessorError,
    ProcessorRejected,
    ProcessorUnavailable,
    SettlementConflict,
)
from paykit_settle.retry import RetryPolicy
from tests.integration.scripted_server import (
    BODY,
    KEY,
    OK,
    QUICK,
    Action,
    Ask,
    ScriptedServer,
    answer,
    close,
    get,
    outlasting,
    post,
    reset,
    scripted,
)

IMPATIENT = RetryPolicy(attempts_max=3, wait_first_ms=1, request_timeout_s=60, deadline_s=600)
BOTH = pytest.mark.parametrize("ask", [get, post])


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits between attempts, in seconds; none of them is really waited for."""
    waits: list[float] = []
    really_sleep = asyncio.sleep

    async def sleep(delay: float, result: object = None) -> object:
        if delay > 0.002:
            waits.append(delay)
        return await really_sleep(0, result)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return waits


def one_and_only(values: Iterable[object]) -> object:
    (value,) = set(values)
    return value


RETRIED = {
    408: OutcomeUnknown,
    425: ProcessorUnavailable,
    429: ProcessorUnavailable,
    500: OutcomeUnknown,
    502: OutcomeUnknown,
    503: OutcomeUnknown,
    504: OutcomeUnknown,
    507: OutcomeUnknown,
    599: OutcomeUnknown,
}
DEFINITE = [400, 401, 402, 403, 404, 405, 406, 409, 410, 412, 413, 415, 422, 451]


@pytest.mark.parametrize("status", DEFINITE)
@BOTH
async def test_definite_refusal_is_asked_once(ask: Ask, status: int) -> None:
    """NET-10, the half that is never retried."""
    refusal = {"error": {"type": "invalid_request_error", "code": "no", "message": "never"}}
    async with scripted(then=answer(refusal, status=status)) as (server, client):
        with pytest.raises(ProcessorRejected, match=f"answered {status} no: never") as caught:
            await ask(client)
    assert type(caught.value) is ProcessorRejected
    assert (len(server.requests), caught.value.status, caught.value.retryable) == (1, status, False)


@pytest.mark.parametrize(("status", "posted"), RETRIED.items())
async def test_passing_failure_is_retried_to_the_end_and_keeps_its_certainty(
    status: int, posted: type[ProcessorError]
) -> None:
    """NET-10, the half that is retried: a 429 says that nothing happened, a 5xx does not."""
    for ask, kind in ((get, ProcessorUnavailable), (post, posted)):
        async with scripted(then=answer(b"busy", status=status)) as (server, client):
            with pytest.raises(ProcessorError, match=f"answered {status}") as caught:
                await ask(client)
        assert type(caught.value) is kind
        assert caught.value.retryable
        assert len(server.requests) == QUICK.attempts_max
        assert caught.value.exchange is not None
        assert (caught.value.exchange.attempt, caught.value.exchange.request_id) == (3, "req_1")


@pytest.mark.parametrize("status", [*RETRIED, 409])
@BOTH
async def test_passing_failure_that_passes_is_forgotten(ask: Ask, status: int) -> None:
    in_flight = {"error": {"type": "idempotency_error", "code": "idempotency_key_in_use"}}
    async with scripted(answer(in_flight, status=status), OK) as (server, client):
        assert await ask(client) == {"id": "setl_0001", "status": "created"}
    first, second = server.requests
    assert first.target == second.target == ("/v1/thing" if ask is get else "/v1/settlements")


@pytest.mark.parametrize("code", ["idempotency_key_in_use", "lock_timeout"])
async def test_conflict_in_flight_that_never_ends_is_unknown(code: str) -> None:
    async with scripted(then=answer({"error": {"code": code}}, status=409)) as (server, client):
        with pytest.raises(OutcomeUnknown, match=code):
            await post(client)
    assert len(server.requests) == QUICK.attempts_max


async def test_every_retry_carries_the_same_bytes_under_the_same_key() -> None:
    """IDM-13, the client's half: the processor sees one settlement, however often it is told."""
    failures: list[bytes | Action] = [
        answer(b"", status=503),
        reset,
        close,
        answer(b"{", status=200),
        answer({}, status=429),
    ]
    policy = RetryPolicy(attempts_max=6, wait_first_ms=1)
    async with scripted(*failures, OK, policy=policy) as (server, client):
        assert await client.create_settlement(BODY, idempotency_key="key-1") == ("setl_0001", "created")
    assert len(server.requests) == 6
    assert one_and_only(seen.body for seen in server.requests) == BODY
    assert one_and_only(seen.headers["idempotency-key"] for seen in server.requests) == "key-1"
    assert one_and_only(seen.target for seen in server.requests) == "/v1/settlements"
    assert one_and_only(seen.headers["authorization"] for seen in server.requests) == f"Bearer {KEY}"


async def test_settlement_stored_but_not_answered_is_asked_for_again_under_its_key() -> None:
    """IDM-13: read time-out after the effect; the second request is the same request."""
    async with scripted(outlasting(60), OK, policy=IMPATIENT) as (server, client):
        assert await post(client) == {"id": "setl_0001", "status": "created"}
    first, second = server.requests
    assert (first.body, first.headers["idempotency-key"]) == (second.body, second.headers["idempotency-key"])


# Retry-After.


async def test_retry_after_as_a_date_is_waited_for(slept: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """NET-01: six and a half seconds after the answer came, rounded up to whole ones."""
    received = datetime(2026, 1, 15, 12, 0, 0, 500_000, tzinfo=UTC)

    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]  # one moment, no class of ours
            return received.astimezone(tz)

    monkeypatch.setattr(client_module, "datetime", Clock)
    until = format_datetime(received.replace(microsecond=0) + timedelta(seconds=7), usegmt=True)
    async with scripted(answer({}, status=429, headers={"Retry-After": until}), OK) as (_, client):
        await get(client)
    assert slept == [7]


async def test_retry_after_in_seconds_is_waited_for(slept: list[float]) -> None:
    async with scripted(answer({}, status=503, headers={"Retry-After": "7"}), OK) as (_, client):
        await get(client)
    assert slept == [7]


async def test_very_long_retry_after_is_capped(slept: list[float]) -> None:
    """NET-03: a day's wait is cut to the cap, and the retry still happens within the deadline."""
    policy = RetryPolicy(attempts_max=3, wait_first_ms=1, retry_after_max_s=60, deadline_s=300)
    async with scripted(answer({}, status=429, headers={"Retry-After": "86400"}), OK, policy=policy) as (_, client):
        await get(client)
    assert slept == [60]


async def test_wait_beyond_the_deadline_is_not_begun(slept: list[float]) -> None:
    """NET-03, the other way out: "try later" at once, saying when."""
    policy = RetryPolicy(wait_first_ms=1, retry_after_max_s=60, deadline_s=50)
    async with scripted(then=answer({}, status=429, headers={"Retry-After": "86400"}), policy=policy) as (
        server,
        client,
    ):
        with pytest.raises(ProcessorUnavailable) as caught:
            await post(client)
    assert (caught.value.retry_after_s, len(server.requests), slept) == (86400, 1, [])


ODD_WAITS = [
    "", "soon", "0", "-1", "1.5", "1e3", "0x10", "NaN", "²", "\xe9\xff", "9" * 5000, "Tue, 99 Foo 2025",
    "Tue, 10 Jun 2025 25:61:61 GMT", "Thu, 01 Jan 1970 00:00:00 GMT", "Fri, 31 Dec 9999 23:59:59 -2359",
]  # fmt: skip


@pytest.mark.parametrize("value", ODD_WAITS, ids=lambda value: value[:24])
async def test_odd_retry_after_does_no_harm(slept: list[float], value: str) -> None:
    policy = RetryPolicy(wait_first_ms=1, retry_after_max_s=5)
    async with scripted(answer({}, status=429, headers={"Retry-After": value}), OK, policy=policy) as (server, client):
        await get(client)
    assert len(server.requests) == 2
    assert slept in ([], [5])


async def test_429_to_the_end_says_when_to_come_back() -> None:
    busy = answer({}, status=429, headers={"Retry-After": "1"})
    policy = RetryPolicy(attempts_max=3, wait_first_ms=1, retry_after_max_s=0)
    async with scripted(then=busy, policy=policy) as (server, client):
        with pytest.raises(ProcessorUnavailable) as caught:
            await post(client)
    assert (caught.value.retry_after_s, caught.value.status, len(server.requests)) == (1, 429, 3)


# What is certain in the end.


@pytest.mark.parametrize(
    ("second", "kind"),
    [
        (answer({}, status=401), OutcomeUnknown),
        (answer({}, status=404), OutcomeUnknown),
        (answer({}, status=429), OutcomeUnknown),
        (answer({}, status=301), OutcomeUnknown),
        (answer({}, status=400), ProcessorRejected),
        (answer({}, status=422), ProcessorRejected),
        (answer({"error": {"type": "idempotency_error"}}, status=400), SettlementConflict),
    ],
)
async def test_after_a_500_only_a_refusal_of_the_content_is_definite(second: bytes, kind: type[ProcessorError]) -> None:
    async with scripted(answer({}, status=500), then=second) as (_, client):
        with pytest.raises(ProcessorError) as caught:
            await post(client)
    error = caught.value
    assert type(error) is kind
    assert error.status != 500
    assert error.exchange is not None
    assert error.exchange.request_id == "req_1"
    assert error.exchange.attempt >= 2
    assert error.details["attempt"] == error.exchange.attempt


async def test_after_a_401_nothing_is_unknown() -> None:
    async with scripted(answer({}, status=429), answer({}, status=401)) as (_, client):
        with pytest.raises(ProcessorRejected):
            await post(client)


async def test_connection_refused_is_certainly_not_sent() -> None:
    async with ScriptedServer([]) as server:
        url = server.url
    async with ProcessorClient(url, api_key=KEY, policy=QUICK) as client:
        for ask in (get, post):
            with pytest.raises(ProcessorUnavailable, match="ConnectError") as caught:
                await ask(client)
            assert caught.value.status is None
            assert caught.value.exchange is not None
            assert caught.value.exchange.attempt == QUICK.attempts_max


async def test_refused_after_a_reset_is_still_unknown() -> None:
    async def reset_and_shut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server._server.close()
        await reset(reader, writer)

    async with scripted(reset_and_shut) as (server, client):
        with pytest.raises(OutcomeUnknown, match=r"may have taken effect.*ConnectError"):
            await post(client)
