"""One thread that writes: whatever waits is committed together, by one BEGIN IMMEDIATE … COMMIT and one fsync.

Units of work come in two kinds: any function of the connection, run in a savepoint of its own; and journals, which
wait together and are posted as one group. A unit that fails or is refused takes nobody with it. Nobody hears of a
result before the commit that holds it has returned; if that commit fails, everybody in it hears so.
"""

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeVar, cast

import apsw

from paykit_settle.errors import InvariantViolated, SettleError, StoreFull, StoreUnavailable
from paykit_settle.journal import Journal
from paykit_settle.store.database import begin, domain_error, ends_transaction, roll_back
from paykit_settle.store.plan import Receipt
from paykit_settle.store.posting import Poster

QUEUE_MAX = 4_096
"""Units that may wait for the writer, beside the batch it works on; one more is `StoreFull`. A thread may overtake an
event loop that gathers, by HAND_OVER_MAX at most."""
BATCH_MAX = 500
"""Units in one commit. A larger crowd takes turns: one half is committed while the other is answered."""
HAND_OVER_MAX = 128
"""Units that an event loop gathers before the writer gets them: the rest of a larger crowd is made ready meanwhile.
With fewer, loop and writer get into each other's way more often: they share one interpreter."""

T = TypeVar("T")
Work = Callable[[apsw.Connection], T]

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Unit:
    """Work that waits, and where its outcome goes: a thread's future, or a coroutine's and its loop."""

    work: Work[Any] | Journal
    future: "Future[Any] | asyncio.Future[Any]"
    loop: asyncio.AbstractEventLoop | None


class Writer:
    """Owns a connection and the thread that writes through it; `close` finishes what was taken in.

    A unit's outcome is its result, or the exception that undid it: `StoreBusy` and `StoreUnavailable` when its whole
    batch could not be committed. Units run in the order of their arrival.
    """

    def __init__(self, connection: apsw.Connection, *, queue_max: int = QUEUE_MAX, batch_max: int = BATCH_MAX) -> None:
        self._connection = connection
        self._poster = Poster(connection)
        self._queue_max = queue_max
        self._batch_max = batch_max
        self._waiting: deque[_Unit] = deque()
        self._gathering: dict[asyncio.AbstractEventLoop, list[_Unit]] = {}
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
            self._refuse_when_full(0)
            self._take_in([_Unit(work, future, None)])
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

    def _gather(self, work: Work[Any] | Journal) -> "asyncio.Future[Any]":
        # Units that arrive in one turn of the loop reach the writer together: else the first would be committed alone
        # while the others wait for the next fsync.
        loop = asyncio.get_running_loop()
        gathered = self._gathering.get(loop)
        if gathered is None:
            gathered = self._gathering[loop] = []
            loop.call_soon(self._hand_over, loop)
        self._refuse_when_full(len(gathered))
        future: asyncio.Future[Any] = loop.create_future()
        gathered.append(_Unit(work, future, loop))
        if len(gathered) == HAND_OVER_MAX:
            self._hand_over(loop)
        return future

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        if units := self._gathering.pop(loop, None):
            with self._changed:
                self._take_in(units)

    def _refuse_when_full(self, gathered: int) -> None:
        if self._closing:
            raise StoreUnavailable("the ledger is closing")
        if len(self._waiting) + gathered >= self._queue_max:
            raise StoreFull(f"{self._queue_max} units of work wait for the database already")

    def _take_in(self, units: list[_Unit]) -> None:
        if self._closing:
            _deliver(units, [StoreUnavailable("the ledger is closing") for _ in units])
            return
        self._waiting.extend(units)
        self._changed.notify()

    def _run(self) -> None:
        while batch := self._next_batch():
            _deliver(batch, self._commit([unit.work for unit in batch]))

    def _next_batch(self) -> list[_Unit]:
        """All that waits, up to BATCH_MAX; waits for the first. Empty when closing and nothing is left."""
        with self._changed:
            while not self._waiting and not self._closing:
                self._changed.wait()
            return [self._waiting.popleft() for _ in range(min(len(self._waiting), self._batch_max))]

    def _commit(self, batch: Sequence[Work[Any] | Journal]) -> list[Any]:
        """One transaction around the batch; if it cannot be committed, every outcome is the error that says so."""
        try:
            begin(self._connection)
            outcomes = self._work_off(batch)
            self._connection.execute("COMMIT")
        except BaseException as error:
            logger.warning("a batch of %d was undone: %s", len(batch), error)
            self._poster.forget()
            try:
                roll_back(self._connection)
            except apsw.Error:
                logger.exception("a batch could not be rolled back")
            return [_failure(error) for _ in batch]
        return outcomes

    def _work_off(self, batch: Sequence[Work[Any] | Journal]) -> list[Any]:
        outcomes: list[Any] = []
        for is_journal, group in groupby(batch, key=lambda work: isinstance(work, Journal)):
            if is_journal:
                outcomes += self._post(cast(list[Journal], list(group)))
            else:
                outcomes += [self._in_savepoint(cast(Work[Any], work)) for work in group]
                self._poster.forget()
        return outcomes

    def _post(self, journals: list[Journal]) -> list[Any]:
        outcomes = self._in_savepoint(lambda _: self._poster.post(journals))
        if not isinstance(outcomes, BaseException):
            return cast(list[Any], outcomes)
        if len(journals) == 1:
            return [outcomes]
        # One of them cannot be written at all: alone, it fails alone.
        return [outcome for journal in journals for outcome in self._post([journal])]

    def _in_savepoint(self, work: Work[Any]) -> Any:
        """The work's result, or the exception that undid it; raises when the whole transaction is lost."""
        self._connection.execute("SAVEPOINT unit")
        try:
            result = work(self._connection)
        except BaseException as error:
            if ends_transaction(error):
                raise
            self._connection.execute("ROLLBACK TO unit; RELEASE unit")
            self._poster.forget()
            return domain_error(error) if isinstance(error, apsw.Error) else error
        self._connection.execute("RELEASE unit")
        return result


def _failure(error: BaseException) -> SettleError:
    """One unit's own copy of the error that undid its batch: an exception is not shared by tasks that raise it."""
    if isinstance(error, SettleError):
        return type(error)(str(error))
    if isinstance(error, apsw.Error):
        return domain_error(error)
    return InvariantViolated(f"a batch could not be written: {error!r}")


def _deliver(units: Sequence[_Unit], outcomes: Sequence[Any]) -> None:
    """Gives every unit its outcome, waking each event loop once."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[Any, Any]]] = {}
    for unit, outcome in zip(units, outcomes, strict=True):
        if unit.loop is not None:
            by_loop.setdefault(unit.loop, []).append((unit.future, outcome))
        else:
            _resolve([(unit.future, outcome)])
    for loop, pairs in by_loop.items():
        # A loop that has closed has nobody left who waits.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_resolve, pairs)


def _resolve(pairs: Sequence[tuple[Any, Any]]) -> None:
    for future, outcome in pairs:
        if future.done():  # cancelled: its caller went away, its work stands
            continue
        if isinstance(outcome, BaseException):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
