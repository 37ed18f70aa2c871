"""Which rows a settlement that is not ours holds decides what later runs settle: each row once, none lost, none twice.

Without these, the rows of a day that was taken from the processor would be settled again by the next run, or never.
"""

from collections.abc import AsyncIterator, Callable, Collection
from datetime import date
from functools import partial
from pathlib import Path

import pytest

from fake_processor import FakeProcessor
from paykit_settle.errors import InvalidRequest, RunNotFound, SettlementConflict
from paykit_settle.lifecycle import State, Step
from paykit_settle.money import ScaleProfile
from paykit_settle.recheck import recheck_and_register
from paykit_settle.run import RunOptions
from paykit_settle.store.coverage import Covers
from paykit_settle.store.decisions import list_differences, settle_difference
from paykit_settle.store.history import outstanding_rows
from paykit_settle.store.resolving import Decision, Taken, book_taken
from paykit_settle.store.store import clock_ms
from paykit_settle.store.upkeep import prune
from paykit_settle.store.write_offs import find_row, write_off
from paykit_settle.taken import take_settlement
from tests.fault.foreign import foreign
from tests.fault.stage import ACCOUNT, ADA, Host, a_processor, check_truth, host, wire_row
from tests.programs import paykit

D14, D15, D16, D17, D18 = (f"2026-01-{day}" for day in (14, 15, 16, 17, 18))


@pytest.fixture
async def fake() -> AsyncIterator[FakeProcessor]:
    rows = [
        wire_row("a", 100, day=D15),
        wire_row("late", 50, day=D15, status="pending"),
        wire_row("b", 10, day=D16),
        wire_row("c", 1, day=D16),
        wire_row("p", 7, day=D16, status="pending"),
        wire_row("x", -3, day=D16, kind="payout"),
        wire_row("d", 1000, day=D17),
    ]
    async with a_processor(rows) as processor:
        yield processor


@pytest.fixture
async def here(fake: FakeProcessor, tmp_path: Path) -> AsyncIterator[Host]:
    async with host(tmp_path / "paykit.db", fake.url) as one:
        yield one


async def taken(here: Host, fake: FakeProcessor, covers: str | Collection[str], *, total: int = 3) -> None:
    """The 16th ends with the processor's settlement of that total, which holds those rows."""
    named = foreign(fake, total, day=D16)
    assert isinstance(await here.attempt(D16), SettlementConflict)
    run = await here.resolve(named, D16, covers=covers)
    assert run.state is State.POSTED


async def late_ids(here: Host, day: str) -> list[tuple[str, str]]:
    return sorted((await here.history(day)).late_rows)


async def owed(here: Host, *, as_of: str = D18) -> list[str]:
    day = date.fromisoformat(as_of)
    found = await here.store.read(lambda connection: outstanding_rows(connection, as_of=day))
    return sorted(row.transaction_id for row in found)


def totals(fake: FakeProcessor) -> list[int]:
    """What the processor was told to settle, day by day."""
    return [int(str(each["total_net"])) for each in fake.state.settlements(account=ACCOUNT)]


def release(fake: FakeProcessor, *ids: str) -> None:
    for identity in ids:
        fake.state.update_transaction(ACCOUNT, identity, status="available")


# The day's own rows.


async def test_all_holds_every_row_of_the_day_as_settled(fake: FakeProcessor, here: Host) -> None:
    await taken(here, fake, "all")
    assert (await here.run(D17)).total_net == 1000
    assert await late_ids(here, D17) == []
    assert await owed(here) == ["p"]
    await check_truth(here, fake)


async def test_none_lets_the_next_run_take_every_row_of_the_day_in_late(fake: FakeProcessor, here: Host) -> None:
    await taken(here, fake, "none")
    assert (await here.run(D17)).total_net == 1011
    assert await late_ids(here, D17) == [(D16, "b"), (D16, "c"), (D16, "x")]
    assert await owed(here) == ["p"]
    assert (await here.run(D18)).total_net == 0
    await check_truth(here, fake)
    assert await here.balance() == 3 + 1011


@pytest.mark.parametrize("listings", [0, 1, 3])
async def test_day_is_listed_again_however_little_is_looked_back(
    fake: FakeProcessor, tmp_path: Path, listings: int
) -> None:
    options = RunOptions(look_back_days=0, look_back_listings=listings)
    fake.state.remove_transaction(ACCOUNT, "p")  # a day that owes a row is read in any case
    async with host(tmp_path / "paykit.db", fake.url, options=options) as here:
        await taken(here, fake, "none")
        assert (await here.run(D17)).total_net == 1011
        assert (await here.run(D18)).total_net == 0
        await check_truth(here, fake)


async def test_list_holds_its_rows_and_leaves_the_others_to_the_next_run(fake: FakeProcessor, here: Host) -> None:
    await taken(here, fake, ["b", "x"])
    assert (await here.run(D17)).total_net == 1001
    assert await late_ids(here, D17) == [(D16, "c")]
    assert (await here.run(D18)).total_net == 0
    await check_truth(here, fake)


async def test_row_that_was_pending_here_and_is_settled_there_is_not_settled_again(
    fake: FakeProcessor, here: Host
) -> None:
    await taken(here, fake, ["b", "c", "x", "p"])
    assert await owed(here) == []
    release(fake, "p")
    assert (await here.run(D17)).total_net == 1000
    (day,) = await recheck_and_register(
        here.client, here.store, ACCOUNT, date(2026, 1, 16), date(2026, 1, 16), RunOptions(), now_ms=clock_ms()
    )
    assert not day.has_something_to_see
    await check_truth(here, fake)


async def test_covered_row_that_shows_up_under_another_day_is_passed_over(fake: FakeProcessor, here: Host) -> None:
    await taken(here, fake, ["b", "p"])
    release(fake, "p")
    moved = int(str(fake.state.transaction(ACCOUNT, "d")["created"])) + 1
    for identity in ("b", "c", "p"):
        fake.state.update_transaction(ACCOUNT, identity, created=moved)
    posted = await here.run(D17)
    assert posted.total_net == 1001  # d, and c as a row of the 17th
    assert sorted(row.id for row in posted.settlement.notes.moved) == ["b", "p"]
    await check_truth(here, fake)


async def test_recheck_takes_covered_rows_for_settled_and_names_the_others(fake: FakeProcessor, here: Host) -> None:
    await taken(here, fake, ["b"])
    fake.state.update_transaction(ACCOUNT, "b", amount=11, net=11)
    (day,) = await recheck_and_register(
        here.client, here.store, ACCOUNT, date(2026, 1, 16), date(2026, 1, 16), RunOptions(), now_ms=clock_ms()
    )
    assert sorted(day.late_ids) == ["c", "x"]
    assert [seen.transaction_id for seen in day.changed] == ["b"]
    await here.store.write(
        lambda connection: settle_difference(
            connection, ACCOUNT, "b", by=ADA, reason="right", scale=ScaleProfile(), now_ms=1
        )
    )
    assert (await here.run(D17)).total_net == 1000 + 1 + 1
    await check_truth(here, fake)


async def test_row_that_is_not_covered_can_be_written_off_and_one_that_is_cannot(
    fake: FakeProcessor, here: Host
) -> None:
    await taken(here, fake, ["b"])
    with pytest.raises(RunNotFound, match="has settled it"):
        await here.store.read(lambda connection: find_row(connection, ACCOUNT, "b", day=None))
    found = await here.store.read(lambda connection: find_row(connection, ACCOUNT, "c", day=None))
    await here.store.write(
        lambda connection: write_off(connection, ACCOUNT, "c", reason="by hand", by=ADA, now_ms=1, found=found)
    )
    assert (await here.run(D17)).total_net == 1000
    await check_truth(here, fake)


async def test_pruned_pages_still_say_which_rows_are_held(fake: FakeProcessor, here: Host) -> None:
    await taken(here, fake, ["b", "x"])
    await here.run(D17)
    release(fake, "p")
    await here.run(D18)
    pruned = await here.store.write(
        lambda connection: prune(
            connection, today=date(2026, 3, 1), older_than_days=10, look_back_days=0, look_back_listings=1
        )
    )
    assert pruned
    (day,) = await recheck_and_register(
        here.client, here.store, ACCOUNT, date(2026, 1, 16), date(2026, 1, 16), RunOptions(), now_ms=clock_ms()
    )
    assert not day.has_something_to_see
    assert (await here.run("2026-01-19")).total_net == 0


# What a list may name.


@pytest.mark.parametrize(
    ("listed", "why"),
    [(["b", "nowhere"], "'nowhere': not in its evidence"), (["d"], "'d': not in its evidence")],
)
async def test_list_that_names_a_row_outside_the_evidence_changes_nothing(
    fake: FakeProcessor, here: Host, listed: list[str], why: str
) -> None:
    named = foreign(fake, 3, day=D16)
    assert isinstance(await here.attempt(D16), SettlementConflict)
    before = await here.stored(D16)
    with pytest.raises(InvalidRequest, match=why):
        await here.resolve(named, D16, covers=listed)
    assert await here.stored(D16) == before


async def test_list_that_names_a_row_of_another_run_or_one_that_was_written_off_is_refused(
    fake: FakeProcessor, here: Host
) -> None:
    await here.run(D15)
    day = int(str(fake.state.transaction(ACCOUNT, "b")["created"]))
    fake.state.update_transaction(ACCOUNT, "a", created=day)
    await here.store.write(
        lambda connection: write_off(connection, ACCOUNT, "late", reason="by hand", by=ADA, now_ms=1)
    )
    release(fake, "late")
    named = foreign(fake, 3, day=D16)
    assert isinstance(await here.attempt(D16), SettlementConflict)
    with pytest.raises(InvalidRequest, match="'a': held by another run"):
        await here.resolve(named, D16, covers=["a", "b"])
    with pytest.raises(InvalidRequest, match="'late'"):
        await here.resolve(named, D16, covers=["late", "b"])


# Rows of earlier days.


@pytest.mark.parametrize(
    ("covers", "taken_in", "total"),
    [
        ("all", [], 1000),
        ("none", [(D15, "late"), (D16, "b"), (D16, "c"), (D16, "x")], 1061),
        (["b", "c", "x"], [(D15, "late")], 1050),
        (["late", "x"], [(D16, "b"), (D16, "c")], 1011),
    ],
)
async def test_late_row_that_ours_had_taken_in_is_owed_again_unless_it_is_covered(
    fake: FakeProcessor, here: Host, covers: str | list[str], taken_in: list[tuple[str, str]], total: int
) -> None:
    await here.run(D15)
    release(fake, "late")
    await taken(here, fake, covers)
    assert ("late" in await owed(here)) is ((D15, "late") in taken_in)
    assert (await here.run(D17)).total_net == total
    assert await late_ids(here, D17) == taken_in
    assert await owed(here) == ["p"]
    assert (await here.run(D18)).total_net == 0
    await check_truth(here, fake)


@pytest.mark.parametrize("listings", [0, 1, 3])
async def test_late_row_that_was_never_registered_is_owed_once_it_is_not_covered(
    fake: FakeProcessor, tmp_path: Path, listings: int
) -> None:
    """It came to the 15th after that was settled; only the run of the 16th has ever seen it."""
    async with host(tmp_path / "paykit.db", fake.url) as here:
        await here.run(D15)
        fake.state.add_transactions(ACCOUNT, [wire_row("new", 20, day=D15)])
        await taken(here, fake, ["b", "c", "x"])
        assert await owed(here) == ["late", "new", "p"]
    options = RunOptions(look_back_days=0, look_back_listings=listings)
    async with host(tmp_path / "paykit.db", fake.url, options=options) as here:
        assert (await here.run(D17)).total_net == 1020
        assert (await here.run(D18)).total_net == 0
        await check_truth(here, fake)


async def test_row_that_was_held_back_can_be_covered(fake: FakeProcessor, here: Host) -> None:
    """The 17th is settled at the processor and unknown here, so the 16th leaves the late row owed."""
    await here.run(D15)
    release(fake, "late")
    foreign(fake, 999, day=D17)
    here.clock.pass_day(date(2026, 1, 17))
    await taken(here, fake, ["b", "c", "x", "late"])
    assert await owed(here) == ["p"]
    assert isinstance(await here.attempt(D17), SettlementConflict)
    assert (await here.history(D17)).attempts[0].settlement.total_net == 1000
    assert await late_ids(here, D17) == []


@pytest.mark.parametrize(
    ("covers", "left"), [("all", 0), ("none", 25), (["b", "c", "x"], 25), (["a", "b", "c", "x"], 0)]
)
async def test_correction_that_ours_had_settled_is_to_be_settled_again_unless_it_is_covered(
    fake: FakeProcessor, here: Host, covers: str | list[str], left: int
) -> None:
    await here.run(D15)
    fake.state.update_transaction(ACCOUNT, "a", amount=125, net=125)
    await recheck_and_register(
        here.client, here.store, ACCOUNT, date(2026, 1, 15), date(2026, 1, 15), RunOptions(), now_ms=clock_ms()
    )
    await here.store.write(
        lambda connection: settle_difference(
            connection, ACCOUNT, "a", by=ADA, reason="right", scale=ScaleProfile(), now_ms=1
        )
    )
    await taken(here, fake, covers)
    assert (await here.run(D17)).total_net == 1000 + left + (11 if covers == "none" else 0)
    assert (await here.run(D18)).total_net == 0
    await check_truth(here, fake)


async def test_row_that_another_run_passed_over_for_its_sake_is_owed_once_it_is_not_covered(
    fake: FakeProcessor, here: Host
) -> None:
    """While the 16th was in conflict it held `b`, which then showed up on the 17th."""
    named = foreign(fake, 3, day=D16)
    assert isinstance(await here.attempt(D16), SettlementConflict)
    moved = int(str(fake.state.transaction(ACCOUNT, "d")["created"])) + 1
    fake.state.update_transaction(ACCOUNT, "b", created=moved)
    posted = await here.run(D17)
    assert (posted.total_net, [row.id for row in posted.settlement.notes.moved]) == (1000, ["b"])
    await here.resolve(named, D16, covers=["c", "x"])
    assert await owed(here) == ["b", "p"]
    assert (await here.run(D18)).total_net == 10
    assert (await here.run("2026-01-19")).total_net == 0
    await check_truth(here, fake)


async def test_late_row_that_another_run_passed_over_for_its_sake_was_rightly_passed_over_then(
    fake: FakeProcessor, here: Host
) -> None:
    """The 16th, in conflict, had taken `late` in, which then stood on the 17th; now it holds it no more."""
    await here.run(D15)
    release(fake, "late")
    named = foreign(fake, 3, day=D16)
    assert isinstance(await here.attempt(D16), SettlementConflict)
    moved = int(str(fake.state.transaction(ACCOUNT, "d")["created"])) + 1
    fake.state.update_transaction(ACCOUNT, "late", created=moved)
    assert (await here.run(D17)).total_net == 1000
    await here.resolve(named, D16, covers=["b", "c", "x"])
    assert (await here.run(D18)).total_net == 50
    assert (await here.run("2026-01-19")).total_net == 0
    await check_truth(here, fake)


async def test_difference_from_what_was_frozen_ends_with_a_row_that_is_not_covered(
    fake: FakeProcessor, here: Host
) -> None:
    """Else it could be settled beside the row itself, which a later run takes in as it is."""
    named = foreign(fake, 3, day=D16)
    assert isinstance(await here.attempt(D16), SettlementConflict)
    moved = int(str(fake.state.transaction(ACCOUNT, "d")["created"])) + 1
    for identity in ("b", "c"):
        fake.state.update_transaction(ACCOUNT, identity, created=moved, amount=70, net=70)
    await here.run(D17)
    await here.resolve(named, D16, covers=["c", "x"])
    found, _ = await here.store.read(partial(list_differences, account=ACCOUNT, with_ended=False, limit=9))
    assert [each.transaction_id for each in found] == ["c"]
    assert (await here.run(D18)).total_net == 70
    await check_truth(here, fake)


@pytest.mark.parametrize("how", ["none", "forget", "retry"])
async def test_row_that_was_passed_over_on_an_earlier_day_is_looked_for_there_again(
    fake: FakeProcessor, tmp_path: Path, how: str
) -> None:
    """While the 16th held `b`, it moved to the 15th; the 17th saw it there, and the 15th was to be listed no more."""
    options = RunOptions(look_back_days=0, look_back_listings=1)
    async with host(tmp_path / "paykit.db", fake.url, options=options) as here:
        fake.state.remove_transaction(ACCOUNT, "late")  # a day that owes a row is read in any case
        await here.run(D15)
        named = foreign(fake, 3, day=D16)
        await here.change("DELETE FROM day_listings")
        assert isinstance(await here.attempt(D16), SettlementConflict)
        await here.change("DELETE FROM day_listings")
        moved = int(str(fake.state.transaction(ACCOUNT, "a")["created"])) + 1
        fake.state.update_transaction(ACCOUNT, "b", created=moved)
        posted = await here.run(D17)
        assert [row.id for row in posted.settlement.notes.moved] == ["b"]
        if how == "none":
            await here.resolve(named, D16, covers="none")
        else:
            fake.state.remove_settlement(named)
            await (here.forget(D16) if how == "forget" else here.run_again(D16))
        # The 16th, tried anew, lists the 15th itself; forgotten, it leaves its own rows to nobody.
        assert (await here.run(D18)).total_net == {"none": 11, "forget": 10, "retry": 0}[how]
        assert sum(totals(fake)) == {"none": 1114, "forget": 1110, "retry": 1111}[how]
        await check_truth(here, fake)


async def test_registered_row_of_the_days_own_stays_owed_and_is_settled_once(fake: FakeProcessor, here: Host) -> None:
    await taken(here, fake, "none")
    release(fake, "p")
    assert (await here.run(D17)).total_net == 1018
    assert (await here.run(D18)).total_net == 0
    await check_truth(here, fake)


async def test_rows_that_are_freed_while_another_run_is_about_to_freeze_are_chosen_anew(
    fake: FakeProcessor, tmp_path: Path
) -> None:
    """The 17th has seen that the 16th holds `b`; before it is frozen, the 16th turns out to hold nothing."""
    todo: list[Callable[[], object]] = []

    def at_step(step: Step) -> None:
        if step is Step.BEFORE_FREEZE and todo:
            todo.pop()()

    async with host(tmp_path / "paykit.db", fake.url, at_step=at_step) as here:
        named = foreign(fake, 3, day=D16)
        assert isinstance(await here.attempt(D16), SettlementConflict)
        run = await here.stored(D16)
        ours = (await here.history(D16)).attempts[0].settlement
        (found,) = await here.client.find_settlements(ACCOUNT, run.date) or []
        theirs = Taken(
            settlement_id=named,
            status=found.status,
            settlement=take_settlement(found.members, ours, scale=ScaleProfile()).settlement,
            received=found.received,
            covers=Covers(kind="none"),
        )
        decision = Decision(by=ADA, reason="x", now_ms=clock_ms())
        work = partial(book_taken, asked=run, taken=theirs, decision=decision, is_alive=lambda _name: False)
        todo.append(lambda: here.store.submit(work).result())
        moved = int(str(fake.state.transaction(ACCOUNT, "d")["created"])) + 1
        fake.state.update_transaction(ACCOUNT, "b", created=moved)
        assert (await here.run(D17)).total_net == 1010
        assert todo == []
        assert (await here.run(D18)).total_net == 1
        assert (await here.run("2026-01-19")).total_net == 0
        await check_truth(here, fake)


# Restored databases.


@pytest.mark.parametrize("covers", ["all", ["d", "late"]])
async def test_restored_day_that_computes_other_bytes_than_the_processor_has_is_taken(
    fake: FakeProcessor, tmp_path: Path, covers: str | list[str]
) -> None:
    """The 16th took `new` in, the 17th `late`; a back-up of before the two is put back, and the 17th is run first."""
    database = tmp_path / "paykit.db"
    words = ("--database", str(database))
    async with host(database, fake.url) as here:
        await here.run(D15)
    assert paykit("db", "backup", "copy.db", *words, cwd=tmp_path).returncode == 0
    fake.state.add_transactions(ACCOUNT, [wire_row("new", 20, day=D15)])
    async with host(database, fake.url) as here:
        assert (await here.run(D16)).total_net == 31
        release(fake, "late")
        assert (await here.run(D17)).total_net == 1050
    assert paykit("db", "restore", "copy.db", *words, cwd=tmp_path).returncode == 0
    async with host(database, fake.url) as here:
        assert isinstance(await here.attempt(D17), SettlementConflict)  # late rows wait for the 16th
        await here.resolve("setl_0003", D17, covers=covers)
        assert await here.balance() == 100 + 1050
        if covers == "all":  # what is held is what was frozen, so `late` is taken in by the 16th, which has other bytes
            assert isinstance(await here.attempt(D16), SettlementConflict)
            await here.resolve("setl_0002", D16, covers="all")
        else:
            assert (await here.run(D16)).settlement_id == "setl_0002"
        assert (await here.run(D18)).total_net == 0
        assert await here.balance() == 100 + 31 + 1050
        await check_truth(here, fake)
