"""Reads beside the writer: a few threads with a connection each, so neither the event loop nor the writer waits.

Every read sees one committed state of the file, also over several statements, and can write nothing.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import apsw

from paykit_settle.store.database import connect, domain_error, roll_back

READERS_MAX = 2
"""Threads that read; more would only compete for the interpreter."""

T = TypeVar("T")


class Reader:
    """Runs functions of a read-only connection; `close` waits for those that run."""

    def __init__(self, path: str | Path, *, busy_timeout_ms: int) -> None:
        self._path = path
        self._busy_timeout_ms = busy_timeout_ms
        self._own = threading.local()
        self._connections: list[apsw.Connection] = []
        self._threads = ThreadPoolExecutor(READERS_MAX, thread_name_prefix="paykit-reader")

    async def run(self, work: Callable[[apsw.Connection], T]) -> T:
        """The result of the work, off the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self.run_here, work)

    def run_here(self, work: Callable[[apsw.Connection], T]) -> T:
        """The result of the work, in the calling thread."""
        connection = self._connection()
        try:
            connection.execute("BEGIN")
            return work(connection)
        except apsw.Error as error:
            raise domain_error(error) from error
        finally:
            roll_back(connection)

    def close(self) -> None:
        """Ends the threads and closes their connections."""
        self._threads.shutdown()
        while self._connections:
            self._connections.pop().close()

    def _connection(self) -> apsw.Connection:
        connection: apsw.Connection | None = getattr(self._own, "connection", None)
        if connection is None:
            connection = connect(self._path, read_only=True, busy_timeout_ms=self._busy_timeout_ms)
            self._own.connection = connection
            self._connections.append(connection)
        return connection
