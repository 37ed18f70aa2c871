"""`ledger check` finds every way in which a file can break its promises, one tampering at a time.

Without these, a check that always says "sound" would pass as proof.
"""

from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from paykit_settle.journal import opening_journal
from paykit_settle.money import AMOUNT_MAX
from paykit_settle.store.check import check_ledger
from tests.ledger_files import credit, ledger_file, move, open_account, post


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[apsw.Connection]:
    """A sound file: 500 credited, 200 moved to `a`, 50 of it on to `b`."""
    with ledger_file(tmp_path / "ledger.db") as connection:
        open_account(connection, "a")
        open_account(connection, "b", floor=-10)
        post(connection, credit("k", 500), move("1", "balance", "a", 200), move("2", "a", "b", 50))
        post(connection, credit("k", 7, tenant="u"))
        yield connection


def test_sound_file_has_no_faults(connection: apsw.Connection) -> None:
    report = check_ledger(connection)
    assert (report.accounts, report.journals, report.entries) == (4, 4, 8)
    assert list(report.faults) == []


def test_sums_beyond_64_bits_are_exact(connection: apsw.Connection) -> None:
    for name in ("x", "y", "z"):
        open_account(connection, name)
        post(connection, opening_journal("t", name, currency="usd", amount=AMOUNT_MAX, at_ms=1))
    open_account(connection, "v")
    post(connection, credit("low", -500 - AMOUNT_MAX + 600))
    assert list(check_ledger(connection).faults) == []


@pytest.mark.parametrize(
    ("tampering", "fault"),
    [
        ("UPDATE accounts SET balance = balance + 1 WHERE id = 'a'", "'t' 'a' 'usd' is not the sum of its entries"),
        ("UPDATE accounts SET balance = balance + 4294967296 WHERE id = 'a'", "'t' 'a' 'usd' is not the sum"),
        ("UPDATE accounts SET tenant = 'x' WHERE id = 'a'", "'t' 'a' 'usd' is not the sum of its entries"),
        ("DELETE FROM accounts WHERE id = 'b'", "'t' 'b' 'usd' is not the sum of its entries"),
        ("INSERT INTO accounts VALUES (99, 't', 'new', 'usd', 1, 0, 1)", "'t' 'new' 'usd' is not the sum"),
        ("UPDATE entries SET amount = -199, balance_after = balance_after + 1 WHERE journal = 2 AND position = 0",
         "'t' 'transfer' '1' 'usd' does not sum to zero"),
        ("UPDATE entries SET currency = 'eur' WHERE journal = 1 AND position = 0", "'credit' 'k' 'eur' does not sum"),
        ("DELETE FROM entries WHERE journal = 1 AND position = 0", "'credit' 'k' has no entries, or a gap"),
        ("DELETE FROM entries WHERE journal = 4", "'u' 'credit' 'k' has no entries"),
        ("UPDATE entries SET balance_before = 1, balance_after = balance_after + 1 WHERE journal = 3 AND position = 1",
         "'transfer' '2' 'b' does not begin with the balance"),
        ("UPDATE entries SET balance_after = 77 WHERE journal = 1 AND position = 1",
         "'credit' 'k' 'balance' has a balance that its amount does not explain"),
        ("UPDATE entries SET balance_before = NULL, balance_after = NULL WHERE journal = 1 AND position = 1",
         "'credit' 'k' 'balance' has a balance that its amount does not explain"),
        ("UPDATE entries SET balance_before = 0, balance_after = 1 WHERE account = '@external' AND journal = 1",
         "'@external' has a balance that its amount does not explain"),
        ("UPDATE accounts SET floor = 151 WHERE id = 'a'", "'transfer' '2' 'a' breaks the floor"),
        ("UPDATE entries SET position = position + 2 WHERE journal = 3", "'transfer' '2' 'a' breaks the floor"),
        ("INSERT INTO entries VALUES (99, 0, '@x', 'usd', 0, NULL, NULL, NULL)", "refers to a missing row of journals"),
    ],
)  # fmt: skip
def test_tampering_is_found(connection: apsw.Connection, tampering: str, fault: str) -> None:
    connection.execute("PRAGMA foreign_keys = OFF; PRAGMA ignore_check_constraints = ON")
    connection.execute(tampering)
    connection.execute("PRAGMA ignore_check_constraints = OFF")
    faults = check_ledger(connection).faults
    assert any(fault in found for found in faults), faults
