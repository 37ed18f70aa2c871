"""Each fault of an odd processor's lists does to a plain client what its one line says, on every page and in any order.

A client can only be shown to notice a filter that is ignored or a row that moved if the fake does exactly that and no
more: an order that changed from page to page would break a client that is right.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from fake_processor import FakeProcessor, Plan, ProcessorState, generated_state
from tests.contract.plain import plain_client

URL = "/v1/balance_transactions"
ACCESS = {"Authorization": "Bearer sk_test_contract"}
DAY_START_S = 1768435200  # 2026-01-15T00:00:00Z
DAY_END_S = DAY_START_S + 86_400
DAY: dict[str, str | int] = {"created[gte]": DAY_START_S, "created[lt]": DAY_END_S}
DAY_IDS = [f"txn_{number:02d}" for number in range(1, 14)]


@pytest.fixture
async def fake() -> AsyncIterator[FakeProcessor]:
    async with FakeProcessor() as fake:
        yield fake


@pytest.fixture
async def client(fake: FakeProcessor) -> AsyncIterator[httpx.AsyncClient]:
    async with plain_client(fake.url, headers=ACCESS) as client:
        yield client


async def page(client: httpx.AsyncClient, **params: str | int) -> dict[str, Any]:
    answer = await client.get(URL, params={**DAY, **params})
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


async def walk(client: httpx.AsyncClient, *, limit: int = 100, **params: str | int) -> list[dict[str, Any]]:
    """Every row, forwards, page by page."""
    rows: list[dict[str, Any]] = []
    body = await page(client, limit=limit, **params)
    while True:
        rows += body["data"]
        if not body["has_more"]:
            return rows
        body = await page(client, limit=limit, starting_after=rows[-1]["id"], **params)


async def ids(client: httpx.AsyncClient, *, limit: int = 100, **params: str | int) -> list[str]:
    return [row["id"] for row in await walk(client, limit=limit, **params)]


async def one(client: httpx.AsyncClient, row_id: str) -> httpx.Response:
    return await client.get(f"{URL}/{row_id}")


@pytest.mark.parametrize("limit", [2, 100])
@pytest.mark.parametrize(("bound", "newer", "older"), [("both", True, True), ("gte", False, True), ("lt", True, False)])
async def test_ignored_bound_lets_everything_beyond_it_through(
    fake: FakeProcessor, client: httpx.AsyncClient, bound: str, newer: bool, older: bool, limit: int
) -> None:
    fake.fault("filter_ignored", bound=bound)
    every = [str(row["id"]) for row in fake.state.transactions("acct_123")]
    first = 0 if newer else every.index(DAY_IDS[0])
    last = len(every) if older else every.index(DAY_IDS[-1]) + 1
    assert await ids(client, limit=limit) == every[first:last]


async def test_filter_is_ignored_now_and_then_by_the_seed(fake: FakeProcessor, client: httpx.AsyncClient) -> None:
    fake.fault("filter_ignored", per_mille=500, seed=3)
    lengths = [len((await page(client, limit=100))["data"]) for _ in range(40)]
    assert set(lengths) == {13, len(fake.state.transactions("acct_123"))}
    assert 10 <= lengths.count(13) <= 30
    fake.heal()
    fake.fault("filter_ignored", per_mille=500, seed=3)
    assert [len((await page(client, limit=100))["data"]) for _ in range(40)] == lengths


@pytest.mark.parametrize(
    ("bound", "side", "expected"),
    [
        ("gte", "inner", DAY_IDS[:-1]),
        ("lt", "inner", DAY_IDS[1:]),
        ("both", "inner", DAY_IDS[1:-1]),
        ("gte", "outer", [*DAY_IDS, "txn_1401"]),
        ("lt", "outer", ["txn_1603", *DAY_IDS]),
        ("both", "outer", ["txn_1603", *DAY_IDS, "txn_1401"]),
    ],
)
async def test_bound_is_off_by_one_second_on_the_side_that_is_named(
    fake: FakeProcessor, client: httpx.AsyncClient, bound: str, side: str, expected: list[str]
) -> None:
    fake.fault("filter_off_by_one", bound=bound, side=side)
    assert await ids(client) == expected
    assert await ids(client, limit=3) == expected


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("filter_ignored", {"bound": "gt"}, "option bound of filter_ignored must be one of both, gte, lt, not 'gt'"),
        ("filter_off_by_one", {"side": "left"}, "option side of filter_off_by_one must be one of inner, outer"),
        ("list_order", {"order": "random"}, "must be one of shuffled, oldest_first, nearly, ties, not 'random'"),
        ("page_short", {"rows": 0}, "option rows of page_short must be 1 or more"),
        ("created_missing", {"every": 0}, "option every of created_missing must be 1 or more"),
        ("row_moves", {"by_s": "1"}, "option by_s must be like 86400"),
        ("filter_ignore", {}, "unknown fault 'filter_ignore'; did you mean filter_ignored\\?"),
        ("zzz", {}, "unknown fault 'zzz'$"),
    ],
)
async def test_option_that_cannot_be_is_refused_with_what_it_may_be(
    fake: FakeProcessor, name: str, options: dict[str, int | str], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        fake.fault(name, **options)  # type: ignore[arg-type]  # options of the cases above
    assert fake.processor.faults.rules == []


@pytest.mark.parametrize("limit", [1, 2, 5, 13, 100])
@pytest.mark.parametrize("order", ["shuffled", "oldest_first", "nearly", "ties"])
async def test_order_is_the_same_for_every_page_size_and_direction(
    fake: FakeProcessor, client: httpx.AsyncClient, order: str, limit: int
) -> None:
    fake.fault("list_order", order=order, seed=5)
    whole = [row["id"] for row in (await page(client, limit=100))["data"]]
    assert sorted(whole) == DAY_IDS
    assert await ids(client, limit=limit) == whole
    body = await page(client, limit=limit, ending_before=whole[-1])
    backwards = [row["id"] for row in body["data"]]
    while body["has_more"]:
        body = await page(client, limit=limit, ending_before=backwards[0])
        backwards = [*(row["id"] for row in body["data"]), *backwards]
    assert backwards == whole[:-1]


async def test_each_order_is_what_its_name_says(fake: FakeProcessor, client: httpx.AsyncClient) -> None:
    async def listed(order: str, seed: int) -> list[str]:
        fake.heal()
        fake.fault("list_order", order=order, seed=seed)
        return await ids(client, limit=4)

    assert await listed("oldest_first", 1) == DAY_IDS[::-1]
    assert await listed("shuffled", 1) == await listed("shuffled", 1) != await listed("shuffled", 2)
    for seed in range(20):
        nearly = await listed("nearly", seed)
        assert nearly != DAY_IDS
        assert any([row for row in nearly if row != odd] == [row for row in DAY_IDS if row != odd] for odd in DAY_IDS)


async def test_rows_of_one_second_are_listed_by_no_id() -> None:
    rows = [{"id": f"txn_{number}", "created": 5 + number // 4} for number in range(12)]
    async with (
        FakeProcessor(ProcessorState(accounts={"acct_123": rows})) as fake,
        plain_client(fake.url, headers=ACCESS) as client,
    ):
        fake.fault("list_order", order="ties")
        listed = [row["id"] for row in (await client.get(URL, params={"limit": 100})).json()["data"]]
        assert [sorted(listed[at : at + 4]) for at in (0, 4, 8)] == [
            ["txn_10", "txn_11", "txn_8", "txn_9"],
            ["txn_4", "txn_5", "txn_6", "txn_7"],
            ["txn_0", "txn_1", "txn_2", "txn_3"],
        ]
        assert listed != [row["id"] for row in fake.state.transactions("acct_123")]


async def test_cursor_outside_of_what_is_asked_for_has_its_place_in_the_order_too(
    fake: FakeProcessor, client: httpx.AsyncClient
) -> None:
    fake.fault("list_order", order="oldest_first")
    assert await ids(client, starting_after="txn_1401") == DAY_IDS[::-1]
    assert (await page(client, ending_before="txn_1401"))["data"] == []
    assert await ids(client, starting_after="txn_1603") == []
    answer = await client.get(URL, params={**DAY, "starting_after": "txn_none"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "starting_after")


async def test_short_pages_hold_fewer_rows_and_all_of_them_come(fake: FakeProcessor, client: httpx.AsyncClient) -> None:
    fake.fault("page_short", rows=3)
    body = await page(client, limit=100)
    assert ([row["id"] for row in body["data"]], body["has_more"]) == (DAY_IDS[:3], True)
    assert len((await page(client, limit=2))["data"]) == 2
    assert await ids(client) == DAY_IDS
    fake.heal()
    fake.fault("page_short", after=1)
    assert await ids(client, limit=5) == DAY_IDS
    assert len(fake.requests) == 1 + 1 + 5 + 1 + 8


async def test_rows_lose_their_time_and_the_filter_still_works_on_it(
    fake: FakeProcessor, client: httpx.AsyncClient
) -> None:
    fake.fault("created_missing")
    rows = await walk(client, limit=4)
    assert [row["id"] for row in rows] == DAY_IDS
    assert not any("created" in row for row in rows)
    assert "created" not in (await one(client, "txn_01")).json()
    fake.heal()
    fake.fault("created_missing", every=3, seed=2)
    rows = await walk(client, limit=4)
    without = {row["id"] for row in rows if "created" not in row}
    assert 1 <= len(without) < 13
    assert without == {row["id"] for row in await walk(client, limit=100) if "created" not in row}
    assert {row_id for row_id in DAY_IDS if "created" not in (await one(client, row_id)).json()} == without
    fake.heal()
    fake.fault("created_missing", unfiltered=1)
    assert len(await ids(client)) == len(fake.state.transactions("acct_123"))


async def test_moved_row_is_listed_at_its_new_time_until_the_fault_ends(
    fake: FakeProcessor, client: httpx.AsyncClient
) -> None:
    fake.fault("row_moves", id="txn_04", by_s=86_400)
    assert await ids(client) == [row_id for row_id in DAY_IDS if row_id != "txn_04"]
    next_day = {"created[gte]": DAY_END_S, "created[lt]": DAY_END_S + 86_400}
    assert "txn_04" in await ids(client, limit=1, **next_day)
    true = fake.state.transaction("acct_123", "txn_04")["created"]
    assert isinstance(true, int)
    assert (await one(client, "txn_04")).json()["created"] == true + 86_400
    fake.heal()
    assert await ids(client) == DAY_IDS
    fake.fault("row_moves", id="txn_04", by_s=-86_400)
    assert (await one(client, "txn_04")).json()["created"] == true - 86_400
    assert fake.state.transaction("acct_123", "txn_04")["created"] == true


async def test_vanished_row_is_in_no_list_and_missing_by_its_id(fake: FakeProcessor, client: httpx.AsyncClient) -> None:
    fake.fault("row_vanishes", id="txn_07")
    assert await ids(client, limit=3) == [row_id for row_id in DAY_IDS if row_id != "txn_07"]
    answer = await one(client, "txn_07")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "resource_missing")
    assert (await one(client, "txn_08")).status_code == 200
    fake.heal()
    assert (await one(client, "txn_07")).status_code == 200


@pytest.mark.parametrize("by", [1, -250])
async def test_amended_row_shows_the_new_amount_everywhere(
    fake: FakeProcessor, client: httpx.AsyncClient, by: int
) -> None:
    good = await walk(client)
    fake.fault("row_amended", id="txn_02", by=by)
    expected = [
        {**row, "amount": row["amount"] + by, "net": row["net"] + by} if row["id"] == "txn_02" else row for row in good
    ]
    assert await walk(client, limit=3) == expected
    assert (await one(client, "txn_02")).json() == expected[1]
    fake.heal()
    assert await walk(client) == good


@pytest.mark.parametrize("name", ["row_moves", "row_vanishes", "row_amended"])
async def test_row_that_is_not_named_is_drawn_by_the_seed_once(
    fake: FakeProcessor, client: httpx.AsyncClient, name: str
) -> None:
    good = await walk(client)
    drawn = set()
    for seed in range(8):
        fake.heal()
        rule = fake.fault(name, seed=seed)
        assert (await one(client, "txn_01")).json() == good[0]
        shown = {row["id"]: row for row in await walk(client, limit=2)}
        (odd,) = [row["id"] for row in good if shown.get(row["id"]) != row]
        assert rule.picked == odd
        drawn.add(odd)
        await page(client, **{"created[gte]": DAY_END_S, "created[lt]": DAY_END_S + 1})
        assert rule.picked == odd
    assert len(drawn) > 2


async def test_row_that_no_account_has_changes_nothing(fake: FakeProcessor, client: httpx.AsyncClient) -> None:
    good = await walk(client)
    fake.fault("row_amended", id="txn_none")
    fake.fault("row_vanishes", id="txn_456_1501")
    assert await walk(client) == good
    other = await client.get(URL, params={"account": "acct_456", "limit": 100})
    assert "txn_456_1501" not in {row["id"] for row in other.json()["data"]}


async def test_odd_lists_leave_refusals_as_they_are(fake: FakeProcessor, client: httpx.AsyncClient) -> None:
    for name in ("filter_ignored", "list_order", "page_short", "created_missing", "row_moves", "row_vanishes"):
        fake.fault(name)
    for params in ({"account": "acct_none"}, {"limit": "0"}, {"starting_after": "txn_none"}):
        assert (await client.get(URL, params=params)).status_code in (400, 404)
    assert (await one(client, "txn_none")).status_code == 404


async def test_several_odd_faults_and_paging_faults_act_together(
    fake: FakeProcessor, client: httpx.AsyncClient
) -> None:
    fake.fault("list_order", order="oldest_first")
    fake.fault("filter_off_by_one", bound="lt", side="inner")
    fake.fault("row_vanishes", id="txn_13")
    fake.fault("page_short", rows=5)
    assert await ids(client) == DAY_IDS[-2:0:-1]
    fake.fault("overlapping_page", count=1)
    body = await page(client, limit=3, starting_after="txn_10")
    assert [row["id"] for row in body["data"]] == ["txn_10", "txn_09", "txn_08"]


async def test_generated_rows_are_shown_oddly_like_others() -> None:
    state = generated_state(Plan(seed=4, transactions=900, days=3))
    window: dict[str, str | int] = {"created": "2026-01-14"}
    async with FakeProcessor(state) as fake, plain_client(fake.url, headers=ACCESS) as client:

        async def listed() -> list[dict[str, Any]]:
            rows: list[dict[str, Any]] = []
            while True:
                cursor = {"starting_after": rows[-1]["id"]} if rows else {}
                body = (await client.get(URL, params={**window, "limit": 100, **cursor})).json()
                rows += body["data"]
                if not body["has_more"]:
                    return rows

        good = await listed()
        assert len(good) == 300
        assert all(type(row["available_on"]) is int and row["available_on"] >= row["created"] for row in good)
        fake.fault("list_order", order="shuffled")
        fake.fault("row_amended", id=good[7]["id"], by=10)
        fake.fault("row_vanishes", id=good[8]["id"])
        shuffled = {row["id"]: row for row in await listed()}
        assert list(shuffled) != [row["id"] for row in good if row["id"] in shuffled]
        assert [row["id"] for row in good if shuffled.get(row["id"]) != row] == [good[7]["id"], good[8]["id"]]
        fake.heal()
        fake.fault("filter_off_by_one", side="outer", bound="lt")
        fake.fault("created_missing", every=10)
        rows = await listed()
        assert [row["id"] for row in rows][-300:] == [row["id"] for row in good]
        assert 10 <= sum("created" not in row for row in rows) <= 60
