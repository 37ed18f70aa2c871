"""A model of many days: rows come, turn available and come late; runs fail, crash and are resumed; old pages go.

Every row has a net of its own power of two, so the net of a line tells exactly which rows are in it: what was settled
is read from the processor's books, not from ours. After each step nothing is settled twice, early, or under the wrong
day, and the ledger equals the processor; at the end every row is settled once. Seeds, not time, decide what is tried.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from urllib.parse import parse_qsl

import httpx
import pytest

from fake_processor import ProcessorState
from fake_processor.processor import Processor
from fake_processor.wire import Request
from paykit_settle.checking import verify_run
from paykit_settle.client import ProcessorClient
from paykit_settle.errors import SettleError
from paykit_settle.lifecycle import State, Step
from paykit_settle.models import PostedSettlement
from paykit_settle.retry import RetryPolicy
from paykit_settle.run import RunOptions
from paykit_settle.runner import Runner
from paykit_settle.store.history import find_run, list_runs, outstanding_rows, read_history
from paykit_settle.store.runs import Run
from paykit_settle.store.store import Store, clock_ms
from paykit_settle.store.upkeep import prune
from paykit_settle.store.write_offs import write_off
from tests.fault.stage import ACCOUNT, ADA, LIST, SETTLEMENTS, Clock, Host, wire_row

EPISODES = 10
STEPS = 120
FIRST_DAY = date(2026, 1, 5)
DAYS = 24
LOOK_BACK = 3
BITS = 56
"""Rows of one currency in an episode: the net of each is its own power of two, times its sign."""
RATES = {"eur": "0.92", "gbp": "0.79", "jpy": "150"}
FAULTS = [
    ("error_500", f"POST {SETTLEMENTS}"),
    ("error_502", f"POST {SETTLEMENTS}"),
    ("error_500_after_effect", f"POST {SETTLEMENTS}"),
    ("reset_before_headers", f"POST {SETTLEMENTS}"),
    ("reset_after_effect", f"POST {SETTLEMENTS}"),
    ("unauthorized", f"POST {SETTLEMENTS}"),
    ("in_flight", f"POST {SETTLEMENTS}"),
    ("html", f"POST {SETTLEMENTS}"),
    ("error_503", f"GET {SETTLEMENTS}"),
    ("forbidden", f"GET {SETTLEMENTS}"),
    ("error_502", f"GET {LIST}"),
    ("truncated_json", f"GET {LIST}"),
    ("deleted_cursor", f"GET {LIST}"),
    ("row_string", f"GET {LIST}"),
    ("unauthorized", "GET /v1/fx/rates"),
]
QUICK = RetryPolicy(attempts_max=2, wait_first_ms=1, request_timeout_s=30, deadline_s=60)


class Killed(BaseException):
    """The end of a process at a step."""


class Direct(httpx.AsyncBaseTransport):
    """Hands a request to a processor without a socket: thousands of steps fit into seconds."""

    def __init__(self, processor: Processor) -> None:
        self._processor = processor
        self.refused_posts = 0
        """So many settlements to come are refused for their content."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        asked = Request(
            method=request.method,
            path=request.url.path,
            query=parse_qsl(request.url.query.decode("ascii"), keep_blank_values=True),
            headers={name.lower(): value for name, value in request.headers.items()},
            body=await request.aread(),
        )
        if asked.method == "POST" and self.refused_posts:
            self.refused_posts -= 1
            return httpx.Response(422, stream=_Whole(b'{"error":{"code":"amount_wrong"}}'))
        answer = self._processor.ask(asked).answer
        if answer is None:
            raise httpx.ReadError("reset")
        headers = {**answer.headers, "Content-Type": answer.content_type}
        return httpx.Response(answer.status, headers=headers, stream=_Whole(answer.body))


class _Whole(httpx.AsyncByteStream):
    def __init__(self, body: bytes) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._body


@dataclass(slots=True, kw_only=True)
class ModelRow:
    """A row that the model made: its net is `sign` times two to the power of `bit`."""

    identity: str
    day: str
    currency: str
    sign: int
    bit: int
    fee: int
    kind: str
    available: bool
    written_off: bool = False

    @property
    def net(self) -> int:
        return self.sign << self.bit

    @property
    def counts(self) -> bool:
        return self.kind != "payout"


@dataclass(slots=True)
class Model:
    """One episode: the processor's truth, the host under test, and what is known of both."""

    seed: int
    database: Path
    dice: random.Random = field(init=False)
    processor: Processor = field(init=False)
    stack: AsyncExitStack = field(init=False)
    here: Host = field(init=False)
    direct: Direct = field(init=False)
    rows: dict[str, ModelRow] = field(default_factory=dict)
    today: int = 0
    dies_at: tuple[Step, int] | None = None

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)  # noqa: S311 - a test's choices, not a secret
        table = {"object": "fx_rates", "base": "usd", "source": "model", "rates": RATES}
        days = [self.day(offset) for offset in range(DAYS + 8)]
        rates = {day: table | {"as_of": f"{day}T16:00:00Z"} for day in days}
        self.processor = Processor(state=ProcessorState({ACCOUNT: []}, rates))

    def day(self, offset: int) -> str:
        return (FIRST_DAY + timedelta(days=offset)).isoformat()

    # The host under test.

    async def start(self) -> None:
        self.stack = AsyncExitStack()
        store = Store(self.database)
        # Processes die here, machines do not: nothing need reach the disk, and many more steps fit into a second.
        store._writer._connection.execute("PRAGMA synchronous = OFF")
        self.stack.push_async_callback(asyncio.to_thread, store.close)
        self.direct = Direct(self.processor)
        http = httpx.AsyncClient(transport=self.direct)
        self.stack.push_async_callback(http.aclose)
        client = ProcessorClient("http://127.0.0.1:1", policy=QUICK, http=http)
        options = RunOptions(page_size=3, look_back_days=LOOK_BACK)
        clock = Clock(FIRST_DAY + timedelta(days=self.today))
        runner = Runner(client, store, options=options, at_step=self.at_step, now=lambda: clock.now)
        self.stack.push_async_callback(runner.close)
        self.here = Host(client=client, store=store, runner=runner, clock=clock)

    async def stop(self) -> None:
        await self.stack.aclose()

    def at_step(self, step: Step) -> None:
        if self.dies_at is None or self.dies_at[0] is not step:
            return
        left = self.dies_at[1] - 1
        self.dies_at = (step, left)
        if left == 0:
            raise Killed

    async def crash(self) -> None:
        """Starts a new process on what the dead one left: its claims stand, its lock is gone."""
        self.dies_at = None
        await self.stop()
        await self.start()

    # What can happen.

    def new_rows(self) -> None:
        for _ in range(self.dice.randint(1, 4)):
            currency = self.dice.choice(["usd", "usd", "eur", "gbp", "jpy"])
            bit = sum(row.currency == currency for row in self.rows.values())
            if bit >= BITS:
                continue
            kind = self.dice.choice(["charge", "charge", "refund", "adjustment", "payout", "odd_new_type"])
            row = ModelRow(
                identity=f"t{len(self.rows):04d}",
                day=self.day(max(0, self.today - self.dice.choice([0, 0, 0, 1]))),
                currency=currency,
                sign=-1 if kind in ("refund", "payout") else 1,
                bit=bit,
                fee=self.dice.choice([0, 0, 7, -3]),
                kind=kind,
                available=self.dice.choice([True, True, False]),
            )
            self.rows[row.identity] = row
            wire = wire_row(
                row.identity,
                row.net + row.fee,
                day=row.day,
                fee=row.fee,
                currency=currency,
                kind=kind,
                status="available" if row.available else "pending",
                second=self.dice.randrange(86_400),
            )
            self.processor.state.add_transactions(ACCOUNT, [wire])

    def one_turns_available(self) -> None:
        pending = [row for row in self.rows.values() if not row.available]
        if pending:
            row = self.dice.choice(pending)
            row.available = True
            self.processor.state.update_transaction(ACCOUNT, row.identity, status="available")

    def next_day(self) -> None:
        self.today = min(self.today + 1, DAYS - 1)

    async def run_cleanly(self) -> None:
        day = await self.a_day()
        before = {run.date.isoformat(): run for run in await self.runs()}
        outcome = await self.here.attempt(day)
        fresh = day not in before
        if fresh:
            assert isinstance(outcome, PostedSettlement), outcome
            await self.check_fresh(day)

    async def run_with_a_fault(self) -> None:
        name, route = self.dice.choice(FAULTS)
        self.processor.faults.add(name, route=route, after=self.dice.randint(0, 3), count=self.dice.randint(1, 3))
        await self.here.attempt(await self.a_day())
        self.processor.faults.heal()

    async def run_rejected(self) -> None:
        """The processor refuses the content, for certain; and perhaps it is tried anew at once."""
        day = await self.a_day()
        self.direct.refused_posts = self.dice.randint(1, 2)
        for _ in range(2):
            await self.here.attempt(day, retry_rejected=self.dice.choice([True, False]))
        self.direct.refused_posts = 0

    async def run_and_die(self) -> None:
        self.dies_at = (self.dice.choice(list(Step)), self.dice.randint(1, 3))
        try:
            await self.here.attempt(await self.a_day())
        except Killed:
            await self.crash()
        self.dies_at = None

    async def resume(self) -> None:
        await self.here.resume()

    async def die_while_resuming(self) -> None:
        self.dies_at = (self.dice.choice(list(Step)), 1)
        try:
            await self.here.resume()
        except Killed:
            await self.crash()
        self.dies_at = None

    async def restart(self) -> None:
        await self.crash()

    async def two_days_at_once(self) -> None:
        days = {await self.a_day(), await self.a_day()}
        await asyncio.gather(*(self.here.attempt(day) for day in days))

    async def prune(self) -> None:
        today = FIRST_DAY + timedelta(days=self.today)
        await self.here.store.write(lambda connection: prune(connection, today=today, older_than_days=LOOK_BACK + 1))

    async def write_one_off(self) -> None:
        owed = await self.here.store.read(
            lambda connection: outstanding_rows(connection, account=ACCOUNT, as_of=date(2026, 12, 31))
        )
        posted = {run.date for run in await self.runs() if run.state is State.POSTED}
        pending = [
            row.transaction_id for row in owed if row.period in posted and not self.rows[row.transaction_id].available
        ]
        if pending:
            identity = self.dice.choice(pending)
            await self.here.store.write(
                lambda connection: write_off(connection, ACCOUNT, identity, reason="r", by=ADA, now_ms=clock_ms())
            )
            self.rows[identity].written_off = True

    async def a_day(self) -> str:
        """Mostly the oldest day that is not posted, else any day up to today."""
        posted = {run.date.isoformat() for run in await self.runs() if run.state is State.POSTED}
        days = [self.day(offset) for offset in range(self.today + 1)]
        due = [day for day in days if day not in posted]
        return due[0] if due and self.dice.random() < 0.7 else self.dice.choice(days)

    async def step(self) -> None:
        actions: list[tuple[int, Callable[[], object]]] = [
            (24, self.new_rows),
            (14, self.one_turns_available),
            (14, self.next_day),
            (16, self.run_cleanly),
            (10, self.run_with_a_fault),
            (3, self.run_rejected),
            (10, self.run_and_die),
            (4, self.resume),
            (2, self.die_while_resuming),
            (1, self.restart),
            (3, self.two_days_at_once),
            (2, self.prune),
            (1, self.write_one_off),
        ]
        (action,) = self.dice.choices([each for _, each in actions], [weight for weight, _ in actions])
        result = action()
        if asyncio.iscoroutine(result):
            await result
        await self.check()

    # What must hold.

    async def runs(self) -> list[Run]:
        found, _ = await self.here.store.read(lambda connection: list_runs(connection, limit=1000))
        return found

    def settled(self) -> set[str]:
        """Every row that the processor's settlements hold, read from the powers of two in their lines."""
        rows = {(row.currency, row.bit): row for row in self.rows.values()}
        found: set[str] = set()
        for entry in self.processor.state.settlements():
            lines = entry["lines"]
            assert isinstance(lines, list)
            for line in lines:
                inside = [rows[line["currency"], bit] for bit in _bits(rows, line["currency"], line["net"])]
                assert {row.day for row in inside} <= {line.get("period", entry["date"])}
                assert all(row.available and row.counts and not row.written_off for row in inside)
                assert line["fees"] == sum(row.fee for row in inside)
                assert line["charged"] + line["refunded"] == sum(row.net + row.fee for row in inside)
                ids = {row.identity for row in inside}
                assert not found & ids, f"settled twice: {found & ids}"
                found |= ids
        return found

    async def check(self) -> None:
        """After every step."""
        received = self.processor.state.settlements()
        assert len({entry["date"] for entry in received}) == len(received)
        settled = self.settled()
        runs = await self.runs()
        booked = {run.settlement_id: run for run in runs if run.state is State.POSTED}
        totals = [entry["total_net"] for entry in received if entry["id"] in booked]
        assert len(totals) == len(booked)
        assert await self.here.balance() == sum(total for total in totals if isinstance(total, int))
        owed = await self.here.store.read(
            lambda connection: outstanding_rows(connection, account=ACCOUNT, as_of=date(2026, 12, 31))
        )
        assert not {row.transaction_id for row in owed} & settled
        if runs:
            await self.check_verified(self.dice.choice(runs))

    async def check_verified(self, run: Run, *, remote: bool = False) -> None:
        if run.state is not State.POSTED:
            return
        history = await self.here.store.read(lambda connection: read_history(connection, find_run(connection, run.id)))
        pruned = sum(not page.is_kept for page in history.pages)
        found = await verify_run(self.here.store, history, remote=self.here.client if remote else None)
        assert [
            each for each in found if not (pruned and each.endswith("the lines cannot be recomputed any more"))
        ] == []

    async def check_fresh(self, day: str) -> None:
        """After a run without any trouble: nothing that it could have taken in is left behind."""
        posted = {run.date.isoformat() for run in await self.runs() if run.state is State.POSTED}
        held = await self.here.store.read(
            lambda connection: {
                identity
                for (identity,) in connection.execute(
                    "SELECT transaction_id FROM late_rows JOIN runs ON runs.id = late_rows.run WHERE state <> 'posted'"
                )
            }
        )
        owed = await self.here.store.read(
            lambda connection: outstanding_rows(connection, account=ACCOUNT, as_of=date.fromisoformat(day))
        )
        first = (date.fromisoformat(day) - timedelta(days=LOOK_BACK)).isoformat()
        settled, registered = self.settled(), {row.transaction_id for row in owed}
        for row in self.rows.values():
            if row.day not in posted or not first <= row.day <= day or not row.counts or row.written_off:
                continue
            if row.available:
                assert row.identity in settled | held, row
            else:
                assert row.identity in registered, row
        late = [row for row in owed if row.period.isoformat() in posted and row.period.isoformat() < day]
        late_rows = [self.rows[row.transaction_id] for row in late]
        assert {row.identity for row in late_rows if row.available and not row.written_off} <= settled | held

    async def finish(self) -> None:
        """Everything heals, every day is run, and some days more: each row is settled once, and nothing is left."""
        for row in self.rows.values():
            row.available = True
        self.processor.state.release_pending(ACCOUNT)
        await self.crash()
        await self.here.resume()
        for offset in range(self.today + LOOK_BACK + 2):
            outcome = await self.here.attempt(self.day(offset), retry_rejected=True)
            assert isinstance(outcome, PostedSettlement | SettleError)
            if isinstance(outcome, SettleError):  # what was left of an earlier pull is read anew
                outcome = await self.here.attempt(self.day(offset), retry_rejected=True)
            assert isinstance(outcome, PostedSettlement), outcome
        await self.check()
        runs = await self.runs()
        assert {(run.state, run.owner) for run in runs} == {(State.POSTED, None)}
        for run in runs:
            await self.check_verified(run, remote=True)
        expected = {row.identity for row in self.rows.values() if row.counts and not row.written_off}
        assert self.settled() == expected
        owed = await self.here.store.read(
            lambda connection: outstanding_rows(connection, account=ACCOUNT, as_of=date(2026, 12, 31))
        )
        assert owed == []


def _bits(rows: dict[tuple[str, int], ModelRow], currency: str, net: int) -> list[int]:
    """Which powers of two, each with the sign of its row, make this sum: there is exactly one way."""
    bits = []
    for bit in range(BITS):
        if net & 1:
            bits.append(bit)
            net -= rows[currency, bit].sign
        net >>= 1
    assert net == 0
    return bits


@pytest.mark.parametrize("seed", range(EPISODES))
async def test_every_row_is_settled_once_whatever_happens(tmp_path: Path, seed: int) -> None:
    model = Model(seed, tmp_path / "model.db")
    await model.start()
    try:
        for _ in range(STEPS):
            await model.step()
        await model.finish()
    finally:
        await model.stop()
