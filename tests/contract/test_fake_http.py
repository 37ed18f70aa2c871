"""What every answer of the fake has in common: access, error shape, headers, bounds, records.

Clients map errors by status and read `error` and Request-Id; a test later reads `fake.requests` to
prove what was sent. Without these claims a client would be tuned to a processor that is not there.
"""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import AsyncIterator

import httpx
import pytest

from fake_processor import FakeProcessor, ProcessorState
from tests.contract.plain import plain_client

URL = "/v1/balance_transactions"
ACCESS = {"Authorization": "Bearer sk_test_contract"}


def basic(user: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:".encode()).decode()


@pytest.fixture
async def fake() -> AsyncIterator[FakeProcessor]:
    async with FakeProcessor() as fake:
        yield fake


@pytest.fixture
async def client(fake: FakeProcessor) -> AsyncIterator[httpx.AsyncClient]:
    async with plain_client(fake.url) as client:
        yield client


@pytest.mark.parametrize("header", ["Bearer sk_test_x", "bearer sk_test_x", basic("sk_test_x")])
async def test_test_key_is_let_in_as_bearer_or_basic(client: httpx.AsyncClient, header: str) -> None:
    assert (await client.get(URL, headers={"Authorization": header})).status_code == 200


@pytest.mark.parametrize(
    "header",
    [
        None,
        "Bearer",
        "Bearer sk_test_",
        "Bearer sk_live_abcdefghijkl",
        "sk_test_abcdefghijkl",
        "Basic !!",
        basic(""),
        basic("sk_live_abcdefghijkl"),
        "Digest sk_test_abcdefghijkl",
    ],
)
async def test_other_key_is_turned_away_and_never_written_back(client: httpx.AsyncClient, header: str | None) -> None:
    answer = await client.get(URL, headers={} if header is None else {"Authorization": header})
    assert answer.status_code == 401
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert "Bearer" in answer.headers["WWW-Authenticate"]
    assert "abcdefgh" not in answer.text


async def test_key_too_short_to_be_cut_is_not_shown_at_all(client: httpx.AsyncClient) -> None:
    answer = await client.get(URL, headers={"Authorization": "Bearer qzx"})
    assert answer.status_code == 401
    assert "qzx" not in answer.text


async def test_only_listed_keys_are_let_in_when_there_is_a_list() -> None:
    async with FakeProcessor(api_keys=["sk_one"]) as fake, plain_client(fake.url) as client:
        assert (await client.get(URL, headers={"Authorization": "Bearer sk_one"})).status_code == 200
        assert (await client.get(URL, headers=ACCESS)).status_code == 401


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/charges", 404, "url_unknown"),
        ("GET", f"{URL}/", 404, "url_unknown"),
        ("GET", f"{URL}/txn_01/refunds", 404, "url_unknown"),
        ("GET", "/v1/fx", 404, "url_unknown"),
        ("POST", URL, 405, "method_not_allowed"),
        ("DELETE", "/v1/settlements/setl_0001", 405, "method_not_allowed"),
        ("PUT", "/v1/fx/rates", 405, "method_not_allowed"),
    ],
)
async def test_unknown_route_and_wrong_method_answer_in_the_error_shape(
    client: httpx.AsyncClient, method: str, path: str, status: int, code: str
) -> None:
    answer = await client.request(method, path, headers=ACCESS)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert answer.headers["Request-Id"].startswith("req_")
    assert answer.headers["Content-Type"].startswith("application/json")


async def test_wrong_method_names_the_right_ones(client: httpx.AsyncClient) -> None:
    assert (await client.put("/v1/settlements", headers=ACCESS)).headers["Allow"] == "GET, POST"


async def test_every_answer_has_a_request_id_of_its_own(client: httpx.AsyncClient, fake: FakeProcessor) -> None:
    answers = [
        await client.get(URL, headers=ACCESS),
        await client.get(URL),
        await client.get(f"{URL}?limit=0", headers=ACCESS),
        await client.get("/nowhere"),
        await client.get("/"),
    ]
    request_ids = [answer.headers["Request-Id"] for answer in answers]
    assert [answer.status_code for answer in answers] == [200, 401, 400, 404, 200]
    assert len(set(request_ids)) == 5
    assert [record.request_id for record in fake.requests] == request_ids


async def test_failure_inside_answers_500_in_the_error_shape(caplog: pytest.LogCaptureFixture) -> None:
    state = ProcessorState(accounts={"acct_123": [{"id": "txn_01", "created": 1, "amount": object()}]})
    async with FakeProcessor(state) as fake, plain_client(fake.url) as client:
        answer = await client.get(URL, headers=ACCESS)
    assert (answer.status_code, answer.json()["error"]["type"]) == (500, "api_error")
    assert answer.headers["Request-Id"] == "req_000001"
    assert "fake processor failed" in caplog.text


async def test_version_and_idempotency_key_are_echoed(client: httpx.AsyncClient) -> None:
    sent = {**ACCESS, "Stripe-Version": "2026-10-28.endive", "Idempotency-Key": '"key-1"'}
    answer = await client.get(URL, headers=sent)
    assert answer.headers["Stripe-Version"] == "2026-10-28.endive"
    assert answer.headers["Idempotency-Key"] == '"key-1"'
    plain = await client.get(URL, headers=ACCESS)
    assert "Stripe-Version" not in plain.headers
    assert "Idempotency-Key" not in plain.headers


@pytest.mark.parametrize("version", ["latest", "2026", "2026-10-28.", "2026-10-28.ENDIVE", "2026-10-28 "])
async def test_version_of_another_shape_is_refused(client: httpx.AsyncClient, version: str) -> None:
    answer = await client.get(URL, headers=[*ACCESS.items(), ("Stripe-Version", version + "x" * version.endswith(" "))])
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "Stripe-Version")


async def test_key_that_is_no_printable_ascii_is_neither_taken_nor_echoed(client: httpx.AsyncClient) -> None:
    headers = [
        (b"Authorization", b"Bearer sk_test_contract"),
        (b"Content-Type", b"application/json"),
        (b"Idempotency-Key", b"k\xff\xc3\xa9"),
    ]
    answer = await client.post("/v1/settlements", content=b"{}", headers=headers)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "Idempotency-Key")
    assert "Idempotency-Key" not in answer.headers


@pytest.mark.parametrize(("extra_bytes", "status"), [(0, 400), (1, 413), (500_000, 413)])
async def test_body_over_one_mebibyte_is_refused(client: httpx.AsyncClient, extra_bytes: int, status: int) -> None:
    headers = {**ACCESS, "Content-Type": "application/json", "Idempotency-Key": "key-1"}
    answer = await client.post("/v1/settlements", content=b" " * (2**20 + extra_bytes), headers=headers)
    assert answer.status_code == status
    assert answer.json()["error"]["param"] == "body"
    assert answer.headers["Request-Id"] == "req_000001"


async def test_body_in_a_broken_encoding_is_refused(client: httpx.AsyncClient) -> None:
    headers = {**ACCESS, "Content-Encoding": "gzip", "Idempotency-Key": "key-1"}
    answer = await client.post("/v1/settlements", content=b"not gzip at all", headers=headers)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "body")


async def test_index_tells_the_routes_to_anybody(client: httpx.AsyncClient) -> None:
    answer = await client.get("/")
    assert answer.headers["Content-Type"].startswith("text/plain")
    assert "/v1/balance_transactions" in answer.text
    assert "/v1/settlements" in answer.text


async def test_requests_are_recorded_as_they_came(client: httpx.AsyncClient, fake: FakeProcessor) -> None:
    await client.get(f"{URL}?limit=2&created%5Bgte%5D=5", headers=ACCESS)
    headers = {**ACCESS, "Content-Type": "application/json; x=1", "Idempotency-Key": "key-1"}
    await client.post("/v1/settlements", content=b'{"account": 1}', headers=headers)
    first, second = fake.requests
    assert (first.method, first.path, first.query, first.status, first.body) == (
        "GET",
        URL,
        [("limit", "2"), ("created[gte]", "5")],
        200,
        b"",
    )
    assert (first.idempotency_key, first.content_type) == (None, None)
    assert (second.idempotency_key, second.content_type) == ("key-1", "application/json; x=1")
    assert (second.body, second.status, second.request_id) == (b'{"account": 1}', 400, "req_000002")
    with pytest.raises(dataclasses.FrozenInstanceError):
        first.status = 500  # type: ignore[misc]  # the claim is that this fails


async def test_url_is_known_only_while_it_runs() -> None:
    fake = FakeProcessor()
    with pytest.raises(RuntimeError):
        _ = fake.url
    async with fake:
        assert fake.url.startswith("http://127.0.0.1:")
    with pytest.raises(RuntimeError):
        _ = fake.url


async def test_taken_port_raises_and_leaves_the_first_one_serving(
    client: httpx.AsyncClient, fake: FakeProcessor
) -> None:
    port = int(fake.url.rpartition(":")[2])
    with pytest.raises(OSError, match="address already in use"):
        await FakeProcessor(port=port).__aenter__()
    assert (await client.get("/")).status_code == 200
