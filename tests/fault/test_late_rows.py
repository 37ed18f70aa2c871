"""Rows that are pending, appear late or change, over several days: each is settled once, with its own day named.

Without these, money that turns available after its day would be lost, paid out before it is there, or settled twice.
After each story the ledger equals the processor's settlements, and every `verify` passes.
"""

from collections.abc import AsyncIterator
from datetime import date as Date
from pathlib import Path

import pytest

from fake_processor import FakeProcessor
from paykit_settle.errors import ProcessorRejected, RunNotFound
from paykit_settle.lifecycle import State, Step
from paykit_settle.run import RunOptions
from paykit_settle.store.differences import live_ids, revisions_of
from paykit_settle.store.history import outstanding_rows
from paykit_settle.store.store import clock_ms
from paykit_settle.store.upkeep import prune
from paykit_settle.store.write_offs import write_off
from tests.fault.stage import (
    ACCOUNT,
    ADA,
    LIST,
    Host,
    a_processor,
    check_truth,
    host,
    of_kind,
    refuse,
    scripted,
    wire_row,
)

D10, D13, D14, D15, D16, D17, D18, D19 = (f"2026-01-{day}" for day in (10, 13, 14, 15, 16, 17, 18, 19))


@pytest.fixture
async def fake() -> AsyncIterator[FakeProcessor]:
    async with a_processor() as processor:
        yield processor


@pytest.fixture
async def here(fake: FakeProcessor, tmp_path: Path) -> AsyncIterator[Host]:
    async with host(tmp_path / "paykit.db", fake.url) as one:
        yield one
        await check_truth(one, fake)


def add(fake: FakeProcessor, *rows: dict[str, object]) -> None:
    fake.state.add_transactions(ACCOUNT, rows)


def lines(fake: FakeProcessor, day: str) -> list[tuple[str, str | None, int, int]]:
    """The lines that the processor has for that day: currency, period, net, net_settlement."""
    (entry,) = fake.state.settlements(account=ACCOUNT, date=day)
    received = entry["lines"]
    assert isinstance(received, list)
    return [(line["currency"], line.get("period"), line["net"], line["net_settlement"]) for line in received]


async def owed(here: Host, as_of: str) -> list[str]:
    rows = await here.store.read(
        lambda connection: outstanding_rows(connection, account=ACCOUNT, as_of=Date.fromisoformat(as_of))
    )
    return [row.transaction_id for row in rows]


async def late_rows(here: Host, day: str) -> list[tuple[str, str]]:
    return list((await here.history(day)).late_rows)


async def registered(here: Host) -> set[tuple[str, str]]:
    """The rows in the register of differences that nobody has ended, with their kinds."""
    found = await here.store.read(lambda connection: revisions_of(connection, ACCOUNT, live_ids(connection, ACCOUNT)))
    return {(identity, known[-1].kind) for identity, known in found.items()}


async def pruned(here: Host) -> int:
    """How many pages a prune of everything that is old takes."""
    today = Date.fromisoformat("2026-02-20")
    return await here.store.write(lambda connection: prune(connection, today=today, older_than_days=10))


async def forget(here: Host, identity: str) -> None:
    await here.store.write(
        lambda connection: write_off(connection, ACCOUNT, identity, reason="lost", by=ADA, now_ms=clock_ms())
    )


# The two cases.


async def test_rows_that_become_visible_late_are_settled_in_a_later_run(tmp_path: Path) -> None:
    """PAG-08: t9 is stamped two seconds before midnight and shown a minute after the first run."""
    day, next_day = "2025-06-10", "2025-06-11"
    t1 = {**wire_row("t1", 100), "created": 1749590000}
    t9 = {**wire_row("t9", 900), "created": 1749599998}
    async with (
        a_processor([t1], first="2025-06-01") as fake,
        host(tmp_path / "paykit.db", fake.url) as here,
    ):
        assert (await here.run(day)).total_net == 100
        add(fake, t9)
        assert (await here.run(next_day)).total_net == 900
        assert lines(fake, next_day) == [("usd", day, 900, 900)]
        assert await here.balance() == 1000
        assert (await here.run("2025-06-12")).total_net == 0
        await check_truth(here, fake)


async def test_pending_rows_are_not_settled_yet_and_are_settled_once_later(fake: FakeProcessor, here: Host) -> None:
    """TIM-06."""
    add(fake, wire_row("t1", 100), wire_row("t2", 200, status="pending"))
    assert (await here.run(D15)).total_net == 100
    assert await owed(here, D15) == ["t2"]
    fake.state.update_transaction(ACCOUNT, "t2", status="available")
    assert (await here.run(D16)).total_net == 200
    assert lines(fake, D16) == [("usd", D15, 200, 200)]
    assert (await here.run(D17)).total_net == 0
    assert await here.balance() == 300
    assert await owed(here, D17) == []


# Over several days.


async def test_late_row_is_converted_at_the_rate_of_the_run_that_settles_it(fake: FakeProcessor, here: Host) -> None:
    add(
        fake,
        wire_row("e1", 1000, currency="eur", status="pending", fee=20),
        wire_row("u1", 5),
        wire_row("e2", 100, currency="eur", day=D17),
    )
    assert (await here.run(D15)).total_net == 5
    assert (await here.run(D16)).total_net == 0
    fake.state.set_rates(D17, {"base": "usd", "as_of": f"{D17}T16:00:00Z", "source": "t", "rates": {"eur": "0.5"}})
    fake.state.release_pending(ACCOUNT)
    assert (await here.run(D17)).total_net == 200 + 1960
    assert lines(fake, D17) == [("eur", None, 100, 200), ("eur", D15, 980, 1960)]
    assert await here.balance() == 2165


async def test_rows_of_several_earlier_days_get_lines_of_their_own_in_order(fake: FakeProcessor, here: Host) -> None:
    for day in (D13, D14, D15):
        add(fake, wire_row(f"p{day[-2:]}", int(day[-2:]), day=day, status="pending"))
        assert (await here.run(day)).total_net == 0
    add(fake, wire_row("j1", 150, currency="jpy", day=D14), wire_row("own", 1, day=D16))
    fake.state.release_pending(ACCOUNT)
    assert (await here.run(D16)).total_net == 1 + 13 + 100 + 14 + 15
    assert lines(fake, D16) == [
        ("usd", None, 1, 1),
        ("usd", D13, 13, 13),
        ("jpy", D14, 150, 100),
        ("usd", D14, 14, 14),
        ("usd", D15, 15, 15),
    ]


async def test_row_that_stays_pending_is_waited_for_beyond_the_look_back(fake: FakeProcessor, here: Host) -> None:
    add(fake, wire_row("t1", 700, day=D10, status="pending"))
    await here.run(D10)
    for day in (D14, D15, D16, D17):
        assert (await here.run(day)).total_net == 0
    assert await owed(here, D17) == ["t1"]
    fake.state.release_pending(ACCOUNT)
    assert (await here.run(D18)).total_net == 700
    assert lines(fake, D18) == [("usd", D10, 700, 700)]
    asked = len(of_kind(fake, "GET", LIST))
    await here.run(D19)
    assert len(of_kind(fake, "GET", LIST)) - asked == 1 + 3  # nothing is owed any more: the look-back alone


async def test_row_that_appears_late_as_pending_is_registered_and_settled_later(
    fake: FakeProcessor, here: Host
) -> None:
    await here.run(D15)
    add(fake, wire_row("t1", 40, status="pending"))
    assert (await here.run(D16)).total_net == 0
    assert await owed(here, D16) == ["t1"]
    fake.state.release_pending(ACCOUNT)
    for day in (D17, D18):
        await here.run(day)
    assert lines(fake, D17) == [("usd", D15, 40, 40)]
    assert lines(fake, D18) == []


async def test_backfill_of_an_earlier_day_never_takes_later_rows(fake: FakeProcessor, here: Host) -> None:
    add(fake, wire_row("b1", 14, day=D14), wire_row("t1", 15), wire_row("t2", 150, status="pending"))
    assert (await here.run(D15)).total_net == 15
    fake.state.release_pending(ACCOUNT)
    add(fake, wire_row("t3", 1500))
    assert (await here.run(D14)).total_net == 14
    assert lines(fake, D14) == [("usd", None, 14, 14)]
    assert (await here.run(D16)).total_net == 1650
    assert lines(fake, D16) == [("usd", D15, 1650, 1650)]


async def test_day_that_was_never_run_is_not_taken_in_by_later_days(fake: FakeProcessor, here: Host) -> None:
    await here.run(D14)
    add(fake, wire_row("t1", 15), wire_row("u1", 16, day=D16))
    assert (await here.run(D16)).total_net == 16
    assert (await here.run(D15)).total_net == 15


async def test_balance_movement_that_turns_available_late_is_not_settled(fake: FakeProcessor, here: Host) -> None:
    add(fake, wire_row("p1", -500, kind="payout", status="pending"), wire_row("t1", 1))
    await here.run(D15)
    assert await owed(here, D15) == []
    fake.state.release_pending(ACCOUNT)
    assert (await here.run(D16)).total_net == 0
    (late,) = (await here.run(D16)).settlement.late
    assert [(group.type, group.net) for group in late.roll_up.left_out] == [("payout", -500)]
    assert (await here.run(D17)).settlement.late == ()


async def test_late_refund_may_make_a_day_negative(fake: FakeProcessor, here: Host) -> None:
    add(fake, wire_row("r1", -900, kind="refund", status="pending"), wire_row("u1", 100, day=D16))
    await here.run(D15)
    fake.state.release_pending(ACCOUNT)
    assert (await here.run(D16)).total_net == -800
    assert await here.balance() == -800


async def test_late_row_that_cannot_be_settled_is_named_and_holds_no_day_up(fake: FakeProcessor, here: Host) -> None:
    await here.run(D15)
    add(fake, wire_row("t1", 40, status="failed"), wire_row("t2", 5), wire_row("u1", 1, day=D16))
    posted = await here.run(D16)
    assert posted.total_net == 1 + 5
    assert [late.wrong_ids for late in posted.settlement.late] == [("t1",)]
    assert await registered(here) == {("t1", "wrong")}
    fake.state.update_transaction(ACCOUNT, "t1", status="available")
    assert (await here.run(D17)).total_net == 40
    assert await registered(here) == set()


async def test_settled_row_that_changed_is_named_and_not_settled_again(fake: FakeProcessor, here: Host) -> None:
    add(fake, wire_row("t1", 100), wire_row("t2", 200))
    await here.run(D15)
    fake.state.update_transaction(ACCOUNT, "t1", amount=101, net=101)
    posted = await here.run(D16)
    assert (posted.total_net, posted.settlement.lines) == (0, ())
    assert [(late.period.isoformat(), late.changed_ids) for late in posted.settlement.late] == [(D15, ("t1",))]


async def test_settled_row_that_is_no_longer_available_is_named(fake: FakeProcessor, here: Host) -> None:
    add(fake, wire_row("t1", 100))
    await here.run(D15)
    fake.state.update_transaction(ACCOUNT, "t1", status="pending")
    posted = await here.run(D16)
    assert [late.changed_ids for late in posted.settlement.late] == [("t1",)]
    assert await owed(here, D16) == []


async def test_row_that_was_settled_late_and_then_changed_is_named(fake: FakeProcessor, here: Host) -> None:
    await here.run(D15)
    add(fake, wire_row("t1", 40))
    assert (await here.run(D16)).total_net == 40
    fake.state.update_transaction(ACCOUNT, "t1", amount=41, net=41)
    posted = await here.run(D17)
    assert posted.total_net == 0
    assert [late.changed_ids for late in posted.settlement.late] == [("t1",)]


async def test_day_whose_listing_was_cut_off_is_named_and_listed_by_the_next_run(
    fake: FakeProcessor, tmp_path: Path
) -> None:
    """Half a day in the evidence takes nothing in and holds nothing up."""
    options = RunOptions(page_size=1)
    add(fake, *(wire_row(f"t{number}", number, day=D10, second=number) for number in range(1, 6)))
    add(fake, wire_row("p1", 200, day=D10, status="pending"))
    async with host(tmp_path / "cut.db", fake.url, options=options) as here:
        await here.run(D10)
        fake.state.release_pending(ACCOUNT)
        fake.fault("error_500", route=f"GET {LIST}", after=3)
        posted = await here.run(D17)
        assert posted.total_net == 0
        (day,) = posted.settlement.notes.earlier_days
        assert (day.period.isoformat(), "500" in str(day.given_up)) == (D10, True)
        assert any(D10 in warning for warning in posted.warnings)
        fake.heal()
        assert (await here.run(D18)).total_net == 200
        await check_truth(here, fake)


# What is owed.


async def test_outstanding_list_tells_how_it_stood_on_any_day(fake: FakeProcessor, here: Host) -> None:
    add(
        fake,
        wire_row("t1", 200, fee=3, status="pending", day=D14),
        wire_row("t2", 50, currency="eur", status="pending"),
    )
    for day in (D14, D15):
        await here.run(day)
    fake.state.update_transaction(ACCOUNT, "t1", status="available")
    await here.run(D16)
    fake.state.update_transaction(ACCOUNT, "t2", status="available")
    await here.run(D17)
    stood = {day: await owed(here, day) for day in (D13, D14, D15, D16, D17)}
    assert stood == {D13: [], D14: ["t1"], D15: ["t2", "t1"], D16: ["t2"], D17: []}


async def test_written_off_row_is_owed_no_more_but_was(fake: FakeProcessor, here: Host) -> None:
    add(fake, wire_row("t1", 200, status="pending"))
    await here.run(D15)
    await forget(here, "t1")
    assert await owed(here, "2099-01-01") == []
    assert await owed(here, D15) == ["t1"]  # as it stood then: it was written off later
    with pytest.raises(RunNotFound):
        await forget(here, "t1")
    with pytest.raises(RunNotFound):
        await forget(here, "t9")


async def test_row_of_a_rejected_day_cannot_be_written_off_yet(fake: FakeProcessor, here: Host) -> None:
    """The day is pulled anew when it is tried again, and settles what is available then."""
    add(fake, wire_row("t1", 200, status="pending"))
    cue = scripted(fake)
    cue.instead = refuse(422)
    assert isinstance(await here.attempt(D15), ProcessorRejected)
    cue.behave()
    with pytest.raises(RunNotFound):
        await forget(here, "t1")
    fake.state.release_pending(ACCOUNT)
    assert (await here.run_again(D15)).total_net == 200


async def test_row_that_was_settled_cannot_be_written_off(fake: FakeProcessor, here: Host) -> None:
    add(fake, wire_row("t1", 200, status="pending"))
    await here.run(D15)
    fake.state.release_pending(ACCOUNT)
    await here.run(D16)
    with pytest.raises(RunNotFound):
        await forget(here, "t1")


async def test_row_that_is_written_off_while_a_run_takes_it_in_is_left_to_the_person(
    fake: FakeProcessor, tmp_path: Path
) -> None:
    add(fake, wire_row("t1", 200, status="pending"))
    database = tmp_path / "race.db"
    async with host(database, fake.url) as other:
        await other.run(D15)
        fake.state.release_pending(ACCOUNT)

        def at_step(step: Step) -> None:
            if step is Step.BEFORE_FREEZE:
                gone = other.store.submit(
                    lambda connection: write_off(connection, ACCOUNT, "t1", reason="lost", by=ADA, now_ms=clock_ms())
                )
                gone.exception(timeout=30)

        async with host(database, fake.url, at_step=at_step) as here:
            assert (await here.run(D16)).total_net == 0
            await check_truth(here, fake)


async def test_written_off_row_that_turns_available_after_all_is_not_settled(fake: FakeProcessor, here: Host) -> None:
    """It was dealt with by hand, for good: to settle it as well would pay it twice."""
    add(fake, wire_row("t1", 200, status="pending"))
    await here.run(D15)
    await forget(here, "t1")
    fake.state.release_pending(ACCOUNT)
    assert (await here.run(D16)).total_net == 0


async def test_row_that_vanished_while_pending_stays_owed(fake: FakeProcessor, here: Host) -> None:
    add(fake, wire_row("t1", 200, status="pending"))
    await here.run(D15)
    fake.state.remove_transaction(ACCOUNT, "t1")
    assert (await here.run(D16)).total_net == 0
    assert await owed(here, D16) == ["t1"]


async def test_rejected_run_gives_its_late_rows_back_when_it_is_tried_anew(fake: FakeProcessor, here: Host) -> None:
    add(fake, wire_row("t1", 200, status="pending"))
    await here.run(D15)
    fake.state.release_pending(ACCOUNT)
    cue = scripted(fake)
    cue.instead = refuse(422)
    assert isinstance(await here.attempt(D16), ProcessorRejected)
    cue.behave()
    assert (await here.run(D17)).total_net == 0  # the sixteenth may still settle it
    assert (await here.run_again(D16)).total_net == 200
    assert await late_rows(here, D16) == [(D15, "t1")]
    assert await here.balance() == 200


async def test_row_that_was_settled_late_and_then_moves_to_another_posted_day_is_settled_no_more(
    fake: FakeProcessor, here: Host
) -> None:
    add(fake, wire_row("t1", 200, day=D13, status="pending"))
    assert [(await here.run(day)).total_net for day in (D13, D14)] == [0, 0]
    fake.state.release_pending(ACCOUNT)
    assert (await here.run(D15)).total_net == 200
    fake.state.update_transaction(ACCOUNT, "t1", created=wire_row("t1", 1, day=D14)["created"])
    assert [(await here.run(day)).total_net for day in (D16, D17)] == [0, 0]
    assert await here.balance() == 200


async def test_retry_forgets_no_row_of_a_day_that_is_not_listed_any_more(fake: FakeProcessor, here: Host) -> None:
    """The rejected run was the last to list the sixth: its retry has to know what it found."""
    days = [f"2026-01-{day:02d}" for day in range(5, 20)]
    add(fake, wire_row("owed", 10, day=days[0], status="pending"))
    for day in days[:4]:
        await here.run(day)
    add(fake, wire_row("pending", 200, day=days[1], status="pending"), wire_row("late", 3000, day=days[1]))
    cue = scripted(fake)
    cue.instead = refuse(422)
    assert isinstance(await here.attempt(days[4]), ProcessorRejected)
    cue.behave()
    fake.state.update_transaction(ACCOUNT, "owed", status="available")
    assert (await here.run(days[5])).total_net == 10
    assert (await here.run_again(days[4])).total_net == 3000
    fake.state.update_transaction(ACCOUNT, "pending", status="available")
    assert [(await here.run(day)).total_net for day in days[6:9]] == [200, 0, 0]
    assert await here.balance() == 3210


async def test_row_that_a_rejected_run_holds_is_still_owed_and_can_be_written_off(
    fake: FakeProcessor, here: Host
) -> None:
    add(fake, wire_row("t1", 200, status="pending"))
    await here.run(D15)
    fake.state.release_pending(ACCOUNT)
    cue = scripted(fake)
    cue.instead = refuse(422)
    assert isinstance(await here.attempt(D16), ProcessorRejected)
    cue.behave()
    assert await owed(here, "2026-12-31") == ["t1"]
    await here.store.write(
        lambda connection: write_off(connection, ACCOUNT, "t1", reason="paid by hand", by=ADA, now_ms=clock_ms())
    )
    assert (await here.run_again(D16)).total_net == 0
    assert await owed(here, "2026-12-31") == []


# Pruned evidence.


async def test_pruned_days_still_say_which_rows_they_settled(fake: FakeProcessor, here: Host) -> None:
    add(fake, wire_row("t1", 100), wire_row("t2", 50))
    for day in (D15, D16, D17, D18):
        await here.run(day)
    assert await pruned(here) == 1
    assert all(not page.is_kept for page in (await here.history(D15)).pages)
    fake.state.update_transaction(ACCOUNT, "t1", created=wire_row("t1", 1, day=D19)["created"])
    posted = await here.run(D19)
    assert (posted.total_net, [row.id for row in posted.settlement.notes.moved]) == (0, ["t1"])


async def test_prune_never_touches_a_day_that_still_owes_a_row_or_one_after_it(fake: FakeProcessor, here: Host) -> None:
    add(fake, wire_row("t0", 1, day=D14), wire_row("t1", 100, status="pending"), wire_row("t2", 5, day=D16))
    for day in (D14, D15, D16, D17, D18, D19):
        await here.run(day)
    await pruned(here)
    own = {day: [page for page in (await here.history(day)).pages if page.period == day] for day in (D14, D15, D16)}
    assert {day: all(page.is_kept for page in own[day]) for day in own} == {D14: False, D15: True, D16: True}


async def test_prune_never_touches_a_day_that_is_still_to_be_listed(fake: FakeProcessor, here: Host) -> None:
    add(fake, wire_row("t1", 100))
    for day in (D15, D16, D17):
        await here.run(day)
    assert await pruned(here) == 0
    await here.run(D18)
    assert await pruned(here) == 1


# Zones.


async def test_resume_goes_on_in_the_zone_that_the_run_was_begun_in(fake: FakeProcessor, tmp_path: Path) -> None:
    database = tmp_path / "zones.db"
    add(fake, wire_row("t1", 100, second=-3600), wire_row("t2", 10))
    async with host(database, fake.url, options=RunOptions(zone="Europe/Berlin")) as berlin:
        fake.fault("error_503", route=f"GET {LIST}", retry_after_s=0)
        await berlin.attempt(D15)
        fake.heal()
        await berlin.change("UPDATE runs SET state = 'pulling', owner = 'dead'")
    async with host(database, fake.url) as utc:
        await utc.resume()
        assert ((await utc.stored(D15)).zone, await utc.balance()) == ("Europe/Berlin", 110)
        assert (await utc.stored(D15)).state is State.POSTED
        await check_truth(utc, fake)
