"""Real processes, killed with SIGKILL at every named step of a run; then `resume`, and the truth is looked at.

Without these, a crash between two writes could settle a day twice, book it never, or leave it for nobody to finish.
The matrix is made from the names of the steps, so a step that is added without a kill point fails here.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fake_processor import FakeProcessor
from fake_processor.wire import Request
from paykit_settle.lifecycle import Step
from paykit_settle.models import PostedSettlement
from paykit_settle.page_buffer import UNFLUSHED_PAGES_MAX
from paykit_settle.run import RunOptions
from tests.fault.stage import (
    ACCOUNT,
    DAY,
    LIST,
    SETTLEMENTS,
    TOTAL,
    a_processor,
    check_truth,
    columns,
    host,
    of_kind,
    posts,
    scripted,
    wire_row,
)
from tests.programs import ROOT, environment, paykit

PAGES = 13
"""The reference day in pages of one row."""
KILL_POINTS = {
    Step.BEFORE_CLAIM: [1],
    Step.CLAIMED: [1],
    Step.PAGE_STORED: [1, 9, PAGES],
    Step.ROWS_STORED: [],  # the reference day owes nothing from before: `test_killed_after_rows_were_asked_for_by_id`
    Step.INDEXED: [1],
    Step.BEFORE_FREEZE: [1],
    Step.FROZEN: [1],
    Step.BEFORE_LOOK_UP: [1],
    Step.BEFORE_POST: [1],
    Step.ANSWERED: [1],
    Step.BEFORE_BOOKING: [1],
    Step.BOOKED: [1],
    Step.BEFORE_GIVE_BACK: [],  # a run that ends well gives nothing back: `test_killed_while_a_claim_is_given_back`
    Step.GIVEN_BACK: [],
}
SENT = {Step.ANSWERED, Step.BEFORE_BOOKING, Step.BOOKED}
"""Steps at which the processor has the settlement."""
NOTHING_LEFT = {Step.BEFORE_CLAIM, Step.BOOKED}
"""Steps at which there is nothing to resume: not claimed yet, or done."""


@pytest.fixture
def fake() -> Iterator[FakeProcessor]:
    with FakeProcessor() as processor:
        yield processor


def child(fake: FakeProcessor, database: Path, name: str, nth: int = 1) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.fault.crash_child", fake.url, str(database), name, str(nth)]
    return subprocess.Popen(command, cwd=ROOT, env=environment(), stderr=subprocess.PIPE, text=True)


def crash(fake: FakeProcessor, database: Path, name: str, nth: int = 1) -> None:
    process = child(fake, database, name, nth)
    _, told = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL, told


def resume(fake: FakeProcessor, database: Path) -> str:
    done = paykit("resume", "--processor-url", fake.url, "--database", str(database), cwd=database.parent)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


async def check_settled_once(fake: FakeProcessor, database: Path, *, total: int = TOTAL) -> None:
    assert [entry["total_net"] for entry in fake.state.settlements(account=ACCOUNT, date=DAY)] == [total]
    assert len({(request.idempotency_key, request.body) for request in posts(fake)}) == 1
    async with host(database, fake.url) as here:
        await check_truth(here, fake)
        assert await here.balance() == total
    assert columns(database, "SELECT state, owner, attempt FROM runs") == [("posted", None, 1)]
    assert columns(database, "SELECT count(*) FROM attempts") == [(1,)]
    assert columns(database, "SELECT operation FROM journals") == [("settlement",)]
    assert list(database.with_name(database.name + "-owners").iterdir()) == []


def test_every_step_has_a_kill_point() -> None:
    assert list(KILL_POINTS) == list(Step)


@pytest.mark.parametrize(("step", "nth"), [(step, nth) for step, counts in KILL_POINTS.items() for nth in counts])
async def test_killed_process_leaves_a_run_that_resume_finishes_once(
    fake: FakeProcessor, tmp_path: Path, step: Step, nth: int
) -> None:
    """SCH-05."""
    database = tmp_path / "paykit.db"
    crash(fake, database, step, nth)
    assert len(fake.state.settlements(account=ACCOUNT)) == (step in SENT)
    async with host(database, fake.url) as restarted:
        outcomes = [outcome for _, outcome in await restarted.resume()]
        assert len(outcomes) == (step not in NOTHING_LEFT)
        if step is Step.BEFORE_CLAIM:
            await restarted.run()
        assert await restarted.resume() == []
        assert (await restarted.run()).replayed
    await check_settled_once(fake, database)


async def test_killed_after_the_processor_stored_it_and_before_the_answer(fake: FakeProcessor, tmp_path: Path) -> None:
    """SCH-05, the crash that only the look-up can heal without a second send."""
    database = tmp_path / "paykit.db"
    processes: list[subprocess.Popen[str]] = []
    cue = scripted(fake)

    def kill(request: Request) -> None:
        if (request.method, request.path) == ("POST", SETTLEMENTS):
            os.kill(processes[0].pid, signal.SIGKILL)

    cue.after = kill
    processes.append(child(fake, database, "none"))
    _, told = processes[0].communicate(timeout=60)
    assert processes[0].returncode == -signal.SIGKILL, told
    cue.behave()
    assert columns(database, "SELECT state FROM runs") == [("frozen",)]
    assert "total_net 145199 usd" in resume(fake, database)
    assert len(posts(fake)) == 1
    await check_settled_once(fake, database)


async def test_crash_after_crash_still_settles_once(fake: FakeProcessor, tmp_path: Path) -> None:
    database = tmp_path / "paykit.db"
    for step in (Step.BEFORE_FREEZE, Step.BEFORE_POST, Step.ANSWERED):
        crash(fake, database, step)
    assert "1 run resumed" in resume(fake, database)
    assert "0 runs resumed" in resume(fake, database)
    await check_settled_once(fake, database)


async def test_resumed_pull_reads_at_most_the_unflushed_pages_again(tmp_path: Path) -> None:
    database, rows, killed_at = tmp_path / "paykit.db", 60, 40
    with a_processor(wire_row(f"t{number:03d}", 100 + number, second=number) for number in range(rows)) as fake:
        crash(fake, database, Step.PAGE_STORED, killed_at)
        before = len(of_kind(fake, "GET", LIST))
        assert before == killed_at
        done = paykit("resume", "--processor-url", fake.url, "--database", str(database), cwd=tmp_path,
                      env={"PAYKIT_PAGE_SIZE": "1"})  # fmt: skip
        assert done.returncode == 0, done.stderr
        read_again = len(of_kind(fake, "GET", LIST)) - before - (rows - killed_at)
        assert 0 <= read_again <= UNFLUSHED_PAGES_MAX
        await check_settled_once(fake, database, total=sum(100 + number for number in range(rows)))


async def test_run_asked_for_again_after_a_crash_takes_it_over_as_resume_does(
    fake: FakeProcessor, tmp_path: Path
) -> None:
    database = tmp_path / "paykit.db"
    crash(fake, database, Step.BEFORE_POST)
    day = ("--account", ACCOUNT, "--date", DAY)
    done = paykit("run", *day, "--processor-url", fake.url, "--database", str(database), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    await check_settled_once(fake, database)


@pytest.mark.parametrize("step", [Step.ROWS_STORED, Step.BEFORE_FREEZE])
async def test_killed_after_rows_were_asked_for_by_id(tmp_path: Path, step: Step) -> None:
    database, long_ago = tmp_path / "paykit.db", "2026-01-10"
    rows = [wire_row(f"t{number}", 10, day=long_ago, second=60 * number) for number in range(4)]
    with a_processor([*rows, wire_row("p1", 500, day=long_ago, status="pending"), wire_row("u1", 3)]) as fake:
        async with host(database, fake.url, options=RunOptions(page_size=1)) as before:
            for day in (long_ago, "2026-01-11", "2026-01-12", "2026-01-13"):
                await before.run(day)
        fake.state.release_pending(ACCOUNT)
        crash(fake, database, step)
        assert len(of_kind(fake, "GET", f"{LIST}/p1")) == 1
        async with host(database, fake.url, options=RunOptions(page_size=1)) as restarted:
            ((_, outcome),) = await restarted.resume()
            assert isinstance(outcome, PostedSettlement), outcome
            assert outcome.total_net == 503
            assert (await restarted.run()).replayed
            assert await restarted.balance() == 543
            await check_truth(restarted, fake)


NO_BOOKING = "CREATE TRIGGER no_booking BEFORE INSERT ON journals BEGIN SELECT raise(ABORT, 'no room'); END"
NO_FREEZE = "CREATE TRIGGER no_freeze BEFORE INSERT ON attempts BEGIN SELECT raise(ABORT, 'no room'); END"


@pytest.mark.parametrize("step", [Step.BEFORE_GIVE_BACK, Step.GIVEN_BACK])
@pytest.mark.parametrize(("obstacle", "left"), [(NO_FREEZE, "pulling"), (NO_BOOKING, "frozen")], ids=["freeze", "book"])
async def test_killed_while_a_claim_is_given_back(
    fake: FakeProcessor, tmp_path: Path, step: Step, obstacle: str, left: str
) -> None:
    """Before: a dead owner's, due at once. After: failed before the freeze, else waiting with its error."""
    database = tmp_path / "paykit.db"
    async with host(database, fake.url) as here:
        await here.change(obstacle)
    crash(fake, database, step)
    is_given_back = step is Step.GIVEN_BACK
    state = "failed" if is_given_back and left == "pulling" else left
    kept = columns(database, "SELECT state, owner IS NULL, error_code, retry_at_ms IS NULL, tries FROM runs")
    waits = is_given_back and state == "frozen"
    code = "invariant_violated" if is_given_back else None
    assert kept == [(state, int(is_given_back), code, int(not waits), int(waits))]
    async with host(database, fake.url) as restarted:
        await restarted.change(f"DROP TRIGGER {obstacle.split()[2]}")
        outcomes = [outcome for _, outcome in await restarted.resume()]
        assert len(outcomes) == (state != "failed")
        await restarted.run()
    await check_settled_once(fake, database)
