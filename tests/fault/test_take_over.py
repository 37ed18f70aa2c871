"""What a later try takes over of a run: its pages, its owner, its tenant; and what nobody may take over by mistake.

Without these a pull that is too slow would start from nothing for ever, one database would be two by its paths, or a
run would be stranded although nobody works on it.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from datetime import date as Date
from pathlib import Path
from typing import cast

import apsw
import httpx
import pytest
from aiohttp import web

from fake_processor import FakeProcessor
from paykit_settle import posting, run_routes
from paykit_settle.checking import verify_run
from paykit_settle.claiming import Asked
from paykit_settle.client import ProcessorClient
from paykit_settle.config import Settings
from paykit_settle.errors import (
    InvalidRequest,
    InvariantViolated,
    ProcessorRejected,
    ProcessorUnavailable,
    RunRefused,
    SettlementConflict,
    StoreBusy,
)
from paykit_settle.lifecycle import State
from paykit_settle.models import PostedSettlement
from paykit_settle.money import ScaleProfile
from paykit_settle.page_buffer import PageBuffer
from paykit_settle.paging import PagePlan
from paykit_settle.retry import RetryPolicy
from paykit_settle.run import RunOptions
from paykit_settle.run_request import RunRequest
from paykit_settle.service import create_app
from paykit_settle.store.evidence import NewPage, PageKey
from paykit_settle.store.freezing import book_attempt
from paykit_settle.store.owner import Owner, is_alive
from paykit_settle.store.store import Store
from paykit_settle.store.upkeep import prune
from tests.fault.silence import unanswered
from tests.fault.stage import ACCOUNT, DAY, LIST, a_processor, host, refuse, scripted, wire_row

D16 = "2026-01-16"


@pytest.fixture
async def fake() -> AsyncIterator[FakeProcessor]:
    async with a_processor([wire_row(f"t{number}", 100, second=number) for number in range(50)]) as processor:
        yield processor


async def test_pull_that_its_deadline_ended_gets_further_each_time(fake: FakeProcessor, tmp_path: Path) -> None:
    options = RunOptions(page_size=1, windows_max=1, pull_deadline_s=60)
    patient = RetryPolicy(attempts_max=1, request_timeout_s=600, deadline_s=600)
    async with host(tmp_path / "paykit.db", fake.url, policy=patient, options=options) as here:
        kept = []
        with unanswered(f"GET {LIST}", nth=[20, 40], patience_s=60) as left:
            for ends_early in (True, True, False):
                outcome = await here.attempt(DAY)
                assert isinstance(outcome, ProcessorUnavailable) is ends_early
                kept.append(len((await here.history(DAY)).pages))
        assert left == [20, 40]
        assert kept == [19, 38, 50]
        assert await here.balance() == 5_000


def test_owners_of_one_file_see_each_other_by_whichever_path(tmp_path: Path) -> None:
    (tmp_path / "real.db").touch()
    (tmp_path / "link.db").symlink_to(tmp_path / "real.db")
    one, other = Owner(tmp_path / "real.db"), Owner(tmp_path / "link.db")
    assert other.is_alive(one.name)
    assert one.is_alive(other.name)
    assert is_alive(tmp_path / "link.db", one.name)
    one.close()
    assert not is_alive(tmp_path / "link.db", one.name)
    other.close()


async def test_busy_database_does_not_strand_what_the_processor_has(
    fake: FakeProcessor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(posting, "BOOKING_WAIT_S", 0)
    refusals = [StoreBusy("another process holds the lock")] * 2
    book = book_attempt

    def busy(connection: apsw.Connection, *arguments: object, **more: object) -> None:
        if refusals:
            raise refusals.pop()
        book(connection, *arguments, **more)  # type: ignore[arg-type]  # what it was called with

    monkeypatch.setattr("paykit_settle.posting.book_attempt", busy)
    async with host(tmp_path / "paykit.db", fake.url) as here:
        assert (await here.run(DAY)).total_net == 5_000
        assert await here.balance() == 5_000
        assert refusals == []


async def test_one_run_with_a_bug_keeps_no_other_from_being_resumed(
    fake: FakeProcessor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with host(tmp_path / "paykit.db", fake.url) as here:
        fake.fault("error_503", route=f"GET {LIST}", retry_after_s=0)
        for day in (DAY, D16):
            assert isinstance(await here.attempt(day), ProcessorUnavailable)
        fake.heal()
        await here.change("UPDATE runs SET state = 'pulling', owner = 'dead'")
        run_days = here.runner.run_as

        async def buggy(wanted: RunRequest, how: Asked) -> object:
            if wanted.date.isoformat() == DAY:
                raise ZeroDivisionError
            return await run_days(wanted, how)

        monkeypatch.setattr(here.runner, "run_as", buggy)
        outcomes = [outcome for _, outcome in await here.resume()]
        assert isinstance(outcomes[0], InvariantViolated)
        assert isinstance(outcomes[1], PostedSettlement)


async def test_resume_names_the_run_that_a_live_process_holds(fake: FakeProcessor, tmp_path: Path) -> None:
    database = tmp_path / "paykit.db"
    async with host(database, fake.url) as here:
        fake.fault("error_503", route=f"GET {LIST}", retry_after_s=0)
        assert isinstance(await here.attempt(DAY), ProcessorUnavailable)
        fake.heal()
        await here.change("UPDATE runs SET state = 'pulling', owner = ?", here.runner._owner.name)
        done = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "paykit_settle", "resume", "--database", str(database), "--processor-url", fake.url,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, err = await done.communicate()
        assert (done.returncode, "0 runs resumed" in out.decode()) == (3, True)
        assert "is pulling: it is in progress in a process that is alive" in err.decode()


async def test_page_that_no_other_follows_is_stored_in_time() -> None:
    """A processor that is slow must not keep what it has sent waiting for a full batch."""
    stored = asyncio.Event()

    class Notes:
        async def write(self, _work: object) -> None:
            stored.set()

    plan = PagePlan(start_s=0, end_s=10, page_size=1, windows_max=1)
    buffer = PageBuffer(cast(Store, Notes()), PageKey(run=1, pull=1, period=DAY), plan)
    page = NewPage(
        number=1, window=0, cursor=None, last_id="t1", row_count=1, has_more=True, window_start_s=0, window_end_s=10,
        body=b"{}", received_at_ms=1,
    )  # fmt: skip
    await buffer.put(page)
    assert not stored.is_set()
    await asyncio.wait_for(stored.wait(), 30)


async def test_unknown_run_of_a_dead_owner_can_be_resolved_and_that_of_a_live_one_not(
    fake: FakeProcessor, tmp_path: Path
) -> None:
    async with host(tmp_path / "paykit.db", fake.url) as here:
        await here.run(DAY)
        await here.change("UPDATE runs SET state = 'unknown', owner = 'somebody', settlement_id = NULL")
        with pytest.raises(InvalidRequest, match="nobody works on"):
            await here.resolve("setl_0001", alive=lambda _name: True)
        with pytest.raises(InvalidRequest, match="nobody works on"):
            await here.resolve(None, alive=lambda _name: True)
        ended = await here.resolve("setl_0001")
        assert (ended.state, ended.owner) == (State.POSTED, None)
        assert await here.balance() == 5_000


async def test_remote_verification_names_what_the_processor_has_instead(fake: FakeProcessor, tmp_path: Path) -> None:
    async with (
        host(tmp_path / "first.db", fake.url) as first,
        host(tmp_path / "paykit.db", fake.url) as here,
        ProcessorClient(fake.url) as client,
    ):
        cue = scripted(fake)
        cue.instead = refuse(422)
        assert isinstance(await here.attempt(D16), ProcessorRejected)
        cue.behave()
        found = await verify_run(here.store, await here.history(D16), remote=client)
        assert found == ["the processor has no settlement for this day"]
        await first.run(DAY)
        fake.state.add_transactions(ACCOUNT, [wire_row("more", 7)])
        assert isinstance(await here.attempt(DAY), SettlementConflict)
        found = await verify_run(here.store, await here.history(DAY), remote=client)
        assert found == ["the processor has another settlement for this day: setl_0001"]


async def test_amount_that_the_scale_takes_out_of_range_refuses_its_run_and_no_other(
    fake: FakeProcessor, tmp_path: Path
) -> None:
    fake.state.add_transactions(ACCOUNT, [wire_row("huge", 2**63 - 1, day=D16, status="pending")])
    options = RunOptions(scale=ScaleProfile(overrides={"usd": 1}))
    async with host(tmp_path / "paykit.db", fake.url, options=options) as here:
        assert isinstance(await here.attempt(D16), RunRefused)
        assert (await here.stored(D16)).state is State.FAILED
        assert (await here.run(DAY)).total_net == 50_000


async def test_rows_are_cut_off_and_not_left_out_when_their_page_is_pruned_meanwhile(
    fake: FakeProcessor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with host(tmp_path / "paykit.db", fake.url, options=RunOptions(page_size=10)) as here:
        await here.run(DAY)
    app = create_app(Settings(processor_url=fake.url, database=str(tmp_path / "paykit.db")))
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    render = run_routes._render

    def pruning(*arguments: object) -> bytes:
        store = app[run_routes.store_key]
        store.submit(
            lambda connection: prune(
                connection, today=Date(2026, 6, 1), older_than_days=10, look_back_days=0, look_back_listings=0
            )
        ).result()
        return render(*arguments)  # type: ignore[arg-type]  # what it was called with

    monkeypatch.setattr(run_routes, "_render", pruning)
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/settlements/run_000001/transactions"
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
        with pytest.raises(httpx.RemoteProtocolError):
            await client.get(url)
    await runner.cleanup()
