"""A run that never sent anything can be forgotten, as if it had not been begun; nothing of it stays but its number.

Without these, what it held would be settled by nobody, its number be given to another run, or a run that may be at the
processor be forgotten and its day settled twice.
"""

from collections.abc import AsyncIterator
from datetime import date
from pathlib import Path

import pytest

from fake_processor import FakeProcessor
from paykit_settle.errors import InvalidRequest, OutcomeUnknown, ProcessorRejected, RunNotFound, SettleError
from paykit_settle.lifecycle import State
from paykit_settle.money import ScaleProfile
from paykit_settle.recheck import recheck_and_register
from paykit_settle.run import RunOptions
from paykit_settle.store.changes import changes
from paykit_settle.store.check import check_ledger
from paykit_settle.store.decisions import list_differences, settle_difference
from paykit_settle.store.history import find_run, outstanding_rows
from paykit_settle.store.store import clock_ms
from tests.fault.foreign import foreign
from tests.fault.stage import (
    ACCOUNT,
    ADA,
    SETTLEMENTS,
    Host,
    a_processor,
    check_truth,
    columns,
    host,
    refuse,
    scripted,
    wire_row,
)

D15, D16, D17, D18 = (f"2026-01-{day}" for day in (15, 16, 17, 18))
OF_A_RUN = ("attempts", "pages", "readings", "windows", "row_answers", "late_rows", "moved_rows", "covered_rows",
            "day_listings", "settled_ids", "resolutions")  # fmt: skip


@pytest.fixture
async def fake() -> AsyncIterator[FakeProcessor]:
    rows = [
        wire_row("a", 100, day=D15),
        wire_row("late", 50, day=D15, status="pending"),
        wire_row("b", 10, day=D16),
        wire_row("p", 7, day=D16, status="pending"),
        wire_row("d", 1000, day=D17),
    ]
    async with a_processor(rows) as processor:
        yield processor


@pytest.fixture
async def here(fake: FakeProcessor, tmp_path: Path) -> AsyncIterator[Host]:
    async with host(tmp_path / "paykit.db", fake.url) as one:
        yield one


async def rejected(here: Host, fake: FakeProcessor, day: str = D16) -> str:
    """A day that is frozen and never sent: the processor has another settlement; its id."""
    named = foreign(fake, 3, day=day)
    assert isinstance(await here.attempt(day), SettleError)
    assert (await here.stored(day)).state is State.REJECTED
    return named


async def owed(here: Host) -> list[str]:
    found = await here.store.read(lambda connection: outstanding_rows(connection, as_of=date(2026, 1, 31)))
    return sorted(row.transaction_id for row in found)


async def count(here: Host, table: str, number: int) -> int:
    sql = f"SELECT count(*) FROM {table} WHERE run = ?"  # noqa: S608
    return int(await here.store.read(lambda connection: connection.execute(sql, (number,)).get))


async def edges(here: Host) -> list[str]:
    sql = "SELECT date FROM day_edges ORDER BY date"
    return await here.store.read(lambda connection: [day for (day,) in connection.execute(sql)])


async def check_gone(here: Host, number: int) -> None:
    assert {table: await count(here, table, number) for table in OF_A_RUN} == dict.fromkeys(OF_A_RUN, 0)
    assert list((await here.store.read(check_ledger)).faults) == []


async def test_run_that_failed_on_its_rows_is_forgotten_with_all_that_it_read(fake: FakeProcessor, here: Host) -> None:
    await here.run(D15)
    fake.state.update_transaction(ACCOUNT, "b", status="odd")
    assert isinstance(await here.attempt(D16), SettleError)
    assert await count(here, "pages", 2) > 0
    run = await here.forget(D16)
    assert (run.id, run.state) == ("run_000002", State.FAILED)
    await check_gone(here, 2)
    fake.state.update_transaction(ACCOUNT, "b", status="available")
    assert (await here.run(D16)).run_id == "run_000003"
    await check_truth(here, fake)


async def test_run_that_a_dead_process_left_in_the_middle_of_its_pull_is_forgotten(
    fake: FakeProcessor, here: Host
) -> None:
    fake.fault("unauthorized")
    assert isinstance(await here.attempt(D15), ProcessorRejected)
    fake.heal()
    await here.change("UPDATE runs SET state = 'pulling', owner = 'dead'")
    assert (await here.forget(D15)).state is State.PULLING
    await check_gone(here, 1)
    assert (await here.run(D15)).run_id == "run_000002"


async def test_run_that_a_living_process_works_on_is_not_forgotten(fake: FakeProcessor, tmp_path: Path) -> None:
    async with host(tmp_path / "paykit.db", fake.url) as here:
        fake.fault("unauthorized")
        assert isinstance(await here.attempt(D15), ProcessorRejected)
        fake.heal()
        owner = here.runner._owner.name
        await here.change("UPDATE runs SET state = 'pulling', owner = ?", owner)
        with pytest.raises(InvalidRequest, match="is alive works on it"):
            await here.forget(D15)
        assert (await here.stored(D15)).owner == owner


async def test_rejected_run_that_was_never_sent_gives_back_all_that_it_held(fake: FakeProcessor, here: Host) -> None:
    await here.run(D15)
    fake.state.update_transaction(ACCOUNT, "late", status="available")
    named = await rejected(here, fake)
    assert await owed(here) == ["late", "p"]  # a rejected run has settled nothing
    await here.forget(D16)
    await check_gone(here, 2)
    assert await owed(here) == ["late"]
    fake.state.remove_settlement(named)
    assert (await here.run(D17)).total_net == 1050
    assert (await here.run(D16)).total_net == 10
    assert await owed(here) == ["p"]
    await check_truth(here, fake)


async def test_what_it_found_owed_on_an_earlier_day_stays_owed(fake: FakeProcessor, here: Host) -> None:
    await here.run(D15)
    fake.state.add_transactions(ACCOUNT, [wire_row("new", 20, day=D15, status="pending")])
    await rejected(here, fake)
    await here.forget(D16)
    assert await owed(here) == ["late", "new"]
    fake.state.update_transaction(ACCOUNT, "new", status="available")
    fake.state.remove_settlement("setl_0002")
    assert (await here.run(D17)).total_net == 1020
    await check_truth(here, fake)


async def test_correction_that_it_had_settled_is_to_be_settled_by_another(fake: FakeProcessor, here: Host) -> None:
    await here.run(D15)
    fake.state.update_transaction(ACCOUNT, "a", amount=125, net=125)
    first = date(2026, 1, 15)
    await recheck_and_register(here.client, here.store, ACCOUNT, first, first, RunOptions(), now_ms=clock_ms())
    await here.store.write(
        lambda connection: settle_difference(
            connection, ACCOUNT, "a", by=ADA, reason="right", scale=ScaleProfile(), now_ms=1
        )
    )
    named = await rejected(here, fake)
    await here.forget(D16)
    fake.state.remove_settlement(named)
    assert (await here.run(D17)).total_net == 1025
    await check_truth(here, fake)


async def test_difference_that_it_noticed_stays_on_record(fake: FakeProcessor, here: Host) -> None:
    await here.run(D15)
    fake.state.update_transaction(ACCOUNT, "a", amount=125, net=125)
    await rejected(here, fake)
    await here.forget(D16)
    found, _ = await here.store.read(
        lambda connection: list_differences(connection, ACCOUNT, with_ended=False, limit=9)
    )
    assert [(each.transaction_id, each.seen_by_run, each.held_by_run) for each in found] == [("a", None, 1)]


async def test_number_of_a_forgotten_run_is_never_given_again(fake: FakeProcessor, here: Host) -> None:
    for number in (1, 2, 3):
        fake.fault("unauthorized")
        assert isinstance(await here.attempt(D15), ProcessorRejected)
        fake.heal()
        assert (await here.forget(D15)).number == number
    assert (await here.run(D15)).run_id == "run_000004"
    assert (await here.run(D16)).run_id == "run_000005"


async def test_edges_go_where_no_run_is_beside_them(fake: FakeProcessor, here: Host) -> None:
    await here.run(D15)
    await rejected(here, fake, D16)
    await rejected(here, fake, D18)
    assert await edges(here) == [D15, D16, D17, D18, "2026-01-19"]
    await here.forget(D18)
    assert await edges(here) == [D15, D16, D17]
    await here.forget(D16)
    assert await edges(here) == [D15, D16]


async def test_day_that_was_begun_in_a_wrong_zone_can_be_begun_in_the_right_one(
    fake: FakeProcessor, here: Host
) -> None:
    fake.fault("unauthorized")
    assert isinstance(await here.attempt(D16, zone="America/New_York"), SettleError)
    fake.heal()
    before = (await here.stored(D16)).window
    await here.forget(D16)
    assert (await here.run(D16, zone="Etc/UTC", zone_changed=True)).total_net == 10
    assert (await here.stored(D16)).window != before


@pytest.mark.parametrize("state", ["posted", "unknown", "refused"])
async def test_run_that_was_sent_is_not_forgotten(fake: FakeProcessor, here: Host, state: str) -> None:
    if state == "unknown":
        fake.fault("error_502", route=f"POST {SETTLEMENTS}")
        assert isinstance(await here.attempt(D15), OutcomeUnknown)
    elif state == "refused":
        cue = scripted(fake)
        cue.instead = refuse(422)
        assert isinstance(await here.attempt(D15), ProcessorRejected)
    else:
        await here.run(D15)
    before = await here.stored(D15)
    with pytest.raises(InvalidRequest, match="only a run of which nothing was ever sent"):
        await here.forget(D15)
    assert await here.stored(D15) == before


async def test_run_that_is_posted_without_a_send_of_its_own_is_not_forgotten(fake: FakeProcessor, here: Host) -> None:
    named = await rejected(here, fake)
    await here.resolve(named, D16, covers="all")
    with pytest.raises(InvalidRequest, match="run_000001 is posted"):
        await here.forget(D16)


async def test_run_for_whose_sake_rows_were_passed_over_is_not_forgotten(fake: FakeProcessor, here: Host) -> None:
    await rejected(here, fake)
    moved = int(str(fake.state.transaction(ACCOUNT, "d")["created"])) + 1
    fake.state.update_transaction(ACCOUNT, "b", created=moved)
    await here.run(D17)
    with pytest.raises(InvalidRequest, match=f"run_000002 of {D17} passed over 'b', which it holds"):
        await here.forget(D16)


async def test_forgetting_is_kept_in_the_table_of_changes(fake: FakeProcessor, here: Host, tmp_path: Path) -> None:
    await rejected(here, fake)
    await here.forget(D16)
    (newest,) = await here.store.read(lambda connection: changes(connection, limit=1))
    assert (newest.what, newest.subject, newest.principal) == ("forget", "run_000001", "ada")
    assert newest.detail == f"{D16}, it was rejected: begun by mistake"
    with pytest.raises(RunNotFound):
        await here.store.read(lambda connection: find_run(connection, "run_000001"))
    assert columns(tmp_path / "paykit.db", "SELECT number FROM forgotten_runs") == [(1,)]
