"""Posting settlements to the fake, over a real socket.

The promise of one settlement per day is proved against this endpoint: it must replay by key, keep
nothing of what it refuses, and take a second key as a second settlement. If it forgave wrong sums,
a wrong roll-up would be accepted and no test would see it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from fake_processor import FakeProcessor
from tests.contract.plain import plain_client

URL = "/v1/settlements"
ACCESS = {"Authorization": "Bearer sk_test_contract"}
INT64_MAX = 2**63 - 1


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with FakeProcessor() as fake, plain_client(fake.url, headers=ACCESS) as client:
        yield client


def line(currency: str, amounts: str) -> dict[str, Any]:
    names = ("charged", "refunded", "fees", "net", "net_settlement")
    return {"currency": currency, **dict(zip(names, map(int, amounts.split()), strict=True))}


def settlement(**members: Any) -> dict[str, Any]:
    """The reference day's settlement, or with other members."""
    return {
        "account": "acct_123",
        "date": "2026-01-15",
        "settlement_currency": "usd",
        "lines": [
            line("eur", "14000 0 465 13535 14712"),
            line("gbp", "8000 0 280 7720 9772"),
            line("jpy", "150000 0 0 150000 100000"),
            line("usd", "25000 -3500 785 20715 20715"),
        ],
        "total_net": 145199,
        **members,
    }


async def post(
    client: httpx.AsyncClient, body: object, *, key: str | None = "key-1", content_type: str = "application/json"
) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Content-Type": content_type} | ({} if key is None else {"Idempotency-Key": key})
    return await client.post(URL, content=content, headers=headers)


async def received(client: httpx.AsyncClient, **params: str) -> list[dict[str, Any]]:
    answer = await client.get(URL, params=params)
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert (body["object"], body["url"], body["has_more"]) == ("list", URL, False)
    rows: list[dict[str, Any]] = body["data"]
    return rows


async def test_settlement_is_created_and_can_be_looked_up(client: httpx.AsyncClient) -> None:
    content = json.dumps(settlement(), indent=1).encode()
    answer = await post(client, content)
    assert answer.status_code == 200
    assert answer.json() == {
        "id": "setl_0001",
        "object": "settlement",
        "status": "created",
        "account": "acct_123",
        "date": "2026-01-15",
        "settlement_currency": "usd",
        "total_net": 145199,
    }
    assert answer.headers["Idempotency-Key"] == "key-1"
    assert "Idempotent-Replayed" not in answer.headers
    kept = {
        **answer.json(),
        "lines": settlement()["lines"],
        "idempotency_key": "key-1",
        "body_sha256": hashlib.sha256(content).hexdigest(),
    }
    assert await received(client, account="acct_123", date="2026-01-15") == [kept]
    assert (await client.get(f"{URL}/setl_0001")).json() == kept


async def test_day_without_rows_settles_to_nothing(client: httpx.AsyncClient) -> None:
    answer = await post(client, settlement(lines=[], total_net=0))
    assert (answer.status_code, answer.json()["total_net"]) == (200, 0)


async def test_same_key_and_value_replay_the_first_answer(client: httpx.AsyncClient) -> None:
    first = await post(client, settlement())
    same_value = dict(reversed(settlement().items()))
    again = await post(client, json.dumps(same_value, indent=2).encode())
    assert (again.status_code, again.content) == (200, first.content)
    assert again.headers["Idempotent-Replayed"] == "true"
    assert len(await received(client)) == 1


async def test_quoted_and_bare_key_are_the_same_key(client: httpx.AsyncClient) -> None:
    await post(client, settlement(), key='"key-1"')
    again = await post(client, settlement(), key="key-1")
    assert again.headers["Idempotent-Replayed"] == "true"
    assert [row["idempotency_key"] for row in await received(client)] == ["key-1"]


async def test_same_key_with_another_body_is_an_idempotency_error(client: httpx.AsyncClient) -> None:
    await post(client, settlement())
    answer = await post(client, settlement(lines=[], total_net=0))
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "idempotency_error")
    assert len(await received(client)) == 1


async def test_second_key_for_a_settled_day_is_a_second_settlement(client: httpx.AsyncClient) -> None:
    await post(client, settlement())
    answer = await post(client, settlement(), key="key-2")
    assert answer.json()["id"] == "setl_0002"
    assert [row["id"] for row in await received(client, date="2026-01-15")] == ["setl_0001", "setl_0002"]


async def test_refused_settlement_leaves_its_key_free(client: httpx.AsyncClient) -> None:
    assert (await post(client, settlement(total_net=1))).status_code == 400
    assert (await post(client, settlement(account="acct_none"))).status_code == 404
    assert await received(client) == []
    answer = await post(client, settlement())
    assert (answer.status_code, answer.json()["id"]) == (200, "setl_0001")
    assert "Idempotent-Replayed" not in answer.headers


@pytest.mark.parametrize("key", [None, "", '""', "k" * 256, '"' + "k" * 256 + '"'])
async def test_key_is_required_and_bounded(client: httpx.AsyncClient, key: str | None) -> None:
    answer = await post(client, settlement(), key=key)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "Idempotency-Key")


@pytest.mark.parametrize("key", ["k" * 255, '"' + "k" * 255 + '"'])
async def test_key_of_255_characters_is_taken(client: httpx.AsyncClient, key: str) -> None:
    assert (await post(client, settlement(), key=key)).status_code == 200


@pytest.mark.parametrize("content_type", ["application/json; charset=utf-8", "Application/JSON"])
async def test_content_type_may_have_parameters_and_any_case(client: httpx.AsyncClient, content_type: str) -> None:
    assert (await post(client, settlement(), content_type=content_type)).status_code == 200


@pytest.mark.parametrize("content_type", ["text/plain", "multipart/form-data", "application/jsonl", ""])
async def test_other_content_type_is_refused(client: httpx.AsyncClient, content_type: str) -> None:
    answer = await post(client, settlement(), content_type=content_type)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "Content-Type")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"account=acct_123",
        b"{} {}",
        b"\xff\xfe",
        b"\xef\xbb\xbf{}",
        json.dumps({"account": "acct_123"}).encode("utf-16"),
        b"[" * 100_000,
        b"[" * 700 + b"]" * 700,
        b"null",
        b"[]",
    ],
    ids=lambda content: repr(content[:12]),
)
async def test_body_that_is_no_json_object_is_refused(client: httpx.AsyncClient, content: bytes) -> None:
    answer = await post(client, content)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "body")


def without(member: str) -> dict[str, Any]:
    return {name: value for name, value in settlement().items() if name != member}


def one_line(**members: Any) -> dict[str, Any]:
    """A usd settlement of one eur line with a member replaced; `...` takes the member away."""
    changed = {**line("eur", "14000 -1000 465 12535 13625"), **members}
    kept = {name: value for name, value in changed.items() if value is not ...}
    return settlement(lines=[kept], total_net=13625)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        *((without(member), member) for member in settlement()),
        (settlement(memo="x"), "memo"),
        (settlement(account=1), "account"),
        (settlement(account=""), "account"),
        (settlement(date="2026-1-15"), "date"),
        (settlement(date="2026-02-30"), "date"),
        (settlement(date=20260115), "date"),
        (settlement(settlement_currency="USD"), "settlement_currency"),
        (settlement(settlement_currency=None), "settlement_currency"),
        (settlement(lines={}), "lines"),
        (settlement(lines=[1]), "lines[0]"),
        (settlement(lines=[line("eur", "1 0 0 1 1"), line("eur", "1 0 0 1 1")], total_net=2), "lines[1].currency"),
        (settlement(total_net=145198), "total_net"),
        (settlement(total_net="145199"), "total_net"),
        (settlement(total_net=145199.0), "total_net"),
        (settlement(lines=[], total_net=False), "total_net"),
        (settlement(lines=[line("usd", "10 0 0 10 11")], total_net=11), "lines[0].net_settlement"),
        *((one_line(**{member: ...}), f"lines[0].{member}") for member in line("eur", "0 0 0 0 0")),
        (one_line(period="2026-01-15"), "lines[0].period"),
        (one_line(period="2026-01-16"), "lines[0].period"),
        (one_line(period="14.01.2026"), "lines[0].period"),
        (one_line(period=None), "lines[0].period"),
        (one_line(periods="2026-01-14"), "lines[0].periods"),
        (one_line(currency="EUR"), "lines[0].currency"),
        (one_line(charged=True), "lines[0].charged"),
        (one_line(charged="14000"), "lines[0].charged"),
        (one_line(charged=None), "lines[0].charged"),
        (one_line(charged=-14000, net=-15465), "lines[0].charged"),
        (one_line(refunded=1000, net=14535), "lines[0].refunded"),
        (one_line(refunded=-1000.0), "lines[0].refunded"),
        (one_line(fees=464), "lines[0].net"),
        (one_line(net=12536), "lines[0].net"),
        (one_line(net=float("nan")), "lines[0].net"),
        (one_line(net=float("inf")), "lines[0].net"),
        (one_line(net_settlement=1e2), "lines[0].net_settlement"),
        (one_line(charged=INT64_MAX + 1), "lines[0].charged"),
        (one_line(refunded=-INT64_MAX - 1), "lines[0].refunded"),
        (one_line(fees=10**4000), "lines[0].fees"),
    ],
)
async def test_settlement_that_is_wrong_is_refused_by_the_member(
    client: httpx.AsyncClient, body: dict[str, Any], param: str
) -> None:
    answer = await post(client, body)
    error = answer.json()["error"]
    assert (answer.status_code, error["type"], error["param"]) == (400, "invalid_request_error", param)
    assert await received(client) == []


@pytest.mark.parametrize(
    ("old", "new", "param"),
    [
        ('"total_net"', '"total_net": 145199, "total_net"', "total_net"),
        ('"fees": 465', '"fees": 465, "fees": 465', "lines[0].fees"),
        ('"fees": 465', '"fees": 465.0', "lines[0].fees"),
        ('"fees": 465', '"fees": -Infinity', "lines[0].fees"),
    ],
)
async def test_number_or_member_written_wrongly_is_refused_by_the_member(
    client: httpx.AsyncClient, old: str, new: str, param: str
) -> None:
    answer = await post(client, json.dumps(settlement()).replace(old, new, 1).encode())
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


async def test_amounts_reach_to_64_bits_and_fees_keep_their_sign(client: httpx.AsyncClient) -> None:
    lines = [
        line("eur", f"{INT64_MAX} 0 0 {INT64_MAX} {INT64_MAX}"),
        line("gbp", f"0 -{INT64_MAX} 0 -{INT64_MAX} -{INT64_MAX}"),
        line("usd", "0 0 -1500 1500 1500"),
    ]
    answer = await post(client, settlement(lines=lines, total_net=1500))
    assert (answer.status_code, answer.json()["total_net"]) == (200, 1500)


async def test_lines_of_one_currency_may_be_of_different_days(client: httpx.AsyncClient) -> None:
    lines = [
        line("usd", "10 0 0 10 10"),
        {**line("usd", "20 0 0 20 20"), "period": "2026-01-14"},
        {**line("usd", "0 -5 0 -5 -5"), "period": "2026-01-12"},
    ]
    assert (await post(client, settlement(lines=lines, total_net=25))).status_code == 200
    assert (await received(client))[0]["lines"] == lines
    twice = [*lines, {**line("usd", "1 0 0 1 1"), "period": "2026-01-12"}]
    answer = await post(client, settlement(lines=twice, total_net=26), key="key-2")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "lines[3].currency")
    own_day = [*lines, line("usd", "1 0 0 1 1")]
    assert (await post(client, settlement(lines=own_day, total_net=26), key="key-2")).status_code == 400
