"""Ledger files for tests: made, filled and read as other programs would, and journals written in one line."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from paykit_settle.journal import Journal, Transfer, credit_journal, fingerprint, transfer_journal
from paykit_settle.store.database import connect, transaction
from paykit_settle.store.files import check_file
from paykit_settle.store.migrations import migrate
from paykit_settle.store.posting import post_journal

PROGRAM_TIMEOUT_S = 60


def credit(key: str, amount: int, *, tenant: str = "t", currency: str = "usd") -> Journal:
    """A credit of one line."""
    print_ = fingerprint([amount, currency])
    return credit_journal(tenant, key, currency=currency, amounts=[amount], fingerprint=print_, at_ms=1)


def move(id_: str, source: str, target: str, amount: int, *, tenant: str = "t", currency: str = "usd") -> Journal:
    """A transfer."""
    wanted = Transfer(id=id_, source=source, target=target, amount=amount, currency=currency)
    return transfer_journal(tenant, wanted, at_ms=2)


@contextmanager
def ledger_file(path: Path | str) -> Iterator[apsw.Connection]:
    """A migrated file, open for writing by hand."""
    connection = connect(path, create=True)
    try:
        migrate(connection, now_ms=1)
        yield connection
    finally:
        connection.close()


def open_account(connection: apsw.Connection, id_: str, *, floor: int = 0, currency: str = "usd") -> None:
    """An account of tenant `t` at 0."""
    row = ("t", id_, currency, 0, floor, 1)
    connection.execute(
        "INSERT INTO accounts (tenant, id, currency, balance, floor, created_at_ms) VALUES (?, ?, ?, ?, ?, ?)", row
    )


def post(connection: apsw.Connection, *journals: Journal) -> None:
    """Posts each journal in a transaction of its own."""
    for journal in journals:
        with transaction(connection):
            post_journal(connection, journal)


def balances(connection: apsw.Connection) -> dict[str, int]:
    """Account id → balance, of all tenants."""
    return {str(id_): int(str(amount)) for id_, amount in connection.execute("SELECT id, balance FROM accounts")}


def assert_sound(path: Path) -> None:
    """The file keeps every promise that `ledger check` proves."""
    assert list(check_file(path).faults) == []


_PEEK = """
import json, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout=30)
print(json.dumps([connection.execute(sql).fetchall() for sql in sys.argv[2:]]))
"""


def peek(path: Path | str, *queries: str) -> list[list[list[object]]]:
    """What another program sees: the rows of each query, read through the `sqlite3` module in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", _PEEK, str(path), *queries],
        capture_output=True,
        text=True,
        timeout=PROGRAM_TIMEOUT_S,
        check=True,
    )
    answer: list[list[list[object]]] = json.loads(done.stdout)
    return answer
