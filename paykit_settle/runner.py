"""A run that settles exactly once, whatever crashes or races: claim, pull, freeze, look up, post, book.

Every step leaves something durable before the next begins, and each may be repeated: a frozen settlement is sent again
as the very same bytes under the very same key, and never built anew. Whoever holds the claim is the only one at work,
and gives it back whatever ends its work.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial

from paykit_settle.claiming import Asked, claim_request
from paykit_settle.client import ProcessorClient
from paykit_settle.day_reader import AtStep, OnProgress
from paykit_settle.driving import Outcome, request_of, resume_due
from paykit_settle.errors import Interrupted, InvalidRequest, SettlementConflict
from paykit_settle.frozen_record import answer_of
from paykit_settle.giving_back import ClaimsToGiveBack, Day
from paykit_settle.interruption import Interruption
from paykit_settle.lifecycle import UNFINISHED, State, Step
from paykit_settle.looking_up import LookUp
from paykit_settle.models import PostedSettlement
from paykit_settle.posting import SettlementPoster
from paykit_settle.rates import Rates
from paykit_settle.reading import DayFreezer
from paykit_settle.run import RunOptions
from paykit_settle.run_request import RunRequest
from paykit_settle.store.claim_request import Claimed
from paykit_settle.store.claims import claim
from paykit_settle.store.owner import Owner
from paykit_settle.store.runs import Attempt, Run, current_attempt, run_by_day
from paykit_settle.store.store import Store, clock_ms
from paykit_settle.store.waiting import RunWaiting, Taker

PULL_AGE_DEADLINES = 10
"""A pull is gone on with until it is so many of its deadlines old: one that its deadline ended must get further."""

logger = logging.getLogger(__name__)


def _ignore(_step: Step) -> None:
    """What happens at a step outside of tests: nothing."""


class Runner:
    """Runs accounts' days on one store. `close` waits for what is in flight (at most `timeout_s`).

    `tenants` names the ledger's tenant of an account where it is not the account itself. `at_step` is called at every
    named step of a run; `now` is the clock that decides whether a day has ended, `now_ms` the one that decides whether
    an unfinished run is due.
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
        self._now = now
        self._now_ms = now_ms
        self._owner = Owner(store.path)
        self._interruption = Interruption()
        self._freezer = DayFreezer(
            client,
            store,
            options=options,
            interruption=self._interruption,
            at_step=at_step,
            on_progress=on_progress,
            now=now,
        )
        self._poster = SettlementPoster(
            client,
            store,
            at_step=at_step,
            look_up=LookUp(client, store, mode=options.lookup, now_ms=now_ms),
            absence_age_s=options.absence_age_s,
            now_ms=now_ms,
        )
        self._sending = 0
        self._running: dict[Day, tuple[RunRequest, asyncio.Task[PostedSettlement]]] = {}
        self._to_give_back = ClaimsToGiveBack(
            store, owner=self._owner.name, at_step=at_step, now_ms=now_ms, is_working=self._running.__contains__
        )

    async def close(self, *, timeout_s: int | None = None) -> None:
        """Waits for the runs in flight, and gives back those that do not end in time: they are due at once."""
        tasks = [task for _, task in self._running.values()]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=timeout_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        await self._to_give_back.close()
        self._owner.close()

    @property
    def is_interrupted(self) -> bool:
        """Whether `interrupt` was called."""
        return self._interruption.is_set

    @property
    def is_sending(self) -> bool:
        """Whether a run is past its freeze."""
        return self._sending > 0

    def interrupt(self) -> None:
        """Ends every run that is still pulling as failed (`Interrupted`), for good; what is frozen is finished."""
        self._interruption.interrupt()

    def leave(self) -> None:
        """Lets go of all runs: each is given back as it is, due at once, and its callers get `Interrupted`."""
        for _, task in self._running.values():
            task.cancel()

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
        day = (wanted.account, wanted.date)
        while day in self._running:
            first, task = self._running[day]
            if first.settlement_currency != wanted.settlement_currency:
                raise SettlementConflict(
                    f"{wanted.account} on {wanted.date} is being settled in {first.settlement_currency.upper()}"
                )
            try:
                return await self._outcome(day, task)
            except RunWaiting:  # a driver's try, for which it was not due; whoever asks for the day need not wait
                if how.only_due:
                    raise
        task = asyncio.create_task(self._settle(wanted, how))
        self._running[day] = (wanted, task)
        task.add_done_callback(lambda done: self._finished(day, done))
        return await self._outcome(day, task)

    async def resume(
        self, *, requested_by: str, processor_moved: bool = False, is_quiet: bool = False
    ) -> list[tuple[Run, Outcome]]:
        """Finishes the runs that are due: those that a dead process, or an unknown outcome, left; in order of day."""
        how = Asked(by=requested_by, processor_moved=processor_moved, is_quiet=is_quiet)
        return await resume_due(
            self._store,
            self.run_as,
            how,
            taker=lambda: self.taker(processor_moved=processor_moved),
            is_stopped=lambda: self.is_interrupted,
        )

    async def resume_one(self, run: Run, *, requested_by: str, processor_moved: bool = False) -> PostedSettlement:
        """Goes on with that run now, whatever it waits for; answers a posted one. `InvalidRequest` if it has failed."""
        if run.state not in UNFINISHED and run.state is not State.POSTED:
            raise InvalidRequest(f"{run.id} is {run.state}, not unfinished: to try the day again, run it")
        return await self.run_as(request_of(run), Asked(by=requested_by, processor_moved=processor_moved))

    def taker(self, *, processor_moved: bool = False) -> Taker:
        """This process as one that takes runs up by itself; a claim of its own that it does not work on is free."""

        def is_held(run: Run) -> bool:
            if run.owner == self._owner.name:
                return (run.account, run.date) in self._running
            return run.owner is not None and self._owner.is_alive(run.owner)

        return Taker(
            processor=self._client.identity,
            now_ms=self._now_ms(),
            is_held=is_held,
            processor_moved=processor_moved,
        )

    async def _outcome(self, day: Day, task: asyncio.Task[PostedSettlement]) -> PostedSettlement:
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            this = asyncio.current_task()
            if not task.cancelled() or (this is not None and this.cancelling()):
                raise
        run = await self._store.read(partial(run_by_day, account=day[0], day=day[1]))
        if run is None:
            raise Interrupted(f"{day[0]} on {day[1]} was not begun")
        way = "`paykit-settle resume` goes on with it" if run.state in UNFINISHED else run.error_detail
        raise Interrupted(f"{run.id} is {run.state}: {way or 'ask for the day again to see it'}")

    def _finished(self, day: Day, task: asyncio.Task[PostedSettlement]) -> None:
        del self._running[day]
        # Whoever waits gets the error too; when nobody does any more, it is seen here alone.
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.info("run of %s on %s ended: %s", *day, error)

    async def _settle(self, wanted: RunRequest, how: Asked) -> PostedSettlement:
        self._at_step(Step.BEFORE_CLAIM)
        claimed = await self._claim(wanted, how)
        run, warnings = claimed.run, list(claimed.warnings)
        for warning in warnings:
            logger.log(logging.INFO if how.is_quiet else logging.WARNING, "%s", warning)
        try:
            if run.state is State.POSTED:
                attempt = await self._store.read(lambda connection: current_attempt(connection, run))
                return answer_of(run, attempt, replayed=True, warnings=warnings)
            self._at_step(Step.CLAIMED)
            frozen: tuple[Run, Attempt | None] = (run, None)
            if run.state is State.PULLING:
                frozen = await self._freezer.pull_and_freeze(run, how, warnings)
            posted = await self._post(*frozen, how)
            return answer_of(*posted, replayed=False, warnings=warnings)
        except (Exception, asyncio.CancelledError) as error:
            await self._to_give_back.give_back(run, error)
            for warning in warnings:  # whoever is told why it failed is told what it was tried with
                error.add_note(warning)
            raise

    async def _post(self, run: Run, attempt: Attempt | None, how: Asked) -> tuple[Run, Attempt]:
        self._sending += 1
        try:
            return await self._poster.post(run, attempt, after_restore_checked=how.after_restore_checked)
        finally:
            self._sending -= 1

    async def _claim(self, wanted: RunRequest, how: Asked) -> Claimed:
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
            now_ms=self._now_ms(),
        )
        claiming = asyncio.ensure_future(
            self._store.write(lambda connection: claim(connection, request, is_alive=self._owner.is_alive))
        )
        try:
            claimed = await asyncio.shield(claiming)
        except asyncio.CancelledError as cut_off:
            await asyncio.wait([claiming])
            if claiming.exception() is None:
                await self._to_give_back.give_back(claiming.result().run, cut_off)
            raise
        self._to_give_back.forget(claimed.run)
        return claimed
