"""Each fault of a page, of the data or of a rate does to a plain client what its one line says.

These are good JSON that says something wrong: only a client that looks notices. A fault that did something else than it
says would leave the very check untested that it was set for.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from fake_processor import FAULTS, FakeProcessor
from fake_processor.fault_catalogue import LIST, RATES
from tests.contract.plain import plain_client

URL = "/v1/balance_transactions"
FX = "/v1/fx/rates?base=usd&date=2026-01-15"
SETTLEMENTS = "/v1/settlements"
ACCESS = {"Authorization": "Bearer sk_test_contract"}
DAY = {"created": "2026-01-15"}
BODY = {"account": "acct_123", "date": "2026-01-12", "settlement_currency": "usd", "lines": [], "total_net": 0}


@pytest.fixture
async def fake() -> AsyncIterator[FakeProcessor]:
    async with FakeProcessor() as fake:
        yield fake


@pytest.fixture
async def client(fake: FakeProcessor) -> AsyncIterator[httpx.AsyncClient]:
    async with plain_client(fake.url, headers=ACCESS) as client:
        yield client


async def page(client: httpx.AsyncClient, **params: str | int) -> dict[str, Any]:
    answer = await client.get(URL, params={**DAY, "limit": 4, **params})
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


async def ids(client: httpx.AsyncClient, **params: str | int) -> list[str]:
    return [row["id"] for row in (await page(client, **params))["data"]]


async def post(client: httpx.AsyncClient) -> httpx.Response:
    return await client.post(SETTLEMENTS, json=BODY, headers={"Idempotency-Key": "key-1"})


async def test_paging_faults_send_what_they_say(fake: FakeProcessor, client: httpx.AsyncClient) -> None:
    fake.fault("duplicated_page", nth=2)
    assert await ids(client, starting_after="txn_04") == ["txn_05", "txn_06", "txn_07", "txn_08"]
    assert await ids(client, starting_after="txn_08") == ["txn_05", "txn_06", "txn_07", "txn_08"]
    fake.heal()
    fake.fault("overlapping_page")
    assert await ids(client, starting_after="txn_04") == ["txn_04", "txn_05", "txn_06", "txn_07"]
    assert await ids(client) == ["txn_01", "txn_02", "txn_03", "txn_04"]
    fake.heal()
    fake.fault("repeated_cursor")
    body = await page(client, starting_after="txn_04")
    assert [row["id"] for row in body["data"]] == ["txn_05", "txn_06", "txn_07", "txn_04"]
    assert body["has_more"] is True


async def test_envelope_faults_send_what_they_say(fake: FakeProcessor, client: httpx.AsyncClient) -> None:
    fake.fault("no_rows_but_more", nth=1)
    fake.fault("missing_has_more", nth=2)
    fake.fault("false_has_more", nth=3)
    first, second, third = [await page(client) for _ in range(3)]
    assert (first["data"], first["has_more"]) == ([], True)
    assert (len(second["data"]), "has_more" in second) == (4, False)
    assert (len(third["data"]), third["has_more"]) == (4, False)


async def test_rows_are_inserted_while_others_are_read(fake: FakeProcessor, client: httpx.AsyncClient) -> None:
    first = await ids(client)
    fake.fault("rows_inserted", count=1, rows=2, created_s=1768521599)
    assert await ids(client, starting_after=first[-1]) == ["txn_05", "txn_06", "txn_07", "txn_08"]
    assert await ids(client) == ["txn_01", "txn_inserted_000001", "txn_inserted_000002", "txn_02"]
    fake.clock.freeze(1768600000)
    fake.fault("rows_inserted", count=1)
    await ids(client)
    assert fake.state.transaction("acct_123", "txn_inserted_000003")["created"] == 1768600000


async def test_late_rows_are_hidden_and_then_there(fake: FakeProcessor, client: httpx.AsyncClient) -> None:
    fake.fault("late_rows", count=1, rows=2)
    assert await ids(client) == ["txn_03", "txn_04"]
    assert await ids(client) == ["txn_01", "txn_02", "txn_03", "txn_04"]


async def test_pending_rows_turn_available_between_pages(fake: FakeProcessor, client: httpx.AsyncClient) -> None:
    fake.fault("pending_turns_available", nth=2)
    before = {row["id"]: row["status"] for row in (await page(client, limit=100))["data"]}
    after = {row["id"]: row["status"] for row in (await page(client, limit=100))["data"]}
    assert {name for name, status in before.items() if status == "pending"} == {"txn_05", "txn_12"}
    assert set(after.values()) == {"available"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("row_float", b'"amount": 20000.0,'),
        ("row_exponent", b'"amount": 1e2,'),
        ("row_bool", b'"amount": true,'),
        ("row_string", b'"amount": "20000",'),
        ("row_null", b'"amount": null,'),
        ("row_beyond_64_bits", b'"amount": 9223372036854775808,'),
        ("row_missing", b'"type": "charge", "currency"'),
    ],
)
async def test_one_row_has_a_member_of_a_wrong_type(
    fake: FakeProcessor, client: httpx.AsyncClient, name: str, text: bytes
) -> None:
    good = await client.get(URL, params={**DAY, "limit": 1})
    fake.fault(name)
    bad = await client.get(URL, params={**DAY, "limit": 1})
    assert text in bad.content
    assert text not in good.content


async def test_wrong_type_may_be_in_any_field(fake: FakeProcessor, client: httpx.AsyncClient) -> None:
    fake.fault("row_string", field="fee")
    assert (await page(client, limit=1))["data"][0]["fee"] == "610"


async def test_rows_contradict_themselves_or_each_other(fake: FakeProcessor, client: httpx.AsyncClient) -> None:
    fake.fault("row_contradicts_itself", nth=1)
    wrong = [row["id"] for row in (await page(client))["data"] if row["net"] != row["amount"] - row["fee"]]
    assert len(wrong) == 1
    fake.heal()
    fake.fault("row_changes")
    body = await page(client)
    amounts: dict[str, set[int]] = {}
    for row in body["data"]:
        amounts.setdefault(row["id"], set()).add(row["amount"])
    assert sorted(len(found) for found in amounts.values()) == [1, 1, 1, 2]
    assert body["data"][-1]["id"] == "txn_04"


@pytest.mark.parametrize(
    ("name", "rate"), [("rate_missing", None), ("rate_zero", "0"), ("rate_negative", "-0.92"), ("rate_nan", "NaN")]
)
async def test_rate_is_published_wrongly(
    fake: FakeProcessor, client: httpx.AsyncClient, name: str, rate: str | None
) -> None:
    fake.fault(name, nth=1, currency="eur")
    rates = (await client.get(FX)).json()["rates"]
    assert (rates.get("eur"), rates["gbp"]) == (rate, "0.79")
    fake.fault(name, nth=1)
    rates = (await client.get(FX)).json()["rates"]
    assert rates.get("gbp") != "0.79"
    assert (await client.get(FX)).json()["rates"]["gbp"] == "0.79"


async def test_rate_table_is_dated_back(fake: FakeProcessor, client: httpx.AsyncClient) -> None:
    fake.fault("rate_stale", days=10)
    assert (await client.get(FX)).json()["as_of"] == "2026-01-05T16:00:00Z"


async def test_faults_keep_to_their_routes(fake: FakeProcessor, client: httpx.AsyncClient) -> None:
    for name, kind in FAULTS.items():
        if kind.route in (LIST, RATES):
            fake.fault(name)
    assert (await post(client)).status_code == 200
    assert (await client.get("/v1/balance")).status_code == 200


async def test_answers_without_rows_are_left_alone(fake: FakeProcessor, client: httpx.AsyncClient) -> None:
    for name in FAULTS:
        if name.startswith("row_"):
            fake.fault(name)
    assert await ids(client, created="2026-01-01") == []


async def test_faults_that_hit_are_in_the_record(fake: FakeProcessor, client: httpx.AsyncClient) -> None:
    fake.fault("bom", nth=2)
    fake.fault("wrong_content_type")
    await client.get(URL)
    await client.get(URL)
    assert [record.faults for record in fake.requests] == [("wrong_content_type",), ("bom", "wrong_content_type")]


async def test_faults_of_pages_and_data_leave_refusals_alone(fake: FakeProcessor, client: httpx.AsyncClient) -> None:
    for name in ("rows_inserted", "pending_turns_available", "late_rows", "duplicated_page", "row_float"):
        fake.fault(name)
    for params in ({"account": "acct_none"}, {"limit": "0"}, {"starting_after": "txn_none"}):
        assert (await client.get(URL, params=params)).status_code in (400, 404)


async def test_duplicated_page_of_one_row_is_that_row(fake: FakeProcessor, client: httpx.AsyncClient) -> None:
    fake.fault("duplicated_page")
    assert await ids(client, limit=1, starting_after="txn_04") == ["txn_04"]


async def test_table_without_rates_is_left_alone(fake: FakeProcessor, client: httpx.AsyncClient) -> None:
    fake.state.set_rates("2026-01-15", {"base": "usd", "rates": None})
    fake.fault("rate_zero")
    assert (await client.get(FX)).json()["rates"] is None
