"""Posts journals inside a transaction that the caller holds: read once, plan, write with one statement per table.

`post_journal` is for use inside a larger unit of work (a run that is marked posted and booked in one commit);
`post_journals` is what the writer calls with everything that waits. Both take the same path.
"""

import re
from collections.abc import Sequence
from functools import cache
from itertools import chain

import apsw
import msgspec

from paykit_settle.errors import InvariantViolated, SettleError
from paykit_settle.journal import Journal
from paykit_settle.store.plan import (
    AccountKey,
    AccountState,
    JournalKey,
    Outcome,
    Plan,
    Receipt,
    Stored,
    account_keys,
    plan_journals,
)
from paykit_settle.store.queries import load_queries

_SQL = load_queries("ledger.sql")

_VALUES = re.compile(r"VALUES (\([?, ]+\))")
_encode = msgspec.json.Encoder().encode

ROWS_PER_STATEMENT = (64, 32, 16, 8, 4, 2, 1)
"""Rows that one statement writes, most first: few statements for any number of rows, and few to compile."""
ACCOUNTS_REMEMBERED_MAX = 20_000
"""Accounts that a poster remembers before it starts anew."""
MOVES_AT_ONCE_MIN = 64
"""Balances that are moved by one statement. Fewer are moved one by one, which is quicker; but each statement lets go of
the interpreter's lock and takes it again, and for many that costs the other threads more than it saves here."""
CAREFUL_BATCHES = 16
"""Batches whose keys a poster looks up first, after it met one that was used."""


def post_journal(connection: apsw.Connection, journal: Journal) -> Receipt:
    """Posts one journal, or raises why not; the transaction is the caller's to commit.

    The same key with the same request gives the first answer and changes nothing. Raises `IdempotencyConflict`,
    `UnknownAccount`, `InsufficientFunds` or `BalanceOutOfRange`; nothing was written then.
    """
    outcome = post_journals(connection, [journal])[0]
    if isinstance(outcome, SettleError):
        raise outcome
    return outcome


def post_journals(connection: apsw.Connection, journals: Sequence[Journal]) -> list[Outcome]:
    """Posts journals in order and gives one outcome each: a receipt, or the error that refuses this journal alone.

    The connection must be in a write transaction (BEGIN IMMEDIATE), so that what is read here cannot change.
    """
    plan = make_plan(connection, journals, {})
    write(connection, plan)
    return plan.outcomes


class Poster:
    """`post_journals` for a connection that posts again and again: remembers accounts while nobody else writes.

    What it remembers is used only if SQLite says that no other connection has committed since, and a balance is only
    ever written over the very balance that was read. Call `forget` after anything else has written through this
    connection, and after anything was rolled back.
    """

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._states: dict[AccountKey, AccountState] = {}
        self._next_id: int | None = None
        self._version = 0
        self._careful_for = 0

    def post(self, journals: Sequence[Journal]) -> list[Outcome]:
        """Like `post_journals`.

        Keys are nearly always new, and the unique index says when one is not: they are looked up only then, and in the
        batches after that, for retries come in crowds.
        """
        version = self._connection.execute(_SQL["data_version"]).get
        if version != self._version or len(self._states) > ACCOUNTS_REMEMBERED_MAX:
            self.forget()
            self._version = version
        plan = None if self._careful_for else self._write_hopefully(journals)
        if plan is None:
            self._careful_for = max(0, self._careful_for - 1)
            plan = make_plan(self._connection, journals, self._states, next_id=self._next_id)
            write(self._connection, plan)
        self._next_id = plan.next_id
        self._states.update(plan.states)
        for opened in plan.opened:
            del self._states[opened]  # its row number is not known yet
        return plan.outcomes

    def forget(self) -> None:
        """Drops all that is remembered: it may no longer be what the file holds."""
        self._states.clear()
        self._next_id = None

    def _write_hopefully(self, journals: Sequence[Journal]) -> Plan | None:
        """Plans as if every key were new, and writes that; None, and nothing is written, if one may not be."""
        plan = make_plan(self._connection, journals, self._states, next_id=self._next_id, are_new=True)
        if any(isinstance(outcome, SettleError) for outcome in plan.outcomes):
            # What would be refused now may have been posted before, and then has its first answer to give.
            self._careful_for = CAREFUL_BATCHES
            return None
        try:
            _write_journals(self._connection, plan)
        except apsw.ConstraintError:
            # What failed left nothing. Statements before it wrote journals, which have no entries yet.
            self._connection.execute(_SQL["remove_journals"], (plan.next_id - len(plan.journals),))
            self._careful_for = CAREFUL_BATCHES
            return None
        _write_movements(self._connection, plan)
        return plan


def make_plan(
    connection: apsw.Connection,
    journals: Sequence[Journal],
    states: dict[AccountKey, AccountState],
    *,
    next_id: int | None = None,
    are_new: bool = False,
) -> Plan:
    """The plan for these journals against what the database holds now; writes nothing.

    `states` are accounts that were read before and cannot have changed; those that are missing are added to it.
    `next_id` is the number of the next journal, where it is known. `are_new`: the database is not asked for the
    journals' keys.
    """
    stored = {} if are_new else _find_journals(connection, journals)
    if missing := [key for key in account_keys(journals) if key not in states]:
        rows = connection.execute(_SQL["find_accounts"], (_array(missing),))
        for tenant, id_, currency, number, balance, floor in rows:
            states[(tenant, id_, currency)] = (number, balance, floor)
    if next_id is None:
        next_id = (connection.execute(_SQL["last_journal_id"]).get or 0) + 1
    return plan_journals(journals, stored=stored, accounts=states, next_id=next_id)


def _find_journals(connection: apsw.Connection, journals: Sequence[Journal]) -> dict[JournalKey, Stored]:
    keys = [(journal.tenant, journal.operation, journal.key) for journal in journals]
    found = connection.execute(_SQL["find_journals"], (_array(keys),))
    return {keys[index]: Stored(fingerprint, answer) for index, fingerprint, answer in found}


def _array(rows: Sequence[object]) -> str:
    """Rows as one JSON array, the form in which a statement takes a list."""
    return _encode(rows).decode()


def write(connection: apsw.Connection, plan: Plan) -> None:
    """Writes all of a plan."""
    _write_journals(connection, plan)
    _write_movements(connection, plan)


def record(connection: apsw.Connection, plan: Plan) -> None:
    """Writes the journals and entries of a plan, without its balances: from here on their keys are used."""
    _write_journals(connection, plan)
    _write_rows(connection, "insert_entry", plan.entries)


def _write_journals(connection: apsw.Connection, plan: Plan) -> None:
    _write_rows(connection, "insert_journal", plan.journals)


def _write_movements(connection: apsw.Connection, plan: Plan) -> None:
    _write_rows(connection, "insert_entry", plan.entries)
    _write_rows(connection, "insert_account", list(plan.opened.values()))
    move_balances(connection, list(plan.moved.values()))


def move_balances(connection: apsw.Connection, moves: Sequence[tuple[object, ...]]) -> None:
    """Sets balances; `InvariantViolated` if one is no longer what the plan read, which a write lock rules out."""
    changed = connection.total_changes()
    if len(moves) < MOVES_AT_ONCE_MIN:
        connection.executemany(_SQL["move_balance"], moves)
    else:
        _write_rows(connection, "move_balances", moves)
    if connection.total_changes() - changed != len(moves):
        raise InvariantViolated("a balance changed between reading and writing it in one transaction")


def _write_rows(connection: apsw.Connection, name: str, rows: Sequence[tuple[object, ...]]) -> None:
    """Runs the query for all rows, its `VALUES (...)` repeated for as many as a statement may hold."""
    written = 0
    for count in ROWS_PER_STATEMENT:
        while len(rows) - written >= count:
            connection.execute(_repeated(name, count), tuple(chain.from_iterable(rows[written : written + count])))
            written += count


@cache
def _repeated(name: str, count: int) -> str:
    return _VALUES.sub(lambda found: f"VALUES {', '.join([found[1]] * count)}", _SQL[name])
