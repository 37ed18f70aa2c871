"""Proves a ledger file from its entries: nothing is believed that can be added up again.

Reads one committed state, beside a running service, and trusts neither the balances nor the code that wrote them.
"""

from collections.abc import Sequence

import apsw
import msgspec

from paykit_settle.errors import InvariantViolated
from paykit_settle.store.queries import load_queries

FAULTS_SHOWN_MAX = 20
"""Faults named per promise; a broken file has more than anybody reads."""

_SQL = load_queries("check.sql")

PROMISES = {
    "unbalanced_journals": "does not sum to zero",
    "empty_journals": "has no entries, or a gap in their numbers",
    "wrong_balances": "is not the sum of its entries",
    "broken_chains": "does not begin with the balance that the entry before it left",
    "wrong_steps": "has a balance that its amount does not explain",
    "broken_floors": "breaks the floor of its source, or is no transfer from one account to another",
}
"""What each query of `check.sql` finds, as the end of a sentence about a row."""


class CheckReport(msgspec.Struct, frozen=True, kw_only=True):
    """How much was checked, and each fault in one line; no faults: every promise holds."""

    accounts: int
    journals: int
    entries: int
    faults: Sequence[str]


def check_ledger(connection: apsw.Connection) -> CheckReport:
    """Adds everything up again. The connection must hold one state of the file (be in a transaction)."""
    faults = [f"database: {text}" for (text,) in connection.execute("PRAGMA integrity_check") if text != "ok"]
    faults += [
        f"database: row {rowid} of {table} refers to a missing row of {parent}"
        for table, rowid, parent, _ in connection.execute("PRAGMA foreign_key_check")
    ]
    for name, sentence in PROMISES.items():
        rows = connection.execute(_SQL[name], (FAULTS_SHOWN_MAX,))
        faults += [f"{' '.join(map(repr, row))} {sentence}" for row in rows]
    counts = {str(table): _integer(count) for table, count in connection.execute(_SQL["counts"])}
    return CheckReport(faults=faults, **counts)


def _integer(value: object) -> int:
    if type(value) is not int:
        raise InvariantViolated(f"a count is no integer: {value!r}")
    return value
