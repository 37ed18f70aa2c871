"""Sends a frozen settlement and books it: looks it up first, sends the same bytes under the same key, never guesses.

What is certain decides: a settlement found at the processor is posted, a definite refusal is rejected, everything else
stays unknown until the processor says which. That nothing is there is believed only when it stays so (`absence.py`).
"""

import asyncio
from collections.abc import Callable, Sequence

import apsw

from paykit_settle.absence import empty_since, is_spent
from paykit_settle.client import ProcessorClient
from paykit_settle.day_reader import AtStep
from paykit_settle.errors import (
    OutcomeUnknown,
    ProcessorError,
    ProcessorRejected,
    SettleError,
    SettlementConflict,
    StoreBusy,
    StoreFull,
)
from paykit_settle.found_settlements import FoundSettlement, SentAttempt, sort_out
from paykit_settle.lifecycle import Event, State, Step
from paykit_settle.looking_up import LookUp
from paykit_settle.open_outcomes import beside, conflict, forgotten, may_be_posted, waiting, worn_out
from paykit_settle.store.freezing import book_attempt, end_attempt, mark_sent, next_attempt, set_attention, spend_key
from paykit_settle.store.lookups import restored_at_ms
from paykit_settle.store.runs import Attempt, Run, attempts_of, current_attempt, move, run_by_number
from paykit_settle.store.store import Store, clock_ms
from paykit_settle.wire import settlement_key

ATTEMPTS_MAX = 10
"""Keys that one run takes by itself: a processor that never keeps anything is for a person to talk to."""
BOOKINGS_MAX = 5
"""How often booking is tried while the database is busy: the money has moved, so it is worth some patience."""
BOOKING_WAIT_S = 1


class SettlementPoster:
    """Brings a frozen run to its end. The caller holds the claim.

    `absence_age_s` is how long the processor's list must stay empty before it is believed that nothing arrived.
    """

    def __init__(
        self,
        client: ProcessorClient,
        store: Store,
        *,
        at_step: AtStep,
        look_up: LookUp,
        absence_age_s: int,
        now_ms: Callable[[], int] = clock_ms,
    ) -> None:
        self._client = client
        self._store = store
        self._at_step = at_step
        self._look_up = look_up
        self._absence_age_ms = absence_age_s * 1000
        self._now_ms = now_ms

    async def post(
        self, run: Run, attempt: Attempt | None = None, *, after_restore_checked: bool = False
    ) -> tuple[Run, Attempt]:
        """The posted and booked run with its attempt. Raises what stopped it, with the run's state saying the same.

        `attempt` is the run's current one, for a caller that has it at hand. `after_restore_checked`: a person has made
        sure that a run which a restored database has forgotten did not post the day.
        `ProcessorRejected` (also `SettlementConflict`) leaves it rejected or, if the content is not why, failed;
        `ProcessorUnavailable` failed; `OutcomeUnknown` unknown.
        """
        while True:
            posted = await self._post_once(run, attempt or await self._attempt(run), checked=after_restore_checked)
            if posted is not None:
                return posted
            run, attempt = await self._start_next_attempt(run), None

    async def _post_once(self, run: Run, attempt: Attempt, *, checked: bool) -> tuple[Run, Attempt] | None:
        """The booked run; None when this attempt's key is spent and the processor certainly has nothing."""
        now_ms = self._now_ms()
        spent = attempt.key_spent_at_ms is not None or is_spent(_sent_since(attempt), now_ms=now_ms)
        found = await self._before_send(run, attempt, spent=spent)
        if found:
            return await self._take(run, attempt, found)
        if found is None and not spent:
            # The list would show what a database that was put back has forgotten; without one only its age protects.
            spent = is_spent(attempt.frozen_at_ms, now_ms=now_ms)
            if not (spent or attempt.may_be_taken or checked):
                await self._check_not_restored(run)
        if spent:
            await self._wait_for_absence(run, attempt, found)
            return None
        await self._store.write(lambda connection: mark_sent(connection, run, now_ms=self._now_ms()))
        self._at_step(Step.BEFORE_POST)
        try:
            settlement_id, status = await self._client.create_settlement(
                attempt.body, idempotency_key=attempt.idempotency_key
            )
        except SettleError as error:
            return await self._settle_doubt(run, attempt, error)
        self._at_step(Step.ANSWERED)
        return await self._book(run, attempt, settlement_id, status)

    async def _before_send(self, run: Run, attempt: Attempt, *, spent: bool) -> list[FoundSettlement] | None:
        """What the processor has for the day; None when it cannot be asked that.

        A look-up that fails ends the run for now; but what was sent before is sent again all the same: the same bytes
        under the same key are safe within the key's life.
        """
        self._at_step(Step.BEFORE_LOOK_UP)
        try:
            return await self._look_up.settlements(run.account, run.date)
        except SettleError as error:
            if spent:
                raise await self._lose(run, error, spend=True) from error
            if not attempt.may_be_taken:
                raise await self._end(run, Event.FAIL, error) from error
            return []

    async def _take(self, run: Run, attempt: Attempt, found: Sequence[FoundSettlement]) -> tuple[Run, Attempt]:
        """Books ours, naming what else is there; `SettlementConflict` when there are only others."""
        attempts = await self._store.read(lambda connection: attempts_of(connection, run.number))
        earlier = [_sent(each) for each in attempts if each.number < attempt.number and each.body != attempt.body]
        sorted_out = sort_out(found, _sent(attempt), earlier)
        if sorted_out.ours is None:
            raise await self._end(run, Event.REJECT, conflict(run, sorted_out), needs_person=True)
        ours = sorted_out.ours
        return await self._book(run, attempt, ours.id, ours.status, attention=beside(sorted_out.others))

    async def _settle_doubt(self, run: Run, attempt: Attempt, error: SettleError) -> tuple[Run, Attempt] | None:
        """After a failed send: ask the processor where that can settle it, and say the rest as it is."""
        is_refused = isinstance(error, ProcessorRejected) and error.status in (400, 422)
        if not isinstance(error, OutcomeUnknown | SettlementConflict) and not is_refused:
            if attempt.may_be_taken:
                raise await self._lose(run, error) from error
            raise await self._end(run, Event.FAIL, error) from error
        is_replayed = isinstance(error, OutcomeUnknown) and error.replayed
        try:
            found = await self._look_up.settlements(run.account, run.date)
        except ProcessorError:
            raise await self._lose(run, error, spend=is_replayed) from error
        if found:
            return await self._take(run, attempt, found)
        if isinstance(error, SettlementConflict):
            # The key was used, and nothing is there: one of the two is not so, and a new key could settle twice.
            raise await self._lose(run, error, needs_person=True) from error
        if is_refused:
            is_certain = not attempt.may_be_taken and not (isinstance(error, ProcessorError) and error.was_uncertain)
            if is_certain:
                raise await self._end(run, Event.REJECT, error) from error
            await self._wait_for_absence(run, attempt, found, refusal=str(error))
            return None
        if is_replayed:
            await self._wait_for_absence(run, attempt, found)
            return None
        raise await self._lose(run, error) from error

    async def _wait_for_absence(
        self, run: Run, attempt: Attempt, found: list[FoundSettlement] | None, *, refusal: str | None = None
    ) -> None:
        """Return when it is believed that the processor has nothing of a spent key: the next one may be taken.

        Raises `OutcomeUnknown` until then, and for good where nobody can look; `ProcessorRejected` when what is absent
        was refused for its content.
        """
        if found is None:
            raise await self._lose(run, forgotten(run), spend=True, refusal=refusal, needs_person=True)
        now_ms = self._now_ms()
        was_spent = attempt.key_spent_at_ms is not None
        since_ms = empty_since(attempt.first_empty_at_ms if was_spent else None, now_ms=now_ms)
        believed_at_ms = since_ms + self._absence_age_ms
        if since_ms == now_ms or now_ms < believed_at_ms:
            raise await self._lose(
                run,
                waiting(run, believed_at_ms),
                spend=True,
                empty_since_ms=since_ms,
                refusal=refusal,
                retry_at_ms=believed_at_ms,
            )
        if attempt.refusal is not None:
            raise await self._end(run, Event.REJECT, ProcessorRejected(attempt.refusal))
        if attempt.number >= ATTEMPTS_MAX:
            raise await self._lose(run, worn_out(run), spend=True, empty_since_ms=since_ms, needs_person=True)

    async def _check_not_restored(self, run: Run) -> None:
        """Ends the run where a restored database may have forgotten that the day was posted, and nobody can look."""
        restored_ms = await self._store.read(restored_at_ms)
        if restored_ms is not None and run.window_end_s * 1000 <= restored_ms:
            raise await self._end(run, Event.LOSE, may_be_posted(run), needs_person=True)

    async def _book(
        self, run: Run, attempt: Attempt, settlement_id: str, status: str, *, attention: str | None = None
    ) -> tuple[Run, Attempt]:
        """Marks the run posted and books its journal, in one commit."""
        self._at_step(Step.BEFORE_BOOKING)
        now_ms = self._now_ms()

        def book(connection: apsw.Connection) -> tuple[Run, Attempt]:
            stored = run_by_number(connection, run.number)
            if stored.state is State.POSTED and stored.settlement_id == settlement_id:
                return stored, current_attempt(connection, stored)  # an earlier try was committed after all
            end_attempt(connection, run, "posted", now_ms=now_ms, settlement_id=settlement_id, status=status)
            book_attempt(connection, run, attempt, settlement_id=settlement_id, now_ms=now_ms)
            set_attention(connection, run, attention)
            posted = move(connection, run, Event.ACCEPT, now_ms=now_ms, settlement_id=settlement_id, release=True)
            return posted, current_attempt(connection, posted)

        for left in reversed(range(BOOKINGS_MAX)):
            try:
                posted = await self._store.write(book)
                break
            except (StoreBusy, StoreFull) as error:
                if not left:
                    raise _unbooked(error, settlement_id) from None
                await asyncio.sleep(BOOKING_WAIT_S)
            except SettleError as error:
                raise _unbooked(error, settlement_id) from None
        self._at_step(Step.BOOKED)
        return posted

    async def _lose(
        self,
        run: Run,
        error: SettleError,
        *,
        spend: bool = False,
        empty_since_ms: int | None = None,
        refusal: str | None = None,
        retry_at_ms: int | None = None,
        needs_person: bool = False,
    ) -> SettleError:
        """Leaves the outcome open. `spend`: the key is not sent again, and the list is empty since then (None: not)."""
        lost = error if isinstance(error, OutcomeUnknown) else OutcomeUnknown(str(error))
        if spend:
            await self._store.write(
                lambda connection: spend_key(
                    connection, run, first_empty_at_ms=empty_since_ms, refusal=refusal, now_ms=self._now_ms()
                )
            )
        return await self._end(run, Event.LOSE, lost, retry_at_ms=retry_at_ms, needs_person=needs_person)

    async def _end(
        self,
        run: Run,
        event: Event,
        error: SettleError,
        *,
        retry_at_ms: int | None = None,
        needs_person: bool = False,
    ) -> SettleError:
        """Stores how the run stands now, gives the claim back, and gives the error to raise."""
        now_ms = self._now_ms()
        error.retry_at_ms, error.needs_person = retry_at_ms, needs_person

        def store(connection: apsw.Connection) -> None:
            ended = move(
                connection,
                run,
                event,
                now_ms=now_ms,
                error=(error.code, str(error)),
                release=True,
                retry_at_ms=retry_at_ms,
                needs_person=needs_person,
            )
            end_attempt(connection, run, ended.state, now_ms=now_ms, detail=str(error))

        await self._store.write(store)
        return error

    async def _start_next_attempt(self, run: Run) -> Run:
        key = settlement_key(run.account, run.date, attempt=run.attempt + 1)

        def start(connection: apsw.Connection) -> Run:
            end_attempt(connection, run, "absent", now_ms=self._now_ms(), detail="the processor has nothing under it")
            next_attempt(connection, run, key, now_ms=self._now_ms())
            return run_by_number(connection, run.number)

        return await self._store.write(start)

    async def _attempt(self, run: Run) -> Attempt:
        return await self._store.read(lambda connection: current_attempt(connection, run))


def _sent(attempt: Attempt) -> SentAttempt:
    return SentAttempt(number=attempt.number, key=attempt.idempotency_key, body=attempt.body)


def _unbooked(error: SettleError, settlement_id: str) -> SettleError:
    error.add_note(f"the processor has it as {settlement_id}; `paykit-settle resume` books it once that is possible")
    return error


def _sent_since(attempt: Attempt) -> int | None:
    """When what the processor may have was first sent."""
    return attempt.sent_at_ms if attempt.may_be_taken else None
