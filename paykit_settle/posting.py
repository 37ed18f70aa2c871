"""Sends a frozen settlement and books it: looks it up first, sends the same bytes under the same key, never guesses.

What is certain decides: a settlement found at the processor is posted, a definite refusal is rejected, everything else
stays unknown until the processor says which.
"""

import asyncio
from collections.abc import Callable

import apsw

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
from paykit_settle.found_settlements import FoundSettlement
from paykit_settle.lifecycle import Event, State, Step
from paykit_settle.store.freezing import book_attempt, end_attempt, mark_sent, next_attempt
from paykit_settle.store.runs import Attempt, Run, current_attempt, move, run_by_number
from paykit_settle.store.store import Store, clock_ms
from paykit_settle.wire import settlement_key

ATTEMPTS_PER_RUN_MAX = 3
BOOKINGS_MAX = 5
"""How often booking is tried while the database is busy: the money has moved, so it is worth some patience."""
BOOKING_WAIT_S = 1
KEY_KEPT_MS = 23 * 3600 * 1000
"""How long we trust an idempotency key. A processor keeps it for 24 hours: the rest is for clocks and retries."""


class SettlementPoster:
    """Brings a frozen run to its end. The caller holds the claim."""

    def __init__(
        self,
        client: ProcessorClient,
        store: Store,
        *,
        at_step: AtStep,
        now_ms: Callable[[], int] = clock_ms,
    ) -> None:
        self._client = client
        self._store = store
        self._at_step = at_step
        self._now_ms = now_ms

    async def post(self, run: Run, attempt: Attempt | None = None) -> tuple[Run, Attempt]:
        """The posted and booked run with its attempt. Raises what stopped it, with the run's state saying the same.

        `attempt` is the run's current one, for a caller that has it at hand.
        `ProcessorRejected` (also `SettlementConflict`) leaves it rejected or, if the content is not why, failed;
        `ProcessorUnavailable` failed; `OutcomeUnknown` unknown.
        """
        for _ in range(ATTEMPTS_PER_RUN_MAX):
            posted = await self._post_once(run, attempt or await self._attempt(run))
            if posted is not None:
                return posted
            run, attempt = await self._start_next_attempt(run), None
        raise await self._end(run, Event.LOSE, OutcomeUnknown(f"{ATTEMPTS_PER_RUN_MAX} attempts had no certain end"))

    async def _post_once(self, run: Run, attempt: Attempt) -> tuple[Run, Attempt] | None:
        """The booked run; None when this attempt's key is used up and the processor certainly has nothing."""
        found = await self._look_up(run, attempt)
        if (ours := _ours(found, attempt)) is not None:
            return await self._book(run, attempt, ours.id, ours.status)
        if found:
            raise await self._end(run, Event.REJECT, _conflict(run, found))
        if attempt.may_be_taken and self._is_forgotten(attempt):
            if found is None:
                # Nobody can say whether it is there, and under a forgotten key it would be settled a second time.
                raise await self._end(run, Event.LOSE, _forgotten(run))
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

    async def _settle_doubt(self, run: Run, attempt: Attempt, error: SettleError) -> tuple[Run, Attempt] | None:
        """After a failed send: ask the processor where that can settle it, and say the rest as it is."""
        if isinstance(error, OutcomeUnknown | SettlementConflict):
            try:
                found = await self._client.find_settlements(run.account, run.date)
            except ProcessorError:
                raise await self._end(run, Event.LOSE, _lost(error)) from error
            if (ours := _ours(found, attempt)) is not None:
                return await self._book(run, attempt, ours.id, ours.status)
            if found:
                raise await self._end(run, Event.REJECT, _conflict(run, found)) from error
            # Nothing is there, and the key will only ever repeat this answer: another key, the same bytes.
            if found is not None and (isinstance(error, SettlementConflict) or error.replayed):
                return None
            raise await self._end(run, Event.LOSE, _lost(error)) from error
        if isinstance(error, ProcessorRejected) and error.status in (400, 422):
            raise await self._end(run, Event.REJECT, error) from error
        raise await self._fail(run, attempt, error) from error

    async def _look_up(self, run: Run, attempt: Attempt) -> list[FoundSettlement] | None:
        """What the processor has for the day; None when it cannot be asked that."""
        self._at_step(Step.BEFORE_LOOK_UP)
        try:
            return await self._client.find_settlements(run.account, run.date)
        except SettleError as error:
            raise await self._fail(run, attempt, error) from error

    async def _fail(self, run: Run, attempt: Attempt, error: SettleError) -> SettleError:
        """Ends as failed; but of an earlier send that may have been taken, a failure says nothing."""
        if attempt.may_be_taken:
            return await self._end(run, Event.LOSE, _lost(error))
        return await self._end(run, Event.FAIL, error)

    async def _book(self, run: Run, attempt: Attempt, settlement_id: str, status: str) -> tuple[Run, Attempt]:
        """Marks the run posted and books its journal, in one commit."""
        self._at_step(Step.BEFORE_BOOKING)
        now_ms = self._now_ms()

        def book(connection: apsw.Connection) -> tuple[Run, Attempt]:
            stored = run_by_number(connection, run.number)
            if stored.state is State.POSTED and stored.settlement_id == settlement_id:
                return stored, current_attempt(connection, stored)  # an earlier try was committed after all
            end_attempt(connection, run, "posted", now_ms=now_ms, settlement_id=settlement_id, status=status)
            book_attempt(connection, run, attempt, settlement_id=settlement_id, now_ms=now_ms)
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

    async def _end(self, run: Run, event: Event, error: SettleError) -> SettleError:
        """Stores how the run stands now, gives the claim back, and gives the error to raise."""
        now_ms = self._now_ms()

        def store(connection: apsw.Connection) -> None:
            ended = move(connection, run, event, now_ms=now_ms, error=(error.code, str(error)), release=True)
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

    def _is_forgotten(self, attempt: Attempt) -> bool:
        return attempt.sent_at_ms is not None and self._now_ms() - attempt.sent_at_ms > KEY_KEPT_MS


def _ours(found: list[FoundSettlement] | None, attempt: Attempt) -> FoundSettlement | None:
    return next((each for each in found or [] if each.has_body(attempt.body)), None)


def _conflict(run: Run, found: list[FoundSettlement]) -> SettlementConflict:
    named = ", ".join(each.id for each in found[:3])
    return SettlementConflict(
        f"the processor has another settlement for {run.account} on {run.date}: {named}; a person has to look"
    )


def _forgotten(run: Run) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"{run.id} was sent longer ago than the processor keeps a key, and it lists no settlements: a person has to "
        "find out and resolve it"
    )


def _unbooked(error: SettleError, settlement_id: str) -> SettleError:
    error.add_note(f"the processor has it as {settlement_id}; `paykit-settle resume` books it once that is possible")
    return error


def _lost(error: SettleError) -> SettleError:
    """An error after which the outcome is open, whatever was answered."""
    return error if isinstance(error, OutcomeUnknown) else OutcomeUnknown(str(error))
