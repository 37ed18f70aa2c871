"""Accounts and transfers over real sockets: money moves once, never below a floor, and only between what exists.

Without these, two callers could spend the same money, or a transfer to a mistyped account could lose it.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import httpx
import pytest

from paykit_settle.config import Settings
from paykit_settle.money import AMOUNT_MAX
from tests.ledger_files import assert_sound
from tests.ledger_service import balance, credit, serving

ACCOUNTS = "/v1/tenants/t/accounts"
TRANSFERS = "/v1/tenants/t/transfers"


@pytest.fixture
async def http(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with serving(Settings(database=str(tmp_path / "ledger.db"))) as connected:
        yield connected
    assert_sound(tmp_path / "ledger.db")


async def account(http: httpx.AsyncClient, name: str, **terms: object) -> httpx.Response:
    return await http.post(ACCOUNTS, json={"name": name, "currency": "USD", **terms})


async def transfer(
    http: httpx.AsyncClient, id_: str, amount: int, *, source: str = "a", target: str = "b", currency: str = "USD"
) -> httpx.Response:
    body = {"id": id_, "source": source, "target": target, "amount_minor": amount, "currency": currency}
    return await http.post(TRANSFERS, json=body)


async def stands_at(http: httpx.AsyncClient, name: str) -> int:
    answer = await http.get(f"{ACCOUNTS}/{name}")
    assert answer.status_code == 200, answer.text
    amount: int = answer.json()["balance_minor"]
    return amount


async def fund(http: httpx.AsyncClient, **amounts: int) -> None:
    """Opens accounts with these balances, through credits and transfers as a user would."""
    await credit(http, "t", "funding", sum(amounts.values()))
    for name, amount in amounts.items():
        await account(http, name)
        if amount:
            moved = await transfer(http, f"funding {name}", amount, source="balance", target=name)
            assert moved.status_code == 201, moved.text


async def test_account_opens_at_zero_and_again_is_the_same(http: httpx.AsyncClient) -> None:
    first = await account(http, "savings")
    assert (first.status_code, first.json()) == (
        201,
        {"object": "account", "name": "savings", "currency": "USD", "balance_minor": 0, "floor_minor": 0},
    )
    again = await account(http, "savings", floor_minor=0)
    assert (again.status_code, again.json()) == (200, first.json())


@pytest.mark.parametrize("terms", [{"currency": "EUR"}, {"floor_minor": -1}, {"floor_minor": 5}])
async def test_account_on_other_terms_is_a_conflict(http: httpx.AsyncClient, terms: dict[str, object]) -> None:
    await account(http, "savings")
    answer = await account(http, "savings", **terms)
    assert (answer.status_code, answer.json()["error"]) == (409, "account_conflict")


async def test_account_opened_by_many_at_once_exists_once(http: httpx.AsyncClient) -> None:
    answers = await asyncio.gather(*(account(http, "savings") for _ in range(20)))
    assert sorted(answer.status_code for answer in answers) == [200] * 19 + [201]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"name": "a"},
        {"currency": "USD"},
        {"name": "", "currency": "USD"},
        {"name": "@external", "currency": "USD"},
        {"name": "a", "currency": "usd"},
        {"name": "a", "currency": "XXX"},
        {"name": "a", "currency": "USD", "floor_minor": True},
        {"name": "a", "currency": "USD", "floor_minor": None},
        {"name": "a", "currency": "USD", "floor_minor": AMOUNT_MAX + 1},
        {"name": "a", "currency": "USD", "balance_minor": 5},
        {"name": 5, "currency": "USD"},
        [],
    ],
)
async def test_account_with_wrong_terms_is_refused(http: httpx.AsyncClient, body: object) -> None:
    assert (await http.post(ACCOUNTS, json=body)).status_code == 400
    assert (await http.get(ACCOUNTS)).json()["data"] == []


async def test_missing_account_is_not_zero(http: httpx.AsyncClient) -> None:
    for name in ("missing", "balance", "@external"):
        answer = await http.get(f"{ACCOUNTS}/{name}")
        assert (answer.status_code, answer.json()["error"]) == (404, "account_not_found")


async def test_credits_open_balance_and_counter_accounts_stay_out_of_sight(http: httpx.AsyncClient) -> None:
    await credit(http, "t", "k", 500)
    listed = (await http.get(ACCOUNTS)).json()
    assert [(item["name"], item["balance_minor"]) for item in listed["data"]] == [("balance", 500)]
    assert (await http.get(f"{ACCOUNTS}/balance", params={"currency": "EUR"})).status_code == 404


async def test_accounts_are_listed_by_name_in_pages(http: httpx.AsyncClient) -> None:
    names = [f"a{n:02d}" for n in range(25)]
    for name in reversed(names):
        await account(http, name)
    first = (await http.get(ACCOUNTS)).json()
    assert (first["object"], first["url"], first["has_more"], len(first["data"])) == ("list", ACCOUNTS, True, 10)
    seen: list[str] = []
    has_more = True
    after: dict[str, str] = {}
    while has_more:
        page = (await http.get(ACCOUNTS, params={"limit": "7", **after})).json()
        seen += [item["name"] for item in page["data"]]
        has_more, after = page["has_more"], {"starting_after": seen[-1]}
    assert seen == names


async def test_transfer_moves_money_once(http: httpx.AsyncClient) -> None:
    await fund(http, a=500, b=0)
    first, again = await transfer(http, "x", 200), await transfer(http, "x", 200)
    assert first.status_code == 201
    assert {key: value for key, value in first.json().items() if key != "created"} == {
        "id": "x", "object": "transfer", "source": "a", "target": "b", "amount_minor": 200, "currency": "USD",
    }  # fmt: skip
    assert (again.status_code, again.json()) == (200, first.json())
    assert again.headers["Idempotent-Replayed"] == "true"
    assert (await stands_at(http, "a"), await stands_at(http, "b")) == (300, 200)


@pytest.mark.parametrize("other", [{"amount": 201}, {"source": "b", "target": "a"}, {"target": "c"}])
async def test_same_id_with_other_content_is_a_conflict(http: httpx.AsyncClient, other: dict[str, object]) -> None:
    await fund(http, a=500, b=500, c=0)
    await transfer(http, "x", 200)
    answer = await transfer(http, "x", **{"amount": 200, **other})  # type: ignore[arg-type]
    assert (answer.status_code, answer.json()["error"]) == (409, "idempotency_conflict")
    assert (await stands_at(http, "a"), await stands_at(http, "b"), await stands_at(http, "c")) == (300, 700, 0)


async def test_too_little_is_refused_and_frees_the_id(http: httpx.AsyncClient) -> None:
    await fund(http, a=100, b=0)
    answer = await transfer(http, "x", 101)
    assert (answer.status_code, answer.json()["error"]) == (422, "insufficient_funds")
    assert (await stands_at(http, "a"), await stands_at(http, "b")) == (100, 0)
    assert (await transfer(http, "x", 100)).status_code == 201


@pytest.mark.parametrize(
    "names", [{"target": "missing"}, {"source": "missing"}, {"target": "balance", "currency": "EUR"}]
)
async def test_unknown_account_is_refused_and_nothing_moves(http: httpx.AsyncClient, names: dict[str, str]) -> None:
    await fund(http, a=100, b=0)
    answer = await transfer(http, "x", 5, **names)
    assert (answer.status_code, answer.json()["error"]) == (422, "unknown_account")
    assert await stands_at(http, "a") == 100


async def test_account_of_another_tenant_cannot_be_reached(http: httpx.AsyncClient) -> None:
    await fund(http, a=100)
    await credit(http, "other", "k", 100)
    answer = await http.post(
        "/v1/tenants/other/transfers",
        json={"id": "x", "source": "balance", "target": "a", "amount_minor": 5, "currency": "USD"},
    )
    assert answer.json()["error"] == "unknown_account"
    assert (await http.get("/v1/tenants/other/accounts/a")).status_code == 404


async def test_floor_holds_for_transfers_and_not_for_credits(http: httpx.AsyncClient) -> None:
    await account(http, "credit line", floor_minor=-50)
    await account(http, "b")
    assert (await transfer(http, "1", 50, source="credit line")).status_code == 201
    assert (await transfer(http, "2", 1, source="credit line")).status_code == 422
    assert (await credit(http, "t", "reversal", -700)).status_code == 201
    assert await balance(http, "t") == -700


@pytest.mark.parametrize(
    "change",
    [
        {"amount_minor": 0}, {"amount_minor": -5}, {"amount_minor": True}, {"amount_minor": "5"},
        {"amount_minor": None}, {"amount_minor": AMOUNT_MAX + 1}, {"target": "a"}, {"source": "@external"},
        {"target": "@fx"}, {"id": ""},
        {"id": " "}, {"id": 5}, {"id": "x" * 256}, {"currency": "usd"}, {"currency": "XTS"}, {"more": 1},
        {"source": None}, {"source": "a\n"},
    ],
)  # fmt: skip
async def test_wrong_transfer_is_refused(http: httpx.AsyncClient, change: dict[str, object]) -> None:
    await fund(http, a=100, b=0)
    body = {"id": "x", "source": "a", "target": "b", "amount_minor": 5, "currency": "USD", **change}
    assert (await http.post(TRANSFERS, json=body)).status_code == 400
    assert await stands_at(http, "a") == 100


@pytest.mark.parametrize("missing", ["id", "source", "target", "amount_minor", "currency"])
async def test_incomplete_transfer_names_what_is_missing(http: httpx.AsyncClient, missing: str) -> None:
    body = {"id": "x", "source": "a", "target": "b", "amount_minor": 5, "currency": "USD"}
    del body[missing]
    answer = await http.post(TRANSFERS, json=body)
    assert answer.status_code == 400
    assert answer.json()["fields"] == [{"field": missing, "detail": "is missing"}]


async def test_only_one_of_many_can_spend_the_same_money(http: httpx.AsyncClient) -> None:
    """LED-02."""
    await fund(http, a=100, b=0)
    answers = await asyncio.gather(*(transfer(http, f"x{n}", 60) for n in range(10)))
    assert sorted(answer.status_code for answer in answers) == [201] + [422] * 9
    assert {answer.json()["error"] for answer in answers if answer.status_code == 422} == {"insufficient_funds"}
    assert (await stands_at(http, "a"), await stands_at(http, "b")) == (40, 60)


async def test_opposite_transfers_do_not_block_each_other(http: httpx.AsyncClient) -> None:
    """LED-03: twenty callers, a hundred transfers each, in random directions."""
    await fund(http, a=10_000, b=10_000)
    chance = random.Random(3)  # noqa: S311 - a reproducible order

    async def caller(session: aiohttp.ClientSession, number: int) -> set[int]:
        statuses = set()
        for step in range(100):
            source, target = chance.sample(["a", "b"], 2)
            body = {"id": f"{number}-{step}", "source": source, "target": target, "amount_minor": 1, "currency": "USD"}
            async with session.post(TRANSFERS, json=body) as answer:
                statuses.add(answer.status)
        return statuses

    async with aiohttp.ClientSession(str(http.base_url)) as session:  # ten times as fast as the client above
        statuses = await asyncio.gather(*(caller(session, number) for number in range(20)))
    assert set().union(*statuses) == {201}
    assert await stands_at(http, "a") + await stands_at(http, "b") == 20_000


async def test_enough_money_is_never_called_too_little(http: httpx.AsyncClient) -> None:
    """LED-05, in this process; two processes on one file are tested apart."""
    await fund(http, a=1000, b=0)
    answers = await asyncio.gather(*(transfer(http, f"x{n}", 1) for n in range(50)))
    assert {answer.status_code for answer in answers} == {201}


async def test_transfers_are_listed_newest_first_in_pages(http: httpx.AsyncClient) -> None:
    await fund(http, a=500, b=0)
    for number in range(23):
        await transfer(http, f"x{number}", 1)
    await credit(http, "other", "k", 1)
    first = (await http.get(TRANSFERS)).json()
    assert (first["object"], first["url"], first["has_more"]) == ("list", TRANSFERS, True)
    assert [item["id"] for item in first["data"]] == [f"x{number}" for number in range(22, 12, -1)]
    seen: list[str] = []
    has_more = True
    after: dict[str, str] = {}
    while has_more:
        page = (await http.get(TRANSFERS, params={"limit": "5", **after})).json()
        seen += [item["id"] for item in page["data"]]
        has_more, after = page["has_more"], {"starting_after": seen[-1]}
    assert seen == [f"x{number}" for number in range(22, -1, -1)] + ["funding a"]
    assert (await http.get("/v1/tenants/other/transfers")).json()["data"] == []


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=101", "limit=x", "limit=1.0", "limit=-1", "starting_after=missing", "page=2", "limit=٣"]
)
async def test_wrong_page_is_refused(http: httpx.AsyncClient, query: str) -> None:
    assert (await http.get(f"{TRANSFERS}?{query}")).status_code == 400
