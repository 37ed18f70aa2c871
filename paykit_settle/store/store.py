"""A ledger file, open: one writer, a few readers, the schema of this program. Closed last, after all who use it."""

import logging
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

import apsw

from paykit_settle.journal import Journal
from paykit_settle.store.accounts import disagreements
from paykit_settle.store.database import BUSY_TIMEOUT_MS, connect, reserve_log, use_wal
from paykit_settle.store.migrations import migrate
from paykit_settle.store.plan import Receipt
from paykit_settle.store.reader import Reader
from paykit_settle.store.writer import QUEUE_MAX, Writer

T = TypeVar("T")

DISAGREEMENTS_SAID_MAX = 10
"""Accounts whose older runs disagree with what is in force, of which the log hears at each opening."""

logger = logging.getLogger(__name__)


def clock_ms() -> int:
    """Now, in unix milliseconds."""
    return time.time_ns() // 1_000_000


def remove_database(path: Path) -> None:
    """Removes a database that nobody uses, with the files that SQLite keeps beside it; a missing one is no error."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


class Store:
    """Opens the file at `path`, makes or migrates it as needed, and serves writes and reads until `close`.

    Raises `DatabaseUnusable` (also `DatabaseTooNew`) or `StoreBusy`, and then leaves the file as it was.
    `queue_max` bounds the work that waits, `busy_timeout_ms` one wait for another process's lock.
    """

    def __init__(self, path: str | Path, *, queue_max: int = QUEUE_MAX, busy_timeout_ms: int = BUSY_TIMEOUT_MS) -> None:
        self.path = Path(path)
        connection = connect(path, create=True, busy_timeout_ms=busy_timeout_ms)
        try:
            migrate(connection, now_ms=clock_ms())
            use_wal(connection)
            for account in disagreements(connection)[:DISAGREEMENTS_SAID_MAX]:
                logger.warning("%s", account.disagreement_text)
        except BaseException:
            connection.close()
            raise
        self._log_path = connection.filename_wal
        self._writer = Writer(connection, queue_max=queue_max, busy_timeout_ms=busy_timeout_ms)
        self._reader = Reader(path, busy_timeout_ms=busy_timeout_ms)

    def post(self, journal: Journal) -> Awaitable[Receipt]:
        """Posts one journal exactly once; the receipt is given after the commit, or the error that refused it."""
        return self._writer.post(journal)

    def write(self, work: Callable[[apsw.Connection], T]) -> Awaitable[T]:
        """Runs a unit of work that commits or is undone as a whole, beside others in one commit."""
        return self._writer.run(work)

    async def read(self, work: Callable[[apsw.Connection], T]) -> T:
        """Runs a function against one committed state, off the event loop and beside the writer."""
        return await self._reader.run(work)

    def submit(self, work: Callable[[apsw.Connection], T]) -> "Future[T]":
        """`write` for callers without an event loop."""
        return self._writer.submit(work)

    def reserve_log(self) -> None:
        """Gives the write-ahead log its full size at once: for a store that stays open and takes many writes.

        Others may write meanwhile. Blocks: call it off the event loop.
        """
        reserve_log(self._log_path)

    def close(self) -> None:
        """Finishes what was taken in and closes the file. Blocks: call it off the event loop."""
        self._writer.close()
        self._reader.close()
