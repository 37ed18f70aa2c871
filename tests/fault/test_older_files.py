"""A database of an earlier release opens, answers and verifies as it did, and is gone on with by this one.

Without these an upgrade would answer a settled day with other figures, settle an unfinished one on other terms without
a word, or refuse to open a file because of a page that nobody needs.
"""

import asyncio
import json
import logging
import shutil
from collections.abc import AsyncIterator
from datetime import date
from pathlib import Path
from typing import Any

import apsw
import pytest

from fake_processor import FakeProcessor, ProcessorState
from paykit_settle.client import ProcessorClient
from paykit_settle.errors import SettleError, SettlementConflict
from paykit_settle.lifecycle import State, Step
from paykit_settle.models import PostedSettlement
from paykit_settle.money import ScaleProfile
from paykit_settle.report import posted_json
from paykit_settle.run import RunOptions
from paykit_settle.run_request import make_run_request
from paykit_settle.store.accounts import account_of, disagreements
from paykit_settle.store.edges import gap_before, listing_span
from paykit_settle.store.migrations import known_migrations
from paykit_settle.store.runs import run_by_day
from paykit_settle.store.store import Store
from tests.fault.stage import ACCOUNT, LIST, check_verified, columns, host, of_kind
from tests.programs import paykit

RELEASES = Path(__file__).parents[1] / "data" / "releases"
ANSWERS: dict[str, dict[str, Any]] = json.loads((RELEASES / "0.1.0.answers.json").read_text(encoding="utf-8"))
HAD: dict[str, Any] = json.loads((RELEASES / "0.1.0.json").read_text(encoding="utf-8"))
D05, D13, D14, D15, D16, D17 = (f"2026-01-{day}" for day in ("05", 13, 14, 15, 16, 17))
OTHER = "acct_456"
AFTER_D16 = 4_995
"""What the unknown run comes to, which the processor has."""


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return Path(shutil.copy(RELEASES / "0.1.0.db", tmp_path / "paykit.db"))


@pytest.fixture
async def fake() -> AsyncIterator[FakeProcessor]:
    """The processor as that release left it: its rows, and the settlements that it had taken under their keys."""
    async with FakeProcessor(ProcessorState(HAD["rows"], {})) as processor, ProcessorClient(processor.url) as client:
        connection = apsw.Connection(f"file:{RELEASES / '0.1.0.db'}?mode=ro&immutable=1", flags=READ_URI)
        for entry in HAD["settlements"]:
            body, key = connection.execute(
                "SELECT body, idempotency_key FROM attempts JOIN runs ON runs.id = run WHERE account = ? AND date = ?",
                (entry["account"], entry["date"]),
            ).fetchall()[0]
            assert isinstance(body, bytes)
            assert (await client.create_settlement(body, idempotency_key=str(key)))[0] == entry["id"]
        connection.close()
        yield processor


READ_URI = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI


# What is settled.


@pytest.mark.parametrize("run_id", ANSWERS)
async def test_settled_day_is_answered_as_that_release_answered_it(
    fake: FakeProcessor, database: Path, run_id: str
) -> None:
    """Every member that existed then has the value that it had; the processor is not asked."""
    before = ANSWERS[run_id]
    asked = len(fake.requests)
    async with host(database, fake.url) as here:
        wanted = make_run_request(before["account"], before["date"], before["replay"]["settlement_currency"])
        now = posted_json(await here.runner.run(wanted, requested_by="test"))
    assert json.loads(json.dumps(now)) == now
    assert holds(now, before["replay"]), now
    assert len(fake.requests) == asked


def holds(now: Any, before: Any) -> bool:
    """Whether a JSON value has everything that another has; members may have come."""
    if isinstance(before, dict):
        return isinstance(now, dict) and all(name in now and holds(now[name], before[name]) for name in before)
    if isinstance(before, list):
        return isinstance(now, list) and len(now) == len(before) and all(map(holds, now, before))
    return type(now) is type(before) and bool(now == before)


@pytest.mark.parametrize("run_id", ANSWERS)
def test_settled_day_verifies_and_is_booked_as_it_was(database: Path, run_id: str) -> None:
    before = ANSWERS[run_id]
    verified = json.loads(paykit("verify", run_id, "--json", cwd=database.parent).stdout)
    assert verified == before["verify"]
    assert paykit("journal", run_id, "--csv", cwd=database.parent).stdout == before["journal"]
    told = paykit("explain", run_id, cwd=database.parent)
    assert (told.returncode, before["replay"]["settlement_id"] in told.stdout) == (0, True)


# What is not finished.


async def test_unknown_run_is_resolved_by_a_look_up(fake: FakeProcessor, database: Path) -> None:
    before = len(fake.state.settlements(account=ACCOUNT))
    async with host(database, fake.url) as here:
        posted = await here.run(D16)
        assert (posted.settlement_id, posted.total_net) == (settlement_of(fake, D16), AFTER_D16)
        assert posted.warnings == (
            f"no processor was kept for {ACCOUNT} so far: it is settled at {fake.url} (test key) from now on",
        )
        assert len(fake.state.settlements(account=ACCOUNT)) == before
        await check_verified(here, await here.stored(D16))


def settlement_of(fake: FakeProcessor, day: str) -> object:
    (entry,) = fake.state.settlements(account=ACCOUNT, date=day)
    return entry["id"]


async def test_rejected_run_is_tried_anew(fake: FakeProcessor, database: Path) -> None:
    async with host(database, fake.url) as here:
        posted = await here.run_again(D15)
        assert posted.total_net == 4_000
        assert (await here.stored(D15)).attempt == 2
        await check_verified(here, await here.stored(D15))


async def test_killed_pull_is_resumed_on_the_terms_of_who_takes_it_which_it_keeps(
    fake: FakeProcessor, database: Path
) -> None:
    """Its first two pages are not asked for again; the terms of that claim hold for the next."""

    def crash(step: Step) -> None:
        if step is Step.BEFORE_FREEZE:
            raise Crash

    tenths = RunOptions(page_size=2, windows_max=1, scale=ScaleProfile(overrides={"usd": 1}))
    pages = "SELECT count(*) FROM pages WHERE run = 6 AND period = '2026-01-17'"
    assert columns(database, pages) == [(2,)]
    async with host(database, fake.url, options=tenths, at_step=crash) as here:
        with pytest.raises(Crash):
            await here.run(D17)
        kept = (await here.stored(D17)).terms
        assert kept is not None
        assert json.loads(kept)["scales"] == {"usd": 1}
    asked = len(of_kind(fake, "GET", LIST))
    async with host(database, fake.url, options=RunOptions(page_size=2, windows_max=1)) as here:
        posted = await here.run(D17)
        assert posted.total_net == 6_150
        assert posted.warnings == ("run_000006 goes on with what it was begun on: scales = usd=1, not none",)
        assert (await here.stored(D17)).pull == 1
        await check_verified(here, await here.stored(D17))
    again = [dict(request.query) for request in of_kind(fake, "GET", LIST)[asked:]]
    assert "f1" not in [query.get("starting_after") for query in again]


class Crash(BaseException):
    """Ends a run as a crash does."""


async def test_unfinished_runs_are_finished_by_one_resume(fake: FakeProcessor, database: Path) -> None:
    async with host(database, fake.url, options=RunOptions(page_size=2, windows_max=1)) as here:
        outcomes = await here.resume()
        assert [run.date.isoformat() for run, _ in outcomes] == [D16, D17]
        posted = [outcome for _, outcome in outcomes if isinstance(outcome, PostedSettlement)]
        assert [each.total_net for each in posted] == [AFTER_D16, 100 + 101 + 102 + 103 + 104 + 105]
        said = [warning for each in posted for warning in each.warnings]
        assert said == [
            f"no processor was kept for {ACCOUNT} so far: it is settled at {fake.url} (test key) from now on",
            "run_000006 was begun by an older version, which kept no terms: it keeps those of now",
        ]
        for day in (D16, D17):
            await check_verified(here, await here.stored(day))
        assert (await here.stored(D17)).state is State.POSTED


async def test_program_resumes_an_older_file(fake: FakeProcessor, database: Path) -> None:
    words = ("resume", "--json", "--processor-url", fake.url)
    done = await asyncio.to_thread(paykit, *words, cwd=database.parent)
    assert done.returncode == 0, done
    assert [json.loads(line)["total_net"] for line in done.stdout.splitlines()] == [AFTER_D16, 615]


# What is in force for its accounts.


async def test_account_keeps_tenant_and_zone_of_its_newest_posted_run(fake: FakeProcessor, database: Path) -> None:
    async with host(database, fake.url) as here:
        account = await here.store.read(lambda connection: account_of(connection, OTHER))
        assert account is not None
        assert (account.tenant, account.zone, account.processor) == (OTHER, "Etc/UTC", None)
        assert account.disagreement == "tenant shop, zone Europe/Berlin"
        wanted = make_run_request(OTHER, D15, "usd")
        posted = await here.runner.run(wanted, requested_by="test")
        assert (posted.settlement.window.start.hour, posted.total_net) == (0, 20)  # of the hour that no day had
    async with host(database, fake.url, tenants={OTHER: "shop"}) as here:
        with pytest.raises(SettlementConflict, match=f"booked for tenant {OTHER}, which is fixed, not for shop"):
            await here.runner.run(make_run_request(OTHER, D16, "usd"), requested_by="test")


async def test_disagreement_and_gap_are_named(database: Path, caplog: pytest.LogCaptureFixture) -> None:
    older = "tenant shop, zone Europe/Berlin"
    text = f"{OTHER} is settled for tenant {OTHER} in zone Etc/UTC, but older runs of it have {older}"
    with caplog.at_level(logging.WARNING):
        store = Store(database)
    assert [record.getMessage() for record in caplog.records] == [text]
    assert [each.account for each in await store.read(disagreements)] == [OTHER]
    store.close()
    listed = [json.loads(line) for line in paykit("settlements", "--json", cwd=database.parent).stdout.splitlines()]
    assert [line for line in listed if line["state"] in ("gap", "disagreement")] == [
        {"state": "gap", "account": OTHER, "date": D14, "seconds": 3600},
        {"state": "disagreement", "account": OTHER, "detail": text},
    ]
    assert f"note: {text}" in paykit("settlements", cwd=database.parent).stdout
    told = " ".join(paykit("explain", "run_000008", cwd=database.parent).stdout.split())
    assert "no run's window holds the 1 h 0 min before it" in told
    assert text in told
    shown = json.loads(paykit("explain", "run_000007", "--json", cwd=database.parent).stdout)
    assert (shown["gap_before_s"], shown["warnings"], shown["terms"]) == (0, [text], None)


async def test_gap_is_listed_with_the_later_day(database: Path) -> None:
    store = Store(database)

    def spans(connection: apsw.Connection) -> list[tuple[int, tuple[int, int]]]:
        runs = [run_by_day(connection, OTHER, date.fromisoformat(day)) for day in (D13, D14)]
        return [(gap_before(connection, run), listing_span(connection, run)) for run in runs if run is not None]

    first, later = await store.read(spans)
    assert first[0] == 0
    assert later == (3600, (first[1][1], first[1][1] + 25 * 3600))
    store.close()


@pytest.mark.parametrize("unfrozen", [D13, D14])
async def test_gap_beside_a_run_that_is_not_frozen_is_closed_by_it(
    fake: FakeProcessor, database: Path, unfrozen: str
) -> None:
    """Nothing of it is settled yet, so its own window takes the hour in."""
    connection = apsw.Connection(str(database))
    run = 7 if unfrozen == D13 else 8
    connection.execute("DELETE FROM attempts WHERE run = ?", (run,))
    connection.execute("UPDATE runs SET state = 'failed', settlement_id = NULL WHERE id = ?", (run,))
    connection.close()
    async with host(database, fake.url, options=RunOptions(scale=ScaleProfile(overrides={"isk": 2}))) as here:

        def meet(connection: apsw.Connection) -> bool:
            runs = [run_by_day(connection, OTHER, date.fromisoformat(day)) for day in (D13, D14)]
            first, later = (run for run in runs if run is not None)
            return first.window_end_s == later.window_start_s and gap_before(connection, later) == 0

        with pytest.raises(SettleError):  # the processor has the day already: what is looked at is its window
            await here.runner.run(make_run_request(OTHER, unfrozen, "usd"), requested_by="test")
        assert await here.store.read(meet)


# Migrations.


def test_migrations_are_statements_alone_and_open_a_file_whose_evidence_is_damaged(database: Path) -> None:
    """No page is unpacked and no settlement decoded when a file is opened: one that is damaged stops its own run."""
    assert all(isinstance(migration.sql, str) for migration in known_migrations())
    connection = apsw.Connection(str(database))
    connection.execute("UPDATE pages SET body = x'00', available_ids = x'00'")
    connection.execute("UPDATE attempts SET settlement = '{', body = x'00', rates_body = x'00'")
    connection.close()
    store = Store(database)
    store.close()
    assert columns(database, "SELECT count(*) FROM migrations") == [(len(known_migrations()),)]


def test_file_that_was_migrated_is_migrated_once(database: Path) -> None:
    Store(database).close()
    before = columns(database, "SELECT hex(digest_key) FROM database_facts")
    Store(database).close()
    assert columns(database, "SELECT hex(digest_key) FROM database_facts") == before
    assert columns(database, "SELECT count(*) FROM settled_accounts") == [(2,)]
