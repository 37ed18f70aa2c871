"""A run that settles exactly once, whatever crashes or races: claim, pull, freeze, look up, post, book.

Every step leaves something durable before the next begins, and each may be repeated: a frozen settlement is sent again
as the very same bytes under the very same key, and never built anew. Whoever holds the claim is the only one at work.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from datetime import date as Date
from functools import partial

import apsw
import msgspec

from paykit_settle.checking import check_before_freeze
from paykit_settle.client import ProcessorClient
from paykit_settle.corrections import corrected
from paykit_settle.day_reader import AtStep, OnProgress
from paykit_settle.errors import InvariantViolated, RunInProgress, SettleError, SettlementConflict
from paykit_settle.lifecycle import Event, State, Step
from paykit_settle.lookups import blocked_periods
from paykit_settle.models import PostedSettlement, Settlement
from paykit_settle.posting import SettlementPoster
from paykit_settle.pull import Pulled, pull_run
from paykit_settle.rates import Rates
from paykit_settle.run import RunOptions, rates_of_day
from paykit_settle.run_request import RunRequest
from paykit_settle.settlement import needs_rates, settle
from paykit_settle.store.differences import corrections_for
from paykit_settle.store.freezing import Frozen, freeze
from paykit_settle.store.owner import Owner
from paykit_settle.store.relisting import taken_among
from paykit_settle.store.runs import Attempt, ClaimRequest, Run, claim, current_attempt, move, unfinished_runs
from paykit_settle.store.store import Store, clock_ms
from paykit_settle.version import __version__
from paykit_settle.window import day_window, load_zone
from paykit_settle.wire import encode_body, settlement_key, settlement_payload

FREEZE_ATTEMPTS_MAX = 5
PULL_AGE_DEADLINES = 10
"""A pull is gone on with until it is so many of its deadlines old: one that its deadline ended must get further."""

logger = logging.getLogger(__name__)


def _ignore(_step: Step) -> None:
    """What happens at a step outside of tests: nothing."""


class Runner:
    """Runs accounts' days on one store. `close` waits for what is in flight (at most `timeout_s`).

    `tenants` names the ledger's tenant of an account where it is not the account itself. `at_step` is called at every
    named step of a run; `now` is the clock that decides whether a day has ended.
    """

    def __init__(
        self,
        client: ProcessorClient,
        store: Store,
        *,
        options: RunOptions,
        rates: Rates | None = None,
        tenants: Mapping[str, str] | None = None,
        at_step: AtStep = _ignore,
        on_progress: OnProgress | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._store = store
        self._options = options
        self._rates = rates
        self._tenants = tenants or {}
        self._at_step = at_step
        self._on_progress = on_progress
        self._now = now
        self._owner = Owner(store.path)
        self._poster = SettlementPoster(client, store, at_step=at_step)
        self._running: dict[tuple[str, Date], tuple[RunRequest, asyncio.Task[PostedSettlement]]] = {}

    async def close(self, *, timeout_s: int | None = None) -> None:
        """Waits for the runs in flight, then gives up this process's claims: a run cut off now is resumed later."""
        tasks = [task for _, task in self._running.values()]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=timeout_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        self._owner.close()

    async def run(
        self,
        wanted: RunRequest,
        *,
        requested_by: str,
        retry_rejected: bool = False,
        after_restore_checked: bool = False,
    ) -> PostedSettlement:
        """Settles the day, or answers with the settlement that exists.

        A second call while one runs waits for it and gives the same answer. A caller that goes away does not stop the
        run. Raises what `claim`, `build_settlement` and `SettlementPoster.post` raise; the run's state says the same.
        `after_restore_checked`: a person has made sure that late rows are not settled by a run that this database has
        forgotten (`lookups.py`).
        """
        return await self._run(
            wanted,
            requested_by,
            retry_rejected=retry_rejected,
            after_restore_checked=after_restore_checked,
            zone=self._options.zone,
        )

    async def _run(
        self,
        wanted: RunRequest,
        requested_by: str,
        *,
        zone: str,
        retry_rejected: bool = False,
        after_restore_checked: bool = False,
    ) -> PostedSettlement:
        key = (wanted.account, wanted.date)
        if key in self._running:
            first, task = self._running[key]
            if first.settlement_currency != wanted.settlement_currency:
                raise SettlementConflict(
                    f"{wanted.account} on {wanted.date} is being settled in {first.settlement_currency.upper()}"
                )
        else:
            task = asyncio.create_task(self._settle(wanted, requested_by, retry_rejected, after_restore_checked, zone))
            self._running[key] = (wanted, task)
            task.add_done_callback(lambda done: self._finished(key, done))
        return await asyncio.shield(task)

    async def resume(self, *, requested_by: str) -> list[tuple[Run, PostedSettlement | SettleError]]:
        """Finishes the runs that a dead process, or an unknown outcome, left; what came of each, in order of day.

        Each goes on in the zone that it was begun in.
        """
        outcomes: list[tuple[Run, PostedSettlement | SettleError]] = []
        for run in await self._store.read(unfinished_runs):
            if run.owner is not None and (run.owner == self._owner.name or self._owner.is_alive(run.owner)):
                continue
            wanted = RunRequest(account=run.account, date=run.date, settlement_currency=run.settlement_currency)
            try:
                posted = await self._run(wanted, requested_by, zone=run.zone)
                outcomes.append((run, posted))
            except SettleError as error:
                outcomes.append((run, error))
            except Exception as error:  # one run's bug must not keep the others from their end
                logger.exception("resuming %s failed", run.id)
                outcomes.append((run, InvariantViolated(f"{run.id}: {error!r:.200}")))
        return outcomes

    def _finished(self, key: tuple[str, Date], task: asyncio.Task[PostedSettlement]) -> None:
        del self._running[key]
        # Whoever waits gets the error too; when nobody does any more, it is seen here alone.
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.info("run of %s on %s ended: %s", *key, error)

    async def _settle(
        self, wanted: RunRequest, requested_by: str, retry_rejected: bool, after_restore_checked: bool, zone: str
    ) -> PostedSettlement:
        window = day_window(wanted.date, load_zone(zone))
        window.check_closed(self._now(), grace=timedelta(seconds=self._options.grace_s))
        self._at_step(Step.BEFORE_CLAIM)
        request = ClaimRequest(
            account=wanted.account,
            date=wanted.date,
            settlement_currency=wanted.settlement_currency,
            tenant=self._tenants.get(wanted.account, wanted.account),
            zone=zone,
            window=window,
            owner=self._owner.name,
            requested_by=requested_by,
            retry_rejected=retry_rejected,
            pull_age_max_ms=PULL_AGE_DEADLINES * self._options.pull_deadline_s * 1000,
            now_ms=clock_ms(),
        )
        run = await self._store.write(lambda connection: claim(connection, request, is_alive=self._owner.is_alive))
        if run.state is State.POSTED:
            attempt = await self._store.read(lambda connection: current_attempt(connection, run))
            return _answer(run, attempt, replayed=True)
        self._at_step(Step.CLAIMED)
        if run.state is State.PULLING:
            frozen = await self._pull_and_freeze(run, after_restore_checked=after_restore_checked)
            return _answer(*await self._poster.post(*frozen), replayed=False)
        return _answer(*await self._poster.post(run), replayed=False)

    async def _pull_and_freeze(self, run: Run, *, after_restore_checked: bool) -> tuple[Run, Attempt]:
        """The frozen run and its attempt; on an error it is failed, and what was read is kept for the next attempt."""
        try:
            dealt_with: set[str] = set()
            for _ in range(FREEZE_ATTEMPTS_MAX):
                pulled = await pull_run(
                    self._client,
                    self._store,
                    run,
                    options=self._options,
                    at_step=self._at_step,
                    on_progress=self._on_progress,
                    dealt_with=dealt_with,
                )
                blocked = await blocked_periods(
                    self._client,
                    self._store,
                    run,
                    {period for period, _ in pulled.late_ids},
                    now=self._now(),
                    checked=after_restore_checked,
                )
                for period, reason in blocked.items():
                    logger.warning("%s: late rows of %s stay owed: %s", run.id, period, reason)
                frozen = await self._freeze(run, pulled.without(blocked))
                if frozen is not None:
                    return frozen
                # Another run has one of these late rows: roll up again without it, from the stored pages.
                ids = [identity for _, identity in pulled.late_ids]
                dealt_with |= await self._store.read(partial(taken_among, account=run.account, ids=ids))
            raise RunInProgress(f"{run.id}: other runs keep taking its late rows")
        except SettleError as error:
            refusal = (error.code, str(error))
            await self._store.write(
                lambda connection: move(connection, run, Event.FAIL, now_ms=clock_ms(), error=refusal, release=True)
            )
            raise

    async def _freeze(self, run: Run, pulled: Pulled) -> tuple[Run, Attempt] | None:
        scale = self._options.scale
        decided = await self._store.read(lambda connection: corrections_for(connection, run))
        done = corrected(pulled.late, decided, scale=scale)
        for correction, why in done.left_out:
            logger.warning("%s leaves out the correction of %s: %s", run.id, correction.transaction_id, why)
        settlement, rates = await self._build(run, replace(pulled, late=list(done.late)))
        body = encode_body(settlement_payload(settlement, scale))
        record = Frozen(
            idempotency_key=settlement_key(run.account, run.date, attempt=run.attempt),
            body=body,
            body_sha256=hashlib.sha256(body).hexdigest(),
            settlement=msgspec.json.encode(settlement).decode(),
            rates_body=rates.document() if rates is not None else None,
            scales=scale.overrides,
            program=__version__,
            outstanding=[
                (
                    row.id,
                    period.isoformat(),
                    row.type,
                    row.currency.lower(),
                    scale.from_wire(row.amount, row.currency.lower()),
                    scale.from_wire(row.fee, row.currency.lower()),
                )
                for period, row in pulled.pending
            ],
            late_rows=pulled.late_ids,
            corrections=done.taken,
        )

        if pulled.unusual_days:
            await self._recompute(run, record)

        def store(connection: apsw.Connection) -> tuple[Run, Attempt] | None:
            frozen = freeze(connection, run, record, now_ms=clock_ms())
            return None if frozen is None else (frozen, current_attempt(connection, frozen))

        self._at_step(Step.BEFORE_FREEZE)
        frozen = await self._store.write(store)
        if frozen is not None:
            self._at_step(Step.FROZEN)
        return frozen

    async def _recompute(self, run: Run, record: Frozen) -> None:
        """Raises `InvariantViolated` unless the stored pages give the same settlement by code of its own."""
        await check_before_freeze(
            self._store,
            run,
            body=record.body,
            rates=record.rates_body,
            scales=record.scales,
            late_rows=record.late_rows,
            corrections=[(each.period, each.was, each.is_now) for each in record.corrections],
        )

    async def _build(self, run: Run, pulled: Pulled) -> tuple[Settlement, Rates | None]:
        window = day_window(run.date, load_zone(run.zone))
        rates = None
        if needs_rates(pulled.totals, run.settlement_currency, late=pulled.late):
            rates = await rates_of_day(self._client, self._rates, day=run.date, window=window, options=self._options)
        settlement = settle(
            pulled.totals,
            rates,
            account=run.account,
            date=run.date,
            window=window,
            settlement_currency=run.settlement_currency,
            late=pulled.late,
        )
        return settlement, rates


def _answer(run: Run, attempt: Attempt, *, replayed: bool) -> PostedSettlement:
    if run.settlement_id is None:
        raise InvariantViolated(f"{run.id} is posted without an id")
    return PostedSettlement(
        settlement_id=run.settlement_id,
        status=attempt.status or "",
        total_net=attempt.settlement.total_net,
        currency=attempt.settlement.settlement_currency,
        idempotency_key=attempt.idempotency_key,
        settlement=attempt.settlement,
        run_id=run.id,
        replayed=replayed,
    )
