"""Transfers on a ledger file by its path, for scripts: each call opens the file, does one transaction and closes it.

The file has the schema and the engine of the service's ledger; scripts own one tenant of it, in one currency. A new
file is left in rollback-journal mode, so that between calls any SQLite reader sees the committed rows, even one that
stays open; a file that the service uses is in WAL mode and stays so. While a call runs, look in from another process
only: a second copy of SQLite (the `sqlite3` module) in this process would undo the locks of the first.
"""

import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import apsw

from paykit_settle.errors import AccountConflict, SettleError
from paykit_settle.journal import (
    COUNTER_PREFIX,
    TEXT_MAX,
    Transfer,
    is_counter_account,
    is_plain_text,
    opening_journal,
    transfer_journal,
)
from paykit_settle.money import AMOUNT_MAX
from paykit_settle.store.database import connect, transaction
from paykit_settle.store.migrations import check_migrated, migrate
from paykit_settle.store.plan import AccountKey, Plan
from paykit_settle.store.posting import make_plan, move_balances, post_journal, record
from paykit_settle.store.store import clock_ms

TENANT = "local"
"""The tenant whose accounts and transfers scripts see."""
CURRENCY = "usd"
"""The currency of their amounts, in minor units."""


class AccountExists(AccountConflict, sqlite3.IntegrityError):
    """The account exists already and was not touched; also what callers of the `sqlite3` module expect."""


def init_db(path: str | Path) -> None:
    """Makes the file with the ledger's schema, or brings it up to date; again is harmless."""
    with _opened(path, create=True) as connection:
        migrate(connection, now_ms=clock_ms())


def add_account(path: str | Path, account_id: str, amount: int) -> None:
    """Opens an account with `amount` minor units, zero or more, that come from outside.

    `ValueError` for anything else; `AccountExists` if there is one, whose balance stays.
    """
    _check_name(account_id, "account_id")
    if type(amount) is not int or not 0 <= amount <= AMOUNT_MAX:
        raise ValueError(f"amount must be an integer from 0 to {AMOUNT_MAX}, got {amount!r:.40}")
    now_ms = clock_ms()
    journal = opening_journal(TENANT, account_id, currency=CURRENCY, amount=amount, at_ms=now_ms)
    with _opened(path) as connection:
        try:
            with transaction(connection):
                connection.execute(
                    "INSERT INTO accounts (tenant, id, currency, balance, floor, created_at_ms) "
                    "VALUES (?, ?, ?, 0, 0, ?)",
                    (TENANT, account_id, CURRENCY, now_ms),
                )
                post_journal(connection, journal)
        except AccountConflict as error:
            raise AccountExists(f"account {account_id!r} exists already") from error


def balance(path: str | Path, account_id: str) -> int:
    """What the account stands at; `KeyError` if there is none."""
    with _opened(path) as connection:
        found = connection.execute(
            "SELECT balance FROM accounts WHERE tenant = ? AND id = ? AND currency = ?", (TENANT, account_id, CURRENCY)
        ).fetchone()
    if found is None:
        raise KeyError(account_id)
    amount: int = found[0]
    return amount


def validate_transfer(source: str, target: str, amount: int) -> None:
    """`ValueError` unless source and target differ and the amount is a positive integer (a bool is none)."""
    if source == target:
        raise ValueError(f"source and target are both {source!r}")
    if type(amount) is not int or amount <= 0:
        raise ValueError(f"amount must be a positive integer of minor units, got {amount!r:.40}")


def transfer(
    path: str | Path,
    tx_id: str,
    source: str,
    target: str,
    amount: int,
    fault: Callable[[], object] = lambda: None,
) -> bool:
    """Moves `amount` minor units: debit, `fault()`, credit, record, all of them or, if anything raises, none.

    True when it happened now, False when the same transfer had happened before. `ValueError` for an id that was used
    for another transfer, a missing account, or too little balance. `fault` is for tests that break in between.
    """
    _check_name(tx_id, "tx_id")
    _check_name(source, "source")
    _check_name(target, "target")
    validate_transfer(source, target, amount)
    if amount > AMOUNT_MAX:
        raise ValueError(f"amount is beyond {AMOUNT_MAX}")
    wanted = Transfer(id=tx_id, source=source, target=target, amount=amount, currency=CURRENCY)
    journal = transfer_journal(TENANT, wanted, at_ms=clock_ms())
    with _opened(path) as connection, transaction(connection):
        plan = make_plan(connection, [journal], {})
        outcome = plan.outcomes[0]
        if isinstance(outcome, SettleError):
            raise ValueError(str(outcome)) from outcome
        if outcome.replayed:
            return False
        _move(connection, plan, (TENANT, source, CURRENCY))
        fault()
        _move(connection, plan, (TENANT, target, CURRENCY))
        record(connection, plan)
    return True


def history(path: str | Path) -> list[tuple[str, str, str, int]]:
    """All transfers as (id, source, target, amount), by ascending id."""
    with _opened(path) as connection:
        rows = connection.execute(
            "SELECT id, source, target, amount FROM transfers WHERE tenant = ? ORDER BY id", (TENANT,)
        )
        return [(id_, source, target, amount) for id_, source, target, amount in rows]


def total_balance(path: str | Path) -> int:
    """The sum over all accounts, 0 when there are none; exact, also beyond the range of one amount."""
    with _opened(path) as connection:
        rows = connection.execute("SELECT balance FROM accounts WHERE tenant = ?", (TENANT,))
        return sum(amount for (amount,) in rows)


def compete(path: str | Path, source: str, target: str, amount: int) -> list[bool]:
    """Two threads try to move the same money, as `race-a` and `race-b`; what each got, False where it was refused.

    Exactly one is True when the balance covers one of the two. Other errors than a refusal are raised.
    """

    def attempt(tx_id: str) -> bool:
        try:
            return transfer(path, tx_id, source, target, amount)
        except ValueError:
            return False

    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(attempt, ("race-a", "race-b")))


def _move(connection: apsw.Connection, plan: Plan, account: AccountKey) -> None:
    move_balances(connection, [plan.moved[account]])


def _check_name(value: object, name: str) -> None:
    if not is_plain_text(value):
        raise ValueError(f"{name} must be a text of 1 to {TEXT_MAX} characters, none of control, got {value!r:.40}")
    if name != "tx_id" and is_counter_account(value):
        raise ValueError(f"{name} must not begin with {COUNTER_PREFIX!r}: that is a counter-account")


@contextmanager
def _opened(path: str | Path, *, create: bool = False) -> Iterator[apsw.Connection]:
    connection = connect(path, create=create)
    try:
        if not create:
            check_migrated(connection)
        yield connection
    finally:
        connection.close()
