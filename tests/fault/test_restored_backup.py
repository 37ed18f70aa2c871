"""A database that was put back from a back-up settles no late row again that a forgotten run had taken in.

Without it a late row was settled twice: the processor had 1111 for what was worth 1061, and every `verify` agreed. The
whole way is gone here: settle, back up, settle on, restore by the command line, settle on.
"""

from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest

from fake_processor import FakeProcessor
from tests.fault.stage import (
    ACCOUNT,
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
from tests.programs import paykit

D15, D16, D17, D18 = "2026-01-15", "2026-01-16", "2026-01-17", "2026-01-18"
TRUTH = 1061
"""1000 of the 15th, of which a row of 50 comes late; 1 of the 16th, 10 of the 17th."""


@pytest.fixture
def fake() -> Iterator[FakeProcessor]:
    rows = [
        wire_row("t1", 1000, day=D15),
        wire_row("late", 50, day=D15, status="pending"),
        wire_row("t2", 1, day=D16),
        wire_row("t3", 10, day=D17),
    ]
    with a_processor(rows) as processor:
        yield processor


def settled_at(fake: FakeProcessor) -> dict[str, int]:
    """What the processor has been told to settle, by day."""
    return {str(each["date"]): int(str(each["total_net"])) for each in fake.state.settlements(account=ACCOUNT)}


async def forgotten(fake: FakeProcessor, database: Path, *, taken_in_by: str = D16, total: int = 51) -> None:
    """The 15th is settled and backed up, a later day takes the late row in, and the back-up is restored."""
    words = ("--database", str(database))
    async with host(database, fake.url) as here:
        await here.run(D15)
    assert paykit("db", "backup", "copy.db", *words, cwd=database.parent).returncode == 0
    fake.state.update_transaction(ACCOUNT, "late", status="available")
    async with host(database, fake.url) as here:
        assert (await here.run(taken_in_by)).total_net == total
    done = paykit("db", "restore", "copy.db", *words, cwd=database.parent)
    assert (done.returncode, done.stderr) == (0, "")
    assert columns(database, "SELECT date FROM runs") == [(D15,)]


async def settle_on(here: Host, *days: str) -> None:
    for day in days:
        await here.run(day)


async def test_late_row_that_a_forgotten_run_has_settled_is_not_settled_by_the_next_day(
    fake: FakeProcessor, tmp_path: Path
) -> None:
    database = tmp_path / "paykit.db"
    await forgotten(fake, database)
    async with host(database, fake.url) as here:
        await settle_on(here, D17)
        assert settled_at(fake) == {D15: 1000, D16: 51, D17: 10}  # 60 for the 17th would be the row once more
        assert sum(settled_at(fake).values()) == TRUTH
        await settle_on(here, D18)
        assert sum(settled_at(fake).values()) == TRUTH


async def test_missing_days_run_in_order_after_a_restore_find_what_was_settled(
    fake: FakeProcessor, tmp_path: Path
) -> None:
    """What the documents advise: the 16th computes the very settlement again that the processor has, and books it."""
    database = tmp_path / "paykit.db"
    await forgotten(fake, database)
    async with host(database, fake.url) as here:
        await settle_on(here, D16, D17, D18)
        assert settled_at(fake) == {D15: 1000, D16: 51, D17: 10, D18: 0}
        await check_truth(here, fake)
        assert await here.balance() == TRUTH


async def test_late_row_is_settled_by_the_next_day_where_nothing_was_forgotten(
    fake: FakeProcessor, tmp_path: Path
) -> None:
    """A day that nobody has settled anywhere holds no late row up."""
    database = tmp_path / "paykit.db"
    async with host(database, fake.url) as here:
        await here.run(D15)
        fake.state.update_transaction(ACCOUNT, "late", status="available")
        assert (await here.run(D17)).total_net == 60
        assert (await here.run(D16)).total_net == 1
        assert sum(settled_at(fake).values()) == TRUTH
        await check_truth(here, fake)


async def test_forgotten_day_after_the_one_that_is_settled_now_holds_its_late_rows_too(
    fake: FakeProcessor, tmp_path: Path
) -> None:
    """The 17th took the row in; the 16th, which was never settled, is settled after the restore."""
    database = tmp_path / "paykit.db"
    await forgotten(fake, database, taken_in_by=D17, total=60)
    async with host(database, fake.url) as here:
        here.clock.pass_day(date.fromisoformat(D17))
        await settle_on(here, D16)
        assert settled_at(fake) == {D15: 1000, D16: 1, D17: 60}
        await settle_on(here, D17)
        await check_truth(here, fake)
        assert await here.balance() == TRUTH


@pytest.mark.parametrize(("checked", "total"), [(False, 10), (True, 60)])
async def test_without_a_look_up_a_late_row_waits_for_a_persons_word(
    fake: FakeProcessor, tmp_path: Path, *, checked: bool, total: int
) -> None:
    database = tmp_path / "paykit.db"
    async with host(database, fake.url) as here:
        await here.run(D15)
        await here.change("DELETE FROM processors")  # it never had a look-up
    fake.state.update_transaction(ACCOUNT, "late", status="available")
    cue = scripted(fake)
    cue.instead = refuse(404, method="GET", path=SETTLEMENTS)
    words = ["--after-restore-checked"] if checked else []
    words += ["--processor-url", fake.url, "--database", str(database), "--json"]
    done = paykit("run", "--account", ACCOUNT, "--date", D17, *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert settled_at(fake)[D17] == total
    assert ("stay owed" in done.stderr) is not checked
