"""What SQLite says becomes an error of ours: a lock is never "insufficient funds", and no error of apsw gets out.

Without these, a busy file would be reported to a customer as a lack of money, and a full disk as a bug.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import apsw
import pytest

from paykit_settle.errors import (
    AccountConflict,
    BalanceOutOfRange,
    DatabaseUnusable,
    InvariantViolated,
    SettleError,
    StoreBusy,
    StoreUnavailable,
)
from paykit_settle.money import AMOUNT_MAX
from paykit_settle.store.database import (
    BEGIN_ATTEMPTS_MAX,
    CHECKPOINT_BYTES,
    LOG_BYTES,
    LOG_FREE_BYTES_MIN,
    connect,
    domain_error,
    ends_transaction,
    reserve_log,
    transaction,
    use_wal,
)
from tests.ledger_files import balances, credit, ledger_file, open_account, post


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[apsw.Connection]:
    with ledger_file(tmp_path / "ledger.db") as connection:
        open_account(connection, "a")
        yield connection


def apsw_errors(root: type[apsw.Error] = apsw.Error) -> Iterator[type[apsw.Error]]:
    for child in root.__subclasses__():
        yield child
        yield from apsw_errors(child)


@pytest.mark.parametrize("kind", sorted(apsw_errors(), key=str))
def test_every_error_of_the_driver_has_one_of_ours(kind: type[apsw.Error]) -> None:
    error = domain_error(kind("said the driver"))
    expected: type[SettleError] = StoreUnavailable
    if kind in (apsw.BusyError, apsw.LockedError):
        expected = StoreBusy
    elif kind in (apsw.ConstraintError, apsw.SQLError, apsw.MisuseError, apsw.RangeError, apsw.MismatchError):
        expected = InvariantViolated
    assert type(error) is expected
    assert ends_transaction(kind("said the driver")) is (expected is StoreUnavailable)


def test_only_the_drivers_errors_end_a_transaction() -> None:
    assert not ends_transaction(ValueError())


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("INSERT INTO accounts VALUES (9, 't', 'a', 'usd', 0, 0, 1)", AccountConflict),
        ("INSERT INTO accounts VALUES (9, 't', 'a', 'eur', 0, 0, 1)", AccountConflict),
        ("UPDATE accounts SET balance = -9223372036854775808", BalanceOutOfRange),
        ("INSERT INTO accounts VALUES (9, 't', '@x', 'usd', 0, 0, 1)", InvariantViolated),
        ("INSERT INTO accounts VALUES (9, 't', '', 'usd', 0, 0, 1)", InvariantViolated),
        ("UPDATE accounts SET balance = 1.5", InvariantViolated),
        ("UPDATE accounts SET balance = NULL", InvariantViolated),
        ("INSERT INTO entries VALUES (77, 0, 'a', 'usd', 1, 0, 1, NULL)", InvariantViolated),
        ("INSERT INTO entries VALUES (1, 9, 'a', 'usd', 1, 0, 2, NULL)", InvariantViolated),
        ("INSERT INTO entries VALUES (1, 9, '@a', 'usd', 1, 0, 1, NULL)", InvariantViolated),
        ("INSERT INTO entries VALUES (1, 9, 'a', 'usd', 1, NULL, NULL, NULL)", InvariantViolated),
        ("INSERT INTO journals SELECT 9, tenant, operation, key, fingerprint, '', NULL, 1, 1 FROM journals",
         InvariantViolated),
    ],
)  # fmt: skip
def test_constraint_becomes_its_error_and_nothing_is_written(
    connection: apsw.Connection, sql: str, expected: type[SettleError]
) -> None:
    post(connection, credit("k", 5))
    before = balances(connection)
    with pytest.raises(expected), transaction(connection):
        connection.execute(f"UPDATE accounts SET floor = -1; {sql}")  # noqa: S608 - no input of anybody
    assert balances(connection) == before
    assert connection.execute("SELECT max(floor), count(*) FROM accounts").fetchall() == [(0, 2)]


def test_balance_may_exist_in_several_currencies(connection: apsw.Connection) -> None:
    post(connection, credit("1", 5), credit("2", 7, currency="eur"))
    assert connection.execute("SELECT currency, balance FROM accounts WHERE id = 'balance' ORDER BY 1").fetchall() == [
        ("eur", 7), ("usd", 5),
    ]  # fmt: skip


def test_amounts_at_the_ends_of_the_range_come_back_digit_for_digit(connection: apsw.Connection) -> None:
    post(connection, credit("1", AMOUNT_MAX), credit("2", -AMOUNT_MAX), credit("3", -AMOUNT_MAX))
    assert balances(connection)["balance"] == -AMOUNT_MAX


@pytest.mark.parametrize("error", [ValueError("mine"), KeyboardInterrupt()])
def test_anything_raised_in_a_transaction_undoes_it(connection: apsw.Connection, error: BaseException) -> None:
    with pytest.raises(type(error)), transaction(connection):  # noqa: PT012 - a write, and what undoes it
        connection.execute("UPDATE accounts SET balance = 9")
        raise error
    assert balances(connection) == {"a": 0}
    assert not connection.in_transaction


def test_lock_of_another_is_busy_after_a_bounded_wait(tmp_path: Path, connection: apsw.Connection) -> None:
    other = connect(connection.filename, busy_timeout_ms=1)
    connection.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreBusy), transaction(other):
        pass
    connection.execute("ROLLBACK")
    with transaction(other):
        pass
    other.close()


def test_missing_file_is_not_made_by_the_way(tmp_path: Path) -> None:
    with pytest.raises(DatabaseUnusable):
        connect(tmp_path / "missing.db")
    assert not (tmp_path / "missing.db").exists()


def test_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("this is no database, but it is long enough to look like something" * 20)
    with pytest.raises(DatabaseUnusable):
        connect(tmp_path / "text.db")


def test_folder_that_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatabaseUnusable):
        connect(tmp_path / "no" / "a.db", create=True)


def test_reading_connection_cannot_write(connection: apsw.Connection) -> None:
    reader = connect(connection.filename, read_only=True)
    with pytest.raises(apsw.ReadOnlyError):
        reader.execute("UPDATE accounts SET balance = 1")
    reader.close()


def test_commits_are_durable_and_keys_are_checked(connection: apsw.Connection) -> None:
    assert connection.pragma("synchronous") == 3
    assert connection.pragma("foreign_keys") == 1
    use_wal(connection)
    assert connection.pragma("journal_mode") == "wal"
    assert connection.pragma("synchronous") == 2


def test_memory_database_has_no_log_to_share() -> None:
    connection = apsw.Connection(":memory:")
    with pytest.raises(DatabaseUnusable, match="write-ahead"):
        use_wal(connection)
    connection.close()


def test_file_that_somebody_writes_to_without_a_log_is_given_one_afterwards(
    connection: apsw.Connection,
) -> None:
    """SQLite says "busy" at once then, without waiting: a service that starts beside a script must not give up."""
    other, asked = connect(connection.filename), 0

    def let_go_after_a_while(_cursor: apsw.Cursor, sql: str, _bindings: object) -> bool:
        nonlocal asked
        if "journal_mode" in sql:
            asked += 1
            if asked == BEGIN_ATTEMPTS_MAX + 2:
                connection.execute("ROLLBACK")
        return True

    connection.execute("BEGIN IMMEDIATE")
    other.exec_trace = let_go_after_a_while
    use_wal(other)
    assert other.pragma("journal_mode") == "wal"
    other.close()


@pytest.mark.parametrize("page_bytes", [1_024, 4_096])
def test_log_is_moved_into_the_file_at_the_same_size_whatever_its_pages(tmp_path: Path, page_bytes: int) -> None:
    connection = apsw.Connection(str(tmp_path / "file.db"))
    connection.execute(f"PRAGMA page_size = {page_bytes}")
    use_wal(connection)
    assert connection.pragma("wal_autocheckpoint") * page_bytes == CHECKPOINT_BYTES
    connection.close()


def log_of(connection: apsw.Connection) -> Path:
    return Path(connection.filename_wal)


def test_log_is_reserved_behind_what_it_holds(connection: apsw.Connection, tmp_path: Path) -> None:
    """A machine that stops now finds all that was committed, before the zeros and over them."""
    use_wal(connection)
    post(connection, credit("before", 5))
    begun = log_of(connection).read_bytes()
    reserve_log(connection.filename_wal)
    assert LOG_BYTES <= log_of(connection).stat().st_size < LOG_BYTES + 2**17
    assert log_of(connection).read_bytes().rstrip(b"\0") == begun.rstrip(b"\0")
    post(connection, credit("after", 7))
    for suffix in ("", "-wal"):
        shutil.copy(f"{connection.filename}{suffix}", tmp_path / f"crashed.db{suffix}")
    crashed = connect(tmp_path / "crashed.db")
    assert balances(crashed) == {"a": 0, "balance": 12}
    assert crashed.pragma("integrity_check") == "ok"
    crashed.close()


def test_log_is_reserved_once_and_not_lengthened_by_commits(connection: apsw.Connection) -> None:
    use_wal(connection)
    connection.execute("BEGIN IMMEDIATE")
    reserve_log(connection.filename_wal)
    reserve_log(connection.filename_wal)
    connection.execute("COMMIT")
    size = log_of(connection).stat().st_size
    post(connection, *(credit(f"k{number}", 1) for number in range(20)))
    assert log_of(connection).stat().st_size == size
    assert balances(connection)["balance"] == 20


def test_log_is_not_reserved_where_the_disk_is_nearly_full(
    connection: apsw.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_wal(connection)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=LOG_FREE_BYTES_MIN - 1))
    post(connection, credit("k", 5))
    size = log_of(connection).stat().st_size
    reserve_log(connection.filename_wal)
    assert log_of(connection).stat().st_size == size


def test_log_that_cannot_be_reserved_is_no_error(connection: apsw.Connection) -> None:
    assert not log_of(connection).exists()  # not in WAL mode
    reserve_log(connection.filename_wal)
    assert not log_of(connection).exists()
    post(connection, credit("k", 5))
    assert balances(connection)["balance"] == 5
