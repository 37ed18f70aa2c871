"""Opens a ledger file through apsw, and turns what SQLite says into this package's errors.

The one place that knows pragmas and error codes. Never open the same file with another copy of SQLite in this process:
two copies undo each other's locks. The file is migrated elsewhere; what is opened here must already be a ledger.
"""

import ctypes
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import apsw

from paykit_settle.errors import (
    AccountConflict,
    BalanceOutOfRange,
    DatabaseUnusable,
    InvariantViolated,
    SettleError,
    StoreBusy,
    StoreUnavailable,
)

BUSY_TIMEOUT_MS = 2_000
"""How long one attempt to take the write lock waits for another process."""
BEGIN_ATTEMPTS_MAX = 3
"""How many such attempts are made, a pause apart."""
BEGIN_PAUSE_MS = 20
"""The pause between two attempts: SQLite may also say "busy" at once, without waiting."""
CACHE_KIB = 64 * 1024
"""Page cache of a long-lived connection: index pages of a few hundred thousand journals stay in memory."""
PAGE_BYTES = 1_024
"""Page size of a new file. Keys come in random order, so a commit writes about one index page for each: small ones."""
CHECKPOINT_BYTES = 32 * 1024 * 1024
"""The write-ahead log's size at which a commit also moves its pages into the file. In a larger log more of them have
changed again by then, and are moved once."""

LOG_BYTES = 36 * 1024 * 1024
"""What a reserved write-ahead log has room for: CHECKPOINT_BYTES, and a large commit."""
LOG_PIECE_BYTES = 64 * 1024
"""How the log is reserved: with larger pieces Linux keeps it in memory in pieces that are slow to write into."""
LOG_FREE_BYTES_MIN = 10 * LOG_BYTES
"""What must be free on the disk for the log to be reserved."""

RESTORING_SUFFIX = "-restoring"
"""What the file that says "a restore is exchanging this database" has after the database's name."""

_BUSY_SLEEP_MAX_MS = 5

logger = logging.getLogger(__name__)


def connect(
    path: str | Path,
    *,
    create: bool = False,
    read_only: bool = False,
    is_restoring: bool = False,
    busy_timeout_ms: int = BUSY_TIMEOUT_MS,
) -> apsw.Connection:
    """A connection that commits durably, checks foreign keys and waits for other processes.

    The journal mode is left as the file has it. `DatabaseUnusable` if the file is missing (unless `create`), cannot
    be opened, is no database, or was left by a restore that was cut off (unless it is that restore that asks:
    `is_restoring`).
    """
    if not is_restoring:
        refuse_half_restored(path)
    flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if create else 0)
    try:
        connection = apsw.Connection(str(path), flags=flags)
        try:
            connection.set_busy_handler(patience(busy_timeout_ms))
            if create:
                connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")  # a file that exists keeps its own
            # EXTRA is FULL, and in rollback-journal mode it also makes the end of a commit durable.
            connection.execute("PRAGMA synchronous = EXTRA; PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF")
            # What a savepoint or a statement of many rows may have to undo is kept in memory, not in a file.
            connection.execute("PRAGMA temp_store = MEMORY")
            if read_only:
                connection.execute("PRAGMA query_only = ON")
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()  # reads the file: is it a database?
            if not is_restoring:
                _refuse_exchanged(connection)
        except BaseException:
            connection.close()
            raise
    except apsw.BusyError as error:
        raise StoreBusy(f"database {path} is locked by another process") from error
    except apsw.Error as error:
        raise DatabaseUnusable(f"database {path} cannot be opened: {error}") from error
    return connection


def refuse_half_restored(path: str | Path) -> None:
    """`DatabaseUnusable` while a restore exchanges the database, which may be missing just then, or was cut off."""
    file = os.path.realpath(path)
    if os.path.exists(file + RESTORING_SUFFIX):
        raise DatabaseUnusable(
            f"database {file} is half restored: a restore was cut off, or is at work right now. "
            "`paykit-settle db restore FILE`, with the same back-up, finishes it"
        )


def _refuse_exchanged(connection: apsw.Connection) -> None:
    """Refuses a file that a restore has put aside since it was opened: what is written there would be lost."""
    if not connection.filename:  # a database in memory
        return
    refuse_half_restored(connection.filename)
    has_moved = ctypes.c_int(0)
    connection.file_control("main", apsw.SQLITE_FCNTL_HAS_MOVED, ctypes.addressof(has_moved))
    if has_moved.value:
        raise StoreBusy(f"database {connection.filename} was exchanged while it was opened: open it again")


def use_wal(connection: apsw.Connection) -> None:
    """Puts the file into write-ahead-log mode, for long-lived connections: readers and the writer do not wait.

    From here on the file is locked against being exchanged, for as long as the connection is open.
    """
    try:
        # Beside somebody who writes to a file without a log, SQLite says "busy" at once.
        mode = with_patience(lambda: connection.execute("PRAGMA journal_mode = WAL").get, at_least_ms=BUSY_TIMEOUT_MS)
        if mode != "wal":
            raise DatabaseUnusable(f"database {connection.filename} cannot use a write-ahead log ({mode})")
        pages = CHECKPOINT_BYTES // connection.execute("PRAGMA page_size").get
        connection.execute(
            f"PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = {pages}; PRAGMA cache_size = -{CACHE_KIB}"
        )
        # The first read takes the lock that says "this file is in use", and it is kept until the end.
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
    except apsw.Error as error:
        raise domain_error(error) from error


def reserve_log(path: str) -> None:
    """Lengthens the file of a write-ahead log to LOG_BYTES, for an open database that will be written much.

    A commit then writes over what is there, and its fsync has no blocks to find and no length to store. The zeros are
    only ever appended, so they hit no frame, whoever writes at the same time; and reading a log ends at its last frame,
    for zeros have no valid checksum. A log that cannot be reserved grows by itself, as it always can.
    """
    try:
        if shutil.disk_usage(path).free < LOG_FREE_BYTES_MIN:
            return
        log = os.open(path, os.O_WRONLY | os.O_APPEND)
        try:
            for _ in range(os.fstat(log).st_size, LOG_BYTES, LOG_PIECE_BYTES):
                os.write(log, bytes(LOG_PIECE_BYTES))
            os.fsync(log)
        finally:
            os.close(log)
    except OSError as error:
        logger.info("the write-ahead log is not reserved: %s", error)


def patience(timeout_ms: int, *, on_wait: Callable[[], None] = lambda: None) -> Callable[[int], bool]:
    """A busy handler that asks again every few milliseconds: SQLite's own waits up to 100 and starves under load.

    `on_wait` is called before it waits.
    """
    deadline_ns = 0

    def wait(calls: int) -> bool:
        nonlocal deadline_ns
        now_ns = time.monotonic_ns()
        if calls == 0:
            on_wait()
            deadline_ns = now_ns + timeout_ms * 1_000_000
        if now_ns >= deadline_ns:
            return False
        time.sleep(min(calls + 1, _BUSY_SLEEP_MAX_MS) / 1000)
        return True

    return wait


T = TypeVar("T")


def with_patience(attempt: Callable[[], T], *, at_least_ms: int = 0) -> T:
    """The result of `attempt`, tried again while SQLite says "busy"; `StoreBusy` after BEGIN_ATTEMPTS_MAX.

    `at_least_ms`: more attempts are made until so much time has passed.
    """
    deadline_ns = time.monotonic_ns() + at_least_ms * 1_000_000
    attempts = 0
    while True:
        try:
            return attempt()
        except apsw.BusyError as error:
            attempts += 1
            if attempts >= BEGIN_ATTEMPTS_MAX and time.monotonic_ns() >= deadline_ns:
                raise StoreBusy("another process holds the database's write lock") from error
            time.sleep(BEGIN_PAUSE_MS / 1000)


def begin(connection: apsw.Connection) -> None:
    """Starts a write transaction, taking the write lock first so that no lock has to be upgraded later."""
    with_patience(lambda: connection.execute("BEGIN IMMEDIATE"))


@contextmanager
def transaction(connection: apsw.Connection) -> Iterator[None]:
    """One write transaction around a block: committed at its end, undone as a whole if anything is raised.

    Errors of SQLite come out as this package's.
    """
    begin(connection)
    try:
        yield
        connection.execute("COMMIT")
    except BaseException as error:
        roll_back(connection)
        if isinstance(error, apsw.Error):
            raise domain_error(error) from error
        raise


def roll_back(connection: apsw.Connection) -> None:
    """Undoes the open transaction, if SQLite has not done so itself already."""
    if connection.in_transaction:
        connection.execute("ROLLBACK")


# SQLite names a CHECK by its constraint, a UNIQUE or PRIMARY KEY by its columns.
_CONSTRAINTS: dict[str, tuple[type[SettleError], str]] = {
    "accounts.tenant, accounts.id, accounts.currency": (AccountConflict, "the account exists already"),
    "accounts.tenant, accounts.id": (AccountConflict, "the account exists already, in another currency"),
    "accounts_balance_range": (BalanceOutOfRange, "the balance would leave the range of an amount"),
}


def domain_error(error: apsw.Error) -> SettleError:
    """This package's error for one of SQLite's, by result code and, for constraints, by constraint name.

    A constraint without a domain meaning is a bug of ours: `InvariantViolated`. Everything else is about the disk,
    the file or the lock, never about money: `StoreBusy` or `StoreUnavailable`.
    """
    if isinstance(error, apsw.ConstraintError):
        name = str(error).rpartition(" constraint failed: ")[2]
        if name in _CONSTRAINTS:
            kind, detail = _CONSTRAINTS[name]
            return kind(detail)
        return InvariantViolated(f"the database refused a row: {error}")
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return StoreBusy("another process holds the database's lock")
    if isinstance(error, apsw.SQLError | apsw.MisuseError | apsw.RangeError | apsw.MismatchError):
        return InvariantViolated(f"a statement is wrong: {error}")
    return StoreUnavailable(f"the database cannot be written or read: {error}")


def ends_transaction(error: BaseException) -> bool:
    """True for an error after which nothing of the open transaction can be trusted: disk, memory, corruption."""
    return isinstance(error, apsw.Error) and isinstance(domain_error(error), StoreUnavailable)
