"""The first half of a run: its day is read, and frozen as one settlement with its exact bytes, before anything is sent.

The caller holds the claim. Until the freeze everything may be stopped, and what was read is kept; what another run of
the account takes meanwhile is left to it.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import partial

import apsw

from paykit_settle.checking import check_before_freeze
from paykit_settle.claiming import Asked, options_of, rates_of_run
from paykit_settle.client import ProcessorClient
from paykit_settle.corrections import corrected
from paykit_settle.day_reader import AtStep, OnProgress
from paykit_settle.errors import RunInProgress
from paykit_settle.frozen_record import frozen_record
from paykit_settle.interruption import Interruption
from paykit_settle.late_rows import still_standing
from paykit_settle.lifecycle import Step
from paykit_settle.models import Settlement
from paykit_settle.pull import Pulled, RunPull
from paykit_settle.rates import Rates
from paykit_settle.run import RunOptions, rates_of_day
from paykit_settle.settlement import needs_rates, settle
from paykit_settle.store.differences import corrections_for
from paykit_settle.store.freezing import Frozen, freeze
from paykit_settle.store.runs import Attempt, Run, current_attempt
from paykit_settle.store.store import Store, clock_ms
from paykit_settle.store.upkeep import drop_unneeded_pages

FREEZE_ATTEMPTS_MAX = 20

logger = logging.getLogger(__name__)


class DayFreezer:
    """Reads and freezes the days of claimed runs; `options` are those of whoever goes on, the run has its terms."""

    def __init__(
        self,
        client: ProcessorClient,
        store: Store,
        *,
        options: RunOptions,
        interruption: Interruption,
        at_step: AtStep,
        on_progress: OnProgress | None,
        now: Callable[[], datetime],
    ) -> None:
        self._client = client
        self._store = store
        self._options = options
        self._interruption = interruption
        self._at_step = at_step
        self._on_progress = on_progress
        self._now = now

    async def pull_and_freeze(self, run: Run, how: Asked, warnings: list[str]) -> tuple[Run, Attempt]:
        """The frozen run and its attempt. Adds to `warnings`; raises why it cannot be frozen, and nothing was sent."""
        options = options_of(run, self._options)
        pull = RunPull(
            self._client,
            self._store,
            run,
            options=options,
            at_step=self._at_step,
            now=self._now(),
            on_progress=self._on_progress,
        )
        stoppable = self._interruption.stoppable
        await stoppable(pull.read())
        for _ in range(FREEZE_ATTEMPTS_MAX):
            pulled, record = await stoppable(self._decide(run, pull, how, options))
            frozen = await self._freeze(run, record)
            if frozen is not None:
                while await self._store.write(partial(drop_unneeded_pages, run=run)):
                    pass
                warnings += pulled.warnings
                for warning in pulled.warnings:
                    logger.log(logging.INFO if how.is_quiet else logging.WARNING, "%s", warning)
                return frozen
            # Another run of the account was frozen meanwhile: look again who holds what.
        raise RunInProgress(f"{run.id}: other runs of the account keep being frozen")

    async def _decide(self, run: Run, pull: RunPull, how: Asked, options: RunOptions) -> tuple[Pulled, Frozen]:
        """What the run settles as things stand now, and the record of it that is to be stored."""
        pulled = await pull.choose(after_restore_checked=how.after_restore_checked)
        scale = options.scale
        decided = await self._store.read(lambda connection: corrections_for(connection, run))
        decided = still_standing(decided, pulled.shown_ids | pulled.moved_ids, pulled.differences)
        done = corrected(pulled.late, decided, scale=scale)
        for correction, why in done.left_out:
            logger.warning("%s leaves out the correction of %s: %s", run.id, correction.transaction_id, why)
        settlement, rates = await self._build(run, replace(pulled, late=list(done.late)), options)
        record = frozen_record(run, settlement, rates, pulled=pulled, corrections=done.taken, scale=scale)
        if pulled.unusual_days:
            await self._recompute(run, record)
        return pulled, record

    async def _freeze(self, run: Run, record: Frozen) -> tuple[Run, Attempt] | None:
        def store(connection: apsw.Connection) -> tuple[Run, Attempt] | None:
            frozen = freeze(connection, run, record, now_ms=clock_ms())
            return None if frozen is None else (frozen, current_attempt(connection, frozen))

        self._at_step(Step.BEFORE_FREEZE)
        self._interruption.check()
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
