"""Puts a back-up into a database's place: checked, migrated, and exchanged as one step; the old file is kept.

What is at the processor may be newer than what is restored. So the new file says when it was restored, and forgets the
answers to questions that were asked before.
"""

import errno
import hashlib
import os
import re
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from stat import S_IMODE

import apsw
import msgspec

from paykit_settle.errors import DatabaseUnusable, InvalidRequest, SettleError, StoreBusy, StoreError, StoreUnavailable
from paykit_settle.store.check import check_ledger
from paykit_settle.store.database import BUSY_TIMEOUT_MS, connect, domain_error, roll_back, transaction
from paykit_settle.store.exchange import (
    KEPT_PARTS,
    AtStep,
    Marker,
    RestoreStep,
    alone_in,
    beside,
    closed_to_others,
    exchange,
    mark,
    read_marker,
    unmark,
)
from paykit_settle.store.files import copy_database
from paykit_settle.store.migrations import known_migrations, migrate, pending, read_applied
from paykit_settle.store.queries import load_queries
from paykit_settle.store.rows import change, one

_SQL = load_queries("restore.sql")

KEPT_NAMES_MAX = 100
_RETRY_HELPS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EAGAIN)


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """What a restore did. `kept` is the old file's new name, None where there was none; `migrated` what was applied.

    `is_continued`: an earlier restore of the same back-up had been cut off, and was brought to its end.
    """

    database: str
    restored_from: str
    size_bytes: int
    restored_at_ms: int
    kept: str | None
    migrated: Sequence[str]
    is_continued: bool


def _ignore(_step: RestoreStep) -> None:
    """What happens at a step outside of tests: nothing."""


def restore(
    file: Path,
    database: str | Path,
    *,
    now_ms: int,
    busy_timeout_ms: int = BUSY_TIMEOUT_MS,
    at_step: AtStep = _ignore,
) -> Restored:
    """Put a copy of the back-up `file` into the place of `database`, and finish a restore that was cut off before.

    Raises `InvalidRequest` for a back-up that is the database itself, `StoreBusy` while somebody has the database
    open, `DatabaseUnusable` (also `DatabaseTooNew`) for a back-up that is damaged, unsound or not ours, and
    `StoreUnavailable` for a disk that takes no more. Until the new file is whole, the old one stays as it is.
    """
    target = Path(database).resolve()  # a symbolic link stays, and goes on naming the database
    try:
        _check_places(file, target)
        with alone_in(target.parent):
            return _restore(file, target, now_ms, busy_timeout_ms, at_step)
    except StoreBusy:
        raise  # nothing was begun
    except StoreError as error:
        raise _of_state(target, error) from error
    except OSError as error:
        kind = StoreUnavailable if error.errno in _RETRY_HELPS else DatabaseUnusable
        raise _of_state(target, kind(f"{target} cannot be restored: {error.strerror} ({error.filename})")) from error
    except (apsw.CorruptError, apsw.NotADBError) as error:
        raise _of_state(target, DatabaseUnusable(f"back-up {file} is damaged: {error}")) from error
    except apsw.Error as error:
        raise _of_state(target, domain_error(error)) from error


def _check_places(file: Path, target: Path) -> None:
    for path in (file, target):
        if path.exists() and not path.is_file():
            raise InvalidRequest(f"{path} is no file")
    if file.exists() and target.exists() and file.samefile(target):
        raise InvalidRequest(f"{file} is the database itself: give the back-up that shall take its place")


def _of_state(target: Path, error: SettleError) -> SettleError:
    """The error, saying also how the database was left."""
    if read_marker(target) is None:
        return type(error)(f"{error}; nothing was changed")
    return type(error)(f"{error}; the restore was cut off, and `db restore` again finishes it")


def _restore(file: Path, target: Path, now_ms: int, busy_timeout_ms: int, at_step: AtStep) -> Restored:
    marker = read_marker(target)
    if marker is not None and _is_exchanged(target, marker):
        if _sha256(file) == marker.source_sha256:
            unmark(target)
            return _restored(file, target, marker, is_continued=True)
        marker = None  # another back-up shall follow it: what that restore put there is the old database now
    with closed_to_others(target, timeout_ms=busy_timeout_ms):
        if marker is not None and target.with_name(marker.new).exists() and _sha256(file) == marker.source_sha256:
            exchange(target, marker, at_step=at_step)
            return _restored(file, target, marker, is_continued=True)
        _remove_leftovers(target, file)
        new = beside(target, f".restore-{secrets.token_hex(8)}")
        try:
            migrated = _build(file, new, now_ms=now_ms)
            # What an earlier restore put aside, before it was cut off, belongs to the same old database.
            kept = marker.kept if marker is not None else _free_name(target, now_ms)
            _take_over_owner(target if target.exists() else target.with_name(kept), new)
            at_step(RestoreStep.BUILT)
            marker = Marker(new=new.name, kept=kept, restored_at_ms=now_ms, source_sha256=_sha256(file))
            mark(target, marker)
        finally:
            _remove_leftovers(target, file)
        at_step(RestoreStep.MARKED)
        exchange(target, marker, at_step=at_step)
    return _restored(file, target, marker, migrated=migrated)


def _is_exchanged(target: Path, marker: Marker) -> bool:
    """Whether the new file is in its place already: the last that a restore does but for taking its marker away."""
    if target.with_name(marker.new).exists() or not target.exists():
        return False
    connection = connect(target, read_only=True, is_restoring=True)
    try:
        facts = one(connection, _SQL["restored_at"])
    finally:
        connection.close()
    return facts is not None and facts["restored_at_ms"] == marker.restored_at_ms


def _build(file: Path, new: Path, *, now_ms: int) -> list[str]:
    """Makes the new file beside the database: a copy of the back-up in the schema of this program, proved."""
    os.close(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    source = connect(file, read_only=True)
    try:
        if not read_applied(source):
            raise DatabaseUnusable(f"{file} is no back-up: it holds no ledger")
        missing = pending(source, known_migrations())
        copy_database(source, new)
    finally:
        source.close()
    connection = connect(new)
    try:
        migrate(connection, now_ms=now_ms)
        with transaction(connection):
            change(connection, _SQL["set_restored_at"], now_ms=now_ms)
            change(connection, _SQL["forget_empty_lookups"])
        connection.execute("BEGIN")
        report = check_ledger(connection)
    finally:
        roll_back(connection)
        connection.close()
    if report.faults:
        more = f", and {len(report.faults) - 1} more" * (len(report.faults) > 1)
        raise DatabaseUnusable(f"back-up {file} is not sound: {report.faults[0]}{more}")
    with open(new, "rb+") as whole:
        os.fsync(whole.fileno())
    return [f"{migration.number:04d}_{migration.name}" for migration in missing]


def _take_over_owner(old: Path, new: Path) -> None:
    """Gives the new file the old one's owner and mode: the service that could open it must be able to go on."""
    if old.exists():
        before = old.stat()
        if (before.st_uid, before.st_gid) != (new.stat().st_uid, new.stat().st_gid):
            os.chown(new, before.st_uid, before.st_gid)
        new.chmod(S_IMODE(before.st_mode))


def _free_name(target: Path, now_ms: int) -> str:
    when = datetime.fromtimestamp(now_ms // 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
    for suffix in ("", *(f".{number}" for number in range(2, KEPT_NAMES_MAX + 1))):
        kept = beside(target, f".before-restore-{when}{suffix}")
        if not any(beside(kept, part).exists() for part in KEPT_PARTS):
            return kept.name
    raise InvalidRequest(f"{target.parent} holds {KEPT_NAMES_MAX} files of this second's restores already")


def _remove_leftovers(target: Path, file: Path) -> None:
    """Removes what restores that ended half-way have built; never the file that the marker names, nor the back-up."""
    marker = read_marker(target)
    needed = {file.resolve().name, marker.new if marker is not None else ""}
    shape = re.compile(re.escape(target.name) + r"\.restore-[0-9a-f]{16}(-journal|-wal|-shm|\.mark)?")
    for path in target.parent.iterdir():
        if shape.fullmatch(path.name) and path.name not in needed:
            path.unlink(missing_ok=True)


def _sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _restored(
    file: Path, target: Path, marker: Marker, *, migrated: Sequence[str] = (), is_continued: bool = False
) -> Restored:
    kept = target.with_name(marker.kept)
    return Restored(
        database=str(target),
        restored_from=str(file),
        size_bytes=target.stat().st_size,
        restored_at_ms=marker.restored_at_ms,
        kept=str(kept) if any(beside(kept, part).exists() for part in KEPT_PARTS) else None,
        migrated=migrated,
        is_continued=is_continued,
    )
