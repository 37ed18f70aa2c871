"""Past runs over HTTP, on real sockets: listed in pages, read, explained, and their rows streamed.

Without these, a dashboard could miss a page, a row or a cent, and nobody would notice before the month's end.
"""

import csv
import io
import json
from collections.abc import AsyncIterator
from datetime import date, timedelta
from pathlib import Path

import httpx
import pytest
from aiohttp import web

from fake_processor import FakeProcessor
from paykit_settle.config import Settings
from paykit_settle.run_routes import store_key
from paykit_settle.service import create_app
from paykit_settle.store.store import Store
from paykit_settle.store.upkeep import prune
from tests.fault.stage import ACCOUNT, DAY, SETTLEMENTS, refuse, scripted

RUN = {"account": ACCOUNT, "date": DAY}
DAYS = [f"2026-01-{number}" for number in range(13, 21)]


@pytest.fixture
async def fake() -> AsyncIterator[FakeProcessor]:
    async with FakeProcessor() as processor:
        yield processor


@pytest.fixture
async def app(fake: FakeProcessor, tmp_path: Path) -> web.Application:
    settings = Settings(
        processor_url=fake.url, database=str(tmp_path / "paykit.db"), page_size=5, attempts_max=1, look_back_days=1
    )
    return create_app(settings)


@pytest.fixture
async def service(app: web.Application) -> AsyncIterator[httpx.AsyncClient]:
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=60) as client:
            yield client
    finally:
        await runner.cleanup()


async def settle(service: httpx.AsyncClient, *days: str, account: str = ACCOUNT) -> None:
    for day in days or (DAY,):
        answer = await service.post("/settlements/run", json={"account": account, "date": day})
        assert answer.status_code == 200, answer.text


async def test_answer_names_its_run_and_says_whether_it_is_a_repeat(service: httpx.AsyncClient) -> None:
    first, again = [(await service.post("/settlements/run", json=RUN)).json() for _ in range(2)]
    assert (first["run_id"], first["replayed"], again["replayed"]) == ("run_000001", False, True)
    assert again | {"replayed": False} == first


async def test_list_is_paged_newest_day_first_without_loss_or_repeat(service: httpx.AsyncClient) -> None:
    await settle(service, *DAYS)
    listed: list[str] = []
    cursor: dict[str, str] = {}
    for _ in range(10):
        page = (await service.get("/settlements", params={"limit": "3", **cursor})).json()
        assert (page["object"], page["url"]) == ("list", "/settlements")
        listed += [entry["date"] for entry in page["data"]]
        if not page["has_more"]:
            break
        cursor = {"starting_after": page["data"][-1]["run_id"]}
    assert listed == sorted(DAYS, reverse=True)


async def test_list_is_filtered_by_account_and_by_date(service: httpx.AsyncClient) -> None:
    await settle(service, *DAYS[:4])
    await settle(service, "2026-01-16", account="acct_456")
    params = {"account": ACCOUNT, "from": "2026-01-14", "to": "2026-01-15"}
    found = (await service.get("/settlements", params=params)).json()["data"]
    assert [(entry["account"], entry["date"]) for entry in found] == [(ACCOUNT, "2026-01-15"), (ACCOUNT, "2026-01-14")]
    both = (await service.get("/settlements", params={"from": "2026-01-16", "to": "2026-01-16"})).json()["data"]
    assert {entry["account"] for entry in both} == {ACCOUNT, "acct_456"}
    assert (await service.get("/settlements", params={"account": "acct_none"})).json()["data"] == []


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("limit=0", 400),
        ("limit=101", 400),
        ("limit=x", 400),
        ("limit=-1", 400),
        ("from=15.1.2026", 400),
        ("to=2026-1-5", 400),
        ("page=2", 400),
        ("limit=1&limit=2", 400),
        ("starting_after=run_000099", 404),
        ("starting_after=nonsense", 404),
    ],
)
async def test_wrong_query_is_refused_and_named(service: httpx.AsyncClient, query: str, status: int) -> None:
    answer = await service.get(f"/settlements?{query}")
    assert answer.status_code == status
    assert answer.json()["error"] == ("invalid_request" if status == 400 else "run_not_found")


@pytest.mark.parametrize("identity", ["run_000001", "setl_0001"])
async def test_settlement_is_shown_and_explained_by_either_id(service: httpx.AsyncClient, identity: str) -> None:
    await settle(service)
    shown = (await service.get(f"/settlements/{identity}")).json()
    assert (shown["state"], shown["total_net"], shown["settlement_currency"]) == ("posted", 145199, "usd")
    told = (await service.get(f"/settlements/{identity}/explain")).json()
    assert shown.items() <= told.items()
    assert [page["rows"] for page in told["pages"]] == [5, 5, 3]
    sums: dict[str, int] = {}
    for entry in told["journal"]:
        sums[entry["currency"]] = sums.get(entry["currency"], 0) + entry["amount"]
    assert set(sums.values()) == {0}
    assert told["journal"][-1] == {
        "account": "balance",
        "currency": "usd",
        "amount": 145199,
        "balance_before": 0,
        "balance_after": 145199,
    }


@pytest.mark.parametrize("path", ["", "/explain", "/transactions"])
async def test_unknown_settlement_is_404(service: httpx.AsyncClient, path: str) -> None:
    for identity in ("run_000001", "setl_0001", "run_", "x"):
        answer = await service.get(f"/settlements/{identity}{path}")
        assert (answer.status_code, answer.json()["error"]) == (404, "run_not_found")


async def test_run_route_is_no_settlements_id(service: httpx.AsyncClient) -> None:
    answer = await service.get("/settlements/run")
    assert (answer.status_code, answer.headers["Allow"]) == (405, "POST")


async def test_settlement_id_that_two_accounts_share_is_refused_by_name(
    service: httpx.AsyncClient, app: web.Application
) -> None:
    await settle(service)
    await settle(service, account="acct_456")
    await app[store_key].write(
        lambda connection: connection.execute("UPDATE runs SET settlement_id = 'setl_0001'").fetchall()
    )
    answer = await service.get("/settlements/setl_0001")
    assert answer.status_code == 400
    assert "run_000001" in answer.text
    assert "run_000002" in answer.text
    assert (await service.get("/settlements/run_000002")).json()["account"] == "acct_456"


async def test_failed_run_is_shown_with_its_reason(fake: FakeProcessor, service: httpx.AsyncClient) -> None:
    cue = scripted(fake)
    cue.instead = refuse(422, code="amount_wrong")
    answer = await service.post("/settlements/run", json=RUN)
    assert (answer.status_code, answer.json()["error"]) == (502, "processor_rejected")
    shown = (await service.get("/settlements/run_000001")).json()
    assert (shown["state"], shown["error"], shown["settlement_id"]) == ("rejected", "processor_rejected", None)
    assert "amount_wrong" in shown["detail"]
    cue.behave()
    again = await service.post("/settlements/run", json=RUN)
    assert (again.status_code, again.json()["error"]) == (502, "processor_rejected")
    retried = await service.post("/settlements/run", json=RUN | {"retry_rejected": True})
    assert (retried.status_code, retried.json()["total_net"]) == (200, 145199)
    wrong = await service.post("/settlements/run", json=RUN | {"retry_rejected": "yes"})
    assert (wrong.status_code, wrong.json()["fields"][0]["field"]) == (400, "retry_rejected")


async def test_unknown_outcome_is_504_with_its_code(fake: FakeProcessor, service: httpx.AsyncClient) -> None:
    fake.fault("error_502", route=f"POST {SETTLEMENTS}")
    answer = await service.post("/settlements/run", json=RUN)
    assert (answer.status_code, answer.json()["error"]) == (504, "outcome_unknown")
    listed = (await service.get("/settlements")).json()["data"]
    assert [(entry["state"], entry["error"]) for entry in listed] == [("unknown", "outcome_unknown")]


# Rows.


async def test_rows_are_streamed_as_json_lines_with_late_rows_under_their_own_day(
    fake: FakeProcessor, service: httpx.AsyncClient
) -> None:
    await settle(service)
    fake.state.release_pending(ACCOUNT)
    await settle(service, "2026-01-16")
    answer = await service.get("/settlements/setl_0002/transactions")
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    assert answer.headers["transfer-encoding"] == "chunked"
    rows = [json.loads(line) for line in answer.text.splitlines()]
    by_period = {period: [row["id"] for row in rows if row["period"] == period] for period in (DAY, "2026-01-16")}
    assert {"txn_05", "txn_12"} <= set(by_period[DAY])  # the pages of an earlier day that hold what was taken in
    assert len(by_period["2026-01-16"]) == 3
    assert all(row["net"] == row["amount"] - row["fee"] for row in rows)


async def test_rows_as_csv_add_up_to_the_settlement(service: httpx.AsyncClient) -> None:
    await settle(service)
    answer = await service.get("/settlements/setl_0001/transactions", params={"format": "csv"})
    assert answer.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert list(rows[0]) == [
        "period", "id", "type", "reporting_category", "status", "currency", "amount", "fee", "net", "created",
    ]  # fmt: skip
    counted = [row for row in rows if row["status"] == "available" and row["type"] != "payout"]
    nets = {
        currency: sum(int(row["net"]) for row in counted if row["currency"] == currency)
        for currency in ("eur", "gbp", "jpy", "usd")
    }
    assert nets == {"eur": 13535, "gbp": 7720, "jpy": 150000, "usd": 20715}


async def test_other_formats_are_refused(service: httpx.AsyncClient) -> None:
    await settle(service)
    assert (await service.get("/settlements/setl_0001/transactions?format=xml")).status_code == 400


async def test_rows_that_were_pruned_are_refused_rather_than_left_out(
    service: httpx.AsyncClient, app: web.Application
) -> None:
    await settle(service, "2026-01-13")
    store: Store = app[store_key]
    count = await store.write(
        lambda connection: prune(
            connection,
            today=date.fromisoformat("2026-01-13") + timedelta(60),
            older_than_days=30,
            look_back_days=0,
            look_back_listings=0,
        )
    )
    assert count == 1
    answer = await service.get("/settlements/setl_0001/transactions")
    assert (answer.status_code, "1 of 1 pages" in answer.json()["detail"]) == (400, True)
    assert (await service.get("/settlements/setl_0001/explain")).json()["pages"][0]["kept"] is False
