"""What is known of an account's days without asking the processor: runs that hold rows, and answers that were empty."""

from datetime import date as Date

import apsw

from paykit_settle.store.queries import load_queries
from paykit_settle.store.rows import change, one, rows

_SQL = load_queries("lookups.sql")


def days_known(
    connection: apsw.Connection, account: str, *, after: Date, asked_since_ms: int, now_ms: int
) -> set[Date]:
    """Return the later days that need not be asked for.

    Of such a day this database has a run that is frozen, unknown or posted; or the processor had nothing when it was
    asked, not before `asked_since_ms`.
    """
    found = rows(
        connection,
        _SQL["days_known"],
        account=account,
        after=after.isoformat(),
        asked_since_ms=asked_since_ms,
        now_ms=now_ms,
    )
    return {Date.fromisoformat(row["date"]) for row in found}


def keep_empty(connection: apsw.Connection, account: str, day: Date, *, forget_before_ms: int, now_ms: int) -> None:
    """Keep that the processor has no settlement of that day, and forget what was kept for too long."""
    change(connection, _SQL["forget_old_lookups"], account=account, before_ms=forget_before_ms)
    change(connection, _SQL["keep_empty_lookup"], account=account, date=day.isoformat(), now_ms=now_ms)


def restored_at_ms(connection: apsw.Connection) -> int | None:
    """Return when this database was put back from a back-up, in unix milliseconds; None when it never was."""
    facts = one(connection, _SQL["restored_at"])
    return None if facts is None else facts["restored_at_ms"]
