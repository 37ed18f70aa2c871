"""One thread that writes: whatever waits is committed together, by one BEGIN IMMEDIATE … COMMIT and one fsync.

Units of work come in two kinds: any function of the connection, run in a savepoint of its own; and journals, which
wait together and are posted as one group. A unit that fails or is refused takes nobody with it. Nobody hears of a
result before the commit that holds it has returned; if that commit fails, everybody in it hears so.

The writer and the callers' event loop share one interpreter, so they take turns: results are told when the next commit
is about to wait for the disk, or when nothing else waits, and callers make their next requests ready meanwhile.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from itertools import groupby
from typing import Any, TypeVar, cast

import apsw

from paykit_settle.errors import InvariantViolated, SettleError, StoreFull, StoreUnavailable
from paykit_settle.journal import Journal
from paykit_settle.store.crowds import Crowd, Unit, tell
from paykit_settle.store.database import (
    BUSY_TIMEOUT_MS,
    begin,
    domain_error,
    ends_transaction,
    patience,
    roll_back,
)
from paykit_settle.store.plan import Receipt
from paykit_settle.store.posting import Poster

QUEUE_MAX = 4_096
"""Units that may wait for the writer, beside the batch it works on; one more is `StoreFull`. A thread may overtake an
event loop that gathers, by HAND_OVER_MAX at most."""
BATCH_MAX = 500
"""Units in one commit."""
HALVED_MIN = 16
"""When all callers wait for the writer, and they are this many or more, half of them are committed first: then one half
can be answered while the other is written, and so on, as they ask again."""
HALVED_COMMIT_US_MAX = 40
"""But only while a commit took less than this per unit: on a slow disk two commits cost more than that gains."""
HAND_OVER_MAX = 128
"""Units that an event loop gathers before the writer gets them: the rest of a larger crowd is made ready meanwhile.
With fewer, loop and writer get into each other's way more often: they share one interpreter."""

T = TypeVar("T")
Work = Callable[[apsw.Connection], T]
NS_PER_US = 1_000

logger = logging.getLogger(__name__)


class Writer:
    """Owns a connection and the thread that writes through it; `close` finishes what was taken in.

    A unit's outcome is its result, or the exception that undid it: `StoreBusy` and `StoreUnavailable` when its whole
    batch could not be committed. Units run in the order of their arrival.
    """

    def __init__(
        self,
        connection: apsw.Connection,
        *,
        queue_max: int = QUEUE_MAX,
        batch_max: int = BATCH_MAX,
        busy_timeout_ms: int = BUSY_TIMEOUT_MS,
    ) -> None:
        self._connection = connection
        # Who waits for another process does not let those wait whose results are there.
        connection.set_busy_handler(patience(busy_timeout_ms, on_wait=self._tell))
        self._poster = Poster(connection)
        self._queue_max = queue_max
        self._batch_max = batch_max
        self._commit_us = HALVED_COMMIT_US_MAX
        self._failure_said: str | None = None
        self._in_hand: list[Crowd] = []
        self._untold: list[tuple[list[Crowd], list[Any]]] = []
        self._waiting: deque[Crowd] = deque()
        self._waiting_count = 0
        self._gathering: dict[asyncio.AbstractEventLoop, Crowd] = {}
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="paykit-writer", daemon=True)
        self._thread.start()

    def run(self, work: Work[T]) -> "asyncio.Future[T]":
        """The result of the work once it is committed.

        A caller that is cancelled stops waiting; the work is still done, or refused, as a whole. `StoreFull` when too
        much waits already: then the work was not taken in.
        """
        return self._gather(work)

    def post(self, journal: Journal) -> "asyncio.Future[Receipt]":
        """The journal's receipt once it is committed; like `run`, but journals that wait together are one group."""
        return self._gather(journal)

    def submit(self, work: Work[T]) -> "Future[T]":
        """Like `run`, for callers without an event loop: `result()` of the future waits for the commit."""
        future: Future[T] = Future()
        with self._changed:
            if self._closing or self._waiting_count >= self._queue_max:
                raise self._refusal()
            self._take_in(Crowd(None, [(work, future)]))
        return future

    def close(self) -> None:
        """Finishes all that was taken in, ends the thread and closes the connection; again is harmless.

        Call it off the event loop whose coroutines wait for results.
        """
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()
        self._connection.close()

    def _gather(self, work: Unit) -> "asyncio.Future[Any]":
        # Units that arrive in one turn of the loop reach the writer together: else the first would be committed alone
        # while the others wait for the next fsync.
        loop = asyncio.get_running_loop()
        crowd = self._gathering.get(loop)
        if crowd is None:
            loop.call_soon(self._hand_over, loop)
            crowd = self._gathering[loop] = Crowd(loop)
        members = crowd.members
        if self._closing or self._waiting_count + len(members) >= self._queue_max:
            raise self._refusal()
        future: asyncio.Future[Any] = loop.create_future()
        members.append((work, future))
        if len(members) == HAND_OVER_MAX:
            self._hand_over(loop)
        return future

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        crowd = self._gathering.pop(loop, None)
        if crowd is not None and crowd.members:
            with self._changed:
                self._take_in(crowd)

    def _refusal(self) -> SettleError:
        """Why nothing more is taken in."""
        if self._closing:
            return StoreUnavailable("the ledger is closing")
        return StoreFull(f"{self._queue_max} units of work wait for the database already")

    def _take_in(self, crowd: Crowd) -> None:
        if self._closing:
            tell([crowd], [self._refusal() for _ in crowd.members])
            return
        self._waiting.append(crowd)
        self._waiting_count += len(crowd.members)
        self._changed.notify()

    def _run(self) -> None:
        try:
            while batch := self._next_batch():
                self._in_hand = batch
                outcomes = self._commit([unit for crowd in batch for unit, _ in crowd.members])
                self._untold.append((batch, outcomes))
                self._in_hand = []
        except BaseException:
            logger.exception("the writer has stopped")
        finally:
            self._abandon()

    def _tell(self) -> None:
        while self._untold:
            tell(*self._untold[0])
            del self._untold[0]

    def _abandon(self) -> None:
        """Nobody waits for ever for a thread that has ended: asking again with the same key tells what became of it."""
        with self._changed:
            self._closing = True
            left = [*(crowd for batch, _ in self._untold for crowd in batch), *self._in_hand, *self._waiting]
            self._waiting.clear()
        for crowd in left:
            tell([crowd], [self._refusal() for _ in crowd.members])

    def _next_batch(self) -> list[Crowd]:
        """What waits, as far as one commit takes it; waits for the first. Empty when closing and nothing is left."""
        all_wait = not self._waiting
        if all_wait:
            self._tell()
        with self._changed:
            while not self._waiting and not self._closing:
                self._changed.wait()
            # Counted anew: an interrupted caller may have come in without being counted.
            count = self._waiting_count = sum(len(crowd.members) for crowd in self._waiting)
            if all_wait and count >= HALVED_MIN and self._commit_us < HALVED_COMMIT_US_MAX:
                count //= 2
            return self._take(min(count, self._batch_max))

    def _take(self, count: int) -> list[Crowd]:
        taken = []
        self._waiting_count -= count
        while count:
            crowd = self._waiting.popleft()
            if count < len(crowd.members):
                self._waiting.appendleft(crowd.cut(count))
            taken.append(crowd)
            count -= len(crowd.members)
        return taken

    def _commit(self, batch: Sequence[Unit]) -> list[Any]:
        """One transaction around the batch; if it cannot be committed, every outcome is the error that says so."""
        try:
            begin(self._connection)
            outcomes = self._work_off(batch)
            self._tell()
            begun_ns = time.monotonic_ns()
            self._connection.execute("COMMIT")
            self._commit_us = (time.monotonic_ns() - begun_ns) // NS_PER_US // len(batch)
            self._failure_said = None
        except BaseException as error:
            said, self._failure_said = self._failure_said, str(error)
            # Of a full disk every try tells the same: the first is news, and the next after a commit.
            level = logging.INFO if said == str(error) else logging.WARNING
            logger.log(level, "a batch of %d was undone: %s", len(batch), error)
            self._poster.forget()
            try:
                roll_back(self._connection)
            except Exception:  # the next batch finds the transaction open, fails, and rolls it back
                logger.exception("a batch could not be rolled back")
            return [_failure(error) for _ in batch]
        return outcomes

    def _work_off(self, batch: Sequence[Unit]) -> list[Any]:
        groups = [(kind is Journal, list(group)) for kind, group in groupby(batch, key=type)]
        outcomes: list[Any] = []
        for are_journals, group in groups:
            if are_journals:
                outcomes += self._post(cast(list[Journal], group), alone=len(groups) == 1)
            else:
                self._tell()  # a function may take its time
                alone = len(batch) == 1
                outcomes += [self._undoable(cast(Work[Any], work), alone=alone) for work in group]
                self._poster.forget()
        return outcomes

    def _post(self, journals: list[Journal], *, alone: bool) -> list[Any]:
        outcomes = self._undoable(lambda _: self._poster.post(journals), alone=alone)
        if not isinstance(outcomes, BaseException):
            return cast(list[Any], outcomes)
        if len(journals) == 1:
            return [outcomes]
        # One of them cannot be written at all: alone, it fails alone.
        return [outcome for journal in journals for outcome in self._post([journal], alone=False)]

    def _undoable(self, work: Work[Any], *, alone: bool) -> Any:
        """The work's result, or the exception that undid it; raises when the whole transaction is lost.

        `alone`: nothing else is in the transaction, which then is undone itself. A savepoint has SQLite copy every
        page before it changes.
        """
        if not alone:
            self._connection.execute("SAVEPOINT unit")
        try:
            result = work(self._connection)
        except BaseException as error:
            if ends_transaction(error):
                raise
            self._poster.forget()
            if alone:
                roll_back(self._connection)
                begin(self._connection)
            else:
                self._connection.execute("ROLLBACK TO unit; RELEASE unit")
            if isinstance(error, StopIteration):  # which no future takes
                return InvariantViolated("a unit of work raised StopIteration")
            return domain_error(error) if isinstance(error, apsw.Error) else error
        if not alone:
            self._connection.execute("RELEASE unit")
        return result


def _failure(error: BaseException) -> SettleError:
    """One unit's own copy of the error that undid its batch: an exception is not shared by tasks that raise it."""
    if isinstance(error, SettleError):
        return type(error)(str(error))
    if isinstance(error, apsw.Error):
        return domain_error(error)
    return InvariantViolated(f"a batch could not be written: {error!r}")
