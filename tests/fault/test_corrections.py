"""Corrections on their way through a run: into the right day's line, once, through crashes, rejections and races.

Without these a decided correction could be lost with the run that took it, settled by two, or break `verify`.
After each story the ledger equals the processor's settlements, and every `verify` passes.
"""

import json
from collections.abc import AsyncIterator, Mapping
from datetime import date as Date
from pathlib import Path

import pytest

from fake_processor import FakeProcessor
from paykit_settle.checking import verify_run
from paykit_settle.errors import ProcessorRejected
from paykit_settle.explain import explanation, explanation_text
from paykit_settle.lifecycle import Step
from paykit_settle.money import ScaleProfile
from paykit_settle.store.decisions import dismiss_difference, settle_difference
from paykit_settle.store.differences import Seen, note_differences
from paykit_settle.store.store import clock_ms
from tests.fault.stage import ACCOUNT, ADA, Host, a_processor, check_truth, host, refuse, scripted, wire_row

D14, D15, D16, D17 = (f"2026-01-{day}" for day in (14, 15, 16, 17))
ROW = wire_row("t1", 1000, fee=30)


@pytest.fixture
async def fake() -> AsyncIterator[FakeProcessor]:
    async with a_processor([ROW]) as processor:
        yield processor


@pytest.fixture
async def here(fake: FakeProcessor, tmp_path: Path) -> AsyncIterator[Host]:
    async with host(tmp_path / "paykit.db", fake.url) as one:
        await one.run(D15)
        yield one
        await check_truth(one, fake)


async def decide(
    fake: FakeProcessor,
    here: Host,
    now: Mapping[str, object] | None,
    *,
    was: Mapping[str, object] = ROW,
    settle: bool = True,
) -> None:
    """The processor shows a row otherwise from now on, and a person says whether this is to be settled."""
    if now is None:
        fake.state.remove_transaction(ACCOUNT, "t1")
    else:
        fake.state.update_transaction(ACCOUNT, "t1", **{name: value for name, value in now.items() if name != "id"})
    run = await here.stored(D15)
    seen = Seen(
        account=ACCOUNT,
        transaction_id="t1",
        kind="vanished" if now is None else "changed",
        period=Date.fromisoformat(D15),
        held_by_run=run.number,
        was=json.dumps(was).encode(),
        is_now=None if now is None else json.dumps(now).encode(),
    )
    await here.store.write(lambda connection: note_differences(connection, None, [seen], now_ms=clock_ms()))
    await here.store.write(
        lambda connection: (
            settle_difference(connection, ACCOUNT, "t1", by=ADA, scale=ScaleProfile(), now_ms=clock_ms())
            if settle
            else dismiss_difference(connection, ACCOUNT, "t1", by=ADA, reason="x", now_ms=clock_ms())
        )
    )


def lines(fake: FakeProcessor, day: str) -> list[tuple[str, str | None, int, int, int]]:
    """The lines that the processor has for that day: currency, period, charged, refunded, fees."""
    (entry,) = fake.state.settlements(account=ACCOUNT, date=day)
    received = entry["lines"]
    assert isinstance(received, list)
    names = ("charged", "refunded", "fees")
    return [(line["currency"], line.get("period"), *(line[name] for name in names)) for line in received]


async def test_correction_is_settled_with_the_late_rows_of_its_day_and_explained(
    fake: FakeProcessor, here: Host
) -> None:
    await decide(fake, here, wire_row("t1", 900, fee=27))
    fake.state.add_transactions(ACCOUNT, [wire_row("late", 40, fee=1), wire_row("own", 5, day=D16)])
    assert (await here.run(D14)).total_net == 0  # an earlier date takes nothing of a later day
    assert (await here.run(D16)).total_net == 5 + 39 - 97
    assert lines(fake, D16) == [("usd", None, 5, 0, 0), ("usd", D15, 40, -100, -2)]
    history = await here.history(D16)
    assert "1 charge/correction" in explanation_text(history)
    assert "correction t1/1 of 2026-01-15, said ada" in explanation_text(history)
    (told,) = explanation(history)["corrections"]
    assert (told["was"]["amount"], told["is"]["amount"], told["state"]) == (1000, 900, "settled")
    assert (await here.run(D17)).total_net == 0


async def test_row_that_vanished_is_taken_back_and_one_in_another_currency_is_a_row_in_each(
    fake: FakeProcessor, here: Host
) -> None:
    euros = wire_row("t1", 920, currency="eur")
    await decide(fake, here, euros)
    assert (await here.run(D16)).total_net == 1000 - 970
    assert lines(fake, D16) == [("eur", D15, 920, 0, 0), ("usd", D15, 0, -1000, -30)]
    await decide(fake, here, None)
    assert (await here.run(D17)).total_net == -1000
    assert lines(fake, D17) == [("eur", D15, 0, -920, 0)]
    assert await here.balance() == 0


async def test_rejected_run_keeps_its_corrections_and_takes_them_anew_when_it_is_tried_again(
    fake: FakeProcessor, here: Host
) -> None:
    await decide(fake, here, wire_row("t1", 1200, fee=30))
    cue = scripted(fake)
    cue.instead = refuse(422)
    assert isinstance(await here.attempt(D16), ProcessorRejected)
    cue.behave()
    assert (await here.run(D17)).total_net == 0  # the rejected run has it
    assert (await here.run_again(D16)).total_net == 200
    assert await here.balance() == 970 + 200


async def test_correction_that_is_taken_back_while_a_run_freezes_is_left_out(
    fake: FakeProcessor, tmp_path: Path
) -> None:
    database, wrote = tmp_path / "race.db", list[bool]()
    async with host(database, fake.url) as other:
        await other.run(D15)
        await decide(fake, other, wire_row("t1", 1200, fee=30))

        def at_step(step: Step) -> None:
            if step is Step.BEFORE_FREEZE and not wrote:
                wrote.append(True)
                other.store.submit(
                    lambda connection: dismiss_difference(
                        connection, ACCOUNT, "t1", by=ADA, reason="no", now_ms=clock_ms()
                    )
                ).result()

        async with host(database, fake.url, at_step=at_step) as here:
            assert (await here.run(D16)).total_net == 0
            await check_truth(here, fake)
    assert wrote


async def test_correction_that_has_no_value_any_more_holds_no_day_up(fake: FakeProcessor, here: Host) -> None:
    """The scale that it could be counted in is not the one that the run has."""
    await decide(fake, here, wire_row("t1", 1200, fee=30))
    odd = json.dumps(wire_row("t1", 1, currency="xxx"))
    await here.change("UPDATE differences SET is_now = CAST(? AS BLOB)", odd)
    assert (await here.run(D16)).total_net == 0
    assert [each.taken_by_run for each in (await here.history(D16)).corrections] == []


async def test_changed_evidence_of_a_correction_is_found_by_verify(fake: FakeProcessor, tmp_path: Path) -> None:
    async with host(tmp_path / "paykit.db", fake.url) as here:
        await here.run(D15)
        await decide(fake, here, wire_row("t1", 1200, fee=30))
        await here.run(D16)
        await here.change("UPDATE differences SET is_now = CAST(? AS BLOB)", json.dumps(wire_row("t1", 1300, fee=30)))
        found = await verify_run(here.store, await here.history(D16))
        assert [each.partition(":")[0] for each in found] == ["the body differs"]
