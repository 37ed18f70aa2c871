"""A run's evidence as `verify` takes it: read piece by piece, so that memory does not grow with the run. Reads only.

Whether a row that a run passed over is held by another is answered here too, from that run's own evidence.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby, islice

import apsw

from paykit_settle.store.evidence import StoredPage, own_rows, stored_pages, stored_windows
from paykit_settle.store.evidence_rows import covered_ids
from paykit_settle.store.history import day_spans
from paykit_settle.store.packing import unpack
from paykit_settle.store.queries import load_queries
from paykit_settle.store.rows import rows, stream
from paykit_settle.store.runs import Run, run_by_number
from paykit_settle.verify_pages import WHOLE, Evidence, EvidenceDay, EvidencePage, EvidenceWindow, RowAnswer

_SQL = load_queries("verify.sql")

MOVED_AT_ONCE = 50_000
"""Rows that are looked for in another run's evidence at a time."""
NAMED_MAX = 20
"""Rows of them that are named; the others are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredIds:
    """The rows that a run took in late from a day, or passed over on its own (`query`), as often as they are wanted."""

    connection: apsw.Connection
    query: str
    run: int
    period: str

    def __iter__(self) -> Iterator[str]:
        found = stream(self.connection, _SQL[self.query], run=self.run, period=self.period)
        return (row["transaction_id"] for row in found)


def late_ids_of(connection: apsw.Connection, run: Run) -> dict[str, StoredIds]:
    """Return the rows that the run took in, by their day."""
    periods = [row["period"] for row in rows(connection, _SQL["late_periods"], run=run.number)]
    return {
        period: StoredIds(connection=connection, query="late_ids", run=run.number, period=period) for period in periods
    }


def moved_ids_of(connection: apsw.Connection, run: Run) -> StoredIds:
    """Return the rows of its own day that the run passed over because another one held them."""
    return StoredIds(connection=connection, query="moved_ids", run=run.number, period=run.date.isoformat())


def corrections_of(connection: apsw.Connection, run: Run) -> dict[str, list[tuple[bytes | None, bytes | None]]]:
    """Return the differences that the run settles, by day: each row as it was settled and as it is now."""
    found: dict[str, list[tuple[bytes | None, bytes | None]]] = {}
    for row in rows(connection, _SQL["corrections"], run=run.number):
        found.setdefault(row["period"], []).append((row["was"], row["is_now"]))
    return found


def stored_evidence(connection: apsw.Connection, run: Run) -> Evidence:
    """Return what the run's last pull stored."""
    key = {"run": run.number, "pull": run.pull}
    read_days = [row["period"] for row in rows(connection, _SQL["read_days"], **key)]
    readings = {row["period"]: (row["first_page"], row["outcome"]) for row in rows(connection, _SQL["readings"], **key)}
    windows = stored_windows(connection, run.number, run.pull)
    # A pull of which no reading at all is noted was read before readings were: then every page counts.
    unnoted = (1, None if readings else WHOLE)
    days = {}
    for period, (start_s, end_s, gap_start_s) in day_spans(connection, run, read_days).items():
        first_page, outcome = readings.get(period, unnoted)
        days[period] = EvidenceDay(
            start_s=start_s,
            end_s=end_s,
            gap_start_s=gap_start_s,
            first_page=first_page,
            outcome=outcome,
            windows=[
                EvidenceWindow(number=each.number, start_s=each.start_s, end_s=each.end_s)
                for each in windows
                if each.period == period
            ],
        )

    def pages(period: str) -> Iterator[EvidencePage]:
        return (_evidence_page(period, page) for page in stored_pages(connection, run.number, run.pull, period))

    def answers() -> Iterator[RowAnswer]:
        found = stream(connection, _SQL["row_answers"], **key)
        return (RowAnswer(**row | {"body": unpack(row["body"])}) for row in found)

    return Evidence(days=days, pages=pages, answers=answers)


def _evidence_page(period: str, page: StoredPage) -> EvidencePage:
    return EvidencePage(
        period=period,
        number=page.number,
        body=page.body,
        body_sha256=page.body_sha256,
        chain_sha256=page.chain_sha256,
        has_more=page.has_more,
        window=page.window,
        window_start_s=page.window_start_s,
        window_end_s=page.window_end_s,
        asked_start_s=page.asked_start_s,
        asked_end_s=page.asked_end_s,
        is_needed=page.is_needed,
    )


def moved_faults(connection: apsw.Connection, run: Run) -> list[str]:
    """Return the rows that the run passed over although the run that is named does not hold them.

    Where no run is named, a person must have written the row off.
    """
    faults = []
    moved = stream(connection, _SQL["moved_rows"], run=run.number)
    for number, group in groupby(moved, key=lambda row: row["held_by_run"]):
        holder = None if number is None else run_by_number(connection, number)
        by = "written off" if holder is None else f"held by {holder.id}"
        while ids := {row["transaction_id"] for row in islice(group, MOVED_AT_ONCE)}:
            free = sorted(ids - _held(connection, run, holder, ids))
            faults += [f"{identity} was passed over, and is not {by}" for identity in free[:NAMED_MAX]]
            if (left := len(free) - NAMED_MAX) > 0:
                faults.append(f"{left} more rows were passed over, and are not {by}")
    return faults


def _held(connection: apsw.Connection, run: Run, holder: Run | None, ids: set[str]) -> set[str]:
    """Which of the rows the holder has: taken in late, or on its own day in a pull that was frozen.

    A run that was rejected after that, and is pulled anew, or whose settlement turned out not to be ours, held in its
    time what it holds no more.
    """
    among = {"ids": json.dumps(sorted(ids))}
    if holder is None:
        found = rows(connection, _SQL["written_off_among"], account=run.account, **among)
        return {row["transaction_id"] for row in found}
    if holder.account != run.account or holder.number == run.number:
        return set()
    found = rows(connection, _SQL["late_among"], account=run.account, run=holder.number, **among)
    held = {row["transaction_id"] for row in found}
    passed = {row["transaction_id"] for row in rows(connection, _SQL["moved_among"], run=holder.number, **among)}
    covered = covered_ids(connection, holder)
    held |= ids & (covered or set())
    for row in rows(connection, _SQL["frozen_pulls"], run=holder.number):
        pull, is_last = row["pull"], row["pull"] == holder.pull
        if not ids - held:
            break
        left = ids - held - passed if is_last else ids - held
        held |= _available(connection, holder, pull, left, own_only=is_last and covered is None)
    return held


def _available(connection: apsw.Connection, holder: Run, pull: int, ids: set[str], *, own_only: bool) -> set[str]:
    found: set[str] = set()
    own = holder.date.isoformat()
    evidence = stored_evidence(connection, replace(holder, pull=pull))
    if not own_only:  # what was taken in late by that pull: the register has forgotten it
        found |= ids.intersection(answer.transaction_id for answer in evidence.answers())
    for period, day in evidence.days.items():
        if day.outcome != WHOLE or (own_only and period != own):
            continue
        for page in stored_pages(connection, holder.number, pull, period):
            if page.number >= day.first_page:
                found |= ids.intersection(_available_ids(page))
    return found


def _available_ids(page: StoredPage) -> Iterator[str]:
    if page.body is None:
        yield from page.available_ids
        return
    try:
        yield from (row.id for row in own_rows(page) if row.status == "available")
    except ValueError:
        return  # what cannot be read proves nothing
