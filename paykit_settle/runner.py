"""A run that settles exactly once, whatever crashes or races: claim, pull, freeze, look up, post, book.

Every step leaves something durable before the next begins, and each may be repeated: a frozen settlement is sent again
as the very same bytes under the very same key, and never built anew. Whoever holds the claim is the only one at work.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from datetime import date as Date
from functools import partial

import apsw

from paykit_settle.checking import check_before_freeze
from paykit_settle.claiming import Asked, claim_request, options_of, rates_of_run
from paykit_settle.client import ProcessorClient
from paykit_settle.corrections import corrected
from paykit_settle.day_reader import AtStep, OnProgress
from paykit_settle.errors import InvariantViolated, RunInProgress, SettleError, SettlementConflict
from paykit_settle.frozen_record import answer_of, frozen_record
from paykit_settle.late_rows import still_standing
from paykit_settle.lifecycle import Event, State, Step
from paykit_settle.looking_up import LookUp
from paykit_settle.models import PostedSettlement, Settlement
from paykit_settle.posting import SettlementPoster
from paykit_settle.pull import Pulled, RunPull
from paykit_settle.rates import Rates
from paykit_settle.run import RunOptions, rates_of_day
from paykit_settle.run_request import RunRequest
from paykit_settle.settlement import needs_rates, settle
from paykit_settle.store.claims import claim
from paykit_settle.store.differences import corrections_for
from paykit_settle.store.freezing import Frozen, freeze
from paykit_settle.store.owner import Owner
from paykit_settle.store.runs import Attempt, Run, current_attempt, move, unfinished_runs
from paykit_settle.store.store import Store, clock_ms
from paykit_settle.store.upkeep import drop_unneeded_pages

FREEZE_ATTEMPTS_MAX = 20
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
        now_ms: Callable[[], int] = clock_ms,
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
        self._poster = SettlementPoster(
            client,
            store,
            at_step=at_step,
            look_up=LookUp(client, store, mode=options.lookup, now_ms=now_ms),
            absence_age_s=options.absence_age_s,
            now_ms=now_ms,
        )
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
        zone: str | None = None,
        zone_changed: bool = False,
        processor_moved: bool = False,
        new_terms: bool = False,
        after_restore_checked: bool = False,
    ) -> PostedSettlement:
        """Settles the day, or answers with the settlement that exists.

        `zone` is one that the caller names for this run, beside that of the options. `zone_changed` and
        `processor_moved` let it replace what is in force for the account, and `new_terms` begins a run anew, of which
        nothing is frozen, on the options of now. A second call while one runs waits for it and gives the same answer. A
        caller that goes away does not stop the run. Raises what `claim`, `build_settlement` and `SettlementPoster.post`
        raise; the run's state says the same. `after_restore_checked`: a person has made sure that late rows are not
        settled by a run that this database has forgotten (`lookups.py`).
        """
        how = Asked(
            by=requested_by,
            retry_rejected=retry_rejected,
            zone=zone,
            zone_changed=zone_changed,
            processor_moved=processor_moved,
            new_terms=new_terms,
            after_restore_checked=after_restore_checked,
        )
        return await self.run_as(wanted, how)

    async def run_as(self, wanted: RunRequest, how: Asked) -> PostedSettlement:
        """Settles the day as it is asked for: `run`, with everything that is said along in one record."""
        key = (wanted.account, wanted.date)
        if key in self._running:
            first, task = self._running[key]
            if first.settlement_currency != wanted.settlement_currency:
                raise SettlementConflict(
                    f"{wanted.account} on {wanted.date} is being settled in {first.settlement_currency.upper()}"
                )
        else:
            task = asyncio.create_task(self._settle(wanted, how))
            self._running[key] = (wanted, task)
            task.add_done_callback(lambda done: self._finished(key, done))
        return await asyncio.shield(task)

    async def resume(
        self, *, requested_by: str, processor_moved: bool = False
    ) -> list[tuple[Run, PostedSettlement | SettleError]]:
        """Finishes the runs that a dead process, or an unknown outcome, left; what came of each, in order of day.

        Each goes on with the terms that it was begun on.
        """
        how = Asked(by=requested_by, processor_moved=processor_moved)
        outcomes: list[tuple[Run, PostedSettlement | SettleError]] = []
        for run in await self._store.read(unfinished_runs):
            if run.owner is not None and (run.owner == self._owner.name or self._owner.is_alive(run.owner)):
                continue
            wanted = RunRequest(account=run.account, date=run.date, settlement_currency=run.settlement_currency)
            try:
                posted = await self.run_as(wanted, how)
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

    async def _settle(self, wanted: RunRequest, how: Asked) -> PostedSettlement:
        self._at_step(Step.BEFORE_CLAIM)
        request = claim_request(
            wanted,
            how,
            options=self._options,
            rates=self._rates,
            tenants=self._tenants,
            processor=self._client.identity,
            owner=self._owner.name,
            pull_age_max_ms=PULL_AGE_DEADLINES * self._options.pull_deadline_s * 1000,
            now=self._now(),
            now_ms=clock_ms(),
        )
        claimed = await self._store.write(lambda connection: claim(connection, request, is_alive=self._owner.is_alive))
        run, warnings = claimed.run, list(claimed.warnings)
        for warning in warnings:
            logger.warning("%s", warning)
        try:
            if run.state is State.POSTED:
                attempt = await self._store.read(lambda connection: current_attempt(connection, run))
                return answer_of(run, attempt, replayed=True, warnings=warnings)
            self._at_step(Step.CLAIMED)
            frozen: tuple[Run, Attempt | None] = (run, None)
            if run.state is State.PULLING:
                frozen = await self._pull_and_freeze(run, how, warnings)
            posted = await self._poster.post(*frozen, after_restore_checked=how.after_restore_checked)
            return answer_of(*posted, replayed=False, warnings=warnings)
        except SettleError as error:
            for warning in warnings:  # whoever is told why it failed is told what it was tried with
                error.add_note(warning)
            raise

    async def _pull_and_freeze(self, run: Run, how: Asked, warnings: list[str]) -> tuple[Run, Attempt]:
        """The frozen run and its attempt; on an error it is failed, and what was read is kept for the next attempt."""
        options = options_of(run, self._options)
        try:
            pull = RunPull(
                self._client,
                self._store,
                run,
                options=options,
                at_step=self._at_step,
                now=self._now(),
                on_progress=self._on_progress,
            )
            await pull.read()
            for _ in range(FREEZE_ATTEMPTS_MAX):
                pulled = await pull.choose(after_restore_checked=how.after_restore_checked)
                frozen = await self._freeze(run, pulled, options)
                if frozen is not None:
                    while await self._store.write(partial(drop_unneeded_pages, run=run)):
                        pass
                    warnings += pulled.warnings
                    for warning in pulled.warnings:
                        logger.warning("%s", warning)
                    return frozen
                # Another run of the account was frozen meanwhile: look again who holds what.
            raise RunInProgress(f"{run.id}: other runs of the account keep being frozen")
        except SettleError as error:
            refusal = (error.code, str(error))
            await self._store.write(
                lambda connection: move(connection, run, Event.FAIL, now_ms=clock_ms(), error=refusal, release=True)
            )
            raise

    async def _freeze(self, run: Run, pulled: Pulled, options: RunOptions) -> tuple[Run, Attempt] | None:
        scale = options.scale
        decided = await self._store.read(lambda connection: corrections_for(connection, run))
        decided = still_standing(decided, pulled.shown_ids, pulled.differences)
        done = corrected(pulled.late, decided, scale=scale)
        for correction, why in done.left_out:
            logger.warning("%s leaves out the correction of %s: %s", run.id, correction.transaction_id, why)
        settlement, rates = await self._build(run, replace(pulled, late=list(done.late)), options)
        record = frozen_record(run, settlement, rates, pulled=pulled, corrections=done.taken, scale=scale)
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
            moved_ids=[identity for identity, *_ in record.moved],
            corrections=[(each.period, each.was, each.is_now) for each in record.corrections],
        )

    async def _build(self, run: Run, pulled: Pulled, options: RunOptions) -> tuple[Settlement, Rates | None]:
        window = run.window
        rates = None
        if needs_rates(pulled.totals, run.settlement_currency, late=pulled.late):
            rates = await rates_of_day(self._client, rates_of_run(run), day=run.date, window=window, options=options)
        settlement = settle(
            pulled.totals,
            rates,
            account=run.account,
            date=run.date,
            window=window,
            settlement_currency=run.settlement_currency,
            late=pulled.late,
            notes=pulled.notes,
        )
        return settlement, rates
