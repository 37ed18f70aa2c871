"""A ledger file is brought to this program's schema once and as a whole, or refused untouched.

Without these, an old program could write into a new file, and an edited migration would leave two schemas that both
call themselves the same.
"""

import re
from pathlib import Path

import apsw
import pytest

from paykit_settle.errors import DatabaseTooNew, DatabaseUnusable, InvariantViolated
from paykit_settle.store.database import connect
from paykit_settle.store.migrations import (
    Migration,
    check_migrated,
    known_migrations,
    migrate,
    pending,
    read_applied,
)
from paykit_settle.store.queries import load_queries, read_sql
from tests.ledger_files import ledger_file

NEXT = Migration(number=len(known_migrations()) + 1, name="next", sql="CREATE TABLE added (a INTEGER) STRICT")


def schema(connection: apsw.Connection) -> list[tuple[object, ...]]:
    """Every table, index and view with its text, but for comments and white space."""
    rows = connection.execute("SELECT type, name, sql FROM sqlite_schema ORDER BY type, name").fetchall()
    return [(kind, name, " ".join(str(sql).split())) for kind, name, sql in rows]


def test_schema_file_is_the_sum_of_the_migrations(tmp_path: Path) -> None:
    by_hand = apsw.Connection(":memory:")
    by_hand.execute(read_sql("schema.sql") + read_sql("schema_runs.sql"))
    with ledger_file(tmp_path / "a.db") as connection:
        assert schema(connection) == schema(by_hand)
    by_hand.close()


def test_migrations_are_numbered_from_one_without_a_gap() -> None:
    assert [migration.number for migration in known_migrations()] == list(range(1, len(known_migrations()) + 1))


def test_second_opening_applies_nothing(tmp_path: Path) -> None:
    with ledger_file(tmp_path / "a.db") as connection:
        assert migrate(connection, now_ms=9) == 0
        check_migrated(connection)
        assert [applied.number for applied in read_applied(connection)] == [each.number for each in known_migrations()]


def test_every_table_is_strict(tmp_path: Path) -> None:
    with ledger_file(tmp_path / "a.db") as connection:
        tables = connection.execute(
            "SELECT name, strict FROM pragma_table_list WHERE type = 'table' AND schema = 'main'"
        )
        assert all(strict for name, strict in tables if not str(name).startswith("sqlite_"))


def test_newer_file_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with ledger_file(path) as connection:
        migrate(connection, now_ms=2, migrations=(*known_migrations(), NEXT))
    before = path.read_bytes()
    with pytest.raises(DatabaseTooNew, match="newer program"), ledger_file(path):
        pass
    assert path.read_bytes() == before


def test_changed_migration_is_refused(tmp_path: Path) -> None:
    first = known_migrations()[0]
    changed = Migration(number=1, name=first.name, sql=first.sql + "\n-- harmless?")
    with ledger_file(tmp_path / "a.db") as connection, pytest.raises(DatabaseUnusable, match="not the one"):
        migrate(connection, now_ms=2, migrations=(changed, *known_migrations()[1:]))


def test_line_ends_do_not_change_a_checksum() -> None:
    first = known_migrations()[0]
    assert Migration(number=1, name="x", sql=first.sql.replace("\n", "\r\n")).sha256 == first.sha256


def test_database_of_another_program_is_refused(tmp_path: Path) -> None:
    connection = connect(tmp_path / "a.db", create=True)
    connection.execute("CREATE TABLE theirs (a)")
    with pytest.raises(DatabaseUnusable, match="another program"):
        migrate(connection, now_ms=1)
    connection.close()


def test_failing_migration_leaves_nothing_of_any(tmp_path: Path) -> None:
    connection = connect(tmp_path / "a.db", create=True)
    broken = Migration(number=len(known_migrations()) + 1, name="broken", sql="CREATE TABLE half (a); SELECT nonsense")
    with pytest.raises(InvariantViolated):
        migrate(connection, now_ms=1, migrations=(*known_migrations(), broken))
    assert connection.execute("SELECT count(*) FROM sqlite_schema").get == 0
    connection.close()


def test_file_without_its_schema_is_not_written_by_scripts(tmp_path: Path) -> None:
    connection = connect(tmp_path / "a.db", create=True)
    with pytest.raises(DatabaseUnusable, match=r"lacks \d+ migration"):
        check_migrated(connection)
    assert pending(connection, known_migrations()) == list(known_migrations())
    connection.close()


@pytest.mark.parametrize(
    "file_name",
    [
        "ledger.sql",
        "check.sql",
        "runs.sql",
        "verify.sql",
        "accounts.sql",
        "settled.sql",
        "differences.sql",
        "write_offs.sql",
        "lookups.sql",
        "restore.sql",
    ],
)
def test_every_named_query_is_a_statement_of_this_schema(file_name: str, tmp_path: Path) -> None:
    with ledger_file(tmp_path / "a.db") as connection:
        for name, sql in load_queries(file_name).items():
            assert sql.endswith(";"), name
            plan = f"EXPLAIN {sql}" if not sql.upper().lstrip("- \n").startswith("PRAGMA") else sql
            wanted = max([int(number) for number in re.findall(r"\?(\d+)", sql)], default=0) or sql.count("?")
            named = dict.fromkeys(re.findall(r"(?<!:):(\w+)", sql))
            connection.execute(plan, named or [None] * wanted).fetchall()


@pytest.mark.parametrize("file_name", ["runs.sql", "settled.sql", "verify.sql", "differences.sql"])
def test_list_of_ids_is_looked_up_and_never_gone_through_for_each_row(file_name: str, tmp_path: Path) -> None:
    """A list joined to a table may be read once for each of its rows, and a day then costs the square of its rows."""
    with ledger_file(tmp_path / "a.db") as connection:
        for name, sql in load_queries(file_name).items():
            if "json_each" in sql:
                named = dict.fromkeys(re.findall(r"(?<!:):(\w+)", sql))
                plan = [str(step[3]) for step in connection.execute(f"EXPLAIN QUERY PLAN {sql}", named)]
                assert re.search(r"JOIN json_each|json_each\(:\w+\) AS", sql) is None, name
                assert any("transaction_id=?" in step or "digest=?" in step for step in plan), (name, plan)
