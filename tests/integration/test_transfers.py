"""`paykit_settle.transfers`: what scripts rely on, and what any SQLite reader sees between their calls.

Without these, a script that dies between debit and credit could lose money, and a retry could move it twice. Other
readers are other processes: two copies of SQLite in one process undo each other's locks.
"""

import sqlite3
import threading
from pathlib import Path

import apsw
import pytest

from paykit_settle import transfers
from paykit_settle.config import Settings
from paykit_settle.errors import DatabaseUnusable
from paykit_settle.money import AMOUNT_MAX
from tests.ledger_files import assert_sound, peek
from tests.ledger_service import credit, serving

ACCOUNTS = "SELECT id, balance FROM accounts"
TRANSFERS = "SELECT id, source, target, amount FROM transfers"


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A ledger file with a: 500 and b: 0."""
    path = str(tmp_path / "ledger.db")
    transfers.init_db(path)
    transfers.add_account(path, "a", 500)
    transfers.add_account(path, "b", 0)
    return path


def both(path: str) -> tuple[int, int]:
    return transfers.balance(path, "a"), transfers.balance(path, "b")


def test_init_is_idempotent(path: str) -> None:
    transfers.init_db(path)
    assert both(path) == (500, 0)
    assert_sound(Path(path))


def test_account_opens_with_an_amount_from_outside(path: str) -> None:
    assert peek(path, ACCOUNTS) == [[["a", 500], ["b", 0]]]
    assert transfers.history(path) == []
    assert transfers.total_balance(path) == 500


def test_existing_account_is_an_integrity_error_and_keeps_its_balance(path: str) -> None:
    with pytest.raises(sqlite3.IntegrityError, match="exists already"):
        transfers.add_account(path, "a", 7)
    with pytest.raises(transfers.AccountExists):
        transfers.add_account(path, "a", 500)
    assert both(path) == (500, 0)
    assert transfers.total_balance(path) == 500


@pytest.mark.parametrize("amount", [-1, True, False, 1.0, "5", None, AMOUNT_MAX + 1])
def test_account_opens_only_with_an_amount(path: str, amount: object) -> None:
    with pytest.raises(ValueError, match="amount"):
        transfers.add_account(path, "new", amount)  # type: ignore[arg-type]
    assert len(peek(path, ACCOUNTS)[0]) == 2


@pytest.mark.parametrize("name", ["", " ", "@external", "a\x00", "x" * 256, None, 5])
def test_account_needs_a_name_that_can_be_shown(path: str, name: object) -> None:
    with pytest.raises(ValueError, match="account_id"):
        transfers.add_account(path, name, 5)  # type: ignore[arg-type]


def test_balance_of_a_missing_account_is_a_key_error(path: str) -> None:
    with pytest.raises(KeyError):
        transfers.balance(path, "missing")


@pytest.mark.parametrize(("source", "target", "amount"), [("a", "b", 1), ("a", "b", 10**30), ("x", "y", 5)])
def test_transfer_that_makes_sense_validates(source: str, target: str, amount: int) -> None:
    transfers.validate_transfer(source, target, amount)


@pytest.mark.parametrize(
    ("source", "target", "amount"),
    [
        ("a", "a", 5),
        ("a", "b", 0),
        ("a", "b", -5),
        ("a", "b", True),
        ("a", "b", 5.0),
        ("a", "b", "5"),
        ("a", "b", None),
    ],
)
def test_transfer_that_makes_none_does_not(path: str, source: str, target: str, amount: object) -> None:
    with pytest.raises(ValueError, match=r"source|amount"):
        transfers.validate_transfer(source, target, amount)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"source|amount"):
        transfers.transfer(path, "x", source, target, amount)  # type: ignore[arg-type]
    assert both(path) == (500, 0)


def test_transfer_moves_once_and_says_so(path: str) -> None:
    assert transfers.transfer(path, "x", "a", "b", 200) is True
    assert transfers.transfer(path, "x", "a", "b", 200) is False
    assert both(path) == (300, 200)
    assert peek(path, ACCOUNTS, TRANSFERS) == [[["a", 300], ["b", 200]], [["x", "a", "b", 200]]]
    assert_sound(Path(path))


@pytest.mark.parametrize(
    ("tx_id", "source", "target", "amount"),
    [
        ("x", "a", "b", 201),
        ("x", "b", "a", 200),
        ("y", "a", "missing", 5),
        ("y", "missing", "a", 5),
        ("y", "a", "b", 301),
        ("y", "a", "b", AMOUNT_MAX + 1),
        ("", "a", "b", 5),
        ("\x07", "a", "b", 5),
        ("y", "@external", "b", 5),
        ("y", "a", "@external", 5),
    ],
)
def test_refused_transfer_is_a_value_error_and_moves_nothing(
    path: str, tx_id: str, source: str, target: str, amount: int
) -> None:
    transfers.transfer(path, "x", "a", "b", 200)
    with pytest.raises(ValueError, match=r"\w"):
        transfers.transfer(path, tx_id, source, target, amount)
    assert both(path) == (300, 200)
    assert transfers.history(path) == [("x", "a", "b", 200)]


def test_balance_that_would_leave_the_range_is_refused(path: str) -> None:
    transfers.add_account(path, "full", AMOUNT_MAX)
    with pytest.raises(ValueError, match="beyond"):
        transfers.transfer(path, "x", "a", "full", 1)
    assert transfers.total_balance(path) == 500 + AMOUNT_MAX


@pytest.mark.parametrize("error", [RuntimeError("between"), ValueError("between"), KeyboardInterrupt("between")])
def test_fault_between_debit_and_credit_leaves_everything_as_it_was(path: str, error: BaseException) -> None:
    """LED-06."""

    def fault() -> None:
        raise error

    with pytest.raises(type(error), match="between"):
        transfers.transfer(path, "x", "a", "b", 200, fault)
    assert peek(path, ACCOUNTS, TRANSFERS) == [[["a", 500], ["b", 0]], []]
    assert transfers.transfer(path, "x", "a", "b", 200) is True
    assert both(path) == (300, 200)


def test_fault_runs_after_the_debit_and_before_the_credit_and_others_see_neither(path: str) -> None:
    seen: list[object] = []
    statements: list[str] = []

    def note(_cursor: object, sql: str, _bindings: object) -> bool:
        statements.append("MOVE" if "UPDATE accounts" in sql else sql.split()[0])
        return True

    def watch(connection: object) -> None:
        connection.exec_trace = note  # type: ignore[attr-defined]

    def fault() -> None:
        statements.append("fault")
        seen.append(peek(path, ACCOUNTS, TRANSFERS))

    apsw.connection_hooks.append(watch)
    try:
        transfers.transfer(path, "x", "a", "b", 200, fault)
    finally:
        apsw.connection_hooks.remove(watch)
    written = [word for word in statements if word in ("MOVE", "INSERT", "fault", "COMMIT")]
    assert written == ["MOVE", "fault", "MOVE", "INSERT", "INSERT", "COMMIT"]
    assert seen == [[[["a", 500], ["b", 0]], []]]


def test_fault_is_not_run_for_a_replay_or_a_refusal(path: str) -> None:
    transfers.transfer(path, "x", "a", "b", 200)

    def fault() -> None:
        raise AssertionError("nothing was to be moved")

    assert transfers.transfer(path, "x", "a", "b", 200, fault) is False
    with pytest.raises(ValueError, match="above its floor"):
        transfers.transfer(path, "y", "a", "b", 301, fault)


def test_history_is_ordered_by_id(path: str) -> None:
    for tx_id in ("b", "a", "c"):
        transfers.transfer(path, tx_id, "a", "b", 1)
    assert transfers.history(path) == [("a", "a", "b", 1), ("b", "a", "b", 1), ("c", "a", "b", 1)]


def test_total_is_zero_without_accounts_and_exact_beyond_64_bits(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    transfers.init_db(path)
    assert transfers.total_balance(path) == 0
    for name in ("a", "b", "c"):
        transfers.add_account(path, name, AMOUNT_MAX)
    assert transfers.total_balance(path) == 3 * AMOUNT_MAX
    assert_sound(path)


@pytest.mark.parametrize(("amount", "expected"), [(300, [False, True]), (500, [False, True]), (501, [False, False])])
def test_competitors_cannot_spend_the_same_money(path: str, amount: int, expected: list[bool]) -> None:
    assert sorted(transfers.compete(path, "a", "b", amount)) == expected
    assert transfers.total_balance(path) == 500
    assert_sound(Path(path))


def test_competitors_both_win_when_there_is_enough(path: str) -> None:
    assert transfers.compete(path, "a", "b", 250) == [True, True]
    assert [row[0] for row in transfers.history(path)] == ["race-a", "race-b"]


def test_competitors_errors_that_are_no_refusals_are_raised(tmp_path: Path) -> None:
    with pytest.raises(DatabaseUnusable):
        transfers.compete(tmp_path / "missing.db", "a", "b", 1)


def test_opposite_transfers_from_threads_all_succeed(path: str) -> None:
    """LED-03, through the file: every call opens its own connection."""
    transfers.transfer(path, "half", "a", "b", 250)
    errors: list[BaseException] = []

    def caller(number: int) -> None:
        source, target = ("a", "b") if number % 2 else ("b", "a")
        try:
            for step in range(10):
                assert transfers.transfer(path, f"{number}-{step}", source, target, 1)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=caller, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert both(path) == (250, 250)
    assert_sound(Path(path))


def test_missing_file_is_an_error_and_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(DatabaseUnusable):
        transfers.balance(tmp_path / "missing.db", "a")
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_left_beside_the_file_between_calls(path: str) -> None:
    transfers.transfer(path, "x", "a", "b", 200)
    assert [found.name for found in Path(path).parent.iterdir()] == ["ledger.db"]


async def test_scripts_and_the_service_share_one_file(tmp_path: Path) -> None:
    path = str(tmp_path / "ledger.db")
    transfers.init_db(path)
    transfers.add_account(path, "a", 500)
    async with serving(Settings(database=path)) as http:
        await credit(http, transfers.TENANT, "k", 70)
        transfers.add_account(path, "b", 0)
        assert transfers.transfer(path, "x", "balance", "b", 30) is True
        listed = (await http.get(f"/v1/tenants/{transfers.TENANT}/accounts")).json()["data"]
        assert {item["name"]: item["balance_minor"] for item in listed} == {"a": 500, "b": 30, "balance": 40}
        moved = (await http.get(f"/v1/tenants/{transfers.TENANT}/transfers")).json()["data"]
        assert [(item["id"], item["amount_minor"]) for item in moved] == [("x", 30)]
    assert transfers.transfer(path, "y", "a", "b", 1) is True
    assert peek(path, ACCOUNTS) == [[["a", 499], ["balance", 40], ["b", 31]]]
    assert_sound(Path(path))
