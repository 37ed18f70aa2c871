"""Whatever days end in conflict, whatever a person says they cover: in the end each row is settled exactly once.

Without it a row could be freed by one day and passed over by the next, or be held by two, in an order that nobody wrote
a test for. Drawn days, rows that turn late, move and are released, conflicts, lists and forgotten runs.
"""

import os
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from random import Random

import pytest

from fake_processor import FakeProcessor
from paykit_settle.errors import InvalidRequest, SettlementConflict
from paykit_settle.lifecycle import State
from paykit_settle.run import RunOptions
from paykit_settle.store.history import list_runs
from paykit_settle.store.runs import current_attempt
from tests.fault.foreign import foreign
from tests.fault.stage import ACCOUNT, Host, a_processor, check_truth, host, wire_row

SEEDS = range(120 if os.environ.get("PAYKIT_TEST_LONG") else 12)
FIRST = date(2026, 1, 15)
DAYS = 5
ENDED = 4
"""Days that are settled when everything is available: more than a day is listed again."""


def day(offset: int) -> str:
    return (FIRST + timedelta(days=offset)).isoformat()


class Drawn:
    """One history of an account. `covered` is what the processor's own settlements hold, by row."""

    def __init__(self, here: Host, fake: FakeProcessor, random: Random) -> None:
        self.here = here
        self.fake = fake
        self.random = random
        self.covered: dict[str, int] = {}

    def nets(self) -> dict[str, int]:
        """What each row comes to; a row that only moves the balance comes to nothing."""
        rows = self.fake.state.transactions(ACCOUNT)
        return {str(row["id"]): int(str(row["net"])) for row in rows if row["type"] != "payout"}

    def change_rows(self, offset: int) -> None:
        """Some pending rows turn available, some rows move to another day, one is new on an earlier day."""
        for row in self.fake.state.transactions(ACCOUNT):
            if row["status"] == "pending" and self.random.random() < 0.3:
                self.fake.state.update_transaction(ACCOUNT, str(row["id"]), status="available")
            if self.random.random() < 0.08:
                moved = int(str(row["created"])) + 86_400
                if moved < int(str(wire_row("x", 1, day=day(DAYS))["created"])):
                    self.fake.state.update_transaction(ACCOUNT, str(row["id"]), created=moved)
        if offset and self.random.random() < 0.4:
            late = wire_row(f"new{offset}", self.random.randint(1, 99), day=day(self.random.randrange(offset)))
            self.fake.state.add_transactions(ACCOUNT, [late])

    async def settle(self, offset: int) -> None:
        """Settles a day, which may end in conflict; and then a person decides."""
        if self.random.random() < 0.5:
            await self.here.run(day(offset))
            return
        named = foreign(self.fake, 7_000 + offset, day=day(offset))
        assert isinstance(await self.here.attempt(day(offset)), SettlementConflict)
        if self.random.random() < 0.2:
            await self.here.forget(day(offset))
            assert isinstance(await self.here.attempt(day(offset)), SettlementConflict)
        await self.take(named, offset)

    async def take(self, named: str, offset: int) -> None:
        run = await self.here.stored(day(offset))
        ours = await self.here.store.read(lambda connection: current_attempt(connection, run))
        kind = self.random.choice(["all", "none", "listed", "listed"])
        if kind == "listed":
            ids = [identity for identity in sorted(self.nets()) if self.random.random() < 0.3]
            if ids and (covers := await self.acceptable(named, offset, ids)):
                self.covered |= {identity: self.nets()[identity] for identity in covers}
                return
            kind = "none"
        await self.here.resolve(named, day(offset), covers=kind)
        if kind == "all":
            self.covered[named] = ours.settlement.total_net

    async def acceptable(self, named: str, offset: int, ids: list[str]) -> list[str]:
        """Says that it covers these rows, but for those that are refused; what was covered then."""
        while ids:
            try:
                await self.here.resolve(named, day(offset), covers=ids)
            except InvalidRequest as refused:
                ids = [identity for identity in ids if f"'{identity}'" not in str(refused)]
            else:
                return ids
        return []


@pytest.mark.parametrize("seed", SEEDS)
async def test_each_row_is_settled_exactly_once_whatever_is_covered(seed: int, tmp_path: Path) -> None:
    random = Random(seed)  # noqa: S311 - a drawn history, the same each time
    rows = [
        wire_row(
            f"r{number}",
            random.choice([-1, 1]) * random.randint(1, 999),
            day=day(random.randrange(DAYS)),
            status=random.choice(["available", "available", "pending"]),
            kind=random.choice(["charge", "charge", "payout"]),
            second=random.randrange(80_000),
        )
        for number in range(24)
    ]
    options = RunOptions(page_size=random.choice([2, 5, 100]), look_back_listings=20)
    async with a_processor(rows) as fake, host(tmp_path / "paykit.db", fake.url, options=options) as here:
        drawn = Drawn(here, fake, random)
        for offset in range(DAYS):
            drawn.change_rows(offset)
            await drawn.settle(offset)
        fake.state.release_pending(ACCOUNT)
        for offset in range(DAYS, DAYS + ENDED):
            await here.run(day(offset))
        runs, _ = await here.store.read(lambda connection: list_runs(connection, limit=100))
        assert {run.state for run in runs} == {State.POSTED}
        attempts = [await here.store.read(partial(current_attempt, run=run)) for run in runs]
        own = sum(attempt.settlement.total_net for attempt in attempts if attempt.taken is None)
        assert own + sum(drawn.covered.values()) == sum(drawn.nets().values())
        await check_truth(here, fake)
