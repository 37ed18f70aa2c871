"""What goes on by itself, and what is left alone: by its time, its processor, its owner, or a person's say.

Without these a service would leave a lost answer for somebody to find, hammer a processor that is down, or take up a
run that is settled elsewhere.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from fake_processor import FakeProcessor
from paykit_settle.claiming import Asked
from paykit_settle.config import Settings
from paykit_settle.driving import LOOK_EVERY_S, Driver, request_of
from paykit_settle.errors import InvalidRequest, OutcomeUnknown, SettlementConflict, StoreUnavailable
from paykit_settle.lifecycle import State, Step
from paykit_settle.models import PostedSettlement
from paykit_settle.retry import BACK_OFF_FIRST_S
from paykit_settle.service import create_app
from paykit_settle.store.waiting import RunWaiting
from tests.fault.stage import (
    DAY,
    SETTLEMENTS,
    Host,
    Ticks,
    a_processor,
    check_sent_once,
    check_truth,
    columns,
    host,
    of_kind,
    posts,
    wire_row,
)
from tests.loop_clock import everybody_waits, pass_time

DAYS = [f"2026-01-{number}" for number in range(15, 20)]
LOOK_UP = f"GET {SETTLEMENTS}"


class Killed(BaseException):
    """The end of a process at a step."""


@pytest.fixture
async def fake() -> AsyncIterator[FakeProcessor]:
    rows = [wire_row(f"t{number}", 100, day=day) for number, day in enumerate(DAYS)]
    async with a_processor(rows) as processor:
        yield processor


def dying_at(step: Step) -> object:
    def at_step(reached: Step) -> None:
        if reached is step:
            raise Killed

    return at_step


async def lose(here: Host, fake: FakeProcessor, day: str = DAY) -> None:
    """Leaves the day unknown: the answer was lost, and nobody can look."""
    fake.fault("reset_after_effect", route=f"POST {SETTLEMENTS}")
    fake.fault("error_503", route=LOOK_UP, after=1, retry_after_s=0)
    assert isinstance(await here.attempt(day), OutcomeUnknown)
    fake.heal()


async def kill(database: Path, url: str, step: Step, *days: str) -> None:
    for day in days or (DAY,):
        async with host(database, url, at_step=dying_at(step)) as here:  # type: ignore[arg-type]  # what it is called with
            with pytest.raises(Killed):
                await here.run(day)


async def due(here: Host) -> list[object]:
    """What comes of a resume at this very moment of the host's clock."""
    return [outcome for _, outcome in await here.runner.resume(requested_by="test")]


def stored_runs(database: Path) -> list[tuple[object, ...]]:
    return columns(database, "SELECT * FROM runs ORDER BY id")


# When.


async def test_unknown_run_is_left_alone_until_its_time_has_come(fake: FakeProcessor, tmp_path: Path) -> None:
    async with host(tmp_path / "paykit.db", fake.url) as here:
        await lose(here, fake)
        run = await here.stored()
        assert (run.state, run.owner, run.tries, run.needs_person) == (State.UNKNOWN, None, 1, 0)
        assert run.retry_at_ms is not None
        assert await due(here) == []
        here.ticks.advance(BACK_OFF_FIRST_S - (here.ticks() - run.changed_at_ms) // 1000 - 2)
        if here.ticks() < run.retry_at_ms:  # unless this very test took its time
            assert await due(here) == []
        here.ticks.advance(BACK_OFF_FIRST_S)
        assert [type(outcome) for outcome in await due(here)] == [PostedSettlement]
        check_sent_once(fake)
        await check_truth(here, fake)


@pytest.mark.parametrize("step", [Step.CLAIMED, Step.BEFORE_FREEZE, Step.FROZEN, Step.ANSWERED], ids=str)
async def test_claim_whose_owner_died_is_due_at_once(fake: FakeProcessor, tmp_path: Path, step: Step) -> None:
    database = tmp_path / "paykit.db"
    await kill(database, fake.url, step)
    assert columns(database, "SELECT retry_at_ms, tries, owner IS NULL FROM runs") == [(None, 0, 0)]
    async with host(database, fake.url) as here:
        assert [type(outcome) for outcome in await due(here)] == [PostedSettlement]
        await check_truth(here, fake)


async def test_claim_of_a_waiting_run_whose_new_owner_died_is_due_at_once(fake: FakeProcessor, tmp_path: Path) -> None:
    database = tmp_path / "paykit.db"
    async with host(database, fake.url) as here:
        await lose(here, fake)
    async with host(database, fake.url, at_step=dying_at(Step.BEFORE_LOOK_UP)) as here:  # type: ignore[arg-type]  # as above
        with pytest.raises(Killed):
            await here.run()
    async with host(database, fake.url) as here:
        assert [type(outcome) for outcome in await due(here)] == [PostedSettlement]


async def test_who_asks_for_the_day_need_not_wait(fake: FakeProcessor, tmp_path: Path) -> None:
    async with host(tmp_path / "paykit.db", fake.url) as here:
        await lose(here, fake)
        assert (await here.run()).settlement_id == "setl_0001"
        check_sent_once(fake)


async def test_who_asks_while_a_driver_looks_does_not_get_the_drivers_answer(
    fake: FakeProcessor, tmp_path: Path
) -> None:
    """The driver's try is refused, for the run is not due; the caller had joined it, and goes on by itself."""
    async with host(tmp_path / "paykit.db", fake.url) as here:
        await lose(here, fake)
        request = request_of(await here.stored())
        driver, caller = await asyncio.gather(
            here.runner.run_as(request, Asked(by="service", only_due=True)), here.run(), return_exceptions=True
        )
        assert isinstance(driver, RunWaiting)
        assert isinstance(caller, PostedSettlement)
        check_sent_once(fake)


async def test_resume_of_one_run_takes_it_now_and_of_one_that_has_ended_says_so(
    fake: FakeProcessor, tmp_path: Path
) -> None:
    async with host(tmp_path / "paykit.db", fake.url) as here:
        await lose(here, fake)
        posted = await here.runner.resume_one(await here.stored(), requested_by="test")
        assert (posted.settlement_id, posted.replayed) == ("setl_0001", False)
        again = await here.runner.resume_one(await here.stored(), requested_by="test")
        assert (again.settlement_id, again.replayed) == ("setl_0001", True)
        await here.change("UPDATE runs SET state = 'failed'")
        with pytest.raises(InvalidRequest, match="run_000001 is failed, not unfinished"):
            await here.runner.resume_one(await here.stored(), requested_by="test")


# By whom.


async def test_run_of_another_processor_is_left_untouched(fake: FakeProcessor, tmp_path: Path) -> None:
    database = tmp_path / "paykit.db"
    await kill(database, fake.url, Step.BEFORE_POST)
    before = stored_runs(database)
    with a_processor() as other:
        async with host(database, other.url) as there:
            assert await there.resume() == []
            with pytest.raises(SettlementConflict):
                await there.runner.resume_one(await there.stored(), requested_by="test")
        assert other.requests == []
    assert stored_runs(database) == before
    async with host(database, fake.url) as here:
        assert [type(outcome) for outcome in await due(here)] == [PostedSettlement]


async def test_run_that_needs_a_person_is_taken_by_a_person_only(fake: FakeProcessor, tmp_path: Path) -> None:
    async with host(tmp_path / "paykit.db", fake.url) as here:
        await lose(here, fake)
        await here.change("UPDATE runs SET needs_person = 1, retry_at_ms = NULL")
        assert await here.resume() == []
        posted = await here.runner.resume_one(await here.stored(), requested_by="test")
        assert posted.settlement_id == "setl_0001"
        assert (await here.stored()).needs_person == 0


async def test_idle_pull_of_this_very_process_is_free_and_of_another_not(fake: FakeProcessor, tmp_path: Path) -> None:
    database = tmp_path / "paykit.db"
    await kill(database, fake.url, Step.CLAIMED)
    async with host(database, fake.url) as here, host(database, fake.url) as another:
        await here.change("UPDATE runs SET owner = ?", here.runner._owner.name)
        assert await due(another) == []
        assert [type(outcome) for outcome in await due(here)] == [PostedSettlement]


async def test_of_three_drivers_on_one_file_each_run_is_resumed_by_one(fake: FakeProcessor, tmp_path: Path) -> None:
    database = tmp_path / "paykit.db"
    await kill(database, fake.url, Step.BEFORE_POST, *DAYS[:3])
    await kill(database, fake.url, Step.BEFORE_FREEZE, *DAYS[3:])
    async with (
        host(database, fake.url) as one,
        host(database, fake.url) as two,
        host(database, fake.url) as three,
    ):
        found = await asyncio.gather(*(due(each) for each in (one, two, three)))
        outcomes = [outcome for each in found for outcome in each]
        assert [type(outcome) for outcome in outcomes] == [PostedSettlement] * len(DAYS)
        await check_truth(one, fake)
    assert len({request.idempotency_key for request in posts(fake)}) == len(posts(fake)) == len(DAYS)


async def test_run_that_another_driver_tried_in_vain_a_moment_ago_is_not_tried_again(
    fake: FakeProcessor, tmp_path: Path
) -> None:
    """Both saw it due; the claim decides, by the time that the first has written."""
    database = tmp_path / "paykit.db"
    async with host(database, fake.url) as one, host(database, fake.url) as two:
        await lose(one, fake)
        for each in (one, two):
            each.ticks.advance(BACK_OFF_FIRST_S)
        fake.fault("error_503", route=LOOK_UP, retry_after_s=0)
        fake.fault("error_503", route=f"POST {SETTLEMENTS}", retry_after_s=0)
        found = await asyncio.gather(due(one), due(two))
        assert sorted(len(each) for each in found) == [0, 1]
        assert (await one.stored()).tries == 2


# The background task of a service.


def driver_of(here: Host) -> Driver:
    return Driver(lambda: here.runner.resume(requested_by="service", is_quiet=True), here.store, now_ms=here.ticks)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What stands in the log of a service; that a request is tried again does not, see `cli.py`."""
    ours = [record for record in caplog.records if record.name.startswith("paykit_settle")]
    return [record.getMessage() for record in ours if record.levelno >= logging.WARNING]


async def test_driver_says_a_change_of_state_once_and_nothing_of_what_stays(
    fake: FakeProcessor, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with host(tmp_path / "paykit.db", fake.url) as here:
        await lose(here, fake)
        fake.fault("error_503", retry_after_s=0)
        driver = driver_of(here)
        for _ in range(5):
            here.ticks.advance(15 * 60)
            assert await driver.look() == LOOK_EVERY_S
        assert said(caplog) == []
        fake.heal()
        here.ticks.advance(15 * 60)
        await driver.look()
        assert said(caplog) == [f"resumed run_000001 of acct_123 on {DAY}: posted as setl_0001"]


async def test_driver_comes_back_when_the_next_run_is_due(fake: FakeProcessor, tmp_path: Path) -> None:
    async with host(tmp_path / "paykit.db", fake.url) as here:
        driver = driver_of(here)
        assert await driver.look() == LOOK_EVERY_S
        await lose(here, fake)
        await here.change("UPDATE runs SET retry_at_ms = ?", here.ticks() + 30_000)
        assert 1 <= await driver.look() <= 30
        await here.change("UPDATE runs SET retry_at_ms = ?", here.ticks() + 3_600_000)
        assert await driver.look() == LOOK_EVERY_S


async def test_driver_says_once_why_a_run_cannot_be_taken_up(
    fake: FakeProcessor, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with host(tmp_path / "paykit.db", fake.url) as here:
        await lose(here, fake)
        await here.change("UPDATE runs SET zone = 'Nowhere/Else', state = 'pulling', attempt = 2")
        driver = driver_of(here)
        for _ in range(4):
            here.ticks.advance(15 * 60)
            await driver.look()
    (line,) = said(caplog)
    assert "run_000001" in line
    assert "unknown time zone 'Nowhere/Else'" in line


async def test_driver_says_once_that_the_database_cannot_be_read(
    fake: FakeProcessor, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with host(tmp_path / "paykit.db", fake.url) as here:

        async def broken() -> list[object]:
            raise StoreUnavailable("the disk is broken")

        driver = Driver(broken, here.store, now_ms=here.ticks)  # type: ignore[arg-type]  # never returns
        assert [await driver.look() for _ in range(3)] == [LOOK_EVERY_S] * 3
    assert caplog.text.count("the disk is broken") == 1


@asynccontextmanager
async def serving(fake: FakeProcessor, database: Path, ticks: Ticks) -> AsyncIterator[web.AppRunner]:
    app = create_app(Settings(processor_url=fake.url, database=str(database), attempts_max=1), now_ms=ticks)
    service = web.AppRunner(app)
    await service.setup()
    try:
        await web.TCPSite(service, "127.0.0.1", 0).start()
        yield service
    finally:
        await service.cleanup()


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> "asyncio.Queue[int]":
    """Gets an entry for each look that a driver has ended; then it goes to sleep."""
    look, ended = Driver.look, asyncio.Queue[int]()

    async def noted(self: Driver) -> int:
        ended.put_nowait(await look(self))
        return 60

    monkeypatch.setattr(Driver, "look", noted)
    return ended


@pytest.mark.parametrize("step", [Step.PAGE_STORED, Step.FROZEN, Step.ANSWERED], ids=str)
async def test_service_resumes_at_its_start_what_a_dead_process_left(
    fake: FakeProcessor, tmp_path: Path, step: Step, looks: "asyncio.Queue[int]"
) -> None:
    database = tmp_path / "paykit.db"
    await kill(database, fake.url, step)
    async with serving(fake, database, Ticks()):
        await looks.get()
    assert columns(database, "SELECT state, owner, requested_by FROM runs") == [("posted", None, "service")]
    async with host(database, fake.url) as here:
        await check_truth(here, fake)


async def test_service_goes_on_by_itself_with_an_unknown_run_when_its_time_has_come(
    fake: FakeProcessor, tmp_path: Path, caplog: pytest.LogCaptureFixture, looks: "asyncio.Queue[int]"
) -> None:
    database, ticks = tmp_path / "paykit.db", Ticks()
    async with host(database, fake.url) as here:
        await lose(here, fake)
    asked = len(of_kind(fake, "GET", SETTLEMENTS))
    fake.fault("error_503", retry_after_s=0)
    caplog.clear()

    async def later() -> None:
        await everybody_waits()  # also the driver
        ticks.advance(15 * 60)
        pass_time(LOOK_EVERY_S)
        await looks.get()

    async with serving(fake, database, ticks):
        await looks.get()
        assert len(of_kind(fake, "GET", SETTLEMENTS)) == asked  # not due yet
        for tries in (2, 3):
            await later()
            assert columns(database, "SELECT state, owner, tries FROM runs") == [("unknown", None, tries)]
        assert "run_000001" not in caplog.text
        fake.heal()
        await later()
        assert columns(database, "SELECT state, owner, tries FROM runs") == [("posted", None, 0)]
    assert caplog.text.count("resumed run_000001") == 1
    check_sent_once(fake)
