"""An account is settled at one processor: nothing is pulled, looked up or posted elsewhere unless a person says so.

Without these a run that was frozen against one processor would be posted to another, and a test key would settle what
live customers paid, or the other way round.
"""

import json
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from fake_processor import FakeProcessor
from paykit_settle.checking import verify_run
from paykit_settle.client import ProcessorClient
from paykit_settle.endpoint import ProcessorIdentity, identity_of
from paykit_settle.errors import ProcessorUnavailable, RunInProgress, SettlementConflict
from paykit_settle.lifecycle import State, Step
from paykit_settle.models import PostedSettlement
from paykit_settle.run_request import make_run_request
from paykit_settle.runner import Runner
from paykit_settle.store.store import Store
from tests.fault.stage import (
    ACCOUNT,
    DAY,
    LIST,
    a_processor,
    check_truth,
    columns,
    host,
    posts,
    refuse,
    scripted,
    wire_row,
)
from tests.programs import paykit

D16, D17 = "2026-01-16", "2026-01-17"


@pytest.fixture
async def first() -> AsyncIterator[FakeProcessor]:
    async with a_processor([wire_row("t1", 100), wire_row("t2", 10, day=D16)]) as processor:
        yield processor


@pytest.fixture
async def second() -> AsyncIterator[FakeProcessor]:
    """Another processor, which has the same rows."""
    async with a_processor([wire_row("t1", 100), wire_row("t2", 10, day=D16)]) as processor:
        yield processor


class Crash(BaseException):
    """Ends a run as a crash does."""


@pytest.mark.parametrize("step", [None, Step.CLAIMED, Step.BEFORE_FREEZE, Step.FROZEN, Step.ANSWERED])
async def test_run_that_would_go_elsewhere_is_refused_before_anything_is_asked(
    first: FakeProcessor, second: FakeProcessor, tmp_path: Path, step: Step | None
) -> None:
    """`None`: another day. The rest: the same run, cut off at that step, asked for and resumed."""

    def at_step(reached: Step) -> None:
        if reached is step:
            raise Crash

    database = tmp_path / "paykit.db"
    async with host(database, first.url, at_step=at_step) as here:
        if step is None:
            await here.run()
        else:
            with pytest.raises(Crash):
                await here.run()
    async with host(database, second.url) as there:
        with pytest.raises(SettlementConflict) as refused:
            await there.run(D16 if step is None else DAY)
        for named in (first.url, second.url, "--processor-moved"):
            assert named in str(refused.value)
        assert all(isinstance(outcome, SettlementConflict) for _, outcome in await there.resume())
        assert second.requests == []
    async with host(database, first.url) as here:
        assert (await here.run()).total_net == 100
        await check_truth(here, first)


async def test_failed_and_rejected_runs_are_not_tried_elsewhere_either(
    first: FakeProcessor, second: FakeProcessor, tmp_path: Path
) -> None:
    database = tmp_path / "paykit.db"
    cue = scripted(first)
    async with host(database, first.url) as here:
        cue.instead = refuse(422)
        await here.attempt(DAY)
        cue.instead = refuse(503, method="GET", path=LIST)
        assert isinstance(await here.attempt(D16), ProcessorUnavailable)
    async with host(database, second.url) as there:
        assert isinstance(await there.attempt(DAY, retry_rejected=True), SettlementConflict)
        assert isinstance(await there.attempt(D16), SettlementConflict)
        assert (await there.stored(DAY)).state is State.REJECTED
        assert (await there.stored(D16)).state is State.FAILED
    assert second.requests == []


async def test_processor_that_has_moved_takes_the_account_and_its_unfinished_runs_along(
    first: FakeProcessor, second: FakeProcessor, tmp_path: Path
) -> None:
    database = tmp_path / "paykit.db"

    frozen: list[Step] = []

    def at_step(reached: Step) -> None:
        frozen.extend([reached] * (reached is Step.FROZEN))
        if len(frozen) == 2:
            raise Crash

    async with host(database, first.url, at_step=at_step) as here:
        await here.run(DAY)
        with pytest.raises(Crash):
            await here.run(D16)
    async with host(database, second.url, processor_moved=True) as there:
        posted = await there.run(D17)
        assert posted.warnings[0] == (
            f"the processor of {ACCOUNT} has moved from {first.url} (test key) to {second.url} (test key)"
        )
    async with host(database, second.url) as there:
        ((_, outcome),) = await there.resume()
        assert isinstance(outcome, PostedSettlement)
        assert outcome.warnings == ()
    assert (len(posts(first)), len(posts(second))) == (1, 2)
    kept = columns(database, "SELECT date, processor_url, key_mode FROM runs ORDER BY date")
    assert kept == [(DAY, first.url, "test"), (D16, second.url, "test"), (D17, second.url, "test")]


async def test_resume_accepts_a_processor_that_has_moved(
    first: FakeProcessor, second: FakeProcessor, tmp_path: Path
) -> None:
    def at_step(reached: Step) -> None:
        if reached is Step.BEFORE_POST:
            raise Crash

    async with host(tmp_path / "paykit.db", first.url, at_step=at_step) as here:
        with pytest.raises(Crash):
            await here.run()
    async with host(tmp_path / "paykit.db", second.url, processor_moved=True) as there:
        ((_, outcome),) = await there.resume()
        assert isinstance(outcome, PostedSettlement)
        await check_truth(there, second)


async def test_processor_is_not_moved_while_somebody_works_at_the_old_one(
    first: FakeProcessor, second: FakeProcessor, tmp_path: Path
) -> None:
    database = tmp_path / "paykit.db"
    async with host(database, first.url) as here:
        await here.run()
        await here.change("UPDATE runs SET state = 'frozen', owner = ?", here.runner._owner.name)
        async with host(database, second.url, processor_moved=True) as there:
            with pytest.raises(RunInProgress, match="run_000001 is in progress"):
                await there.run(D16)
    assert second.requests == []


async def test_settled_day_is_answered_whatever_the_processor_with_a_warning(
    first: FakeProcessor, second: FakeProcessor, tmp_path: Path
) -> None:
    async with host(tmp_path / "paykit.db", first.url) as here:
        settled = await here.run()
    async with host(tmp_path / "paykit.db", second.url) as there:
        again = await there.run()
        assert (again.settlement, again.replayed) == (settled.settlement, True)
        assert again.warnings == (
            f"{ACCOUNT} is settled at {first.url} (test key): run_000001 is answered although {second.url} (test key) "
            "is set",
        )
    assert second.requests == []


async def test_remote_verification_at_another_processor_is_refused(
    first: FakeProcessor, second: FakeProcessor, tmp_path: Path
) -> None:
    async with host(tmp_path / "paykit.db", first.url) as here, ProcessorClient(second.url) as other:
        await here.run()
        with pytest.raises(SettlementConflict, match=f"settled at {first.url}"):
            await verify_run(here.store, await here.history(), remote=other)
        assert second.requests == []
        # The one that it was posted to, and the one that the account has moved to since, may both be asked.
        async with host(tmp_path / "paykit.db", second.url, processor_moved=True) as there:
            await there.run(D16)
            assert await verify_run(there.store, await there.history(), remote=here.client) == []
            assert await verify_run(there.store, await there.history(), remote=other) != []


@pytest.mark.parametrize("key", ["sk_live_abc", "rk_live_abc", "abc"])
async def test_key_of_another_kind_is_another_processor(first: FakeProcessor, tmp_path: Path, key: str) -> None:
    """The fake takes any key: what is kept decides."""
    async with host(tmp_path / "paykit.db", first.url) as here:
        await here.run()
    asked = len(first.requests)
    store = Store(tmp_path / "paykit.db")
    async with ProcessorClient(first.url, api_key=key) as client:
        runner = Runner(client, store, options=here.runner._options, now=lambda: here.clock.now)
        with pytest.raises(SettlementConflict, match="--processor-moved") as refused:
            await runner.run(make_run_request(ACCOUNT, D16, "usd"), requested_by="test")
        await runner.close()
    store.close()
    assert key not in str(refused.value)
    assert len(first.requests) == asked


@pytest.mark.parametrize(
    "url",
    [
        "http://EXAMPLE.com:80/base",
        "HTTP://example.com/base/",
        "http://Example.COM:80/base//",
        "http://example.com/base",
    ],
)
async def test_spellings_of_one_address_are_one_processor(url: str) -> None:
    async with ProcessorClient(url, api_key="sk_test_x") as client:
        assert client.identity == ProcessorIdentity(url="http://example.com:80/base", key_mode="test")


@pytest.mark.parametrize(
    "other",
    [
        "https://example.com/base",
        "http://example.com:81/base",
        "http://example.com/Base",
        "http://example.com",
        "http://example.org/base",
    ],
)
def test_other_scheme_host_port_or_path_is_another_processor(other: str) -> None:
    assert identity_of(other, "sk_test_x") != identity_of("http://example.com/base", "sk_test_x")


@pytest.mark.parametrize(
    ("key", "mode"),
    [
        ("sk_test_1", "test"),
        ("rk_test_1", "test"),
        ("sk_live_1", "live"),
        ("rk_live_1", "live"),
        ("pk_live_1", "unmarked"),
        ("SK_LIVE_1", "unmarked"),
        ("secret", "unmarked"),
    ],
)
def test_kind_of_a_key_is_read_from_its_beginning_and_the_key_is_never_kept(key: str, mode: str) -> None:
    identity = identity_of("https://[::1]:8443/v2/", key)
    assert identity == ProcessorIdentity(url="https://[::1]:8443/v2", key_mode=mode)
    assert key not in str(identity)
    assert identity_of("https://[0:0:0:0:0:0:0:1]:8443/v2", key) == identity


# The programs.


@pytest.fixture
def served() -> Iterator[FakeProcessor]:
    with a_processor([wire_row("t1", 100), wire_row("t2", 10, day=D16)]) as processor:
        yield processor


def test_program_refuses_another_processor_by_name_and_takes_a_moved_one(served: FakeProcessor, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        elsewhere = f"http://127.0.0.1:{taken.getsockname()[1]}"
    words = ("run", "--account", ACCOUNT, "--json")
    assert paykit(*words, "--date", DAY, "--processor-url", served.url, cwd=tmp_path).returncode == 0
    refused = paykit(*words, "--date", D16, "--processor-url", elsewhere, cwd=tmp_path)
    assert (refused.returncode, json.loads(refused.stdout)["error"]) == (1, "settlement_conflict")
    tried = paykit(*words, "--date", D16, "--processor-url", elsewhere, "--processor-moved", cwd=tmp_path,
                   env={"PAYKIT_ATTEMPTS_MAX": "1"})  # fmt: skip
    assert (tried.returncode, json.loads(tried.stdout)["error"]) == (3, "processor_unavailable")
    assert json.loads(tried.stdout)["warnings"][0].startswith(f"the processor of {ACCOUNT} has moved from {served.url}")
    back = paykit(*words, "--date", D16, "--processor-url", served.url, "--processor-moved", cwd=tmp_path)
    assert json.loads(back.stdout)["total_net"] == 10
    verified = paykit("verify", "run_000002", "--remote", "--processor-url", elsewhere, cwd=tmp_path)
    assert (verified.returncode, f"is settled at {served.url}" in verified.stderr) == (1, True)
    resumed = paykit("resume", "--processor-moved", "--processor-url", elsewhere, cwd=tmp_path)
    assert (resumed.returncode, "0 runs resumed" in resumed.stdout) == (0, True)
