"""A claim is given back whatever ends a run, with the error; and what cannot be written is not forgotten.

Without these a full disk at the wrong moment would leave a day with a living process that does nothing about it, the
money at the processor and not in the ledger, and everybody told for ever that the run is in progress.
"""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from fake_processor import FakeProcessor
from paykit_settle import giving_back, posting
from paykit_settle.errors import (
    BalanceOutOfRange,
    Interrupted,
    InvariantViolated,
    ProcessorUnavailable,
    RunInProgress,
    StoreBusy,
    StoreUnavailable,
)
from paykit_settle.lifecycle import State, Step
from paykit_settle.models import PostedSettlement
from paykit_settle.money import AMOUNT_MAX
from paykit_settle.report import warnings_of
from paykit_settle.retry import BACK_OFF_FIRST_S, BACK_OFF_MAX_S
from paykit_settle.store.freezing import book_attempt
from tests.fault.full_disk import Disk
from tests.fault.gate import Gate
from tests.fault.stage import (
    ACCOUNT,
    LIST,
    SETTLEMENTS,
    TOTAL,
    Host,
    a_processor,
    check_sent_once,
    check_truth,
    host,
    posts,
    wire_row,
)
from tests.loop_clock import everybody_waits, pass_time

D16 = "2026-01-16"
LATE = (Step.BOOKED, Step.BEFORE_GIVE_BACK, Step.GIVEN_BACK)
BOOKING = "INSERT INTO JOURNALS"
PUT_BALANCE = (
    "INSERT INTO accounts (tenant, id, currency, balance, floor, created_at_ms) VALUES (?, 'balance', 'usd', ?, 0, 1) "
    "ON CONFLICT (tenant, id, currency) DO UPDATE SET balance = excluded.balance"
)


class Killed(BaseException):
    """The end of a process at a step."""


@pytest.fixture
def fake() -> Iterator[FakeProcessor]:
    with FakeProcessor() as processor:  # in a thread of its own: a gate holds it, not this loop
        yield processor


def when(step: Step, act: Callable[[], object]) -> Callable[[Step], None]:
    """Acts each time that the step is reached."""

    def at_step(reached: Step) -> None:
        if reached is step:
            act()

    return at_step


def failing_once(error: BaseException) -> Callable[[], None]:
    left = [error]

    def fail() -> None:
        if left:
            raise left.pop()

    return fail


async def how_it_stands(here: Host) -> tuple[object, ...]:
    run = await here.stored()
    return (run.state, run.owner, run.error_code, run.tries)


async def wait_until_given_back(here: Host) -> None:
    while (await here.stored()).owner is not None:
        await everybody_waits()


# After the POST.


async def test_disk_that_is_full_at_the_booking_leaves_an_error_and_no_claim(
    fake: FakeProcessor, tmp_path: Path
) -> None:
    async with host(tmp_path / "paykit.db", fake.url) as here:
        disk = Disk(here.store)
        disk.fill(BOOKING)
        with pytest.raises(StoreUnavailable) as raised:
            await here.run()
        assert "the processor has it as setl_0001" in warnings_of(raised.value)[0]
        assert await how_it_stands(here) == (State.FROZEN, None, "store_unavailable", 1)
        run = await here.stored()
        assert run.retry_at_ms == run.changed_at_ms + BACK_OFF_FIRST_S * 1000
        disk.empty()
        ((_, posted),) = await here.resume()
        assert isinstance(posted, PostedSettlement)
        assert (await how_it_stands(here))[3] == 0
        check_sent_once(fake)
        await check_truth(here, fake)


async def test_each_try_in_vain_waits_longer_up_to_a_quarter_of_an_hour(fake: FakeProcessor, tmp_path: Path) -> None:
    async with host(tmp_path / "paykit.db", fake.url) as here:
        disk = Disk(here.store)
        disk.fill(BOOKING)
        with pytest.raises(StoreUnavailable):
            await here.run()
        waits = []
        for _ in range(6):
            await here.resume()
            run = await here.stored()
            assert run.retry_at_ms is not None
            waits.append((run.retry_at_ms - run.changed_at_ms) // 1000)
        assert waits == [120, 240, 480, BACK_OFF_MAX_S, BACK_OFF_MAX_S, BACK_OFF_MAX_S]
        disk.empty()
        await here.resume()
        await check_truth(here, fake)


async def test_bug_at_the_booking_is_stored_as_one_and_the_run_goes_on_later(
    fake: FakeProcessor, tmp_path: Path
) -> None:
    at_step = when(Step.BEFORE_BOOKING, failing_once(ZeroDivisionError("of ours")))
    async with host(tmp_path / "paykit.db", fake.url, at_step=at_step) as here:
        with pytest.raises(ZeroDivisionError):
            await here.run()
        assert await how_it_stands(here) == (State.FROZEN, None, "invariant_violated", 1)
        ((_, posted),) = await here.resume()
        assert isinstance(posted, PostedSettlement)
        await check_truth(here, fake)


@pytest.mark.parametrize("error", [MemoryError(), ZeroDivisionError("of ours"), InvariantViolated("seen")], ids=repr)
@pytest.mark.parametrize("step", [Step.CLAIMED, Step.PAGE_STORED, Step.INDEXED, Step.BEFORE_FREEZE], ids=str)
async def test_bug_before_the_freeze_ends_the_run_as_failed(
    fake: FakeProcessor, tmp_path: Path, step: Step, error: Exception
) -> None:
    async with host(tmp_path / "paykit.db", fake.url, at_step=when(step, failing_once(error))) as here:
        with pytest.raises(type(error)):
            await here.run()
        assert await how_it_stands(here) == (State.FAILED, None, "invariant_violated", 0)
        assert await here.resume() == []
        assert (await here.run()).settlement_id == "setl_0001"
        await check_truth(here, fake)


async def test_disk_that_is_full_during_the_pull_ends_the_run_as_failed(fake: FakeProcessor, tmp_path: Path) -> None:
    async with host(tmp_path / "paykit.db", fake.url) as here:
        disk = Disk(here.store)
        disk.fill("INSERT INTO PAGES")
        with pytest.raises(StoreUnavailable):
            await here.run()
        assert await how_it_stands(here) == (State.FAILED, None, "store_unavailable", 0)
        disk.empty()
        assert (await here.run()).settlement_id == "setl_0001"
        await check_truth(here, fake)


async def test_pull_that_fails_on_a_full_disk_has_failed_once_that_can_be_written(
    fake: FakeProcessor, tmp_path: Path
) -> None:
    disks: list[Disk] = []
    async with host(tmp_path / "paykit.db", fake.url, at_step=when(Step.CLAIMED, lambda: disks[0].fill())) as here:
        disks.append(Disk(here.store))
        with pytest.raises(StoreUnavailable):
            await here.run()
        assert (await here.stored()).owner is not None
        disks[0].empty()
        await everybody_waits()
        pass_time(giving_back.TRY_EVERY_S)
        await wait_until_given_back(here)
        assert await how_it_stands(here) == (State.FAILED, None, "store_unavailable", 0)
    async with host(tmp_path / "paykit.db", fake.url) as another:
        assert (await another.run()).settlement_id == "setl_0001"
        await check_truth(another, fake)


@pytest.mark.parametrize("step", [each for each in Step if Step.BEFORE_CLAIM is not each and each not in LATE], ids=str)
async def test_error_at_any_step_leaves_nobody_with_the_claim(tmp_path: Path, step: Step) -> None:
    """Whatever ends it: the next who asks for the day settles it once."""
    with FakeProcessor() as fake:
        at_step = when(step, failing_once(StoreUnavailable("the disk is broken")))
        async with host(tmp_path / "paykit.db", fake.url, at_step=at_step) as here:
            if step is not Step.ROWS_STORED:  # the reference day owes nothing from before
                with pytest.raises(StoreUnavailable):
                    await here.run()
                assert (await here.stored()).owner is None
            async with host(tmp_path / "paykit.db", fake.url) as another:
                assert (await another.run()).settlement_id == "setl_0001"
                await check_truth(another, fake)
        check_sent_once(fake)


# When the claim cannot be given back either.


async def stranded(here: Host, disk: Disk) -> None:
    """The run's end could not be written at all: the processor has it, the claim is this process's."""
    with pytest.raises(StoreUnavailable):
        await here.run()
    run = await here.stored()
    assert (run.state, run.owner) == (State.FROZEN, here.runner._owner.name)


def filled_at_booking(disks: list[Disk]) -> Callable[[Step], None]:
    left = [1]

    def fill() -> None:
        if left and left.pop():
            disks[0].fill()

    return when(Step.BEFORE_BOOKING, fill)


async def test_claim_that_cannot_be_given_back_is_written_as_soon_as_the_database_takes_writes(
    fake: FakeProcessor, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disks: list[Disk] = []
    async with host(tmp_path / "paykit.db", fake.url, at_step=filled_at_booking(disks)) as here:
        disks.append(Disk(here.store))
        await stranded(here, disks[0])
        async with host(tmp_path / "paykit.db", fake.url) as another:
            assert await another.resume() == []  # its owner is alive
            for _ in range(3):
                await everybody_waits()
                pass_time(giving_back.TRY_EVERY_S)
            assert caplog.text.count("is given back as soon as the database takes writes") == 1
            disks[0].empty()
            await everybody_waits()
            pass_time(giving_back.TRY_EVERY_S)
            await wait_until_given_back(here)
            assert await how_it_stands(here) == (State.FROZEN, None, "store_unavailable", 1)
            ((_, posted),) = await another.resume()
            assert isinstance(posted, PostedSettlement)
            await check_truth(another, fake)
    check_sent_once(fake)


async def test_idle_claim_of_its_own_process_is_free_for_its_own_resume(fake: FakeProcessor, tmp_path: Path) -> None:
    disks: list[Disk] = []
    async with host(tmp_path / "paykit.db", fake.url, at_step=filled_at_booking(disks)) as here:
        disks.append(Disk(here.store))
        await stranded(here, disks[0])
        ((_, refused),) = await here.resume()
        assert isinstance(refused, StoreUnavailable)
        disks[0].empty()
        ((_, posted),) = await here.resume()
        assert isinstance(posted, PostedSettlement)
        # What was remembered is of a claim that is over, and undoes nothing.
        await everybody_waits()
        pass_time(giving_back.TRY_EVERY_S)
        await everybody_waits()
        assert (await here.stored()).state is State.POSTED
        await check_truth(here, fake)
    check_sent_once(fake)


async def test_who_asks_again_goes_before_a_claim_that_is_remembered(fake: FakeProcessor, tmp_path: Path) -> None:
    disks: list[Disk] = []
    async with host(tmp_path / "paykit.db", fake.url, at_step=filled_at_booking(disks)) as here:
        disks.append(Disk(here.store))
        await stranded(here, disks[0])
        disks[0].empty()
        gate = Gate(fake, "GET", SETTLEMENTS)
        again = asyncio.create_task(here.run())
        await gate.wait()
        pass_time(giving_back.TRY_EVERY_S)
        await everybody_waits()
        assert (await here.stored()).owner == here.runner._owner.name
        gate.open()
        assert (await again).settlement_id == "setl_0001"
        await check_truth(here, fake)


async def test_claim_that_is_never_given_back_is_free_once_its_process_has_ended(
    fake: FakeProcessor, tmp_path: Path
) -> None:
    disks: list[Disk] = []
    async with host(tmp_path / "paykit.db", fake.url, at_step=filled_at_booking(disks)) as here:
        disks.append(Disk(here.store))
        await stranded(here, disks[0])
    async with host(tmp_path / "paykit.db", fake.url) as another:
        assert (await another.stored()).owner is not None
        outcomes = await another.runner.resume(requested_by="test")  # at once: nobody wrote when to try again
        assert [type(outcome) for _, outcome in outcomes] == [PostedSettlement]
        await check_truth(another, fake)


async def test_process_that_ends_gives_back_what_it_remembers(fake: FakeProcessor, tmp_path: Path) -> None:
    disks: list[Disk] = []
    async with host(tmp_path / "paykit.db", fake.url, at_step=filled_at_booking(disks)) as here:
        disks.append(Disk(here.store))
        await stranded(here, disks[0])
        disks[0].empty()
    async with host(tmp_path / "paykit.db", fake.url) as another:
        assert await how_it_stands(another) == (State.FROZEN, None, "store_unavailable", 1)


# Booking again.


async def test_booking_that_was_committed_and_reported_as_busy_is_success(
    fake: FakeProcessor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(posting, "BOOKING_WAIT_S", 0)
    async with host(tmp_path / "paykit.db", fake.url) as here:
        book = book_attempt
        booked: list[int] = []

        def note(connection: apsw.Connection, *arguments: object, **more: object) -> None:
            book(connection, *arguments, **more)  # type: ignore[arg-type]  # what it was called with
            booked.append(1)

        write = here.store.write

        async def busy_after_the_booking(work: Callable[[apsw.Connection], object]) -> object:
            before = len(booked)
            done = await write(work)
            if len(booked) > before:
                raise StoreBusy("another process holds the lock")
            return done

        monkeypatch.setattr("paykit_settle.posting.book_attempt", note)
        monkeypatch.setattr(here.store, "write", busy_after_the_booking)
        assert (await here.run()).settlement_id == "setl_0001"
        assert booked == [1]
        await check_truth(here, fake)


async def test_posted_run_of_another_settlement_is_no_success(fake: FakeProcessor, tmp_path: Path) -> None:
    hosts: list[Host] = []

    def at_step(step: Step) -> None:
        if step is Step.BEFORE_BOOKING:
            sql = "UPDATE runs SET state = 'posted', owner = NULL, settlement_id = 'setl_0009'"
            hosts[0].store.submit(lambda connection: connection.execute(sql).fetchall()).result()

    async with host(tmp_path / "paykit.db", fake.url, at_step=at_step) as here:
        hosts.append(here)
        with pytest.raises(RunInProgress, match="taken over"):
            await here.run()
        assert (await here.stored()).settlement_id == "setl_0009"
        assert await here.balance() == 0


# The balance's range.


async def put_balance(here: Host, balance: int, tenant: str = ACCOUNT) -> None:
    await here.change(
        PUT_BALANCE,
        tenant,
        balance,
    )


@pytest.mark.parametrize(
    ("balance", "fits"),
    [(AMOUNT_MAX - TOTAL, True), (AMOUNT_MAX - TOTAL + 1, False), (AMOUNT_MAX, False), (-AMOUNT_MAX, True)],
)
async def test_settlement_that_could_not_be_booked_is_refused_before_anything_is_sent(
    fake: FakeProcessor, tmp_path: Path, balance: int, fits: bool
) -> None:
    async with host(tmp_path / "paykit.db", fake.url) as here:
        await put_balance(here, balance)
        if fits:
            assert (await here.run()).total_net == TOTAL
            assert await here.balance() == balance + TOTAL
            return
        with pytest.raises(BalanceOutOfRange, match="nothing was sent"):
            await here.run()
        assert await how_it_stands(here) == (State.FAILED, None, "balance_out_of_range", 0)
        assert posts(fake) == []
        await put_balance(here, 0)
        await here.run()
        await check_truth(here, fake)


@pytest.mark.parametrize(("balance", "fits"), [(-AMOUNT_MAX + 7, True), (-AMOUNT_MAX + 6, False)])
async def test_negative_settlement_is_held_to_the_lower_end(tmp_path: Path, balance: int, fits: bool) -> None:
    with a_processor([wire_row("r1", -7, kind="refund")]) as fake:
        async with host(tmp_path / "paykit.db", fake.url) as here:
            await put_balance(here, balance)
            outcome = await here.attempt()
            assert isinstance(outcome, PostedSettlement if fits else BalanceOutOfRange)
            assert len(posts(fake)) == fits


@pytest.mark.parametrize("room", [200, 199])
async def test_what_is_frozen_for_the_tenant_and_not_booked_yet_counts(tmp_path: Path, room: int) -> None:
    with a_processor([wire_row("t1", 100), wire_row("t2", 100, day=D16)]) as fake:
        database, tenants = tmp_path / "paykit.db", {ACCOUNT: "shop"}
        at_step = when(Step.BEFORE_POST, failing_once(Killed()))
        async with host(database, fake.url, at_step=at_step, tenants=tenants) as here:
            await put_balance(here, AMOUNT_MAX - room, "shop")
            with pytest.raises(Killed):
                await here.run()
        async with host(database, fake.url, tenants=tenants) as here:
            outcome = await here.attempt(D16)
            assert isinstance(outcome, PostedSettlement if room == 200 else BalanceOutOfRange)
            ((_, first),) = await here.resume()
            assert isinstance(first, PostedSettlement)
            assert isinstance(await here.attempt(D16), PostedSettlement if room == 200 else BalanceOutOfRange)


async def test_credit_that_comes_between_freeze_and_booking_leaves_an_error_and_no_claim(
    fake: FakeProcessor, tmp_path: Path
) -> None:
    hosts: list[Host] = []
    filled: list[int] = []

    def at_step(step: Step) -> None:
        if step is Step.ANSWERED and not filled:
            filled.append(1)
            bound = (ACCOUNT, AMOUNT_MAX)
            hosts[0].store.submit(lambda connection: connection.execute(PUT_BALANCE, bound).fetchall()).result()

    async with host(tmp_path / "paykit.db", fake.url, at_step=at_step) as here:
        hosts.append(here)
        with pytest.raises(BalanceOutOfRange) as raised:
            await here.run()
        assert "the processor has it as setl_0001" in warnings_of(raised.value)[0]
        assert await how_it_stands(here) == (State.FROZEN, None, "balance_out_of_range", 1)
        await put_balance(here, 0)
        await here.resume()
        await check_truth(here, fake)
    check_sent_once(fake)


# Stopped from outside.


@pytest.mark.parametrize(("method", "path", "state"), [("GET", LIST, "pulling"), ("POST", SETTLEMENTS, "frozen")])
async def test_run_that_is_cut_off_when_its_process_ends_is_given_back_due_at_once(
    tmp_path: Path, method: str, path: str, state: str
) -> None:
    with FakeProcessor() as fake:
        gate = Gate(fake, method, path)
        async with host(tmp_path / "paykit.db", fake.url) as here:
            running = asyncio.create_task(here.attempt())
            await gate.wait()
            await here.runner.close(timeout_s=0)
            outcome = await running
            assert isinstance(outcome, Interrupted)
            assert str(outcome) == f"run_000001 is {state}: `paykit-settle resume` goes on with it"
            assert await how_it_stands(here) == (state, None, None, 0)
            assert (await here.stored()).retry_at_ms is None
        gate.open()
        async with host(tmp_path / "paykit.db", fake.url) as another:
            outcomes = await another.runner.resume(requested_by="test")
            assert [type(outcome) for _, outcome in outcomes] == [PostedSettlement]
            await check_truth(another, fake)
        check_sent_once(fake)


async def test_run_that_is_cut_off_while_it_is_claimed_leaves_no_claim(fake: FakeProcessor, tmp_path: Path) -> None:
    async with host(tmp_path / "paykit.db", fake.url) as here:
        running = asyncio.create_task(here.attempt())
        await asyncio.sleep(0)
        here.runner.leave()
        assert isinstance(await running, Interrupted)
        runs = await here.store.read(lambda connection: connection.execute("SELECT owner FROM runs").fetchall())
        assert runs in ([], [(None,)])
        assert (await here.run()).settlement_id == "setl_0001"
        await check_truth(here, fake)


async def test_interruption_ends_what_is_pulling_and_no_resume_takes_it_up(fake: FakeProcessor, tmp_path: Path) -> None:
    gate = Gate(fake, "GET", LIST)
    async with host(tmp_path / "paykit.db", fake.url) as here:
        running = asyncio.create_task(here.attempt())
        await gate.wait()
        here.runner.interrupt()
        outcome = await running
        assert isinstance(outcome, Interrupted)
        assert str(outcome) == "nothing was posted; run it again to go on"
        assert await how_it_stands(here) == (State.FAILED, None, "interrupted", 0)
        assert isinstance(await here.attempt(D16), Interrupted)  # nothing begins any more
        assert await here.resume() == []
    gate.open()
    async with host(tmp_path / "paykit.db", fake.url) as another:
        assert await another.resume() == []
        await another.run()
        await check_truth(another, fake)


async def test_failed_run_is_not_due_and_keeps_no_time(fake: FakeProcessor, tmp_path: Path) -> None:
    fake.fault("error_503", route=f"GET {LIST}", retry_after_s=0)
    async with host(tmp_path / "paykit.db", fake.url) as here:
        assert isinstance(await here.attempt(), ProcessorUnavailable)
        run = await here.stored()
        assert (run.state, run.retry_at_ms, run.tries, run.needs_person) == (State.FAILED, None, 0, 0)
