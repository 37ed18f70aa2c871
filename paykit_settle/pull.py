"""The pull of a run: its own day, then the earlier days that may still owe rows; every page is stored as it comes.

A pull that was cut off goes on after its last stored page. Nothing here decides about money: rows go into roll-ups.
"""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from datetime import date as Date

import apsw

from paykit_settle.accumulator import Accumulator
from paykit_settle.client import ProcessorClient
from paykit_settle.day_reader import AtStep, DayReader, OnProgress
from paykit_settle.errors import ProcessorUnavailable
from paykit_settle.models import BalanceTransaction, LatePeriod, RollUp
from paykit_settle.paging import Rows
from paykit_settle.run import RunOptions
from paykit_settle.store.evidence import counted_pages, own_rows
from paykit_settle.store.relisting import days_to_relist, late_rows_of_day, written_off_ids
from paykit_settle.store.runs import Run
from paykit_settle.store.store import Store
from paykit_settle.window import Window

CHANGED_IDS_MAX = 100
SMALL_DAY_ROWS = 1_000
"""Rows of a day that is rolled up where it was read: another thread would take longer than the sums."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulled:
    """What came of a pull: the day's roll-up, the earlier days', and the rows that are owed or taken in late.

    `unusual_days` are those whose rows came twice, or that had to be read as one list.
    """

    totals: RollUp
    late: list[LatePeriod] = field(default_factory=list)
    pending: list[tuple[Date, BalanceTransaction]] = field(default_factory=list)
    late_ids: list[tuple[Date, str]] = field(default_factory=list)
    unusual_days: list[Date] = field(default_factory=list)

    def without(self, periods: Collection[Date]) -> "Pulled":
        """The same, with nothing taken in of those earlier days."""
        return replace(
            self,
            late=[late for late in self.late if late.period not in periods],
            late_ids=[(period, identity) for period, identity in self.late_ids if period not in periods],
        )


async def pull_run(
    client: ProcessorClient,
    store: Store,
    run: Run,
    *,
    options: RunOptions,
    at_step: AtStep,
    on_progress: OnProgress | None = None,
    dealt_with: Collection[str] = (),
) -> Pulled:
    """Reads the run's day, and each posted day back to the oldest that is owed; goes on where an earlier pull ended.

    `dealt_with` are late rows that others have, although not for the day where they stand now. Raises `RunRefused` for
    rows that allow no settlement, a `ProcessorError` when a day could not be read whole.
    """
    try:
        async with asyncio.timeout(options.pull_deadline_s):
            reader = DayReader(client, store, run, run, options=options, at_step=at_step, on_progress=on_progress)
            day_read = await reader.read(lambda: Accumulator(window=_window(run), scale=options.scale))
            own = day_read.sink
            totals = await roll_up_of(store, reader, own)
            pulled = Pulled(totals=totals, pending=[(run.date, row) for row in own.pending_rows])
            pulled.unusual_days.extend([run.date] * day_read.is_unusual)
            for earlier in await store.read(lambda connection: days_to_relist(connection, run, options.look_back_days)):
                late = DayReader(client, store, run, earlier, options=options, at_step=at_step)
                await _relist(late, store, earlier, options, pulled, dealt_with)
    except TimeoutError:
        raise ProcessorUnavailable(f"the day could not be read within {options.pull_deadline_s} s") from None
    return pulled


async def roll_up_of(store: Store, reader: DayReader, rows: Accumulator) -> RollUp:
    """The roll-up of a day that was read whole; `RunRefused` for rows that allow none."""
    if rows.row_count <= SMALL_DAY_ROWS and not rows.may_repeat():
        return rows.finish(lambda: ())
    return await store.read(lambda connection: rows.finish(lambda: reader.stored_rows(connection)))


async def _relist(
    reader: DayReader,
    store: Store,
    earlier: Run,
    options: RunOptions,
    pulled: Pulled,
    dealt_with: Collection[str],
) -> None:
    """Reads a posted day again and notes what it still owed."""
    known = await store.read(lambda connection: _known_rows(connection, earlier))
    known |= dict.fromkeys(dealt_with)
    day_read = await reader.read(
        lambda: _Relisted(rows=Accumulator(window=_window(earlier), scale=options.scale, known=known), known=known)
    )
    pulled.unusual_days.extend([earlier.date] * day_read.is_unusual)
    relisted, changed = day_read.sink.rows, day_read.sink.changed
    roll_up = await roll_up_of(store, reader, relisted)
    pulled.pending.extend((earlier.date, row) for row in relisted.pending_rows)
    pulled.late_ids.extend((earlier.date, identity) for identity in relisted.available_ids)
    if relisted.available_ids or changed:
        pulled.late.append(LatePeriod(period=earlier.date, roll_up=roll_up, changed_ids=tuple(changed)))


def _known_rows(connection: apsw.Connection, day: Run) -> dict[str, int | None]:
    """The rows of a posted day that are dealt with: available in its own pull, taken in later, or written off.

    The value tells whether a row has changed since; None where only the id was kept.
    """
    period = day.date.isoformat()
    known: dict[str, int | None] = dict.fromkeys(written_off_ids(connection, day.account, day.date))
    for page in counted_pages(connection, day.number, day.pull, period):
        if page.body is None:
            known |= dict.fromkeys(page.available_ids)
        else:
            known |= {row.id: _content(row) for row in own_rows(page) if row.status == "available"}
    for (run, pull), taken in late_rows_of_day(connection, day.account, day.date).items():
        known |= dict.fromkeys(taken)
        for page in counted_pages(connection, run, pull, period):
            if page.body is not None:
                known |= {row.id: _content(row) for row in own_rows(page) if row.id in taken}
    return known


def _content(row: BalanceTransaction) -> int:
    # A hash is enough to notice a change that is only named, never acted upon.
    return hash((row.type, row.amount, row.currency, row.fee, row.status))


@dataclass(slots=True, kw_only=True)
class _Relisted:
    """The rows of a posted day that are not dealt with, and the ids of those that are and have changed."""

    rows: Accumulator
    known: Mapping[str, int | None]
    changed: list[str] = field(default_factory=list)

    def add(self, rows: Rows) -> bool:
        _note_changes(rows, self.known, self.changed)
        return self.rows.add(rows)


def _note_changes(rows: Rows, known: Mapping[str, int | None], changed: list[str]) -> None:
    for row in rows:
        before = known.get(row.id)
        if before is not None and before != _content(row) and len(changed) < CHANGED_IDS_MAX:
            changed.append(row.id)


def _window(run: Run) -> Window:
    return Window(
        start=datetime.fromtimestamp(run.window_start_s, UTC), end=datetime.fromtimestamp(run.window_end_s, UTC)
    )
