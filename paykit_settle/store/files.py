"""A ledger file as a whole: what state it is in, and a copy of it while the service runs."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import apsw
import msgspec

from paykit_settle.errors import DatabaseUnusable, InvalidRequest
from paykit_settle.store.check import CheckReport, check_ledger
from paykit_settle.store.database import connect, domain_error, roll_back
from paykit_settle.store.migrations import known_migrations, pending, read_applied

PAGES_PER_STEP = 4_096
"""Pages (1 KiB) copied at a time."""

T = TypeVar("T")


class FileStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What `db status` prints about a ledger file; sizes in bytes."""

    path: str
    size_bytes: int
    journal_mode: str
    sqlite_version: str
    applied: Sequence[str]
    pending: Sequence[str]


def file_status(path: str | Path) -> FileStatus:
    """The state of a file; changes nothing. Raises `DatabaseTooNew` or `DatabaseUnusable` as opening it would."""

    def look(connection: apsw.Connection) -> FileStatus:
        missing = pending(connection, known_migrations())
        pages, page_bytes = connection.pragma("page_count"), connection.pragma("page_size")
        return FileStatus(
            path=str(path),
            size_bytes=pages * page_bytes,
            journal_mode=connection.pragma("journal_mode"),
            sqlite_version=apsw.sqlite_lib_version(),
            applied=[f"{migration.number:04d}_{migration.name}" for migration in read_applied(connection)],
            pending=[f"{migration.number:04d}_{migration.name}" for migration in missing],
        )

    return _read(path, look)


def check_file(path: str | Path) -> CheckReport:
    """`check_ledger` on a file, beside whoever else uses it."""
    return _read(path, check_ledger)


def back_up(path: str | Path, target: str | Path) -> int:
    """Copies one committed state of the file to `target`, while others go on writing, and gives its size in bytes.

    The copy is checked, complete and on the disk before it gets its name. `InvalidRequest` if `target` exists.
    """
    target = Path(target)
    if target.exists():
        raise InvalidRequest(f"{target} exists already: a back-up never overwrites one")
    part = target.with_name(f"{target.name}.part-{os.getpid()}")
    source = connect(path, read_only=True)
    try:
        copy_database(source, part)
        part.rename(target)
    except OSError as error:
        raise DatabaseUnusable(f"back-up {target} cannot be written: {error.strerror}") from error
    except apsw.Error as error:
        raise domain_error(error) from error
    finally:
        source.close()
        part.unlink(missing_ok=True)
    sync_folder(target.parent)
    return target.stat().st_size


def copy_database(source: apsw.Connection, part: Path) -> None:
    """Copy one committed state of an open database into the file `part`, whole, checked and on the disk."""
    copy = connect(part, create=True)
    try:
        # Holding one read transaction keeps the source's state still, so writers never make the copy start again.
        source.execute("BEGIN; SELECT count(*) FROM sqlite_schema").fetchall()
        with copy.backup("main", source, "main") as backup:
            while not backup.done:
                backup.step(PAGES_PER_STEP)
        copy.execute("PRAGMA journal_mode = DELETE")  # one file, with nothing beside it
        faults = [text for (text,) in copy.execute("PRAGMA quick_check") if text != "ok"]
        if faults:
            raise DatabaseUnusable(f"the copy is damaged: {faults[0]}")
    finally:
        roll_back(source)
        copy.close()
    with open(part, "rb+") as file:
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable: a renamed file has its new name after a crash."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read(path: str | Path, work: Callable[[apsw.Connection], T]) -> T:
    connection = connect(path, read_only=True)
    try:
        connection.execute("BEGIN")
        return work(connection)
    except apsw.Error as error:
        raise domain_error(error) from error
    finally:
        roll_back(connection)
        connection.close()
