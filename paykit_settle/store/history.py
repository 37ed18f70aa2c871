"""What is known of past runs: found by id, listed by day, and read whole for those who ask why. Reads only."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import date as Date
from datetime import timedelta

import apsw

from paykit_settle.errors import InvalidRequest, RunNotFound, StoreUnavailable
from paykit_settle.models import BalanceTransaction
from paykit_settle.store.accounts import SettledAccount, account_of
from paykit_settle.store.differences import Difference, corrections_of
from paykit_settle.store.edges import gap_before
from paykit_settle.store.evidence import (
    StoredPage,
    StoredWindow,
    own_rows,
    stored_page,
    stored_pages,
    stored_windows,
)
from paykit_settle.store.queries import load_queries
from paykit_settle.store.rows import one, rows
from paykit_settle.store.runs import Attempt, Run, attempts_of, run_by_day, select_runs

_SQL = load_queries("runs.sql")

_EPOCH = Date(1970, 1, 1)
LATEST = ("9999-12-31", 2**62)
"""The cursor that every run lies before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageDigest:
    """A page of the evidence without its bytes; times in unix milliseconds.

    `is_counted` is false for a page of a reading that was given up, `is_needed` for one of an earlier day of which
    nothing is taken in: its bytes are dropped.
    """

    period: str
    number: int
    row_count: int
    body_sha256: str
    chain_sha256: str
    received_at_ms: int
    has_more: bool
    is_kept: bool
    window: int
    is_counted: bool = True
    is_needed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class BookedEntry:
    """One entry of the ledger as it was booked; balances are None for counter-accounts."""

    account: str
    currency: str
    amount: int
    balance_before: int | None
    balance_after: int | None
    details: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """What a person decided about an attempt whose outcome was unknown."""

    attempt: int
    decision: str
    settlement_id: str | None
    reason: str
    decided_by: str
    decided_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Everything that is stored of one run."""

    run: Run
    attempts: Sequence[Attempt]
    resolutions: Sequence[Resolution]
    windows: Sequence[StoredWindow]
    pages: Sequence[PageDigest]
    late_rows: Sequence[tuple[str, str]]
    corrections: Sequence[Difference]
    entries: Sequence[BookedEntry]
    recorded_at_ms: int | None
    account: SettledAccount | None = None
    gap_before_s: int = 0
    """Seconds between the end of the day before and the run's window: an older version left them to no run."""

    @property
    def attempt(self) -> Attempt | None:
        """The latest frozen attempt."""
        return self.attempts[-1] if self.attempts else None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutstandingRow:
    """A row that is owed: pending when its day was settled, not taken in or written off since. ISO minor units."""

    account: str
    transaction_id: str
    period: Date
    type: str
    currency: str
    amount: int
    fee: int


def find_run(connection: apsw.Connection, identity: str) -> Run:
    """The run of a run's or a settlement's id; `RunNotFound`, or `InvalidRequest` when several accounts share it."""
    if identity.startswith("run_") and identity[4:].isascii() and identity[4:].isdecimal():
        found = select_runs(connection, "run_by_number", number=int(identity[4:][:18]))
    else:
        found = select_runs(connection, "run_by_settlement", settlement_id=identity)
    if not found:
        raise RunNotFound(f"there is no run and no settlement {identity!r:.80}")
    if len(found) > 1:
        named = ", ".join(f"{run.id} ({run.account} {run.date})" for run in found[:5])
        raise InvalidRequest(f"{identity} names several settlements: {named}; use the run's id")
    return found[0]


def read_history(connection: apsw.Connection, run: Run, *, with_late_rows: bool = True) -> History:
    """Everything about the run, in one state of the database; its late rows may be left out, for they may be many."""
    key = f"{run.date.isoformat()} {run.account}"
    journal = one(connection, _SQL["journal_of"], tenant=run.tenant, key=key)
    entries = rows(connection, _SQL["entries_of"], journal=journal["id"]) if journal else []
    return History(
        run=run,
        attempts=attempts_of(connection, run.number),
        resolutions=[Resolution(**row) for row in rows(connection, _SQL["resolutions"], run=run.number)],
        windows=stored_windows(connection, run.number, run.pull),
        pages=_page_digests(connection, run),
        late_rows=[
            (row["period"], row["transaction_id"]) for row in rows(connection, _SQL["late_rows_of"], run=run.number)
        ]
        if with_late_rows
        else [],
        corrections=corrections_of(connection, run.number),
        entries=[BookedEntry(**row) for row in entries],
        recorded_at_ms=journal["recorded_at_ms"] if journal else None,
        account=account_of(connection, run.account),
        gap_before_s=gap_before(connection, run),
    )


def _page_digests(connection: apsw.Connection, run: Run) -> list[PageDigest]:
    return [
        PageDigest(**row | {name: bool(row[name]) for name in ("has_more", "is_kept", "is_counted", "is_needed")})
        for row in rows(connection, _SQL["page_digests"], run=run.number, pull=run.pull)
    ]


def evidence_pages(connection: apsw.Connection, run: Run) -> Iterator[tuple[str, StoredPage]]:
    """Every page of the run's last pull with the day it was asked for, in order of day and page."""
    for period in sorted({page.period for page in _page_digests(connection, run)}):
        for page in stored_pages(connection, run.number, run.pull, period):
            yield period, page


def day_spans(connection: apsw.Connection, run: Run, periods: Sequence[str]) -> dict[str, tuple[int, int, int | None]]:
    """Return the spans, in unix seconds, of the run's own day and of these earlier ones.

    With each comes where the day before it ended, if that was earlier than this one begins: a list of an earlier day
    may begin there. A day that nobody has settled has no span: nothing can be in it.
    """
    spans: dict[str, tuple[int, int, int | None]] = {}
    for period in sorted({*periods, run.date.isoformat()}):
        date = Date.fromisoformat(period)
        day = run_by_day(connection, run.account, date)
        before = run_by_day(connection, run.account, date - timedelta(days=1)) if date > Date.min else None
        if day is None:
            spans[period] = (0, 0, None)
        elif day.number == run.number or before is None or before.window_end_s >= day.window_start_s:
            spans[period] = (day.window_start_s, day.window_end_s, None)
        else:
            spans[period] = (day.window_start_s, day.window_end_s, before.window_end_s)
    return spans


def page_keys(connection: apsw.Connection, run: Run) -> tuple[list[tuple[str, int]], int]:
    """The run's last pull's pages that count, as (day it was asked for, number), in order; and how many were pruned."""
    pages = [page for page in _page_digests(connection, run) if page.is_counted and (page.is_kept or page.is_needed)]
    return [(page.period, page.number) for page in pages], sum(not page.is_kept for page in pages)


def page_rows(connection: apsw.Connection, run: Run, period: str, number: int) -> list[BalanceTransaction]:
    """The rows of one page that it counts; `StoreUnavailable` once its bytes were pruned."""
    page = stored_page(connection, run.number, run.pull, period, number)
    if page.body is None:
        raise StoreUnavailable(f"page {number} of {run.id} has been pruned")
    return own_rows(page)


def list_runs(
    connection: apsw.Connection,
    *,
    account: str = "",
    first: str = "",
    last: str = "",
    before: str | None = None,
    limit: int,
) -> tuple[list[Run], bool]:
    """The newest runs by day, older than the run `before`, and whether more follow."""
    cursor: tuple[str, int] = LATEST
    if before is not None:
        earlier = find_run(connection, before)
        cursor = (earlier.date.isoformat(), earlier.number)
    found = select_runs(
        connection,
        "list_runs",
        account=account,
        first=first,
        last=last,
        before_date=cursor[0],
        before_number=cursor[1],
        limit=limit + 1,
    )
    return found[:limit], len(found) > limit


def runs_with_attention(
    connection: apsw.Connection, *, account: str = "", first: str = "", last: str = ""
) -> list[Run]:
    """Return the posted runs at which somebody should look, of the account and the span, newest day first."""
    return select_runs(connection, "runs_with_attention", account=account, first=first, last=last)


def missing_days(runs: Sequence[Run], first: Date, last: Date, *, empty: Collection[Date] = ()) -> list[Date]:
    """The days of a span that none of the runs is about, but for those that do not exist."""
    known = {run.date for run in runs}.union(empty)
    days = (first + timedelta(days=offset) for offset in range((last - first).days + 1))
    return [day for day in days if day not in known]


def outstanding_rows(connection: apsw.Connection, *, account: str = "", as_of: Date) -> list[OutstandingRow]:
    """The rows that were owed at the end of that day, by currency and age."""
    end_ms = (as_of.toordinal() + 1 - _EPOCH.toordinal()) * 86_400_000
    found = rows(connection, _SQL["outstanding_rows"], account=account, as_of=as_of.isoformat(), end_ms=end_ms)
    return [OutstandingRow(**row | {"period": Date.fromisoformat(row["period"])}) for row in found]
