"""A working copy of somebody's ledger file: one committed state of it, made without a byte written beside the original.

What is done to the copy is never seen by anybody, and it is gone at the end, whatever happens. SQLite itself writes
beside a file that it only reads (a log, an index of it), and a last reader may move a log into the file. So a file that
nobody has open is copied byte by byte under SQLite's own lock, and only one that is in use is read through SQLite.
"""

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

import apsw

from paykit_settle.errors import DatabaseUnusable, StoreBusy, StoreUnavailable
from paykit_settle.store.database import BUSY_TIMEOUT_MS, domain_error, patience, refuse_half_restored
from paykit_settle.store.files import PAGES_PER_STEP
from paykit_settle.store.owner import living_owners, standing_in

SHARED_START, SHARED_BYTES = 0x4000_0002, 510
"""The bytes that readers of a database lock (SQLite's file format, "the lock-byte page"). While they are locked nobody
writes to a file without a log, and nobody takes a log, or the index of one, away."""
PIECE_BYTES = 1024 * 1024
LOGS = ("-wal", "-journal")


@contextmanager
def working_copy(database: str | Path, *, busy_timeout_ms: int = BUSY_TIMEOUT_MS) -> Iterator[Path]:
    """The path of a copy in a folder of its own, which only this user can read; nothing is there for a missing file.

    Whoever works on the original counts as alive for the copy too. Raises what opening the original would raise, and
    `StoreUnavailable` when there is no room for a copy. Never call it in a process that has the original open: closing
    a file gives up all of a process's locks on it.
    """
    file = Path(os.path.realpath(database))
    with _folder() as folder:
        copy = folder / "copy.db"
        try:
            owners = set(living_owners(file))
            _copy(file, copy, busy_timeout_ms)
            owners |= set(living_owners(file))
        except apsw.BusyError as error:
            raise StoreBusy(f"database {database} is locked by another process") from error
        except (apsw.NotADBError, apsw.CorruptError, apsw.CantOpenError) as error:
            raise DatabaseUnusable(f"database {database} cannot be opened: {error}") from error
        except apsw.Error as error:
            raise domain_error(error) from error
        except OSError as error:
            kind = StoreUnavailable if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO) else DatabaseUnusable
            raise kind(f"database {database} cannot be copied: {error.strerror}") from error
        with standing_in(copy, owners):
            try:
                yield copy
            except DatabaseUnusable as error:  # what is wrong with the copy is wrong with the original
                raise type(error)(str(error).replace(str(copy), str(file))) from error


@contextmanager
def _folder() -> Iterator[Path]:
    try:
        made = TemporaryDirectory(prefix="paykit-settle-")
    except OSError as error:
        raise StoreUnavailable(f"there is no folder for a copy of the database: {error.strerror}") from None
    with made as folder:
        yield Path(folder)


def _copy(file: Path, copy: Path, busy_timeout_ms: int) -> None:
    refuse_half_restored(file)
    if not file.exists():
        if not file.parent.is_dir():
            raise DatabaseUnusable(f"database {file} cannot be opened: there is no folder {file.parent}")
        return
    _check_room(file, copy.parent)
    descriptor = os.open(file, os.O_RDONLY)
    try:
        _lock(descriptor, file, busy_timeout_ms)
        _refuse_exchanged(descriptor, file)
        if not _is_in_use(file):
            _copy_bytes(descriptor, file, copy)
        # Whoever opens it makes the log and its index before anything else, and leaves them while it is locked.
        if _is_in_use(file):
            _remove(copy)
            _copy_pages(file, copy, busy_timeout_ms)
    finally:
        os.close(descriptor)


def _check_room(file: Path, folder: Path) -> None:
    parts = [file, *(file.with_name(file.name + suffix) for suffix in LOGS)]
    needed = sum(part.stat().st_size for part in parts if part.exists())
    if shutil.disk_usage(folder).free < needed:
        raise StoreUnavailable(
            f"a dry run works on a copy of the database, and {folder.parent} has no room for its {needed:,} bytes: "
            "TMPDIR names another folder"
        )


def _lock(descriptor: int, file: Path, busy_timeout_ms: int) -> None:
    wait, calls = patience(busy_timeout_ms), 0
    while True:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB, SHARED_BYTES, SHARED_START)
            return
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise
            if not wait(calls):
                raise StoreBusy(f"database {file} is locked by another process") from None
            calls += 1


def _refuse_exchanged(descriptor: int, file: Path) -> None:
    refuse_half_restored(file)
    if not file.exists() or not os.path.samestat(os.fstat(descriptor), file.stat()):
        raise StoreBusy(f"database {file} was exchanged while it was opened: open it again")


def _is_in_use(file: Path) -> bool:
    """Whether somebody has the file open with a write-ahead log, or has left it so: both of its files are there."""
    return all(file.with_name(file.name + suffix).exists() for suffix in ("-wal", "-shm"))


def _copy_bytes(descriptor: int, file: Path, copy: Path) -> None:
    """Copies the file, through the very descriptor that has the lock, and what belongs to its content beside it."""
    with _new(copy) as target:
        while piece := os.read(descriptor, PIECE_BYTES):
            target.write(piece)
    for suffix in LOGS:
        try:
            with file.with_name(file.name + suffix).open("rb") as log, _new(copy.with_name(copy.name + suffix)) as kept:
                shutil.copyfileobj(log, kept, PIECE_BYTES)
        except FileNotFoundError:
            continue


def _copy_pages(file: Path, copy: Path, busy_timeout_ms: int) -> None:
    """Copies one committed state of a file that others may be writing to."""
    _new(copy).close()
    source = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        source.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        source.set_busy_handler(patience(busy_timeout_ms))
        source.execute("BEGIN; SELECT count(*) FROM sqlite_schema").fetchall()
        target = apsw.Connection(str(copy))
        try:
            with target.backup("main", source, "main") as backup:
                while not backup.done:
                    backup.step(PAGES_PER_STEP)
        finally:
            target.close()
    finally:
        source.close()


def _new(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def _remove(copy: Path) -> None:
    for suffix in ("", *LOGS):
        copy.with_name(copy.name + suffix).unlink(missing_ok=True)
