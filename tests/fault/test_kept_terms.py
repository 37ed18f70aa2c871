"""A run keeps the terms it was begun on: whoever goes on with it settles the same amounts, whatever his settings say.

Without these a rate table given by hand would be the processor's after a crash, and an amount in another scale a
hundred times what it is; `verify`, which has only what was stored, would agree with both.
"""

import json
import subprocess
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from aiohttp import web

from fake_processor import FakeProcessor
from fake_processor.wire import Answer, Request
from paykit_settle.config import Settings
from paykit_settle.errors import ProcessorUnavailable, RunRefused, SettlementConflict
from paykit_settle.lifecycle import State, Step
from paykit_settle.models import PostedSettlement
from paykit_settle.money import ScaleProfile
from paykit_settle.rates import Rates
from paykit_settle.run import RunOptions
from paykit_settle.service import create_app
from paykit_settle.terms import Terms
from tests.fault.stage import (
    ACCOUNT,
    DAY,
    LIST,
    Host,
    a_processor,
    check_truth,
    columns,
    host,
    posts,
    refuse,
    scripted,
    wire_row,
)
from tests.programs import PAYKIT, environment, paykit

AS_OF = datetime(2026, 1, 15, 16, tzinfo=UTC)
BY_HAND = Rates("usd", {"eur": "0.5", "isk": "100"}, as_of=AS_OF, source="by hand")
"""A table beside the processor's, which says 0.92 eur."""
ISK_IN_CENTS = RunOptions(scale=ScaleProfile(overrides={"isk": 2}))


class Crash(BaseException):
    """Ends a run as a crash does: nothing is stored of it."""


def crashing(step: Step) -> Callable[[Step], None]:
    def at_step(reached: Step) -> None:
        if reached is step:
            raise Crash

    return at_step


@pytest.fixture
async def fake() -> AsyncIterator[FakeProcessor]:
    async with a_processor([wire_row("t1", 90_000, currency="eur")]) as processor:
        yield processor


@asynccontextmanager
async def begun(
    fake: FakeProcessor,
    database: Path,
    *,
    step: Step = Step.CLAIMED,
    options: RunOptions | None = None,
    rates: Rates | None = None,
    currency: str = "usd",
) -> AsyncIterator[None]:
    """A run that was cut off at that step; its process is gone."""
    async with host(database, fake.url, options=options, rates=rates, at_step=crashing(step)) as here:
        with pytest.raises(Crash):
            await here.run(currency=currency)
    yield


STEPS = [Step.CLAIMED, Step.PAGE_STORED, Step.BEFORE_FREEZE, Step.FROZEN, Step.BEFORE_POST, Step.ANSWERED]
HOW = [Host.run, Host.resume]


async def gone_on(here: Host, how: Callable[..., object]) -> PostedSettlement:
    """Goes on with the run, by asking for it or by resuming; what was posted."""
    if how is Host.run:
        return await here.run()
    ((_, outcome),) = await here.resume()
    assert isinstance(outcome, PostedSettlement), outcome
    return outcome


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("step", STEPS)
async def test_rate_table_that_was_given_is_used_by_whoever_goes_on(
    fake: FakeProcessor, tmp_path: Path, step: Step, how: Callable[..., object]
) -> None:
    """900.00 eur are 1,800.00 usd at the table that was given, 978.26 at the processor's."""
    async with (
        begun(fake, tmp_path / "paykit.db", step=step, rates=BY_HAND),
        host(tmp_path / "paykit.db", fake.url) as it,
    ):
        posted = await gone_on(it, how)
        assert (posted.total_net, posted.settlement.rates and posted.settlement.rates["source"]) == (180_000, "by hand")
        assert [said for said in posted.warnings if "rate table that was given" in said], posted.warnings
        await check_truth(it, fake)


async def test_run_that_wanted_the_processors_table_wants_it_still(fake: FakeProcessor, tmp_path: Path) -> None:
    async with begun(fake, tmp_path / "paykit.db"), host(tmp_path / "paykit.db", fake.url, rates=BY_HAND) as it:
        posted = await it.run()
        assert posted.total_net == 97_826
        assert posted.warnings == (
            "run_000001 goes on with what it was begun on: the processor's rate table, not a rate table that was given",
        )


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("step", STEPS)
async def test_scale_is_that_of_the_claim_for_whoever_goes_on(
    fake: FakeProcessor, tmp_path: Path, step: Step, how: Callable[..., object]
) -> None:
    """600,000 on the wire are 6,000 ISK where the processor sends two decimals."""
    pending = wire_row("i2", 300, currency="isk", status="pending")
    fake.state.add_transactions(ACCOUNT, [wire_row("i1", 600_000, currency="isk"), pending])
    database = tmp_path / "paykit.db"
    async with (
        begun(fake, database, step=step, options=ISK_IN_CENTS, rates=BY_HAND),
        host(database, fake.url) as here,
    ):
        posted = await gone_on(here, how)
        isk = next(line for line in posted.settlement.lines if line.currency == "isk")
        assert (isk.net, isk.net_settlement) == (6_000, 6_000)
        assert "scales = isk=2, not none" in posted.warnings[0]
        booked = [(each.account, each.currency, each.amount) for each in (await here.history()).entries]
        assert ("@processor.charged", "isk", -6_000) in booked
        await check_truth(here, fake)
    assert columns(database, "SELECT amount FROM outstanding") == [(3,)]


async def test_scale_that_somebody_has_by_now_is_not_that_of_a_run_begun_without_it(
    fake: FakeProcessor, tmp_path: Path
) -> None:
    fake.state.add_transactions(ACCOUNT, [wire_row("i1", 600_000, currency="isk")])
    async with begun(fake, tmp_path / "paykit.db", rates=BY_HAND):
        pass
    async with host(tmp_path / "paykit.db", fake.url, options=ISK_IN_CENTS) as here:
        posted = await here.run()
        assert next(line.net for line in posted.settlement.lines if line.currency == "isk") == 600_000


@pytest.mark.parametrize(
    ("begun_with", "gone_on_with"),
    [
        (RunOptions(rate_age_max_h=0), RunOptions()),
        (RunOptions(), RunOptions(rate_age_max_h=0)),
        (RunOptions(rates_base="eur"), RunOptions()),
        (RunOptions(), RunOptions(rates_base="eur")),
    ],
    ids=["narrow age", "wide age", "base that nobody publishes", "base that is published"],
)
async def test_bounds_and_base_of_the_rates_are_those_of_the_claim(
    fake: FakeProcessor, tmp_path: Path, begun_with: RunOptions, gone_on_with: RunOptions
) -> None:
    """The day's table is of 16:00, 8 hours before its end; the processor publishes base usd alone."""
    async with begun(fake, tmp_path / "paykit.db", options=begun_with):
        pass
    async with host(tmp_path / "paykit.db", fake.url, options=gone_on_with) as here:
        outcome = await here.attempt()
        if begun_with == RunOptions():
            assert isinstance(outcome, PostedSettlement)
            assert len(outcome.warnings) == 1
        else:
            assert not isinstance(outcome, PostedSettlement)
            assert posts(fake) == []
            assert "goes on with what it was begun on" in outcome.__notes__[0]


async def test_run_that_failed_keeps_its_terms_too(fake: FakeProcessor, tmp_path: Path) -> None:
    fake.fault("error_503", route=f"GET {LIST}", retry_after_s=0)
    async with host(tmp_path / "paykit.db", fake.url, rates=BY_HAND) as here:
        assert isinstance(await here.attempt(), ProcessorUnavailable)
    fake.heal()
    async with host(tmp_path / "paykit.db", fake.url) as here:
        assert (await here.run()).total_net == 180_000


@pytest.mark.parametrize("how", HOW)
async def test_tenant_is_fixed_at_the_first_claim_of_an_account(
    fake: FakeProcessor, tmp_path: Path, how: Callable[..., object]
) -> None:
    async with begun(fake, tmp_path / "paykit.db"):
        pass
    async with host(tmp_path / "paykit.db", fake.url, tenants={ACCOUNT: "shop"}) as here:
        posted = await gone_on(here, how)
        assert posted.warnings == (f"run_000001 goes on with what it was begun on: tenant = {ACCOUNT}, not shop",)
        with pytest.raises(SettlementConflict, match=f"booked for tenant {ACCOUNT}, which is fixed, not for shop"):
            await here.run("2026-01-16")
        assert await here.balance() == 97_826
        await check_truth(here, fake)


async def test_tenant_that_nobody_names_is_the_accounts_own(fake: FakeProcessor, tmp_path: Path) -> None:
    async with host(tmp_path / "paykit.db", fake.url, tenants={ACCOUNT: "shop"}) as here:
        await here.run()
    async with host(tmp_path / "paykit.db", fake.url) as here:
        await here.run("2026-01-16")
    assert columns(tmp_path / "paykit.db", "SELECT DISTINCT tenant FROM runs") == [("shop",)]
    assert columns(tmp_path / "paykit.db", "SELECT DISTINCT tenant FROM journals") == [("shop",)]


async def test_tenant_may_still_be_set_right_while_nothing_was_ever_frozen(fake: FakeProcessor, tmp_path: Path) -> None:
    async with begun(fake, tmp_path / "paykit.db"):
        pass
    async with host(tmp_path / "paykit.db", fake.url, tenants={ACCOUNT: "shop"}) as here:
        await here.run(new_terms=True)
        with pytest.raises(SettlementConflict, match="booked for tenant shop"):
            async with host(tmp_path / "paykit.db", fake.url, tenants={ACCOUNT: "other"}) as there:
                await there.run("2026-01-16", new_terms=True)
    assert columns(tmp_path / "paykit.db", "SELECT DISTINCT tenant FROM journals") == [("shop",)]


async def test_currency_is_that_of_the_claim(fake: FakeProcessor, tmp_path: Path) -> None:
    async with begun(fake, tmp_path / "paykit.db", currency="eur"):
        pass
    async with host(tmp_path / "paykit.db", fake.url) as here:
        with pytest.raises(SettlementConflict, match=r"begun in EUR .* not in USD; --new-terms"):
            await here.run()
        ((_, outcome),) = await here.resume()
        assert isinstance(outcome, PostedSettlement)
        assert (outcome.total_net, outcome.currency) == (90_000, "eur")


async def test_new_terms_begin_an_unfrozen_run_anew_and_say_what_is_other(fake: FakeProcessor, tmp_path: Path) -> None:
    database = tmp_path / "paykit.db"
    async with begun(fake, database, step=Step.BEFORE_FREEZE, rates=BY_HAND, currency="eur", options=ISK_IN_CENTS):
        pass
    async with host(database, fake.url) as here:
        posted = await here.run(new_terms=True)
        assert (posted.total_net, posted.currency) == (97_826, "usd")
        assert posted.warnings == (
            "run_000001 begins anew, on other terms than before: scales = none, not isk=2; the processor's rate table, "
            "not a rate table that was given",
        )
        assert (await here.stored()).pull == 2
        assert (await here.run(new_terms=True)).replayed
        await check_truth(here, fake)


async def test_frozen_run_is_what_it_is_whatever_new_terms_somebody_wants(fake: FakeProcessor, tmp_path: Path) -> None:
    async with begun(fake, tmp_path / "paykit.db", step=Step.FROZEN, rates=BY_HAND):
        pass
    async with host(tmp_path / "paykit.db", fake.url, options=ISK_IN_CENTS) as here:
        assert (await here.run(new_terms=True)).total_net == 180_000


async def test_new_attempt_of_a_rejected_day_takes_the_terms_of_who_asks(fake: FakeProcessor, tmp_path: Path) -> None:
    """Nothing of the rejected attempt counts; what is other than before is said."""
    cue = scripted(fake)
    cue.instead = refuse(422)
    async with host(tmp_path / "paykit.db", fake.url, rates=BY_HAND) as here:
        await here.attempt()
    cue.behave()
    async with host(tmp_path / "paykit.db", fake.url) as here:
        posted = await here.run_again()
        assert posted.total_net == 97_826
        assert "begins anew, on other terms than before" in posted.warnings[0]
        await check_truth(here, fake)


async def test_reason_of_a_failure_is_told_with_the_terms_that_it_was_tried_with(
    fake: FakeProcessor, tmp_path: Path
) -> None:
    async with begun(fake, tmp_path / "paykit.db", options=RunOptions(rate_age_max_h=0)):
        pass
    async with host(tmp_path / "paykit.db", fake.url) as here:
        error = await here.attempt()
        assert isinstance(error, RunRefused)
        assert error.__notes__ == ["run_000001 goes on with what it was begun on: rate_age_max_h = 0, not 120"]
        assert (await here.stored()).state is State.FAILED


async def test_explanation_names_the_terms_of_a_run(fake: FakeProcessor, tmp_path: Path) -> None:
    async with host(tmp_path / "paykit.db", fake.url, options=ISK_IN_CENTS, rates=BY_HAND) as here:
        await here.run()
        kept = (await here.stored()).terms
        assert kept is not None
        assert Terms.decode(kept).scales == {"isk": 2}
    done = paykit("explain", "run_000001", "--database", "paykit.db", "--json", cwd=tmp_path)
    shown = json.loads(done.stdout)
    assert (shown["terms"]["scales"], shown["rates_given"], shown["key_mode"]) == ({"isk": 2}, True, "test")
    assert shown["processor"] == fake.url


# The programs, killed.


@pytest.fixture
def served() -> Iterator[FakeProcessor]:
    with a_processor([wire_row(f"t{number}", 45_000, currency="eur", second=number) for number in range(2)]) as fake:
        yield fake


def test_program_that_was_given_rates_and_killed_is_resumed_with_them(served: FakeProcessor, tmp_path: Path) -> None:
    table = {"base": "usd", "as_of": AS_OF.isoformat(), "source": "by hand", "rates": {"eur": 0.5}}
    (tmp_path / "rates.json").write_text(json.dumps(table))
    env = {"PAYKIT_PROCESSOR_URL": served.url, "PAYKIT_PAGE_SIZE": "1", "PAYKIT_WINDOWS_MAX": "1"}
    program: list[subprocess.Popen[bytes]] = []
    is_started = threading.Event()

    def kill(request: Request) -> Answer | None:
        if request.path == LIST and ("starting_after", "t1") in [(name, value) for name, value in request.query]:
            is_started.wait(60)
            program[0].kill()
        return None

    scripted(served).instead = kill
    words = [str(PAYKIT), "run", "--account", ACCOUNT, "--date", DAY, "--rates", "rates.json"]
    program.append(subprocess.Popen(words, cwd=tmp_path, env=environment(env), stderr=subprocess.DEVNULL))
    is_started.set()
    assert program[0].wait(60) == -9
    done = paykit("resume", "--json", cwd=tmp_path, env=env)
    (posted, *_) = [json.loads(line) for line in done.stdout.splitlines()]
    assert posted["total_net"] == 180_000, done
    assert posted["warnings"] == [
        "run_000001 goes on with what it was begun on: a rate table that was given, not the processor's rate table"
    ]
    assert "goes on with what it was begun on" in done.stderr
    assert paykit("verify", "setl_0001", "--remote", cwd=tmp_path, env=env).returncode == 0


# The service.


@asynccontextmanager
async def service(settings: Settings, rates: Rates | None = None) -> AsyncIterator[httpx.AsyncClient]:
    runner = web.AppRunner(create_app(settings, rates=rates))
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        async with httpx.AsyncClient(base_url=url, trust_env=False) as client:
            yield client
    finally:
        await runner.cleanup()


async def test_service_says_in_answers_and_errors_what_a_run_goes_on_with(fake: FakeProcessor, tmp_path: Path) -> None:
    database = str(tmp_path / "paykit.db")
    wanted = {"account": ACCOUNT, "date": DAY}
    fake.fault("error_503", route=f"GET {LIST}", retry_after_s=0)
    first = Settings(processor_url=fake.url, database=database, attempts_max=1)
    async with service(first, BY_HAND) as client:
        assert (await client.post("/settlements/run", json=wanted)).status_code == 503
    kept = ["run_000001 goes on with what it was begun on: a rate table that was given, not the processor's rate table"]
    async with service(first) as client:
        failed = await client.post("/settlements/run", json=wanted)
        assert (failed.status_code, failed.json()["warnings"]) == (503, kept)
        fake.heal()
        posted = (await client.post("/settlements/run", json=wanted)).json()
        assert (posted["total_net"], posted["warnings"]) == (180_000, kept)
        assert (await client.post("/settlements/run", json=wanted)).json()["warnings"] == []


@pytest.mark.parametrize("member", ["zone", "zone_changed", "processor_moved", "new_terms"])
async def test_what_an_account_is_settled_on_is_not_changed_over_http(
    fake: FakeProcessor, tmp_path: Path, member: str
) -> None:
    async with service(Settings(processor_url=fake.url, database=str(tmp_path / "paykit.db"))) as client:
        answer = await client.post("/settlements/run", json={"account": ACCOUNT, "date": DAY, member: True})
        assert (answer.status_code, answer.json()["fields"][0]["field"]) == (400, member)


async def test_service_in_another_zone_answers_settled_days_and_settles_no_new_one(
    fake: FakeProcessor, tmp_path: Path
) -> None:
    settings = Settings(processor_url=fake.url, database=str(tmp_path / "paykit.db"))
    async with service(settings) as client:
        assert (await client.post("/settlements/run", json={"account": ACCOUNT, "date": DAY})).status_code == 200
    async with service(replace(settings, zone="Asia/Tokyo")) as client:
        again = (await client.post("/settlements/run", json={"account": ACCOUNT, "date": DAY})).json()
        assert again["replayed"]
        assert "settled in zone Etc/UTC" in again["warnings"][0]
        refused = await client.post("/settlements/run", json={"account": ACCOUNT, "date": "2026-01-16"})
        assert (refused.status_code, refused.json()["error"]) == (409, "settlement_conflict")
