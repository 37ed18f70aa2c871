"""The stage for tests of durable runs: a processor that breaks on cue, a host with its own database, and the truth.

`check_truth` says what must hold after anything at all: one settlement a day at the processor, the ledger equal to
their sum, and a `verify` that passes for every posted run, against the processor's copy too.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from pathlib import Path

import apsw

from fake_processor import FakeProcessor, ProcessorState
from fake_processor.processor import Exchange, Processor, Reply
from fake_processor.records import RequestRecord, keep
from fake_processor.wire import Answer, Refusal, Request
from paykit_settle.checking import verify_run
from paykit_settle.claiming import Asked
from paykit_settle.client import ProcessorClient
from paykit_settle.errors import SettleError
from paykit_settle.lifecycle import State, Step
from paykit_settle.models import PostedSettlement
from paykit_settle.person import Person
from paykit_settle.rates import Rates
from paykit_settle.resolving import Resolver, Wish
from paykit_settle.retry import BACK_OFF_MAX_S, RetryPolicy
from paykit_settle.run import RunOptions
from paykit_settle.run_request import make_run_request
from paykit_settle.runner import Runner
from paykit_settle.store.coverage import Covers
from paykit_settle.store.forgetting import forget
from paykit_settle.store.history import History, find_run, list_runs, read_history
from paykit_settle.store.owner import is_alive
from paykit_settle.store.resolving import Decision
from paykit_settle.store.runs import Run, run_by_day
from paykit_settle.store.store import Store, clock_ms

ACCOUNT = "acct_123"
DAY = "2026-01-15"
TOTAL = 145199
"""The reference day's settlement in US cents."""
ADA = Person(principal="ada")
QUICK = RetryPolicy(attempts_max=2, wait_first_ms=1, request_timeout_s=30, deadline_s=60)
SETTLEMENTS = "/v1/settlements"
LIST = "/v1/balance_transactions"


class ScriptedProcessor(Processor):
    """The fake with two cues: `instead` may answer in its place, `after` is called with the effect done, unanswered."""

    instead: Callable[[Request], Answer | None] = staticmethod(lambda _request: None)
    after: Callable[[Request], None] = staticmethod(lambda _request: None)

    def at_once(self, request: Request) -> Reply | None:  # noqa: ARG002 - the signature is the one it overrides
        """Nothing is answered past the cues."""
        return None

    def behave(self) -> None:
        """Forgets its cues."""
        self.instead, self.after = lambda _request: None, lambda _request: None

    @contextmanager
    def exchange(self, request: Request, *, refused: Refusal | None = None) -> Iterator[Exchange]:
        with Processor.exchange(self, request, refused=refused) as exchange:
            work = exchange.reply

            def reply() -> Reply:
                answer = self.instead(request)
                if answer is not None:
                    keep(self.requests, _record(request, answer.status))
                    return Reply(answer=answer)
                done = work()
                self.after(request)
                return done

            exchange.reply = reply
            yield exchange


def _record(request: Request, status: int) -> RequestRecord:
    return RequestRecord(
        method=request.method,
        path=request.path,
        query=list(request.query),
        idempotency_key=request.headers.get("idempotency-key"),
        content_type=request.headers.get("content-type"),
        body=request.body,
        status=status,
        request_id="",
    )


def scripted(fake: FakeProcessor) -> ScriptedProcessor:
    """Puts a scripted processor in place of the fake's own, with the same state."""
    processor = ScriptedProcessor(state=fake.state)
    fake.processor = processor
    return processor


def refuse(
    status: int, *, method: str = "POST", path: str = SETTLEMENTS, replayed: bool = False, **error: str
) -> Callable[..., Answer | None]:
    """A cue that answers that request with a status and an error of the processor's shape."""
    body = "{" + ",".join(f'"{name}":"{value}"' for name, value in {"message": "scripted", **error}.items()) + "}"

    def instead(request: Request) -> Answer | None:
        if (request.method, request.path) != (method, path):
            return None
        headers = {"Idempotent-Replayed": "true"} if replayed else {}
        return Answer(status=status, body=f'{{"error":{body}}}'.encode(), headers=headers)

    return instead


NO_LOOK_UP = refuse(404, method="GET")
"""A processor that does not list settlements."""


def wire_row(
    identity: str,
    amount: int,
    *,
    day: str = DAY,
    fee: int = 0,
    currency: str = "usd",
    status: str = "available",
    kind: str = "charge",
    second: int = 3600,
) -> dict[str, object]:
    """A balance transaction as the processor serves it, created `second` seconds into the day (UTC)."""
    start = int(datetime.fromisoformat(f"{day}T00:00:00+00:00").timestamp())
    return {
        "id": identity,
        "object": "balance_transaction",
        "type": kind,
        "amount": amount,
        "fee": fee,
        "net": amount - fee,
        "currency": currency,
        "status": status,
        "created": start + second,
        "reporting_category": kind,
    }


def a_processor(
    rows: Iterable[Mapping[str, object]] = (), *, first: str = "2026-01-01", days: int = 62
) -> FakeProcessor:
    """A fake with those rows for the account, and one rate table for each day."""
    start = date.fromisoformat(first)
    names = [(start + timedelta(days=offset)).isoformat() for offset in range(days)]
    table = {
        "object": "fx_rates",
        "base": "usd",
        "source": "test",
        "rates": {"eur": "0.92", "gbp": "0.79", "jpy": "150"},
    }
    rates = {name: table | {"as_of": f"{name}T16:00:00Z"} for name in names}
    return FakeProcessor(ProcessorState({ACCOUNT: list(rows)}, rates))


def of_kind(fake: FakeProcessor, method: str, path: str) -> list[RequestRecord]:
    """The requests of that kind that the processor saw."""
    return [request for request in fake.requests if (request.method, request.path) == (method, path)]


def posts(fake: FakeProcessor) -> list[RequestRecord]:
    """The settlements that were sent, taken or not."""
    return of_kind(fake, "POST", SETTLEMENTS)


def check_sent_once(fake: FakeProcessor) -> None:
    """One settlement came of all that was sent, and it was ever the same bytes under the same key."""
    assert len({(request.idempotency_key, request.body) for request in posts(fake)}) == 1
    assert len(fake.state.settlements(account=ACCOUNT)) == 1


@dataclass(slots=True, kw_only=True)
class Host:
    """One process that settles: its client, its database, its runner."""

    client: ProcessorClient
    store: Store
    runner: Runner
    clock: "Clock"
    ticks: "Ticks" = field(default_factory=lambda: Ticks())
    processor_moved: bool = False
    """Whether this host's processor may have another address than the account's had so far."""

    async def run(
        self,
        day: str = DAY,
        currency: str = "usd",
        *,
        retry_rejected: bool = False,
        zone: str | None = None,
        zone_changed: bool = False,
        new_terms: bool = False,
        after_restore_checked: bool = False,
    ) -> PostedSettlement:
        wanted = make_run_request(ACCOUNT, day, currency)
        self.clock.pass_day(wanted.date)
        asked = Asked(
            by="test",
            retry_rejected=retry_rejected,
            zone=zone,
            zone_changed=zone_changed,
            processor_moved=self.processor_moved,
            new_terms=new_terms,
            after_restore_checked=after_restore_checked,
        )
        return await self.runner.run_as(wanted, asked)

    async def run_again(self, day: str = DAY) -> PostedSettlement:
        """Tries a rejected day anew."""
        return await self.run(day, retry_rejected=True)

    async def attempt(
        self,
        day: str = DAY,
        *,
        retry_rejected: bool = False,
        zone: str | None = None,
        zone_changed: bool = False,
        new_terms: bool = False,
    ) -> PostedSettlement | SettleError:
        """The same, with an error as its result."""
        try:
            return await self.run(
                day, retry_rejected=retry_rejected, zone=zone, zone_changed=zone_changed, new_terms=new_terms
            )
        except SettleError as error:
            return error

    async def resume(self) -> list[tuple[Run, PostedSettlement | SettleError]]:
        """Finishes what is due a quarter of an hour from now: by then everything is that waits by itself."""
        self.ticks.advance(BACK_OFF_MAX_S)
        return await self.runner.resume(requested_by="test", processor_moved=self.processor_moved)

    async def resolve(
        self,
        settlement_id: str | None,
        day: str = DAY,
        *,
        covers: str | Collection[str] | None = None,
        total_only: bool = False,
        unseen: bool = False,
        alive: Callable[[str], bool] | None = None,
    ) -> Run:
        """Ends a day's run as posted with that settlement, or (None) as absent; `covers` may be a list of rows."""
        run = await self.stored(day)
        resolver = Resolver(self.client, self.store, is_alive=alive or partial(is_alive, self.store.path))
        decision = Decision(by=ADA, reason="a look at the books", now_ms=clock_ms())
        if settlement_id is None:
            return await resolver.absent(run.id, unseen=unseen, decision=decision)
        wish = Wish(covers=_covers(covers), total_only=total_only, unseen=unseen)
        return await resolver.posted(run.id, settlement_id, wish, decision)

    async def forget(self, day: str = DAY) -> Run:
        """Forgets a day's run."""
        run = await self.stored(day)
        decision = Decision(by=ADA, reason="begun by mistake", now_ms=clock_ms())
        alive = partial(is_alive, self.store.path)
        return await self.store.write(partial(forget, identity=run.id, decision=decision, is_alive=alive))

    async def stored(self, day: str = DAY) -> Run:
        found = await self.store.read(lambda connection: run_by_day(connection, ACCOUNT, date.fromisoformat(day)))
        assert found is not None
        return found

    async def history(self, day: str = DAY) -> History:
        run = await self.stored(day)
        return await self.store.read(lambda connection: read_history(connection, find_run(connection, run.id)))

    async def change(self, sql: str, *values: object) -> None:
        """Changes the database behind everybody's back."""
        await self.store.write(lambda connection: connection.execute(sql, values).fetchall())

    async def balance(self, currency: str = "usd") -> int:
        """The balance of the account's tenant; 0 before anything was booked."""
        return await self.store.read(lambda connection: _balance(connection, currency))


def _covers(said: str | Collection[str] | None) -> Covers | None:
    if said is None:
        return None
    if said == "all":
        return Covers(kind="all")
    return Covers(kind="none") if said == "none" else Covers(kind="listed", ids=frozenset(said))


class Ticks:
    """The clock by which keys and absences age: the machine's, and what a test lets pass."""

    def __init__(self) -> None:
        self._ahead_ms = 0

    def __call__(self) -> int:
        return clock_ms() + self._ahead_ms

    def advance(self, seconds: int) -> None:
        self._ahead_ms += seconds * 1000


class Clock:
    """A host's clock: the evening after the newest day that its database knows, or that it was asked for."""

    def __init__(self, newest: date | None) -> None:
        self._newest = newest

    @property
    def now(self) -> datetime:
        return datetime.combine(self._newest or date.fromisoformat(DAY), time(18), UTC) + timedelta(days=1)

    def pass_day(self, day: date) -> None:
        """Goes on to the evening after that day; never back."""
        self._newest = max(self._newest or day, day)


def _newest_day(connection: apsw.Connection) -> date | None:
    found = connection.execute("SELECT max(date) FROM runs").get
    return None if found is None else date.fromisoformat(str(found))


def _balance(connection: apsw.Connection, currency: str) -> int:
    sql = "SELECT balance FROM accounts WHERE tenant = ? AND id = 'balance' AND currency = ?"
    found = connection.execute(sql, (ACCOUNT, currency)).get
    return 0 if found is None else int(found)


@asynccontextmanager
async def host(
    database: Path,
    url: str,
    *,
    policy: RetryPolicy = QUICK,
    options: RunOptions | None = None,
    rates: Rates | None = None,
    tenants: Mapping[str, str] | None = None,
    at_step: Callable[[Step], None] = lambda _step: None,
    processor_moved: bool = False,
) -> AsyncIterator[Host]:
    """A host on that database, closed in order at the end.

    `processor_moved` lets it go on where another host began, with the fake at another port since.
    """
    store = Store(database)
    clock, ticks = Clock(store.submit(_newest_day).result()), Ticks()
    try:
        async with ProcessorClient(url, policy=policy) as client:
            runner = Runner(
                client,
                store,
                options=options or RunOptions(),
                rates=rates,
                tenants=tenants,
                at_step=at_step,
                now=lambda: clock.now,
                now_ms=ticks,
            )
            try:
                yield Host(
                    client=client, store=store, runner=runner, clock=clock, ticks=ticks, processor_moved=processor_moved
                )
            finally:
                await runner.close()
    finally:
        await asyncio.to_thread(store.close)


async def check_truth(here: Host, fake: FakeProcessor) -> None:
    """One settlement a day at the processor, the ledger equal to their sum, and every posted run verified."""
    received = fake.state.settlements(account=ACCOUNT)
    assert len({entry["date"] for entry in received}) == len(received)
    runs, _ = await here.store.read(lambda connection: list_runs(connection, limit=1000))
    posted = [run for run in runs if run.state is State.POSTED]
    by_id = {entry["id"]: entry for entry in received}
    assert len({run.settlement_id for run in posted}) == len(posted)
    owed: dict[str, int] = {}
    for run in posted:
        entry = by_id[run.settlement_id]
        assert (entry["account"], entry["date"]) == (run.account, run.date.isoformat())
        currency, total = str(entry["settlement_currency"]), entry["total_net"]
        assert isinstance(total, int)
        owed[currency] = owed.get(currency, 0) + total
        await check_verified(here, run)
    for currency, total in owed.items():
        assert await here.balance(currency) == total
    journals = await here.store.read(
        lambda connection: connection.execute("SELECT count(*) FROM journals WHERE operation = 'settlement'").get
    )
    assert journals == len(posted)


async def check_verified(here: Host, run: Run) -> None:
    """`verify --remote` finds nothing, or only that pages were pruned."""
    history = await here.store.read(lambda connection: read_history(connection, find_run(connection, run.id)))
    found = await verify_run(here.store, history, remote=here.client)
    pruned = sum(not page.is_kept for page in history.pages)
    assert [each for each in found if not (pruned and each.endswith("the lines cannot be recomputed any more"))] == []


def columns(database: Path, sql: str) -> list[tuple[object, ...]]:
    """What a query gives on a database that nobody has open."""
    connection = apsw.Connection(str(database))
    try:
        return list(connection.execute(sql).fetchall())
    finally:
        connection.close()
