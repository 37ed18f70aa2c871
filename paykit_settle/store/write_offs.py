"""Write-offs: a row that is owed, or cannot be settled, is taken out for good by a person. Who, when and why are kept.

A row need not be registered as owed: any row of a posted day's evidence can be written off, unless a run has settled
it. Finding it reads stored pages, which takes a while; the write-off itself is one short unit of work.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date as Date

import apsw

from paykit_settle.corrections import decode_row, is_counted
from paykit_settle.errors import InvalidAmount, RunNotFound, UnsupportedCurrency
from paykit_settle.lifecycle import State
from paykit_settle.models import BalanceTransaction
from paykit_settle.money import ScaleProfile, canonical_currency
from paykit_settle.person import Person
from paykit_settle.run_request import check_decision
from paykit_settle.store.changes import note
from paykit_settle.store.differences import end_difference, revisions_of
from paykit_settle.store.evidence import own_rows, stored_pages
from paykit_settle.store.evidence_rows import covered_ids
from paykit_settle.store.queries import load_queries
from paykit_settle.store.rows import change, one, rows
from paykit_settle.store.runs import current_attempt, run_by_day, run_by_number
from paykit_settle.store.settled import digest_function, find_holders

_SQL = load_queries("write_offs.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRow:
    """A row of a posted day that nobody has settled: its day, and the run whose evidence has it."""

    row: BalanceTransaction
    period: Date
    run: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenOff:
    """A row that a person took out. Amounts are ISO minor units, of a wrong row as the processor sent them.

    `available_run` is the run that saw it available later, of that date.
    """

    account: str
    transaction_id: str
    period: Date
    type: str
    currency: str
    amount: int
    fee: int
    written_off_ms: int
    written_off_by: str
    reason: str
    available_run: int | None
    available_date: Date | None


def write_off(
    connection: apsw.Connection,
    account: str,
    transaction_id: str,
    *,
    reason: str,
    by: Person,
    now_ms: int,
    found: FoundRow | None = None,
    day: Date | None = None,
) -> None:
    """Take a row of a posted day out of what is owed, for good; one that is not registered as it was `found`.

    `RunNotFound` when there is none (of that `day`), it was written off before, or a run, which is named, settled it.
    """
    check_decision(by=by.name, reason=reason)
    key = {"account": account, "transaction_id": transaction_id}
    registered = one(connection, _SQL["registered_row"], **key)
    if registered is not None:
        _check_registered(connection, account, transaction_id, registered, day)
        change(connection, _SQL["write_off"], **key, now_ms=now_ms, by=by.name, reason=reason)
    elif found is None:
        raise _none(account, transaction_id)
    else:
        _check_free(connection, account, transaction_id)
        kind, currency, amount, fee = _amounts(connection, found)
        values = {"type": kind, "currency": currency, "amount": amount, "fee": fee, "run": found.run}
        decided = {"now_ms": now_ms, "by": by.name, "reason": reason}
        change(connection, _SQL["insert_write_off"], **key, period=found.period.isoformat(), **values, **decided)
    for known in revisions_of(connection, account, [transaction_id]).values():
        if known[-1].is_live:
            end_difference(connection, known[-1], "written off", by=by.name, reason=reason, now_ms=now_ms)
    note(connection, by, account=account, what="write-off", subject=transaction_id, detail=reason, at_ms=now_ms)


def _check_registered(
    connection: apsw.Connection, account: str, transaction_id: str, registered: dict[str, object], day: Date | None
) -> None:
    period = str(registered["period"])
    if day is not None and period != day.isoformat():
        raise _none(account, transaction_id, f"it is owed of {period}")
    if registered["written_off_by"] is not None:
        raise _none(account, transaction_id, f"{registered['written_off_by']} has written it off")
    if registered["taken_by"] is not None and registered["taken_state"] != State.REJECTED:
        raise _none(account, transaction_id, _settled_in(connection, int(str(registered["taken_by"]))))
    if registered["day_state"] != State.POSTED:
        # One that is pulled anew (a rejected one, tried again) settles its rows as they are then.
        raise _none(account, transaction_id, f"{period} is not posted")


def find_row(connection: apsw.Connection, account: str, transaction_id: str, *, day: Date | None) -> FoundRow | None:
    """Return a row of a posted day, that one or the newest that has it; None when it is registered as owed.

    Reads stored pages. `RunNotFound` when no posted day has it, or when a run has settled it, which is named.
    """
    if one(connection, _SQL["registered_row"], account=account, transaction_id=transaction_id) is not None:
        return None
    _check_free(connection, account, transaction_id)
    for newest in (known[-1] for known in revisions_of(connection, account, [transaction_id]).values()):
        if newest.held_by_run is not None:
            raise _none(account, transaction_id, _settled_in(connection, newest.held_by_run))
        row, posted = newest.is_now or newest.was, run_by_day(connection, account, newest.period)
        if row is not None and posted is not None and day in (None, newest.period):
            return FoundRow(row=decode_row(row), period=newest.period, run=posted.number)
    wanted = day.isoformat() if day else ""
    for each in rows(connection, _SQL["posted_days_newest_first"], account=account, day=wanted):
        if (found := _in_day(connection, account, transaction_id, each["date"], each["number"])) is not None:
            held = find_holders(connection, account, [transaction_id], digest_function(connection))
            if transaction_id in held:
                raise _none(account, transaction_id, _settled_in(connection, held[transaction_id].run.number))
            return found
    raise _none(account, transaction_id, "no stored page of a posted day has it" + (f" on {day}" if day else ""))


def _in_day(
    connection: apsw.Connection, account: str, transaction_id: str, period: str, own_run: int
) -> FoundRow | None:
    """The row as the latest reading of the day has it."""
    found: FoundRow | None = None
    covered = covered_ids(connection, run_by_number(connection, own_run))
    for reading in rows(connection, _SQL["readings_of_day"], account=account, period=period):
        is_own = reading["run"] == own_run and (covered is None or transaction_id in covered)
        for row in _rows_of(connection, transaction_id, **reading):
            if is_own and (row is None or row.status == "available"):
                raise _none(account, transaction_id, _dealt_with(connection, own_run, row))
            if found is None and row is not None:
                found = FoundRow(row=row, period=Date.fromisoformat(period), run=reading["run"])
    return found


def _rows_of(
    connection: apsw.Connection, transaction_id: str, run: int, pull: int, period: str, first_page: int
) -> Iterator[BalanceTransaction | None]:
    """The row wherever a reading counts it; None stands for one that is known to be available, of a pruned page."""
    written = transaction_id.encode()
    for page in stored_pages(connection, run, pull, period):
        if page.number < first_page:
            continue
        if page.body is None:
            yield from (None for identity in page.available_ids if identity == transaction_id)
        elif written in page.body or b"\\" in page.body:
            yield from (row for row in own_rows(page) if row.id == transaction_id)


def _dealt_with(connection: apsw.Connection, run: int, row: BalanceTransaction | None) -> str:
    if row is not None and not is_counted(row):
        return f"a {row.type} only moves the balance, and nothing of it is owed"
    return _settled_in(connection, run)


def _check_free(connection: apsw.Connection, account: str, transaction_id: str) -> None:
    """Refuses a row that a run holds although it is not registered: taken in late, or passed over for being held."""
    holder = one(connection, _SQL["holder_of_row"], account=account, transaction_id=transaction_id)
    if holder is not None:
        raise _none(account, transaction_id, _settled_in(connection, holder["number"]))


def _settled_in(connection: apsw.Connection, number: int) -> str:
    run = run_by_number(connection, number)
    return f"{run.id} of {run.date} " + (
        "has settled it" if run.state is State.POSTED else f"holds it, and is {run.state}"
    )


def _none(account: str, transaction_id: str, why: str = "") -> RunNotFound:
    return RunNotFound(f"{account} has no outstanding row {transaction_id!r:.80}" + (f": {why}" if why else ""))


def _amounts(connection: apsw.Connection, found: FoundRow) -> tuple[str, str, int, int]:
    """Type, currency, amount and fee, in ISO minor units where they have any: a wrong row may not."""
    row = found.row
    scale = ScaleProfile(overrides=current_attempt(connection, run_by_number(connection, found.run)).scales)
    try:
        currency = canonical_currency(row.currency)
        return row.type, currency, scale.from_wire(row.amount, currency), scale.from_wire(row.fee, currency)
    except (UnsupportedCurrency, InvalidAmount):
        return row.type, row.currency, row.amount, row.fee


def written_off_rows(connection: apsw.Connection, *, account: str = "") -> list[WrittenOff]:
    """Return the rows that were written off, of one account or of all, the newest first."""
    return [
        WrittenOff(
            **row
            | {
                "period": Date.fromisoformat(row["period"]),
                "available_date": None if row["available_date"] is None else Date.fromisoformat(row["available_date"]),
            }
        )
        for row in rows(connection, _SQL["written_off_rows"], account=account)
    ]
