"""What was done by whom: every transition of a run and every act of a person, in the same commit as the thing itself.

Rows are only ever added; the database itself refuses to change or delete one.
"""

from dataclasses import dataclass

import apsw

from paykit_settle.person import Person
from paykit_settle.store.queries import load_queries
from paykit_settle.store.rows import change, rows

_SQL = load_queries("changes.sql")

NUMBER_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One thing that was done: `what` to `subject`, by whom (`principal`) and on which way (`channel`)."""

    number: int
    at_ms: int
    channel: str
    principal: str
    account: str
    what: str
    subject: str
    detail: str


def note(
    connection: apsw.Connection,
    who: Person,
    *,
    account: str,
    what: str,
    subject: str,
    detail: str = "",
    at_ms: int,
) -> None:
    """Add one change; what a person calls themselves stands in its detail."""
    said = detail if who.remark is None else f"{detail} (says {who.remark})".strip()
    change(
        connection,
        _SQL["insert_change"],
        at_ms=at_ms,
        channel=who.channel,
        principal=who.principal,
        account=account,
        what=what,
        subject=subject,
        detail=said,
    )


def changes(connection: apsw.Connection, *, account: str = "", before: int = NUMBER_MAX, limit: int) -> list[Change]:
    """Return the newest changes with a number below `before`, newest first; of one account where it is named."""
    query = "changes_of_account" if account else "changes"
    named = {"account": account} if account else {}
    return [Change(**row) for row in rows(connection, _SQL[query], before=before, limit=limit, **named)]
