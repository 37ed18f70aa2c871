"""Whatever state a database is in: a dry run and the run give the same bytes, the same named rows or the same refusal.

States are drawn by seeds: days that are posted, rejected, unknown, frozen, failed or left by a dead owner while pulled;
rows that are owed, late, changed, gone, moved or written off; corrections, pruned pages, a file of an older version.
Without this a dry run would be right for the states that somebody thought of.
"""

import json
import random
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path

import pytest

from fake_processor import FakeProcessor
from paykit_settle.claiming import Asked
from paykit_settle.corrections import CORRECTION
from paykit_settle.dry_run import Clock, Looked, look
from paykit_settle.errors import InvalidRequest, RunNotFound, SettleError
from paykit_settle.lifecycle import Step
from paykit_settle.models import PostedSettlement
from paykit_settle.report import settlement_json, warnings_of
from paykit_settle.run import RunOptions
from paykit_settle.run_request import make_run_request
from paykit_settle.store.copying import working_copy
from paykit_settle.store.decisions import list_differences, settle_difference
from paykit_settle.store.history import outstanding_rows
from paykit_settle.store.store import clock_ms
from paykit_settle.store.upkeep import prune
from paykit_settle.store.write_offs import write_off
from tests.fault.stage import (
    ACCOUNT,
    ADA,
    LIST,
    SETTLEMENTS,
    Host,
    ScriptedProcessor,
    a_processor,
    host,
    posts,
    refuse,
    scripted,
    wire_row,
)

SEEDS = 28
STEPS = 12
FIRST_DAY = date(2026, 1, 12)
DAYS = 10
RELEASE = Path(__file__).parents[1] / "data" / "releases" / "0.1.0.db"
OPTIONS = RunOptions(page_size=3)


class Killed(BaseException):
    """The end of a process at a step."""


@dataclass(slots=True)
class Scene:
    """A processor, a database, and dice that say what happens to both."""

    seed: int
    database: Path
    fake: FakeProcessor
    cue: ScriptedProcessor
    reached: Counter[str]
    dice: random.Random = field(init=False)
    shown: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Amount and time of each row that the processor shows, as it was made."""

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)  # noqa: S311 - a test's choices, not a secret

    def a_day(self) -> str:
        return (FIRST_DAY + timedelta(days=self.dice.randrange(DAYS))).isoformat()

    @asynccontextmanager
    async def open(self, database: Path | None = None, *, dies_at: Step | None = None) -> AsyncIterator[Host]:
        def at_step(step: Step) -> None:
            if step is dies_at:
                raise Killed

        async with host(database or self.database, self.fake.url, options=OPTIONS, at_step=at_step) as here:
            # Processes die here, machines do not: nothing need reach the disk.
            here.store._writer._connection.execute("PRAGMA synchronous = OFF")
            yield here

    def an_open_day(self) -> str:
        """A day that is not posted, mostly: of those there is more to say."""
        taken = {entry["date"] for entry in self.fake.state.settlements(account=ACCOUNT)}
        days = [self.a_day() for _ in range(8)]
        return next((day for day in days if day not in taken), days[0])

    # What happens before somebody looks.

    def new_rows(self) -> None:
        for _ in range(self.dice.randint(1, 3)):
            identity = f"t{self.dice.randrange(10**9):09d}"
            kind = self.dice.choice(["charge", "charge", "refund", "payout", "odd_new_type"])
            row = wire_row(
                identity,
                self.dice.randint(1, 5000) * (-1 if kind == "refund" else 1),
                day=self.a_day(),
                fee=self.dice.choice([0, 7]),
                currency=self.dice.choice(["usd", "usd", "eur", "jpy"]),
                status=self.dice.choice(["available", "available", "pending"]),
                kind=kind,
                second=self.dice.randrange(86_400),
            )
            self.fake.state.add_transactions(ACCOUNT, [row])
            amount, created = row["amount"], row["created"]
            assert isinstance(amount, int)
            assert isinstance(created, int)
            self.shown[identity] = amount, created

    def a_row_changes(self) -> None:
        if not self.shown:
            return
        identity = self.dice.choice(sorted(self.shown))
        change = self.dice.choice(["amount", "status", "status", "day", "gone", "wrong"])
        amount, created = self.shown[identity]
        if change == "amount":
            self.fake.state.update_transaction(ACCOUNT, identity, amount=amount + 5, fee=0, net=amount + 5)
        elif change == "status":
            self.fake.state.update_transaction(ACCOUNT, identity, status="available")
        elif change == "day":
            self.fake.state.update_transaction(ACCOUNT, identity, created=created + 86_400)
        elif change == "gone":
            self.fake.state.remove_transaction(ACCOUNT, identity)
            del self.shown[identity]
        elif self.dice.random() < 0.3:
            self.fake.state.update_transaction(ACCOUNT, identity, status="odd")

    async def a_day_is_settled(self) -> None:
        async with self.open() as here:
            await here.attempt(self.an_open_day())

    async def a_day_fails(self) -> None:
        how = self.dice.choice(["rejected", "unknown", "unknown", "failed", "unauthorized"])
        if how == "rejected":
            self.cue.instead = refuse(422)
        elif how == "unknown":
            self.fake.fault(self.dice.choice(["error_502", "reset_after_effect"]), route=f"POST {SETTLEMENTS}")
            self.fake.fault(
                "error_503", route=f"GET {SETTLEMENTS}", after=self.dice.choice([0, 1, 1, 1]), retry_after_s=0
            )
        elif how == "failed":
            self.cue.instead = refuse(403, method="GET", path=LIST)
        else:
            self.fake.fault("unauthorized", route=f"POST {SETTLEMENTS}")
        async with self.open() as here:
            await here.attempt(self.an_open_day())
        self.cue.behave()
        self.fake.heal()

    async def a_process_dies(self) -> None:
        step = self.dice.choice([Step.CLAIMED, Step.PAGE_STORED, Step.FROZEN, Step.BEFORE_POST, Step.BEFORE_BOOKING])
        async with self.open(dies_at=step) as here:
            with suppress(Killed):
                await here.attempt(self.an_open_day())

    async def a_person_decides(self) -> None:
        async with self.open() as here:
            found = await here.store.read(lambda c: list_differences(c, ACCOUNT, with_ended=False, limit=100))
            owed = await here.store.read(lambda c: outstanding_rows(c, account=ACCOUNT, as_of=date(2026, 2, 1)))
            what = self.dice.choice(["settle", "settle", "write off", "prune"])
            if what == "prune":
                await here.store.write(lambda c: prune(c, today=date(2026, 2, 20), older_than_days=10))
            elif what == "write off" and owed:
                row = self.dice.choice(owed).transaction_id
                with suppress(RunNotFound):  # not of a day that is not posted
                    await here.store.write(
                        lambda c: write_off(c, ACCOUNT, row, reason="lost", by=ADA, now_ms=clock_ms())
                    )
            elif what == "settle" and found[0]:
                await self._settle_one(here, self.dice.choice(found[0]).transaction_id)

    async def _settle_one(self, here: Host, identity: str) -> None:
        with suppress(InvalidRequest):  # not of a row that is wrong
            await here.store.write(
                lambda c: settle_difference(c, ACCOUNT, identity, by=ADA, scale=OPTIONS.scale, now_ms=clock_ms())
            )

    async def something_happens(self) -> None:
        for work in (self.new_rows, *[self.a_row_changes] * 4):
            if self.dice.random() < 0.6:
                work()
        if self.dice.random() < 0.05:
            self.fake.state.add_settlement(ACCOUNT, self.an_open_day())
        await self.dice.choice(
            [self.a_day_is_settled, self.a_day_fails, self.a_day_fails, self.a_process_dies, self.a_person_decides]
        )()

    # Somebody looks, and then does it.

    async def compare(self) -> None:
        days = sorted({self.dice.choice([self.a_day, self.an_open_day])() for _ in range(self.dice.randint(1, 3))})
        asked = Asked(
            by="test",
            retry_rejected=self.dice.random() < 0.5,
            new_terms=self.dice.random() < 0.2,
            after_restore_checked=self.dice.random() < 0.5,
        )
        before, seen = self.files(), len(self.fake.requests)
        looked = await self.looks(days, asked)
        assert self.files() == before
        assert {request.method for request in self.fake.requests[seen:]} <= {"GET"}
        async with self.open() as here:
            for day, outcome in looked.items():
                self.agree(outcome, *await self.run(here, day, asked))

    def files(self) -> dict[str, bytes]:
        folder = self.database.parent
        return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}

    async def looks(self, days: list[str], asked: Asked) -> Mapping[str, Looked | SettleError]:
        """What the dry run of these days says, up to the first that fails."""
        outcomes: dict[str, Looked | SettleError] = {}
        with working_copy(self.database) as copy:
            async with self.open(copy) as here:
                gets = here.client.send_only_gets()
                for day in days:
                    wanted = make_run_request(ACCOUNT, day, "usd")
                    here.clock.pass_day(wanted.date)
                    try:
                        outcomes[day] = await look(
                            here.runner, here.store, gets, wanted, asked, clock=Clock(), options=OPTIONS
                        )
                    except SettleError as error:
                        outcomes[day] = error
                        break
        return outcomes

    async def run(self, here: Host, day: str, asked: Asked) -> tuple[PostedSettlement | SettleError, int]:
        """What the run of a day says, and how many settlements it has sent."""
        count = len(posts(self.fake))
        wanted = make_run_request(ACCOUNT, day, "usd")
        here.clock.pass_day(wanted.date)
        done: PostedSettlement | SettleError
        try:
            done = await here.runner.run_as(wanted, asked)
        except SettleError as error:
            done = error
        return done, len(posts(self.fake)) - count

    def agree(self, looked: Looked | SettleError, done: PostedSettlement | SettleError, sent: int) -> None:
        if isinstance(looked, SettleError) or isinstance(done, SettleError):
            assert isinstance(looked, SettleError)
            assert isinstance(done, SettleError)
            assert (type(looked), told(looked)) == (type(done), told(done))
            assert warnings_of(looked) == warnings_of(done)
            self.reached[looked.code] += 1
            return
        shown = looked.settled
        assert settlement_json(shown.settlement) == settlement_json(done.settlement)
        assert (shown.run_id, shown.replayed, shown.warnings) == (done.run_id, done.replayed, done.warnings)
        assert looked.attempt.idempotency_key == done.idempotency_key
        assert sent == looked.is_sent
        if looked.is_sent:
            last = posts(self.fake)[-1]
            assert (looked.attempt.body, looked.attempt.idempotency_key) == (last.body, last.idempotency_key)
        else:
            assert (shown.settlement_id, shown.status) == (done.settlement_id, done.status)
        self.reached[f"{looked.would}, {looked.before.state if looked.before else 'none'}"] += 1
        late = [group.reporting_category for each in shown.settlement.late for group in each.roll_up.settled]
        self.reached["late rows"] += any(category != CORRECTION for category in late)
        self.reached["corrections"] += CORRECTION in late
        self.reached["moved rows"] += shown.settlement.notes.moved_count > 0


def told(error: SettleError) -> tuple[str, object]:
    """What an error says, without the number and the time of a request."""
    return str(error).partition(" (GET ")[0], error.details.get("problems")


async def scene(
    seed: int, folder: Path, stack: AsyncExitStack, reached: Counter[str], rows: list[dict[str, object]] | None = None
) -> Scene:
    fake = await stack.enter_async_context(a_processor(rows or []))
    return Scene(seed, folder / "paykit.db", fake, scripted(fake), reached)


@pytest.mark.timeout(600)
async def test_dry_run_and_run_agree_in_every_state_of_the_database(tmp_path: Path) -> None:
    reached: Counter[str] = Counter()
    for seed in range(SEEDS):
        async with AsyncExitStack() as stack:
            (tmp_path / str(seed)).mkdir()
            here = await scene(seed, tmp_path / str(seed), stack, reached)
            for _ in range(6):
                here.new_rows()
            await here.compare()  # without a database
            for _ in range(STEPS):
                await here.something_happens()
                if here.dice.random() < 0.3:
                    await here.compare()
            await here.compare()
    assert set(+reached) >= {
        "post, none", "post, failed", "post, pulling", "post, rejected", "post again, unknown", "post again, frozen",
        "post again, failed", "book, unknown", "nothing, posted", "late rows", "moved rows", "corrections",
        "processor_rejected", "run_refused", "settlement_conflict",
    }  # fmt: skip


async def test_dry_run_and_run_agree_on_a_file_of_an_older_version(tmp_path: Path) -> None:
    reached: Counter[str] = Counter()
    rows = json.loads(RELEASE.with_suffix(".json").read_text(encoding="utf-8"))["rows"][ACCOUNT]
    for seed in range(DAYS):
        async with AsyncExitStack() as stack:
            (tmp_path / str(seed)).mkdir()
            here = await scene(seed, tmp_path / str(seed), stack, reached, rows)
            shutil.copy(RELEASE, here.database)
            await here.compare()
            await here.compare()
    assert set(+reached) >= {"nothing, posted", "post again, unknown", "post, none", "late rows"}
