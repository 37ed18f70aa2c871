"""Brings a ledger file to the schema of this program: numbered SQL files, each applied once, all or nothing.

A file that a newer program has migrated, or whose applied migrations are not the ones this program knows, is refused
untouched. An applied migration is never edited: a change is a new file with the next number.
"""

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import apsw

from paykit_settle.errors import DatabaseTooNew, DatabaseUnusable
from paykit_settle.store.database import transaction

_FILE_NAME = re.compile(r"^(\d{4})_(\w+)\.sql$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """One step of the schema: its number and name come from the file's name."""

    number: int
    name: str
    sql: str

    @property
    def sha256(self) -> str:
        """The checksum of the text, whatever its line ends."""
        return hashlib.sha256(self.sql.replace("\r\n", "\n").encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """A migration as a file remembers it."""

    number: int
    name: str
    sha256: str


@cache
def known_migrations() -> tuple[Migration, ...]:
    """All migrations that this program carries, numbered from 1 without a gap."""
    folder = files(__package__) / "sql" / "migrations"
    found = [
        Migration(number=int(match[1]), name=match[2], sql=file.read_text(encoding="utf-8"))
        for file in folder.iterdir()
        if (match := _FILE_NAME.match(file.name))
    ]
    return tuple(sorted(found, key=lambda migration: migration.number))


def migrate(connection: apsw.Connection, *, now_ms: int, migrations: tuple[Migration, ...] | None = None) -> int:
    """Applies what is missing, in one transaction, and gives how many that were; 0 for a file that is up to date.

    Several processes may do this at once: one applies, the others wait and find it done. Raises `DatabaseTooNew` or
    `DatabaseUnusable` (another schema, a changed migration) and leaves the file as it was.
    """
    wanted = known_migrations() if migrations is None else migrations
    if not pending(connection, wanted):
        return 0
    with transaction(connection):
        missing = pending(connection, wanted)
        for migration in missing:
            connection.execute(migration.sql)
            connection.execute(
                "INSERT INTO migrations (number, name, sha256, applied_at_ms) VALUES (?, ?, ?, ?)",
                (migration.number, migration.name, migration.sha256, now_ms),
            )
    return len(missing)


def check_migrated(connection: apsw.Connection) -> None:
    """`DatabaseUnusable` unless the file has exactly the schema of this program."""
    if missing := pending(connection, known_migrations()):
        raise DatabaseUnusable(
            f"database {connection.filename} lacks {len(missing)} migration(s), the first is {missing[0].name}: "
            "open it once with a program that may write it"
        )


def pending(connection: apsw.Connection, wanted: tuple[Migration, ...]) -> list[Migration]:
    """The migrations that the file lacks; raises when it has others than this program knows."""
    applied = read_applied(connection)
    if len(applied) > len(wanted):
        raise DatabaseTooNew(
            f"database {connection.filename} was migrated to {applied[-1].number} ({applied[-1].name}) by a newer "
            f"program; this one knows {len(wanted)}"
        )
    for there, here in zip(applied, wanted, strict=False):
        if (there.number, there.sha256) != (here.number, here.sha256):
            raise DatabaseUnusable(
                f"database {connection.filename}: migration {there.number} ({there.name}) is not the one that this "
                "program knows"
            )
    return list(wanted[len(applied) :])


def read_applied(connection: apsw.Connection) -> list[Applied]:
    """The migrations that the file remembers, in order; none for an empty file.

    `DatabaseUnusable` for a database that holds tables, but not ours.
    """
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if not tables:
        return []
    if "migrations" not in tables:
        raise DatabaseUnusable(f"database {connection.filename} belongs to another program")
    rows = connection.execute("SELECT number, name, sha256 FROM migrations ORDER BY number")
    return [Applied(number=number, name=name, sha256=sha256) for number, name, sha256 in rows]
