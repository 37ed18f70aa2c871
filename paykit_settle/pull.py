"""The pull of a run: its own day, then the earlier days that may still owe rows; every page is stored as it comes.

A pull that was cut off goes on after its last stored page. `read` asks the processor, once; `choose` then says what the
run settles, and may be called again when another run has taken some of it meanwhile.
"""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date as Date
from datetime import datetime, timedelta
from functools import partial

import apsw

from paykit_settle.accumulator import Accumulator
from paykit_settle.client import ProcessorClient
from paykit_settle.corrections import content_of, decode_row
from paykit_settle.day_reader import AtStep, DayReader, OnProgress
from paykit_settle.earlier_days import EarlierDayRows, EarlierDaysReader
from paykit_settle.errors import ProcessorUnavailable
from paykit_settle.held_rows import OwnIds, index_older_runs
from paykit_settle.late_rows import Facts, LateRows, choose_late_rows, earlier_day_notes, odd_ids, seen_of
from paykit_settle.lifecycle import Step
from paykit_settle.looking_up import LookUp
from paykit_settle.lookups import blocked_periods
from paykit_settle.models import BalanceTransaction, LatePeriod, MovedRow, RollUp, RunNotes
from paykit_settle.money import AMOUNT_MAX
from paykit_settle.run import RunOptions
from paykit_settle.store.differences import Seen
from paykit_settle.store.earlier_plan import all_written_off, owed_rows
from paykit_settle.store.evidence_rows import sent_rows
from paykit_settle.store.runs import Run
from paykit_settle.store.settled import Holder, digest_function, holders, write_digests
from paykit_settle.store.store import Store
from paykit_settle.window import EPOCH

MOVED_NAMED_MAX = 100
"""Rows that were passed over and are named in the settlement; the others are counted, and all are in the database."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulled:
    """What a run settles, owes and names, as far as it depends on what other runs hold (`frozen_count`).

    `unusual_days` are those whose rows came twice, or that had to be read as one list; `settled_owed` rows of the own
    day that were owed under another.
    """

    totals: RollUp
    notes: RunNotes
    frozen_count: int
    late: list[LatePeriod] = field(default_factory=list)
    pending: list[tuple[Date, BalanceTransaction]] = field(default_factory=list)
    late_ids: list[tuple[Date, str]] = field(default_factory=list)
    moved: Mapping[str, Holder | None] = field(default_factory=dict)
    different_ids: set[str] = field(default_factory=set)
    differences: list[Seen] = field(default_factory=list)
    moved_ids: set[str] = field(default_factory=set)
    shown_ids: set[str] = field(default_factory=set)
    settled_owed: list[str] = field(default_factory=list)
    written_off_available: set[str] = field(default_factory=set)
    listings: list[tuple[Date, int, int]] = field(default_factory=list)
    unusual_days: list[Date] = field(default_factory=list)
    available_on: Mapping[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


class RunPull:
    """Reads what one run needs, and chooses what it settles. The caller holds the claim."""

    def __init__(
        self,
        client: ProcessorClient,
        store: Store,
        run: Run,
        *,
        options: RunOptions,
        at_step: AtStep,
        now: datetime,
        on_progress: OnProgress | None = None,
    ) -> None:
        self._client = client
        self._store = store
        self._run = run
        self._options = options
        self._at_step = at_step
        self._now = now
        self._reader = DayReader(client, store, run, run, options=options, at_step=at_step, on_progress=on_progress)
        self._earlier = EarlierDaysReader(
            client, store, run, options=options, at_step=at_step, now_ms=(now - EPOCH) // timedelta(milliseconds=1)
        )

    async def read(self) -> None:
        """Read the run's day, then the earlier days; go on where an earlier pull ended.

        Raises `RunRefused` for rows that allow no settlement, a `ProcessorError` when the run's own day could not be
        read whole. An earlier day that cannot be read is named.
        """
        store, run = self._store, self._run
        self._digest = await store.read(digest_function)
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._options.pull_deadline_s
        try:
            async with asyncio.timeout_at(deadline_s):
                day_read = await self._reader.read(self._new_roll_up)
        except TimeoutError:
            deadline = self._options.pull_deadline_s
            raise ProcessorUnavailable(f"the day could not be read within {deadline} s") from None
        self._own, self._is_unusual = day_read.sink, day_read.is_unusual
        self._totals = await self._finish(self._own)
        self._own_ids = OwnIds(store, run, self._own, self._reader.stored_rows)
        await index_older_runs(store, run.account, self._digest)
        await self._own_ids.write()
        self._at_step(Step.INDEXED)
        try:
            async with asyncio.timeout_at(deadline_s):
                await self._earlier.read()
        except TimeoutError:
            await self._earlier.give_up_the_rest(f"it could not be read within {self._options.pull_deadline_s} s")

    async def choose(self, *, after_restore_checked: bool) -> Pulled:
        """Return what the run settles, as things stand now. Raises `RunRefused` as `read` does."""
        moved, count = await self._own_ids.held()
        own, totals = (self._own, self._totals) if not moved else await self._without(moved)
        days = self._earlier.days
        late = await self._late_rows(days, after_restore_checked=after_restore_checked)
        digests = sorted(self._digest(identity) for _, identity in late.late_ids)
        await self._store.write(partial(write_digests, run=self._run, digests=digests))
        different = await self._store.read(partial(self._different, moved=moved))
        own_moved = [self._moved_row(identity, holder, different) for identity, holder in sorted(moved.items())]
        named = own_moved + late.moved
        back = late.written_off_available | await self._store.read(partial(self._back, moved=moved))
        return Pulled(
            totals=totals,
            notes=RunNotes(
                moved=tuple(named[:MOVED_NAMED_MAX]),
                moved_count=len(named),
                earlier_days=earlier_day_notes(days),
                waiting=tuple(self._earlier.waiting),
                held_back=tuple(late.held_back),
                written_off_available=tuple(sorted(back)),
            ),
            frozen_count=count,
            late=late.late,
            pending=[(self._run.date, row) for row in own.pending_rows] + late.pending,
            late_ids=late.late_ids,
            moved=moved,
            different_ids=set(different),
            differences=late.differences + list(different.values()),
            moved_ids=late.moved_ids | {i for i, holder in moved.items() if holder and i not in different},
            shown_ids=late.shown_ids,
            settled_owed=[identity for identity in await self._own_ids.owed() if identity not in moved],
            written_off_available=back,
            listings=[(d.period, d.began_at_ms, d.page_count) for d in days if d.is_listed and d.given_up is None],
            unusual_days=[self._run.date] * (self._is_unusual or bool(moved)) + late.unusual_days,
            available_on=await self._store.read(partial(self._available_on, own=own, late=late)),
            warnings=_warnings(self._run, days, late, named),
        )

    def _new_roll_up(self) -> Accumulator:
        return Accumulator(window=self._run.window, scale=self._options.scale, hash_of=self._digest)

    async def _finish(self, rows: Accumulator) -> RollUp:
        if not rows.may_repeat():
            return rows.finish(lambda: ())
        return await self._store.read(lambda connection: rows.finish(lambda: self._reader.stored_rows(connection)))

    async def _without(self, moved: Mapping[str, Holder | None]) -> tuple[Accumulator, RollUp]:
        """The day rolled up anew, from its stored pages, without the rows that are passed over."""

        def roll_up(connection: apsw.Connection) -> tuple[Accumulator, RollUp]:
            window, scale = self._run.window, self._options.scale
            own = Accumulator(window=window, scale=scale, known=moved, hash_of=self._digest)
            for rows in self._reader.stored_rows(connection):
                own.add(rows)
            return own, own.finish(lambda: self._reader.stored_rows(connection))

        return await self._store.read(roll_up)

    async def _late_rows(self, days: list[EarlierDayRows], *, after_restore_checked: bool) -> LateRows:
        run = self._run
        ids = odd_ids(days)
        own_ids = await self._own_ids.among(ids)
        held = await self._store.read(partial(holders, run=run, ids=ids, digest=self._digest))
        late = {day.period for day in days if any(i not in held and i not in own_ids for i in day.late)}
        look_up = LookUp(self._client, self._store, mode=self._options.lookup)
        blocked = await blocked_periods(look_up, self._store, run, late, now=self._now, checked=after_restore_checked)
        sent = await self._store.read(partial(self._sent, days=days))
        owed = await self._store.read(partial(owed_rows, run=run))
        facts = Facts(
            account=run.account,
            scale=self._options.scale,
            holders=held,
            own_ids=own_ids,
            written_off=set(await self._store.read(partial(all_written_off, account=run.account))),
            blocked=blocked,
            sent=sent,
            owed=owed,
        )
        return choose_late_rows(days, facts)

    def _sent(self, connection: apsw.Connection, days: list[EarlierDayRows]) -> dict[Date, dict[str, bytes]]:
        found = {}
        for day in days:
            ids = {*day.late, *day.pending, *day.changed, *day.wrong}
            if ids and day.given_up is None:
                found[day.period] = sent_rows(connection, self._run, day.period.isoformat(), ids)
        return found

    def _available_on(self, connection: apsw.Connection, own: Accumulator, late: LateRows) -> dict[str, int]:
        """When the owed rows become available, in unix seconds, where the processor says so."""
        by_day: dict[Date, set[str]] = {self._run.date: {row.id for row in own.pending_rows}}
        for period, row in late.pending:
            by_day.setdefault(period, set()).add(row.id)
        found = {}
        for period, ids in by_day.items():
            for identity, sent in sent_rows(connection, self._run, period.isoformat(), ids).items():
                when = json.loads(sent).get("available_on")
                if type(when) is int and 0 <= when <= AMOUNT_MAX:
                    found[identity] = when
        return found

    def _different(self, connection: apsw.Connection, moved: Mapping[str, Holder | None]) -> dict[str, Seen]:
        """The rows of the own day that are held with other content than they are shown with."""
        held = {identity: holder for identity, holder in moved.items() if holder is not None}
        sent = sent_rows(connection, self._run, self._run.date.isoformat(), set(held))
        return {
            identity: seen_of(self._run.account, identity, holder, "changed", holder.period, sent.get(identity))
            for identity, holder in held.items()
            if holder.content is not None and content_of(holder.content) != content_of(sent.get(identity))
        }

    def _back(self, connection: apsw.Connection, moved: Mapping[str, Holder | None]) -> set[str]:
        """The rows of the own day that are available although a person wrote them off."""
        ids = {identity for identity, holder in moved.items() if holder is None}
        sent = sent_rows(connection, self._run, self._run.date.isoformat(), ids)
        return {identity for identity, row in sent.items() if decode_row(row).status == "available"}

    def _moved_row(self, identity: str, holder: Holder | None, different: Mapping[str, Seen]) -> MovedRow:
        return MovedRow(
            id=identity,
            period=self._run.date,
            run=holder.run.id if holder is not None else None,
            held_under=holder.period if holder is not None else None,
            is_different=identity in different,
        )


def _warnings(run: Run, days: list[EarlierDayRows], late: LateRows, moved: list[MovedRow]) -> list[str]:
    """What a person should hear at once of the earlier days and of rows that were passed over."""
    told = [f"{run.id}: {day.period} was not read whole, nothing of it is taken in: {day.given_up}"
            for day in days if day.given_up is not None]  # fmt: skip
    told += [f"{run.id}: late rows of {held.period} stay owed: {held.why}" for held in late.held_back]
    told += [f"{run.id}: row {identity} of {day.period} stays owed: {why}"
             for day in days for identity, why in day.unread.items()]  # fmt: skip
    if moved:
        first = moved[0]
        by = f"{first.run} has it under {first.held_under}" if first.run else "a person wrote it off"
        more = f", and {len(moved) - 1} more" * (len(moved) > 1)
        told.append(f"{run.id}: passed over {first.id}, for {by}{more}")
    return told
