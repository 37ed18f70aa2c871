"""A day read through windows, against the fake on a real socket: the settlement is the same for every number of them.

Without it: a split that loses a row only when answers come late or fail, evidence that a later `verify` cannot
follow, a resumed run that reads the whole day again or counts a page twice.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from fake_processor import FakeProcessor
from fake_processor.generated import generated_state
from fake_processor.generator import Plan
from paykit_settle.budget import RequestBudget
from paykit_settle.checking import verify_run
from paykit_settle.client import ProcessorClient
from paykit_settle.direct import DirectConnections
from paykit_settle.explain import explanation, explanation_text
from paykit_settle.lifecycle import Step
from paykit_settle.models import PostedSettlement
from paykit_settle.page_wire import Page, PageReader
from paykit_settle.retry import RetryPolicy
from paykit_settle.run import RunOptions
from paykit_settle.run_request import make_run_request
from paykit_settle.run_shown import run_json
from paykit_settle.runner import Runner
from paykit_settle.store.history import History, find_run, page_keys, page_rows, read_history
from paykit_settle.store.runs import run_by_day
from paykit_settle.store.store import Store

ACCOUNT, DAY, ROWS = "acct_123", date(2026, 1, 15), 1_500
PATIENT = RetryPolicy(attempts_max=20, wait_first_ms=1)
NOW = datetime(2026, 1, 17, tzinfo=UTC)


class Crash(BaseException):
    """The process dies here."""


@dataclass
class Bench:
    """A fake processor with a generated day, and a database."""

    fake: FakeProcessor
    store: Store

    @asynccontextmanager
    async def client(self, *, fast: bool, budget: RequestBudget | None = None) -> AsyncIterator[ProcessorClient]:
        sender = DirectConnections(self.fake.url, connections_max=64, timeout_s=60) if fast else None
        async with ProcessorClient(self.fake.url, policy=PATIENT, sender=sender, budget=budget) as client:
            yield client

    async def settle(
        self, *, windows: int, page_size: int, fast: bool = True, crash_after: int | None = None
    ) -> PostedSettlement:
        pages = 0

        def at_step(step: Step) -> None:
            nonlocal pages
            pages += step is Step.PAGE_STORED
            if pages == crash_after:
                raise Crash

        options = RunOptions(windows_max=windows, page_size=page_size)
        async with self.client(fast=fast) as client:
            runner = Runner(client, self.store, options=options, at_step=at_step, now=lambda: NOW)
            try:
                return await runner.run(make_run_request(ACCOUNT, DAY, "usd"), requested_by="test")
            finally:
                await runner.close()

    async def history(self, identity: str) -> History:
        return await self.store.read(lambda connection: read_history(connection, find_run(connection, identity)))

    @property
    def list_requests(self) -> int:
        return sum(seen.path == "/v1/balance_transactions" for seen in self.fake.requests)


@asynccontextmanager
async def bench(path: Path, *, seed: int = 1, rows: int = ROWS) -> AsyncIterator[Bench]:
    state = generated_state(Plan(seed=seed, transactions=rows, days=1, last_day=DAY), account=ACCOUNT)
    store = Store(path / "paykit.db")
    try:
        async with FakeProcessor(state) as fake:
            yield Bench(fake, store)
    finally:
        await asyncio.to_thread(store.close)


@pytest.mark.parametrize("fast", [True, False], ids=["direct", "httpx"])
@pytest.mark.parametrize(("windows", "page_size"), [(1, 100), (2, 100), (16, 100), (64, 13), (5, 7)])
async def test_settlement_is_that_of_the_processor_and_follows_from_its_evidence(
    tmp_path: Path, windows: int, page_size: int, *, fast: bool
) -> None:
    async with bench(tmp_path) as it:
        posted = await it.settle(windows=windows, page_size=page_size, fast=fast)
        right = it.fake.right_settlement(account=ACCOUNT, date=DAY.isoformat())
        history = await it.history(posted.run_id or "")
        assert posted.total_net == right["total_net"]
        assert posted.settlement.roll_up.row_count == ROWS
        assert posted.settlement.roll_up.repeat_count == 0
        assert sum(page.row_count for page in history.pages) == ROWS
        assert it.list_requests <= -(-ROWS // page_size) + 2 * windows
        assert len(history.windows) > 1 or windows == 1
        assert await verify_run(it.store, history) == []
        shown = explanation(history)
        assert {each["number"] for each in shown["windows"]} == {page["window"] for page in shown["pages"]}
        assert "tile the day" in explanation_text(history)


@pytest.mark.parametrize("windows", [1, 3, 16])
@pytest.mark.parametrize("seed", [1, 2])
async def test_faults_on_the_way_change_nothing(tmp_path: Path, windows: int, seed: int) -> None:
    async with bench(tmp_path, seed=seed) as it:
        for name in ("error_500", "reset_mid_body", "reset_before_headers"):
            it.fake.fault(name, route="GET /v1/balance_transactions", per_mille=100, seed=seed)
        posted = await it.settle(windows=windows, page_size=20)
        right = it.fake.right_settlement(account=ACCOUNT, date=DAY.isoformat())
        assert posted.total_net == right["total_net"]
        assert await verify_run(it.store, await it.history(posted.run_id or "")) == []


@pytest.mark.parametrize("crash_after", [1, 2, 9, 30])
@pytest.mark.parametrize("windows", [1, 8])
async def test_pull_goes_on_per_window_after_a_crash(tmp_path: Path, windows: int, crash_after: int) -> None:
    async with bench(tmp_path) as it:
        with pytest.raises(Crash):
            await it.settle(windows=windows, page_size=20, crash_after=crash_after)
        stored = await it.store.read(lambda connection: run_by_day(connection, ACCOUNT, DAY))
        assert stored is not None
        kept = await it.history(stored.id)
        assert len(kept.pages) >= crash_after
        shown = run_json(kept)["progress"]
        assert (shown["pages"], shown["rows"]) == (len(kept.pages), sum(page.row_count for page in kept.pages))
        assert shown["windows"] == len(kept.windows)
        before = it.list_requests
        posted = await it.settle(windows=windows, page_size=20)
        history = await it.history(posted.run_id or "")
        assert posted.settlement.roll_up.row_count == ROWS
        assert it.list_requests - before <= len(history.pages) - len(kept.pages)
        assert await verify_run(it.store, history) == []


async def test_retry_after_holds_every_window(tmp_path: Path) -> None:
    """One "later" is said once: nobody else has to hear it too."""
    async with bench(tmp_path) as it:
        it.fake.fault("too_many_requests", route="GET /v1/balance_transactions", nth=8, retry_after_s=1)
        budget = RequestBudget(in_flight_max=4)
        async with it.client(fast=True, budget=budget) as client:
            runner = Runner(client, it.store, options=RunOptions(page_size=20), now=lambda: NOW)
            started = asyncio.get_running_loop().time()
            await runner.run(make_run_request(ACCOUNT, DAY, "usd"), requested_by="test")
            await runner.close()
        assert asyncio.get_running_loop().time() - started >= 1
        assert sum(seen.status == 429 for seen in it.fake.requests) == 1


async def test_evidence_with_a_window_missing_or_unread_is_not_believed(tmp_path: Path) -> None:
    """`verify` looks at the windows itself: a gap in them is a day that was not read whole."""
    async with bench(tmp_path, rows=600) as it:
        posted = await it.settle(windows=4, page_size=50)
        history = await it.history(posted.run_id or "")
        widest = max(history.windows, key=lambda window: window.end_s - window.start_s)
        number = history.run.number
        statement = "UPDATE windows SET start_s = start_s + 1 WHERE run = ? AND number = ?"
        await it.store.write(lambda connection: connection.execute(statement, (number, widest.number)).fetchall())
        found = await verify_run(it.store, await it.history(posted.run_id or ""))
        assert any("do not meet" in each for each in found)
        assert any("was not read to its end" in each for each in found)
        await it.store.write(lambda connection: connection.execute("DELETE FROM windows").fetchall())
        found = await verify_run(it.store, await it.history(posted.run_id or ""))
        assert any("the windows of 2026-01-15 end at" in each for each in found)


async def test_rows_of_a_split_page_are_told_once(tmp_path: Path) -> None:
    """The stored pages overlap where a window was split; whoever lists the rows gets each of them once."""
    async with bench(tmp_path) as it:
        posted = await it.settle(windows=16, page_size=20)
        history = await it.history(posted.run_id or "")
        run = history.run
        keys, _ = await it.store.read(lambda connection: page_keys(connection, run))
        ids: list[str] = []
        for period, page in keys:
            rows = await it.store.read(lambda connection, key=(period, page): page_rows(connection, run, *key))  # type: ignore[misc]
            ids += [row.id for row in rows]
        assert len(ids) == len(set(ids)) == ROWS


class Forgetful(ProcessorClient):
    """A processor of which only one replica filters by `created`: the one that is asked for the day's newest rows.

    The others answer once that window has been read to its end, so it has to be opened again.
    """

    day: tuple[int, int] | None = None

    def __init__(self, url: str) -> None:
        sender = DirectConnections(url, connections_max=8, timeout_s=60)
        super().__init__(url, policy=PATIENT, sender=sender)
        self.first_ended = asyncio.Event()
        self.pages_after = 0

    async def page(
        self, account: str, *, span: tuple[int, int] | None, page_size: int, after: str | None, reader: PageReader
    ) -> Page:
        assert span is not None
        self.day = self.day or span
        if span[1] == self.day[1]:
            page = await super().page(account, span=span, page_size=page_size, after=after, reader=reader)
            self.pages_after += self.first_ended.is_set()
            if not page.has_more:
                self.first_ended.set()
            return page
        await self.first_ended.wait()
        return await super().page(account, span=self.day, page_size=page_size, after=None, reader=reader)


@pytest.mark.parametrize("crash_after", [None, 0, 1, 2, 3, 5])
async def test_day_is_read_whole_when_a_window_that_had_ended_takes_the_day_back(
    tmp_path: Path, crash_after: int | None
) -> None:
    async with bench(tmp_path) as it:
        right = it.fake.right_settlement(account=ACCOUNT, date=DAY.isoformat())
        async with Forgetful(it.fake.url) as client:

            def at_step(step: Step) -> None:
                if step is Step.PAGE_STORED and client.first_ended.is_set() and client.pages_after == crash_after:
                    raise Crash

            options = RunOptions(windows_max=2, page_size=100)
            runner = Runner(client, it.store, options=options, at_step=at_step, now=lambda: NOW)
            try:
                await runner.run(make_run_request(ACCOUNT, DAY, "usd"), requested_by="test")
            except Crash:
                assert crash_after is not None
            finally:
                await runner.close()
        posted = await it.settle(windows=2, page_size=100)
        assert (posted.settlement.roll_up.row_count, posted.total_net) == (ROWS, right["total_net"])
        assert await verify_run(it.store, await it.history(posted.run_id or "")) == []
