"""The fake's rate tables, asked over a real socket.

A settlement takes the rates of its own day. If the fake gave some other day's table, or turned a
rate round, a client that asks for the wrong one would still look right.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from fake_processor import FakeProcessor
from tests.contract.plain import plain_client

ACCESS = {"Authorization": "Bearer sk_test_contract"}
DAYS = [f"2026-01-{day}" for day in range(10, 21)]


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with FakeProcessor() as fake, plain_client(fake.url, headers=ACCESS) as client:
        yield client


async def test_table_of_the_reference_day_is_given_as_published(client: httpx.AsyncClient) -> None:
    table = (await client.get("/v1/fx/rates?base=usd&date=2026-01-15")).json()
    assert (table["object"], table["base"], table["as_of"]) == ("fx_rates", "usd", "2026-01-15T16:00:00Z")
    assert {code: table["rates"][code] for code in ("eur", "gbp", "jpy")} == {
        "eur": "0.92",
        "gbp": "0.79",
        "jpy": "150",
    }
    assert table["source"]
    assert all(type(rate) is str for rate in table["rates"].values())


async def test_every_fixture_day_has_its_own_table(client: httpx.AsyncClient) -> None:
    answers = [await client.get("/v1/fx/rates", params={"base": "usd", "date": day}) for day in DAYS]
    assert [answer.json()["as_of"][:10] for answer in answers] == DAYS
    assert len({answer.json()["rates"]["eur"] for answer in answers}) == len(DAYS)


async def test_without_a_date_the_newest_table_is_given(client: httpx.AsyncClient) -> None:
    assert (await client.get("/v1/fx/rates?base=usd")).json()["as_of"] == "2026-01-20T16:00:00Z"


async def test_base_has_a_second_name_for_clients_that_swallow_the_first(client: httpx.AsyncClient) -> None:
    first = await client.get("/v1/fx/rates?base=usd&date=2026-01-13")
    second = await client.get("/v1/fx/rates?base_currency=usd&date=2026-01-13")
    assert second.json() == first.json()


@pytest.mark.parametrize(
    ("query", "status", "code", "param"),
    [
        ("", 400, "parameter_missing", "base"),
        ("?date=2026-01-15", 400, "parameter_missing", "base"),
        ("?base=", 400, "parameter_invalid_empty", "base"),
        ("?base=USD", 400, "parameter_invalid", "base"),
        ("?base=usd&base_currency=usd", 400, "parameters_exclusive", "base"),
        ("?base=eur&date=2026-01-15", 400, "parameter_invalid", "base"),
        ("?base=usd&date=15.01.2026", 400, "parameter_invalid", "date"),
        ("?base=usd&date=2026-13-01", 400, "parameter_invalid", "date"),
        ("?base=usd&date=1768435200", 400, "parameter_invalid", "date"),
        ("?base=usd&day=2026-01-15", 400, "parameter_unknown", "day"),
        ("?base=usd&date=2026-01-09", 404, "resource_missing", "date"),
        ("?base=usd&date=2026-01-21", 404, "resource_missing", "date"),
    ],
)
async def test_rates_that_cannot_be_given_are_refused_by_name(
    client: httpx.AsyncClient, query: str, status: int, code: str, param: str
) -> None:
    answer = await client.get(f"/v1/fx/rates{query}")
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (status, code, param)


async def test_table_set_by_a_test_is_served_as_it_is() -> None:
    table = {"base": "usd", "rates": {"eur": 0, "gbp": "-1", "jpy": None}}
    async with FakeProcessor() as fake, plain_client(fake.url, headers=ACCESS) as client:
        fake.state.set_rates("2026-01-15", table)
        assert (await client.get("/v1/fx/rates?base=usd&date=2026-01-15")).json() == table
        fake.state.remove_rates("2026-01-15")
        assert (await client.get("/v1/fx/rates?base=usd&date=2026-01-15")).status_code == 404
