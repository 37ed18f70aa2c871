"""The HTTP service over a real socket, against the fake over another: what a scheduler sees.

Without these, a wrong status would make a scheduler retry what cannot succeed, or give up on what can.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from aiohttp import web

from fake_processor import FakeProcessor
from paykit_settle.config import Settings
from paykit_settle.service import create_app

RUN = {"account": "acct_123", "date": "2026-01-15", "settlement_currency": "usd"}


@asynccontextmanager
async def serving(settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    """The service on a free port, and a client of it."""
    runner = web.AppRunner(create_app(settings))
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port = runner.addresses[0][1]
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60) as client:
            yield client
    finally:
        await runner.cleanup()


@pytest.fixture
async def fake() -> AsyncIterator[FakeProcessor]:
    async with FakeProcessor() as processor:
        yield processor


@pytest.fixture
async def service(fake: FakeProcessor, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    settings = Settings(processor_url=fake.url, page_size=4, attempts_max=2, database=str(tmp_path / "paykit.db"))
    async with serving(settings) as client:
        yield client


def problem(answer: httpx.Response) -> dict[str, object]:
    """The problem of an error answer, after checking its form (RFC 9457)."""
    assert answer.headers["content-type"].startswith("application/problem+json")
    body: dict[str, object] = answer.json()
    assert body["status"] == answer.status_code
    assert {"type", "title", "error", "detail"} <= set(body)
    return body


async def test_run_route_is_registered(service: httpx.AsyncClient) -> None:
    assert (await service.post("/settlements/run", json={})).status_code == 400


async def test_run_settles_end_to_end_and_posts_result(fake: FakeProcessor, service: httpx.AsyncClient) -> None:
    answer = await service.post("/settlements/run", json=RUN)
    assert answer.status_code == 200
    body = answer.json()
    expected = {"settlement_id": "setl_0001", "status": "created", "total_net": 145199, "currency": "usd"}
    assert expected.items() <= body.items()
    posted = [json.loads(request.body) for request in fake.requests if request.method == "POST"]
    assert len(posted) == 1
    assert posted[0]["total_net"] == 145199
    assert [line["net_settlement"] for line in posted[0]["lines"]] == [14712, 9772, 100000, 20715]


async def test_settlement_currency_defaults_to_usd(service: httpx.AsyncClient) -> None:
    answer = await service.post("/settlements/run", json={"account": "acct_123", "date": "2026-01-15"})
    assert (answer.status_code, answer.json()["currency"]) == (200, "usd")


async def test_repeated_and_parallel_requests_settle_once(fake: FakeProcessor, service: httpx.AsyncClient) -> None:
    answers = await asyncio.gather(*(service.post("/settlements/run", json=RUN) for _ in range(10)))
    assert {(answer.status_code, answer.json()["settlement_id"]) for answer in answers} == {(200, "setl_0001")}
    assert len({request.body for request in fake.requests if request.method == "POST"}) == 1


async def test_healthz_is_ok(service: httpx.AsyncClient) -> None:
    answer = await service.get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ({}, ["account", "date"]),
        ({"account": "acct_123"}, ["date"]),
        ({"account": 5, "date": 20260115}, ["account", "date"]),
        ({"account": "acct_123", "date": "15.1.2026", "settlement_currency": 840}, ["date", "settlement_currency"]),
        (RUN | {"settlement_currency": None}, ["settlement_currency"]),
        (RUN | {"retry": True}, ["retry"]),
        (RUN | {"account": ""}, ["account"]),
        (RUN | {"account": "a\nb"}, ["account"]),
    ],
)
async def test_every_missing_or_wrong_field_is_named(
    service: httpx.AsyncClient, body: dict[str, object], fields: list[str]
) -> None:
    answer = await service.post("/settlements/run", json=body)
    assert answer.status_code == 400
    listed = problem(answer)["fields"]
    assert isinstance(listed, list)
    assert [fault["field"] for fault in listed] == fields


async def test_unsupported_currency_is_named(service: httpx.AsyncClient) -> None:
    answer = await service.post("/settlements/run", json=RUN | {"settlement_currency": "xqq"})
    assert (answer.status_code, problem(answer)["error"]) == (400, "unsupported_currency")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"not json",
        b"{",
        b'{"account":"a","account":"b"}',
        b'{"date":NaN}',
        b"\xff",
        b"\xef\xbb\xbf{}",
        b"[" * 9999,
    ],
)
@pytest.mark.parametrize("content_type", ["application/json", "text/plain"])
async def test_body_that_is_not_json_is_400(service: httpx.AsyncClient, raw: bytes, content_type: str) -> None:
    """JSN-03, JSN-05 and their kind."""
    answer = await service.post("/settlements/run", content=raw, headers={"Content-Type": content_type})
    assert (answer.status_code, problem(answer)["error"]) == (400, "invalid_json")


@pytest.mark.parametrize("raw", [b"[]", b'"text"', b"1", b"null", b"true"])
async def test_body_that_is_no_object_is_400(service: httpx.AsyncClient, raw: bytes) -> None:
    answer = await service.post("/settlements/run", content=raw, headers={"Content-Type": "application/json"})
    assert (answer.status_code, problem(answer)["error"]) == (400, "invalid_request")


async def test_json_that_does_not_say_so_is_415(service: httpx.AsyncClient) -> None:
    answer = await service.post("/settlements/run", content=json.dumps(RUN), headers={"Content-Type": "text/plain"})
    assert (answer.status_code, problem(answer)["error"]) == (415, "unsupported_media_type")


async def test_body_over_the_limit_is_413_with_a_length_and_in_chunks(service: httpx.AsyncClient) -> None:
    """JSN-14."""
    big = b'{"account":"' + b"x" * 2_000_000 + b'"}'

    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(big), 65536):
            yield big[start : start + 65536]

    for content in (big, chunks()):
        answer = await service.post("/settlements/run", content=content, headers={"Content-Type": "application/json"})
        assert (answer.status_code, problem(answer)["error"]) == (413, "body_too_large")


async def test_unknown_route_is_404_and_wrong_method_is_405(service: httpx.AsyncClient) -> None:
    missing = await service.get("/settlement/run")
    assert (missing.status_code, problem(missing)["error"]) == (404, "not_found")
    wrong = await service.get("/settlements/run")
    assert (wrong.status_code, problem(wrong)["error"], wrong.headers["Allow"]) == (405, "method_not_allowed", "POST")


async def test_day_that_has_not_ended_is_400_window_open(service: httpx.AsyncClient) -> None:
    answer = await service.post("/settlements/run", json=RUN | {"date": "2999-01-01"})
    assert (answer.status_code, problem(answer)["error"]) == (400, "window_open")


async def test_rows_that_allow_no_settlement_are_422_with_every_problem(
    fake: FakeProcessor, service: httpx.AsyncClient
) -> None:
    fake.state.update_transaction("acct_123", "txn_04", currency="xqq")
    answer = await service.post("/settlements/run", json=RUN)
    body = problem(answer)
    assert (answer.status_code, body["error"], body["problem_count"]) == (422, "run_refused", 1)
    assert body["problems"] == [
        {"kind": "row", "subject": "txn_04", "detail": "currency XQQ has no exponent in ISO 4217"}
    ]


async def test_wrong_type_in_a_row_is_502_naming_page_row_and_field(
    fake: FakeProcessor, service: httpx.AsyncClient
) -> None:
    fake.state.update_transaction("acct_123", "txn_06", amount=True)
    answer = await service.post("/settlements/run", json=RUN)
    body = problem(answer)
    assert (answer.status_code, body["error"]) == (502, "protocol_error")
    assert "page 2 row 2 (txn_06) field amount" in str(body["detail"])


async def test_conflict_at_the_processor_is_409(fake: FakeProcessor, service: httpx.AsyncClient) -> None:
    await service.post("/settlements/run", json=RUN)
    answer = await service.post("/settlements/run", json=RUN | {"settlement_currency": "eur"})
    assert (answer.status_code, problem(answer)["error"]) == (409, "settlement_conflict")


async def test_unknown_account_is_502_processor_rejected(service: httpx.AsyncClient) -> None:
    answer = await service.post("/settlements/run", json=RUN | {"account": "acct_none"})
    body = problem(answer)
    assert (answer.status_code, body["error"], body["processor_status"]) == (502, "processor_rejected", 404)
    assert body["request_id"]


async def test_processor_that_cannot_be_reached_is_503_with_retry_after(tmp_path: Path) -> None:
    async with FakeProcessor() as gone:
        url = gone.url
    settings = Settings(processor_url=url, attempts_max=1, database=str(tmp_path / "paykit.db"))
    async with serving(settings) as service:
        answer = await service.post("/settlements/run", json=RUN)
        assert (answer.status_code, problem(answer)["error"]) == (503, "processor_unavailable")
        assert int(answer.headers["Retry-After"]) > 0


async def test_unforeseen_error_is_a_bare_500(
    service: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def explode(*_: object, **__: object) -> None:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr("paykit_settle.run_routes.posted_json", explode)
    answer = await service.post("/settlements/run", json=RUN)
    assert (answer.status_code, problem(answer)["error"]) == (500, "internal_error")
    assert "secret detail" not in answer.text
    assert "ZeroDivisionError" in caplog.text
