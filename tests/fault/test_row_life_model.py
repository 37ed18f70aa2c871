"""A model of rows that do everything a row can do, in any order, while runs fail, crash, race and are pulled anew.

After each step no row is settled as something it never was; at the end, with the processor standing still, every row is
settled as it is now, or it is named: owed, written off, different, dismissed, or seen by `recheck`. Without it, a row
could be settled twice or lost in an order of events that no example thinks of.
"""

import asyncio
import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import date as Date
from pathlib import Path
from random import Random

import pytest

from paykit_settle.errors import InvalidRequest, RunNotFound
from paykit_settle.lifecycle import State, Step
from paykit_settle.models import PostedSettlement
from paykit_settle.money import ScaleProfile
from paykit_settle.recheck import recheck_and_register
from paykit_settle.run import RunOptions
from paykit_settle.store.decisions import dismiss_difference, settle_difference
from paykit_settle.store.differences import Difference, live_ids, revisions_of
from paykit_settle.store.history import list_runs, outstanding_rows
from paykit_settle.store.runs import Run
from paykit_settle.store.store import clock_ms
from paykit_settle.store.upkeep import prune
from paykit_settle.store.write_offs import find_row, write_off
from tests.fault.row_life import FIRST_DAY, WRONG_CURRENCY, Life, Row, day_name
from tests.fault.stage import ACCOUNT, ADA, LIST, SETTLEMENTS, Host, check_truth, host, refuse, scripted

EPISODES = 400 if os.environ.get("PAYKIT_TEST_LONG") else 16
STEPS = 60
DAYS = 14
LOOK_BACK = 3
ROUNDS_MAX = 6
AS_OF = Date(2026, 12, 31)
WHO = {"by": ADA, "reason": "seen"}
FAULTS = [
    ("error_502", f"GET {LIST}"),
    ("truncated_json", f"GET {LIST}"),
    ("no_such_route", f"GET {LIST}/*"),
    ("other_row", f"GET {LIST}/*"),
    ("error_500", f"GET {LIST}/*"),
    ("error_503", f"GET {SETTLEMENTS}"),
    ("lookup_missing", f"GET {SETTLEMENTS}"),
    ("reset_after_effect", f"POST {SETTLEMENTS}"),
    ("error_500_after_effect", f"POST {SETTLEMENTS}"),
    ("error_502", f"POST {SETTLEMENTS}"),
]


class Killed(BaseException):
    """The end of a process at a step."""


class Model:
    """One episode: the rows at their processor, and the host under test."""

    def __init__(self, seed: int, database: Path) -> None:
        self.dice = Random(seed)  # noqa: S311 - a test's choices, not a secret
        self.life = Life(self.dice)
        self.fake = self.life.fake
        self.database = database
        self.today = 1
        self.dies_at: tuple[Step, int] | None = None
        self.is_pruned = False
        self.options = RunOptions(page_size=self.dice.choice([2, 3, 100]), look_back_days=LOOK_BACK)
        self.log: list[str] = []

    # The host under test.

    async def start(self) -> None:
        self.stack = AsyncExitStack()
        entered = host(self.database, self.fake.url, options=self.options, at_step=self.at_step)
        self.here: Host = await self.stack.enter_async_context(entered)
        self.here.store._writer._connection.execute("PRAGMA synchronous = OFF")  # processes die here, machines do not

    def at_step(self, step: Step) -> None:
        if self.dies_at is not None and self.dies_at[0] is step:
            self.dies_at = (step, self.dies_at[1] - 1)
            if self.dies_at[1] == 0:
                raise Killed

    async def crash(self) -> None:
        self.dies_at = None
        await self.stack.aclose()
        await self.start()

    async def runs(self) -> list[Run]:
        found, _ = await self.here.store.read(lambda connection: list_runs(connection, limit=1000))
        return found

    async def revisions(self) -> dict[str, list[Difference]]:
        ids = list(self.life.rows)
        return await self.here.store.read(lambda connection: revisions_of(connection, ACCOUNT, ids))

    async def live(self) -> set[str]:
        return await self.here.store.read(lambda connection: live_ids(connection, ACCOUNT))

    async def owed(self) -> set[str]:
        found = await self.here.store.read(lambda c: outstanding_rows(c, account=ACCOUNT, as_of=AS_OF))
        return {row.transaction_id for row in found}

    # What can happen to rows.

    async def new_row(self) -> None:
        day = max(0, self.today - self.dice.choice([0, 0, 0, 1, 2]))
        self.life.add_row(day)

    async def move(self) -> None:
        if (row := self.life.any_row()) is not None:
            row.day = max(0, self.today + self.dice.randint(-4, 2))
            if self.dice.random() < 0.3:
                row.status = self.dice.choice(["available", "pending"])
            self.life.show(row)

    async def come_back(self) -> None:
        if (row := self.life.any_row(there=False)) is not None:
            row.is_there = True
            self.fake.state.add_transactions(ACCOUNT, [row.wire()])
            self.life.show(row)

    async def go_wrong(self) -> None:
        """A row of a posted day can suddenly not be settled; or it is right again."""
        posted = {run.date.isoformat() for run in await self.runs() if run.state is State.POSTED}
        row = self.life.any_row()
        if row is not None and row.currency == WRONG_CURRENCY:
            row.currency = "usd"
        elif row is not None and day_name(row.day) in posted:
            row.currency = WRONG_CURRENCY
        if row is not None:
            self.life.show(row)

    # What people and programs do.

    async def run_next(self) -> None:
        await self.here.attempt(day_name(self.today))
        self.today = min(self.today + 1, DAYS)

    async def skip_days(self) -> None:
        self.today = min(self.today + self.dice.randint(1, 3), DAYS)

    async def run_any(self) -> None:
        await self.here.attempt(self.a_day(), retry_rejected=self.dice.random() < 0.5)

    async def run_rejected(self) -> None:
        cue = scripted(self.fake)
        cue.instead = refuse(422)
        await self.here.attempt(self.a_day())
        cue.behave()

    async def run_with_a_fault(self) -> None:
        name, route = self.dice.choice(FAULTS)
        count = self.dice.choice([1, 2, 99])
        self.fake.fault(name, route=route, after=self.dice.randint(0, 2), count=count)
        await self.here.attempt(self.a_day())
        self.fake.heal()

    async def run_and_die(self) -> None:
        self.dies_at = (self.dice.choice(list(Step)), self.dice.randint(1, 2))
        try:
            await self.here.attempt(self.a_day(), retry_rejected=True)
        except Killed:
            await self.crash()
        self.dies_at = None

    async def resume(self) -> None:
        await self.here.resume()

    async def run_on_two_hosts(self) -> None:
        async with host(self.database, self.fake.url, options=self.options) as other:
            days = self.a_day(), self.a_day()
            await asyncio.gather(self.here.attempt(days[0], retry_rejected=True), other.attempt(days[1]))

    async def prune(self) -> None:
        self.is_pruned = True
        await self.here.store.write(
            lambda c: prune(c, today=Date.fromisoformat(day_name(self.today)), older_than_days=5)
        )

    async def write_one_off(self) -> None:
        if (row := self.life.any_row(there=self.dice.random() < 0.7)) is None:
            return
        name = row.identity

        try:
            found = await self.here.store.read(lambda c: find_row(c, ACCOUNT, name, day=None))
            await self.here.store.write(
                lambda c: write_off(c, ACCOUNT, name, by=ADA, reason="paid", now_ms=clock_ms(), found=found)
            )
            row.written_off = True
        except (RunNotFound, InvalidRequest):
            pass  # it is settled, or known of nowhere

    async def decide(self) -> None:
        for identity in sorted(await self.live()):
            if self.dice.random() < 0.6:
                await self.decide_on(identity, settle=self.dice.random() < 0.7)

    async def decide_on(self, identity: str, *, settle: bool) -> bool:
        """Whether the difference of that row could be settled, or dismissed."""

        def decided(connection: object) -> None:
            if settle:
                settle_difference(connection, ACCOUNT, identity, scale=ScaleProfile(), now_ms=clock_ms(), **WHO)  # type: ignore[arg-type]
            else:
                dismiss_difference(connection, ACCOUNT, identity, now_ms=clock_ms(), **WHO)  # type: ignore[arg-type]

        try:
            await self.here.store.write(decided)
        except (InvalidRequest, RunNotFound):
            return False
        return True

    async def recheck(self) -> set[str]:
        """What a recheck of all days finds that nobody has settled."""
        last = Date.fromisoformat(day_name(self.today))
        days = await recheck_and_register(
            self.here.client, self.here.store, ACCOUNT, FIRST_DAY, last, self.options, now_ms=clock_ms()
        )
        return {identity for day in days for identity in day.late_ids}

    def a_day(self) -> str:
        return day_name(self.dice.randint(max(0, self.today - 6), self.today))

    async def step(self) -> None:
        actions: list[tuple[int, Callable[[], object]]] = [
            (16, self.new_row),
            (10, self.life.turn_available),
            (2, self.life.turn_pending),
            (8, self.life.change),
            (5, self.life.vanish),
            (5, self.come_back),
            (9, self.move),
            (2, self.go_wrong),
            (16, self.run_next),
            (2, self.skip_days),
            (8, self.run_any),
            (5, self.run_rejected),
            (5, self.run_with_a_fault),
            (5, self.run_and_die),
            (2, self.resume),
            (2, self.run_on_two_hosts),
            (1, self.prune),
            (2, self.write_one_off),
            (5, self.decide),
            (1, self.recheck),
        ]
        (action,) = self.dice.choices([each for _, each in actions], [weight for weight, _ in actions])
        result = action()
        if asyncio.iscoroutine(result):
            await result
        self.log.append(f"{action.__name__} today={self.today}")
        self.check_never_other()

    # What must hold.

    def check_never_other(self) -> None:
        """No row is settled as something that it never was, such as twice."""
        for identity, worth in self.life.settled().items():
            row = self.life.rows[identity]
            assert worth == {} or worth in row.seen, (identity, worth, row)

    async def finish(self) -> None:
        """The processor stands still, every day is run, what differs is settled, and days follow until all is in."""
        for row in self.life.rows.values():
            if row.currency == WRONG_CURRENCY:
                row.currency = "usd"
                self.life.show(row)
        await self.crash()
        await self.here.resume()
        for offset in range(self.today):
            await self.run_at_last(offset)
        await self.run_days(LOOK_BACK + 2)
        for _ in range(ROUNDS_MAX):
            late = await self.recheck()
            decided = [await self.decide_on(identity, settle=True) for identity in sorted(await self.live())]
            await self.run_days(1)
            if not any(decided) and not late:
                break
        self.check_never_other()
        late = await self.recheck()
        assert late == set(), [self.life.rows[identity] for identity in late]
        await self.check_each()
        await check_truth(self.here, self.fake)

    async def run_days(self, count: int) -> None:
        for _ in range(count):
            await self.run_at_last(self.today)
            self.today += 1

    async def run_at_last(self, offset: int) -> None:
        for _ in range(2):  # what is left of an earlier pull may be refused; then it is read anew
            outcome = await self.here.attempt(day_name(offset), retry_rejected=True)
            if isinstance(outcome, PostedSettlement):
                return
        raise AssertionError(outcome)

    async def check_each(self) -> None:
        settled, owed, live, known = self.life.settled(), await self.owed(), await self.live(), await self.revisions()
        for identity, row in self.life.rows.items():
            newest = known[identity][-1] if identity in known else None
            told = (row, settled[identity], newest, identity in owed, identity in live)
            if row.written_off:
                assert settled[identity] == {} or newest is not None, told
            elif settled[identity] != row.worth:
                assert self.is_named(row, newest) or identity in live, told
            elif row.worth:
                assert identity not in owed | live, ("named although it is settled as it is", told)
            elif row.is_there and row.status == "pending" and row.kind != "payout":
                assert identity in owed or newest is not None, ("nobody knows of it", told)

    def is_named(self, row: Row, newest: Difference | None) -> bool:
        """Whether somebody was told that the row is not settled as it is."""
        if newest is not None and newest.decision == "dismiss":
            shown = self.fake.state.transactions(ACCOUNT)
            return row.identity in [each["id"] for each in shown] or newest.is_now is None
        return self.is_pruned


@pytest.mark.parametrize("seed", range(EPISODES))
async def test_every_row_is_settled_once_as_it_is_or_named(tmp_path: Path, seed: int) -> None:
    model = Model(seed, tmp_path / "model.db")
    async with model.fake:
        await model.start()
        try:
            for _ in range(STEPS):
                await model.step()
            await model.finish()
        except BaseException:
            print("\n".join(model.log))
            raise
        finally:
            await model.stack.aclose()
