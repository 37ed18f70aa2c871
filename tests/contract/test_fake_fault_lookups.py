"""Each fault of a look-up, of one row by its id or of settlements by their day, does to a plain client what it says.

A client looks up to learn what became of a post or of a row. It may be shown to wait, to check what it is given and to
do without only if the fake is late, wrong or deaf in exactly these ways.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator

import httpx
import pytest

from fake_processor import FakeProcessor, ProcessorState
from tests.contract.plain import plain_client

ROWS = "/v1/balance_transactions"
URL = "/v1/settlements"
ACCESS = {"Authorization": "Bearer sk_test_contract"}
BODY = {"account": "acct_123", "date": "2026-01-15", "settlement_currency": "usd", "lines": [], "total_net": 0}
DAY = {"account": "acct_123", "date": "2026-01-15"}


@pytest.fixture
async def fake() -> AsyncIterator[FakeProcessor]:
    async with FakeProcessor() as fake:
        yield fake


@pytest.fixture
async def client(fake: FakeProcessor) -> AsyncIterator[httpx.AsyncClient]:
    async with plain_client(fake.url, headers=ACCESS) as client:
        yield client


async def post(client: httpx.AsyncClient, key: str, **members: str) -> str:
    answer = await client.post(URL, json={**BODY, **members}, headers={"Idempotency-Key": key})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["id"])


async def look_up(client: httpx.AsyncClient, **params: str | int) -> tuple[list[str], bool]:
    answer = await client.get(URL, params=params)
    assert answer.status_code == 200, answer.text
    return [row["id"] for row in answer.json()["data"]], answer.json()["has_more"]


async def error_of(client: httpx.AsyncClient, path: str) -> tuple[int, str]:
    answer = await client.get(path)
    return answer.status_code, answer.json()["error"]["code"]


async def test_settlement_shows_up_late_by_the_clock(fake: FakeProcessor, client: httpx.AsyncClient) -> None:
    fake.clock.freeze()
    fake.fault("lookup_lags", lag_s=5)
    await post(client, "key-1")
    assert await look_up(client, **DAY) == ([], False)
    assert (await client.get(f"{URL}/setl_0001")).status_code == 200
    fake.clock.advance(4)
    await post(client, "key-2")
    assert await look_up(client, **DAY) == ([], False)
    fake.clock.advance(1)
    assert await look_up(client, **DAY) == (["setl_0001"], False)
    fake.clock.advance(4)
    assert await look_up(client, **DAY) == (["setl_0001", "setl_0002"], False)
    fake.heal()
    fake.state.add_settlement("acct_123", "2026-01-15")
    assert (await look_up(client, **DAY))[0] == ["setl_0001", "setl_0002", "setl_0003"]
    fake.fault("lookup_lags", count=1)
    assert (await look_up(client, **DAY))[0] == []
    assert len((await look_up(client, **DAY))[0]) == 3


@pytest.mark.parametrize(
    ("ignore", "expected"),
    [
        ("date", ["setl_0001", "setl_0002"]),
        ("account", ["setl_0001", "setl_0003"]),
        ("both", ["setl_0001", "setl_0002", "setl_0003"]),
    ],
)
async def test_look_up_ignores_what_it_is_asked_by(
    fake: FakeProcessor, client: httpx.AsyncClient, ignore: str, expected: list[str]
) -> None:
    await post(client, "key-1")
    await post(client, "key-2", date="2026-01-14")
    await post(client, "key-3", account="acct_456")
    assert await look_up(client, **DAY) == (["setl_0001"], False)
    fake.fault("lookup_unfiltered", ignore=ignore)
    assert await look_up(client, **DAY) == (expected, False)


async def test_look_up_pages_when_it_is_asked_to(fake: FakeProcessor, client: httpx.AsyncClient) -> None:
    made = [await post(client, f"key-{number}") for number in range(12)]
    await post(client, "key-other", date="2026-01-14")
    assert await look_up(client, **DAY) == (made, False)
    assert await look_up(client, **DAY, limit=5) == (made[:5], True)
    assert await look_up(client, **DAY, limit=7, starting_after=made[4]) == (made[5:], False)
    assert await look_up(client, **DAY, limit=6, starting_after=made[4]) == (made[5:11], True)
    assert await look_up(client, **DAY, starting_after=made[-1]) == ([], False)


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "limit=x", "starting_after=setl_9999", "starting_after="])
async def test_page_of_a_look_up_that_cannot_be_is_refused(client: httpx.AsyncClient, query: str) -> None:
    answer = await client.get(f"{URL}?{query}")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, query.partition("=")[0])


async def test_look_up_is_paged_asked_for_or_not(fake: FakeProcessor, client: httpx.AsyncClient) -> None:
    made = [await post(client, f"key-{number}") for number in range(3)]
    fake.fault("lookup_paged")
    found: list[str] = []
    has_more = True
    while has_more:
        cursor = {"starting_after": found[-1]} if found else {}
        ids, has_more = await look_up(client, **DAY, **cursor)
        assert len(ids) == 1
        found += ids
    assert found == made
    fake.heal()
    fake.fault("lookup_paged", rows=2)
    assert await look_up(client, **DAY) == (made[:2], True)
    assert await look_up(client, **DAY, limit=1) == (made[:1], True)


@pytest.mark.parametrize(
    ("status", "code"), [(404, "url_unknown"), (405, "method_not_allowed"), (410, "gone"), (501, "not_implemented")]
)
async def test_processor_may_list_no_settlements(
    fake: FakeProcessor, client: httpx.AsyncClient, status: int, code: str
) -> None:
    fake.fault("lookup_missing", status=status)
    assert await error_of(client, URL) == (status, code)
    made = await post(client, "key-1")
    assert (await client.get(f"{URL}/{made}")).status_code == 200


@pytest.mark.parametrize(
    ("status", "code"), [(404, "url_unknown"), (405, "method_not_allowed"), (501, "not_implemented")]
)
async def test_processor_may_show_no_single_row(
    fake: FakeProcessor, client: httpx.AsyncClient, status: int, code: str
) -> None:
    fake.fault("no_such_route", status=status)
    assert await error_of(client, f"{ROWS}/txn_01") == (status, code)
    assert (await client.get(ROWS)).status_code == 200


@pytest.mark.parametrize(("name", "default"), [("no_such_route", 404), ("lookup_missing", 404)])
async def test_absent_route_has_few_answers(fake: FakeProcessor, name: str, default: int) -> None:
    assert fake.fault(name).options == {"status": default}
    with pytest.raises(ValueError, match=f"option status of {name} must be one of 404, 405"):
        fake.fault(name, status=500)


async def test_id_is_answered_with_the_row_beside_it(fake: FakeProcessor, client: httpx.AsyncClient) -> None:
    good = {row_id: (await client.get(f"{ROWS}/{row_id}")).json() for row_id in ("txn_04", "txn_05")}
    fake.fault("other_row")
    assert (await client.get(f"{ROWS}/txn_04")).json() == good["txn_05"]
    assert (await client.get(f"{ROWS}/txn_1305")).json()["id"] != "txn_1305"  # the oldest
    assert await error_of(client, f"{ROWS}/txn_none") == (404, "resource_missing")
    fake.heal()
    fake.fault("other_row", keep_id=1)
    assert (await client.get(f"{ROWS}/txn_04")).json() == {**good["txn_05"], "id": "txn_04"}


async def test_only_row_is_answered_with_itself() -> None:
    row = {"id": "txn_1", "created": 5}
    state = ProcessorState(accounts={"acct_123": [row]})
    async with FakeProcessor(state) as fake, plain_client(fake.url, headers=ACCESS) as client:
        fake.fault("other_row")
        assert (await client.get(f"{ROWS}/txn_1")).json() == row


async def test_single_row_is_asked_for_by_its_account(client: httpx.AsyncClient) -> None:
    assert (await client.get(f"{ROWS}/txn_456_1501", params={"account": "acct_456"})).status_code == 200
    header = {"Stripe-Account": "acct_456"}
    assert (await client.get(f"{ROWS}/txn_456_1501", headers=header)).json()["id"] == "txn_456_1501"
    assert await error_of(client, f"{ROWS}/txn_456_1501?account=acct_123") == (404, "resource_missing")
    assert await error_of(client, f"{ROWS}/txn_456_1501?account=acct_none") == (404, "resource_missing")


async def test_rows_say_when_they_become_available_in_whole_seconds(
    fake: FakeProcessor, client: httpx.AsyncClient
) -> None:
    fake.state.add_transactions("acct_123", [{"id": "txn_late", "created": 5, "available_on": 172_805}])
    rows = (await client.get(ROWS, params={"limit": 100})).json()["data"]
    assert all(type(row["available_on"]) is int and row["available_on"] >= row["created"] for row in rows)
    assert (await client.get(f"{ROWS}/txn_late")).json()["available_on"] == 172_805
    fake.fault("row_string", field="available_on")
    assert [row["available_on"] for row in (await client.get(ROWS, params={"created": 5})).json()["data"]] == ["172805"]


async def test_foreign_settlement_is_looked_up_like_one_that_was_posted(
    fake: FakeProcessor, client: httpx.AsyncClient
) -> None:
    made = fake.state.add_settlement("acct_123", "2026-01-15", total_net=7)
    (found,) = (await client.get(URL, params=DAY)).json()["data"]
    body = {**BODY, "total_net": 7}
    assert found == {
        "id": made,
        "object": "settlement",
        "status": "created",
        **body,
        "idempotency_key": f"foreign-{made}",
        "body_sha256": hashlib.sha256(json.dumps(body).encode()).hexdigest(),
    }
    assert (await client.get(f"{URL}/{made}")).json() == found
    fake.state.add_settlement("acct_123", "2026-01-15", id="setl_x", status="reversed", total_net="7", body_sha256=None)
    shown = (await client.get(f"{URL}/setl_x")).json()
    assert (shown["status"], shown["total_net"], shown["body_sha256"]) == ("reversed", "7", None)
    with pytest.raises(ValueError, match="there is a settlement setl_x already"):
        fake.state.add_settlement("acct_123", "2026-01-15", id="setl_x")


async def test_forgotten_settlement_is_nowhere_and_its_id_does_not_come_again(
    fake: FakeProcessor, client: httpx.AsyncClient
) -> None:
    first = await post(client, "key-1")
    fake.state.remove_settlement(first)
    assert await look_up(client, **DAY) == ([], False)
    assert await error_of(client, f"{URL}/{first}") == (404, "resource_missing")
    assert await post(client, "key-1") == first
    assert await look_up(client) == ([], False)
    second = await post(client, "key-2")
    assert second != first
    fake.state.remove_settlement(second, forget_key=True)
    third = await post(client, "key-2")
    assert await look_up(client) == ([third], False)
    with pytest.raises(KeyError):
        fake.state.remove_settlement(first)


async def test_odd_look_ups_act_together(fake: FakeProcessor, client: httpx.AsyncClient) -> None:
    fake.clock.freeze()
    for number in range(4):
        await post(client, f"key-{number}", date=f"2026-01-1{number}")
        fake.clock.advance(10)
    fake.fault("lookup_lags", lag_s=15)
    fake.fault("lookup_lags", lag_s=25)
    fake.fault("lookup_unfiltered")
    fake.fault("lookup_paged", rows=1)
    assert await look_up(client, **DAY) == (["setl_0001"], True)
    assert await look_up(client, **DAY, starting_after="setl_0001") == (["setl_0002"], False)
