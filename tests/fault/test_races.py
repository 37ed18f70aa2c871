"""Many who want the same day at once: callers, processes, schedulers, hosts, back-ups; one settlement comes of it.

Without these, a lock that only holds inside one process, or a database that only knows its own past, would settle a
day twice. Processes are real, sockets are real, and nothing waits by the clock: a gate at the processor holds a run.
"""

import asyncio
import shutil
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from aiohttp import web

from fake_processor import FakeProcessor
from paykit_settle.config import Settings
from paykit_settle.errors import OutcomeUnknown, RunInProgress, SettlementConflict
from paykit_settle.lifecycle import State, Step
from paykit_settle.models import PostedSettlement
from paykit_settle.run_request import make_run_request
from paykit_settle.service import create_app
from tests.fault.gate import GATE_TIMEOUT_S, Gate
from tests.fault.stage import (
    ACCOUNT,
    DAY,
    LIST,
    NO_LOOK_UP,
    SETTLEMENTS,
    TOTAL,
    Host,
    a_processor,
    check_truth,
    columns,
    host,
    of_kind,
    posts,
    scripted,
    wire_row,
)
from tests.programs import PAYKIT, PROGRAM_TIMEOUT_S, paykit, paykit_with, running

RUN = {"account": ACCOUNT, "date": DAY, "settlement_currency": "usd"}


class Killed(BaseException):
    """The end of a run at a step, as if its process had died there."""


@pytest.fixture
def fake() -> Iterator[FakeProcessor]:
    with FakeProcessor() as processor:
        yield processor


def serve(fake: FakeProcessor, database: Path, *, shutdown_timeout_s: int | None = None) -> list[str]:
    arguments = ["serve", "--port", "0", "--processor-url", fake.url, "--database", str(database)]
    if shutdown_timeout_s is None:
        return [str(PAYKIT), *arguments]
    return paykit_with({"service.SHUTDOWN_TIMEOUT_S": shutdown_timeout_s}, *arguments)


def url_of(line: str) -> str:
    return line.split()[3].rstrip(",")


def a_client(url: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=url, trust_env=False, timeout=PROGRAM_TIMEOUT_S)


@asynccontextmanager
async def serving(fake: FakeProcessor, database: Path) -> AsyncIterator[str]:
    """The service in this process, on a free port; its URL."""
    service = web.AppRunner(create_app(Settings(processor_url=fake.url, database=str(database))))
    await service.setup()
    try:
        await web.TCPSite(service, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{service.addresses[0][1]}"
    finally:
        await service.cleanup()


async def check_one(fake: FakeProcessor, database: Path) -> None:
    """One settlement, one booking, no leftovers; with the truth of `check_truth`."""
    assert [entry["total_net"] for entry in fake.state.settlements(account=ACCOUNT, date=DAY)] == [TOTAL]
    async with host(database, fake.url) as here:
        await check_truth(here, fake)
        assert await here.balance() == TOTAL
    assert columns(database, "SELECT state, owner FROM runs") == [("posted", None)]
    assert columns(database, "SELECT count(*) FROM journals WHERE operation = 'settlement'") == [(1,)]


# One database.


async def test_two_processes_and_ten_callers_at_once_settle_once(fake: FakeProcessor, tmp_path: Path) -> None:
    """SCH-01."""
    database = tmp_path / "paykit.db"
    fake.fault("latency", wait_ms=20)
    command = serve(fake, database)
    with (
        running(*command, cwd=tmp_path) as (_, first_line),
        running(*command, cwd=tmp_path) as (_, second_line),
    ):
        async with a_client(url_of(first_line)) as first, a_client(url_of(second_line)) as second:
            asked = [client.post("/settlements/run", json=RUN) for client in (first, second) for _ in range(5)]
            answers = await asyncio.gather(*asked)
            for answer in answers:
                if answer.status_code == 409:
                    assert answer.json()["error"] == "run_in_progress"
                    assert int(answer.headers["Retry-After"]) > 0
                else:
                    assert (answer.status_code, answer.json()["settlement_id"]) == (200, "setl_0001")
            assert 200 in {answer.status_code for answer in answers}
            for client in (first, second):
                late = await client.post("/settlements/run", json=RUN)
                assert (late.status_code, late.json()["settlement_id"], late.json()["replayed"]) == (
                    200,
                    "setl_0001",
                    True,
                )
    assert len(posts(fake)) == 1
    await check_one(fake, database)


async def test_second_process_is_told_that_the_run_is_in_progress(fake: FakeProcessor, tmp_path: Path) -> None:
    database = tmp_path / "paykit.db"
    gate = Gate(fake, "GET", LIST)
    async with host(database, fake.url) as here:
        running_run = asyncio.create_task(here.run())
        await gate.wait()
        day = ("--account", ACCOUNT, "--date", DAY)
        processor = ("--processor-url", fake.url, "--database", str(database))
        done = await asyncio.to_thread(paykit, "run", *day, *processor, cwd=tmp_path)
        assert (done.returncode, "run_in_progress" in done.stderr) == (3, True)
        async with host(database, fake.url) as another:
            assert await another.resume() == []
        gate.open()
        assert (await running_run).settlement_id == "setl_0001"
    await check_one(fake, database)


async def test_two_runners_on_one_database_settle_once(fake: FakeProcessor, tmp_path: Path) -> None:
    database = tmp_path / "paykit.db"
    async with host(database, fake.url) as first, host(database, fake.url) as second:
        outcomes = await asyncio.gather(*(each.attempt() for each in [first, second] * 5))
        assert {type(outcome) for outcome in outcomes} <= {PostedSettlement, RunInProgress}
        assert PostedSettlement in {type(outcome) for outcome in outcomes}
    assert len(posts(fake)) == 1
    await check_one(fake, database)


async def test_second_caller_waits_for_the_first_and_gets_the_same_answer(fake: FakeProcessor, tmp_path: Path) -> None:
    database = tmp_path / "paykit.db"
    gate = Gate(fake, "POST", SETTLEMENTS)
    async with host(database, fake.url) as here:
        calls = [asyncio.create_task(here.run()) for _ in range(10)]
        await gate.wait()
        gate.open()
        answers = await asyncio.gather(*calls)
        assert len({(answer.settlement_id, answer.replayed) for answer in answers}) == 1
    assert len(of_kind(fake, "GET", LIST)) == 1
    await check_one(fake, database)


async def test_second_caller_with_another_currency_is_a_conflict_during_the_run_and_after_it(
    fake: FakeProcessor, tmp_path: Path
) -> None:
    database = tmp_path / "paykit.db"
    gate = Gate(fake, "GET", LIST)
    async with serving(fake, database) as url, a_client(url) as client:
        first = asyncio.create_task(client.post("/settlements/run", json=RUN))
        await gate.wait()
        other = await client.post("/settlements/run", json=RUN | {"settlement_currency": "eur"})
        assert (other.status_code, other.json()["error"]) == (409, "settlement_conflict")
        gate.open()
        assert (await first).status_code == 200
        later = await client.post("/settlements/run", json=RUN | {"settlement_currency": "eur"})
        assert (later.status_code, later.json()["error"]) == (409, "settlement_conflict")
    await check_one(fake, database)


async def test_run_goes_on_when_its_client_disconnects(fake: FakeProcessor, tmp_path: Path) -> None:
    database = tmp_path / "paykit.db"
    gate = Gate(fake, "GET", LIST)
    async with serving(fake, database) as url:
        async with a_client(url) as client:
            leaver = asyncio.create_task(client.post("/settlements/run", json=RUN))
            await gate.wait()
            leaver.cancel()
            with pytest.raises(asyncio.CancelledError):
                await leaver
        async with a_client(url) as client:
            second = asyncio.create_task(client.post("/settlements/run", json=RUN))
            assert (await client.get("/healthz")).status_code == 200
            gate.open()
            answer = await second
            assert (answer.status_code, answer.json()["settlement_id"]) == (200, "setl_0001")
    assert len(of_kind(fake, "GET", LIST)) == 1  # had the run ended with its client, the day would be read twice
    await check_one(fake, database)


async def test_scheduler_that_fires_late_gets_the_first_answer_and_the_processor_hears_nothing(
    fake: FakeProcessor, tmp_path: Path
) -> None:
    database = tmp_path / "paykit.db"
    async with host(database, fake.url) as here:
        first = await here.run()
    heard = len(fake.requests)
    async with host(database, fake.url) as later:
        again = await later.run()
    assert (again.settlement_id, again.replayed, again.idempotency_key) == (
        first.settlement_id,
        True,
        first.idempotency_key,
    )
    assert again.settlement == first.settlement
    assert len(fake.requests) == heard
    await check_one(fake, database)


# SIGTERM.


def send_credits(client: httpx.AsyncClient) -> list[asyncio.Task[httpx.Response]]:
    """Twenty credits of 5 cents on their way, each with its key."""
    bodies = [
        {"idempotency_key": f"k{number}", "lines": [{"amount_minor": 5, "currency": "USD"}]} for number in range(20)
    ]
    return [asyncio.create_task(client.post("/v1/tenants/shop/credits", json=body)) for body in bodies]


async def test_sigterm_lets_the_run_in_flight_finish(fake: FakeProcessor, tmp_path: Path) -> None:
    """SRV-03: each credit once, one settlement, whatever had been answered when the service stopped."""
    database = tmp_path / "paykit.db"
    gate = Gate(fake, "POST", SETTLEMENTS)
    with running(*serve(fake, database), cwd=tmp_path) as (process, line):
        async with a_client(url_of(line)) as client:
            asked = asyncio.create_task(client.post("/settlements/run", json=RUN))
            await gate.wait()
            sent = send_credits(client)
            await sent[0]
            process.send_signal(signal.SIGTERM)
            gate.open()
            answer = await asked
            assert (answer.status_code, answer.json()["settlement_id"]) == (200, "setl_0001")
            await asyncio.gather(*sent, return_exceptions=True)
        assert await asyncio.to_thread(process.wait, PROGRAM_TIMEOUT_S) == 0
    with running(*serve(fake, database), cwd=tmp_path) as (_, line):
        async with a_client(url_of(line)) as client:
            again = await client.post("/settlements/run", json=RUN)
            assert (again.status_code, again.json()["replayed"]) == (200, True)
            resent = await asyncio.gather(*send_credits(client))
            assert {answer.status_code for answer in resent} <= {200, 201}
            for tenant, balance in (("shop", 20 * 5), (ACCOUNT, TOTAL)):
                told = await client.get(f"/v1/tenants/{tenant}/balance")
                assert told.json() == {"currency": "USD", "amount_minor": balance}
    await check_one(fake, database)


async def test_run_that_sigterm_cuts_off_is_finished_by_the_next_start(fake: FakeProcessor, tmp_path: Path) -> None:
    """SRV-03: out at the shutdown time-out, the run given back and due at once; the next start leaves no leftovers."""
    database = tmp_path / "paykit.db"
    gate = Gate(fake, "GET", LIST)
    with running(*serve(fake, database, shutdown_timeout_s=1), cwd=tmp_path) as (process, line):
        async with a_client(url_of(line)) as client:
            asked = asyncio.create_task(client.post("/settlements/run", json=RUN))
            await gate.wait()
            process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(process.wait, PROGRAM_TIMEOUT_S) == 0
            (answer,) = await asyncio.gather(asked, return_exceptions=True)
            assert isinstance(answer, httpx.TransportError) or (isinstance(answer, httpx.Response) and answer.is_error)
    assert columns(database, "SELECT state, owner, retry_at_ms, tries FROM runs") == [("pulling", None, None, 0)]
    gate.open()
    with running(*serve(fake, database), cwd=tmp_path) as (_, line):
        async with a_client(url_of(line)) as client:
            done = await client.post("/settlements/run", json=RUN)
            assert (done.status_code, done.json()["settlement_id"]) == (200, "setl_0001")
    assert len({(request.idempotency_key, request.body) for request in posts(fake)}) == 1
    await check_one(fake, database)


# Several databases.


@pytest.mark.parametrize("look_up", [True, False])
async def test_two_hosts_with_their_own_databases_end_with_the_same_settlement(
    fake: FakeProcessor, tmp_path: Path, look_up: bool
) -> None:
    cue = scripted(fake)
    if not look_up:
        cue.instead = NO_LOOK_UP
    async with host(tmp_path / "one.db", fake.url) as one, host(tmp_path / "two.db", fake.url) as two:
        answers = await asyncio.gather(one.run(), two.run())
        assert {answer.settlement_id for answer in answers} == {"setl_0001"}
        cue.behave()
        for here in (one, two):
            await check_truth(here, fake)
            assert await here.balance() == TOTAL
    assert len({(request.idempotency_key, request.body) for request in posts(fake)}) == 1


async def test_host_that_computes_another_body_is_refused_and_settles_nothing(
    fake: FakeProcessor, tmp_path: Path
) -> None:
    async with host(tmp_path / "one.db", fake.url) as one, host(tmp_path / "two.db", fake.url) as two:
        await one.run()
        fake.state.update_transaction(ACCOUNT, "txn_01", amount=20001, net=19391)
        for _ in range(2):
            assert isinstance(await two.attempt(), SettlementConflict)
        assert isinstance(await two.attempt(retry_rejected=True), SettlementConflict)
        assert (await two.balance(), len(posts(fake))) == (0, 1)
        await check_truth(one, fake)


async def test_host_with_another_body_and_no_look_up_settles_nothing_and_needs_a_person(
    fake: FakeProcessor, tmp_path: Path
) -> None:
    cue = scripted(fake)
    cue.instead = NO_LOOK_UP
    async with host(tmp_path / "one.db", fake.url) as one, host(tmp_path / "two.db", fake.url) as two:
        await one.run()
        fake.state.update_transaction(ACCOUNT, "txn_01", amount=20001, net=19391)
        for retry in (False, True, False):
            assert isinstance(await two.attempt(retry_rejected=retry), OutcomeUnknown)
            assert (await two.stored()).state is State.UNKNOWN
        assert await two.balance() == 0
        cue.behave()
        await check_truth(one, fake)


# Back-ups.


def copy_database(source: Path, target: Path) -> None:
    """A back-up of a database that nobody has open."""
    shutil.copyfile(source, target)
    for suffix in ("-wal", "-shm"):
        if source.with_name(source.name + suffix).exists():
            shutil.copyfile(source.with_name(source.name + suffix), target.with_name(target.name + suffix))


def dying_at(step: Step) -> Callable[[Step], None]:
    def at_step(reached: Step) -> None:
        if reached is step:
            raise Killed

    return at_step


STEPS_TAKEN = [
    step
    for step in Step
    if step
    not in (Step.BEFORE_CLAIM, Step.ROWS_STORED, Step.BEFORE_GIVE_BACK, Step.GIVEN_BACK)  # the day passes by those
]


@pytest.mark.parametrize("taken", [None, *STEPS_TAKEN], ids=str)
async def test_back_up_taken_before_or_during_the_run_and_restored_after_it_settles_nothing_twice(
    fake: FakeProcessor, tmp_path: Path, taken: Step | None
) -> None:
    database, back_up = tmp_path / "paykit.db", tmp_path / "back-up.db"
    if taken is None:
        async with host(database, fake.url):
            pass
    else:
        async with host(database, fake.url, at_step=dying_at(taken)) as dying:
            with pytest.raises(Killed):
                await dying.run()
    copy_database(database, back_up)
    async with host(database, fake.url) as here:
        await here.run()
    async with host(back_up, fake.url) as restored:
        await restored.resume()
        await restored.run()
    assert len({(request.idempotency_key, request.body) for request in posts(fake)}) == 1
    await check_one(fake, database)
    await check_one(fake, back_up)


async def test_back_up_whose_day_has_changed_meanwhile_is_a_conflict(fake: FakeProcessor, tmp_path: Path) -> None:
    async with host(tmp_path / "paykit.db", fake.url) as here:
        await here.run()
    fake.state.release_pending(ACCOUNT)
    async with host(tmp_path / "empty.db", fake.url) as restored:
        assert isinstance(await restored.attempt(), SettlementConflict)
        assert await restored.balance() == 0
    assert len(posts(fake)) == 1


# One late row.


async def rows_of(here: Host, day: str) -> list[tuple[str, str]]:
    return list((await here.history(day)).late_rows)


async def test_two_later_days_at_once_take_a_late_row_once(tmp_path: Path) -> None:
    rows = [wire_row("t1", 100), wire_row("t2", 200, status="pending")]
    with a_processor(rows) as fake:
        async with host(tmp_path / "paykit.db", fake.url) as one, host(tmp_path / "paykit.db", fake.url) as two:
            await one.run()
            fake.state.release_pending(ACCOUNT)
            sixteenth, seventeenth = await asyncio.gather(one.run("2026-01-16"), two.run("2026-01-17"))
            assert sorted([sixteenth.total_net, seventeenth.total_net]) == [0, 200]
            await check_truth(one, fake)
            assert await one.balance() == 300


async def test_run_that_loses_a_late_row_between_its_pull_and_its_freeze_settles_without_it(tmp_path: Path) -> None:
    """Another run takes the row in that very moment: the key in the database decides, and the loser rolls up anew."""
    database = tmp_path / "paykit.db"
    rows = [wire_row("t1", 100), wire_row("t2", 200, status="pending"), wire_row("u1", 7, day="2026-01-17")]
    with a_processor(rows) as fake:
        taken: list[PostedSettlement] = []

        async def settle_the_sixteenth() -> None:
            async with host(database, fake.url) as rival:
                taken.append(await rival.run("2026-01-16"))

        def at_step(step: Step) -> None:
            released = fake.state.transaction(ACCOUNT, "t2")["status"] == "available"
            if step is Step.BEFORE_FREEZE and released and not taken:
                thread = threading.Thread(target=lambda: asyncio.run(settle_the_sixteenth()))
                thread.start()
                thread.join(GATE_TIMEOUT_S)

        async with host(database, fake.url, at_step=at_step) as here:
            await here.run()
            fake.state.release_pending(ACCOUNT)
            lost = await here.run("2026-01-17")
            assert ([each.total_net for each in taken], lost.total_net) == ([200], 7)
            assert await rows_of(here, "2026-01-16") == [(DAY, "t2")]
            assert await rows_of(here, "2026-01-17") == []
            await check_truth(here, fake)
            assert await here.balance() == 307


async def test_different_days_run_at_once(fake: FakeProcessor, tmp_path: Path) -> None:
    async with host(tmp_path / "paykit.db", fake.url) as here:
        days = [f"2026-01-{number}" for number in range(13, 21)]
        await asyncio.gather(*(here.run(day) for day in days))
        await check_truth(here, fake)
        again = make_run_request(ACCOUNT, DAY, "usd")
        assert (await here.runner.run(again, requested_by="test")).replayed
