"""Puts a new file into a database's place as one step, together with the files that SQLite keeps beside it.

A log (`-wal`) of the old file must never be applied to the new one. While names change, a marker file lies beside the
database; with it nobody opens the database (`store/database.py`), and every step after it can be done again. So a kill
anywhere leaves the old state, the new state, or a file that says so and that the next restore brings to its end.
"""

import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

import msgspec

from paykit_settle.errors import DatabaseUnusable, StoreBusy
from paykit_settle.store.database import RESTORING_SUFFIX
from paykit_settle.store.files import sync_folder
from paykit_settle.store.owner import living_owners

LOGS = ("-wal", "-journal")
"""What SQLite keeps beside a file that belongs to its content: part of the state that is kept."""
KEPT_PARTS = ("", *LOGS)
LOCK_PAUSE_MS = 20
LOCK_START = 0x4000_0000
"""Where SQLite's file locks lie (its file format, "the lock-byte page"): whoever reads or writes locks bytes there, and
a database with a write-ahead log stays locked for as long as it is open."""
LOCK_BYTES = 512


class RestoreStep(StrEnum):
    """The steps of a restore, in order; a test may end the process at each."""

    BUILT = "built"
    MARKED = "marked"
    LOG_MOVED = "log_moved"
    OLD_MOVED = "old_moved"
    EXCHANGED = "exchanged"
    FINISHED = "finished"


AtStep = Callable[[RestoreStep], None]


class Marker(msgspec.Struct, frozen=True, kw_only=True):
    """What the marker file says: names beside the database, and which back-up it is that is being restored."""

    new: str
    kept: str
    restored_at_ms: int
    source_sha256: str


def beside(file: Path, suffix: str) -> Path:
    """The file beside another that has its name and a suffix."""
    return file.with_name(file.name + suffix)


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Be the only restore in a folder; `StoreBusy` while another is at work there."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreBusy(f"another restore is at work in {folder}") from None
        yield
    finally:
        os.close(descriptor)


@contextmanager
def closed_to_others(target: Path, *, timeout_ms: int) -> Iterator[None]:
    """Keep everybody else out of a database; `StoreBusy` when somebody has it open and keeps it so.

    The lock is taken on SQLite's own bytes without SQLite: opening a file may move its log into it, and a damaged file
    cannot be opened at all. Never call it in a process that has this database open: closing the file gives up the
    locks of both.
    """
    if owners := living_owners(target):
        raise _in_use(target, f"{len(owners)} process(es) settle on it")
    if not target.exists():
        yield
        return
    descriptor = os.open(target, os.O_RDWR)
    try:
        _lock(descriptor, target, timeout_ms)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, target: Path, timeout_ms: int) -> None:
    deadline_ns = time.monotonic_ns() + timeout_ms * 1_000_000
    while True:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, LOCK_BYTES, LOCK_START)
            return
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise
            if time.monotonic_ns() >= deadline_ns:
                raise _in_use(target, "it is locked") from None
        time.sleep(LOCK_PAUSE_MS / 1000)


def _in_use(target: Path, why: str) -> StoreBusy:
    return StoreBusy(
        f"database {target} is open in another process ({why}): stop the service and every other command on it first"
    )


def read_marker(target: Path) -> Marker | None:
    """The marker that a restore left when it was cut off; None when there is none."""
    path = beside(target, RESTORING_SUFFIX)
    try:
        marker = msgspec.json.decode(path.read_bytes(), type=Marker)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise DatabaseUnusable(f"{path} is no marker of a restore: {error}") from None
    if any(Path(name).name != name or not name.startswith(f"{target.name}.") for name in (marker.new, marker.kept)):
        raise DatabaseUnusable(f"{path} is no marker of a restore of {target.name}")
    return marker


def mark(target: Path, marker: Marker) -> None:
    """Write the marker, whole or not at all; from here on nobody opens the database until it is exchanged."""
    part = beside(target.with_name(marker.new), ".mark")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(msgspec.json.encode(marker))
        file.flush()
        os.fsync(file.fileno())
    part.rename(beside(target, RESTORING_SUFFIX))
    sync_folder(target.parent)


def unmark(target: Path) -> None:
    """Take the marker away: the database is whole."""
    beside(target, RESTORING_SUFFIX).unlink()
    sync_folder(target.parent)


def exchange(target: Path, marker: Marker, *, at_step: AtStep) -> None:
    """Put the marker's new file into the place of the old one, which is kept; a step that was done is passed over."""
    new, kept = target.with_name(marker.new), target.with_name(marker.kept)
    for suffix in LOGS:
        _keep(beside(target, suffix), beside(kept, suffix))
    beside(target, "-shm").unlink(missing_ok=True)  # only an index of the log: SQLite makes it anew
    sync_folder(target.parent)
    at_step(RestoreStep.LOG_MOVED)
    _keep(target, kept)
    sync_folder(target.parent)
    at_step(RestoreStep.OLD_MOVED)
    new.rename(target)
    sync_folder(target.parent)
    at_step(RestoreStep.EXCHANGED)
    unmark(target)
    at_step(RestoreStep.FINISHED)


def _keep(source: Path, kept: Path) -> None:
    """Gives a file the name under which it is kept; nothing that is kept is ever overwritten."""
    if not source.exists():
        return
    if not kept.exists():
        source.rename(kept)
    elif source.stat().st_size == 0:
        source.unlink()  # made by somebody who began to open the database just then, and was refused
    else:
        raise DatabaseUnusable(f"{source} has appeared since {kept} was put aside: a person has to look at both")
