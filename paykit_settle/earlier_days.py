"""Reads the earlier days that a run takes rows in from: each by one more listing, or row by row, whichever is cheaper.

Nothing about an earlier day holds today up: one that cannot be read whole, or that shows too many odd rows, is named as
a day and takes nothing in. Nothing here decides what is settled.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date as Date
from functools import partial

import apsw

from paykit_settle.client import ProcessorClient
from paykit_settle.day_reader import AtStep, DayReader
from paykit_settle.errors import ProcessorError, ProcessorRejected, ProcessorUnavailable, RunRefused
from paykit_settle.lifecycle import Step
from paykit_settle.models import BalanceTransaction
from paykit_settle.relisted_day import RelistedDay, content_hash
from paykit_settle.run import RunOptions
from paykit_settle.store.earlier_plan import (
    EarlierDaysPlan,
    PlannedDay,
    all_written_off,
    plan_earlier_days,
    vanished_ids,
)
from paykit_settle.store.edges import listing_span
from paykit_settle.store.elsewhere import expected_on, to_look_for
from paykit_settle.store.evidence import give_up_reading
from paykit_settle.store.known_rows import known_rows
from paykit_settle.store.row_answers import RowAnswer, store_answers
from paykit_settle.store.runs import Run
from paykit_settle.store.store import Store, clock_ms
from paykit_settle.window import Window

NO_ROUTE = (404, 405, 501)
"""Statuses that say, of one row, that it is not there and, of all, that rows cannot be asked for by their id."""


@dataclass(slots=True, kw_only=True)
class EarlierDayRows:
    """What came of an earlier day. `late` and `pending` rows are not settled yet; `missing` are or are owed,
    under this day or another, and the day is the one that is to show them.

    `gone` are owed rows that are not there by id, `unread` owed rows of which no usable answer came: they stay owed.
    `given_up`: why the day takes nothing in.
    """

    day: Run
    why: str
    is_listed: bool
    window: Window
    began_at_ms: int
    page_count: int = 0
    is_unusual: bool = False
    late: dict[str, BalanceTransaction] = field(default_factory=dict)
    pending: dict[str, BalanceTransaction] = field(default_factory=dict)
    changed: dict[str, BalanceTransaction] = field(default_factory=dict)
    wrong: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    shown: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    unread: dict[str, str] = field(default_factory=dict)
    written_off_available: set[str] = field(default_factory=set)
    given_up: str | None = None

    @property
    def period(self) -> Date:
        return self.day.date

    @property
    def how(self) -> str:
        return "listed" if self.is_listed else "asked by id"


class EarlierDaysReader:
    """Reads the earlier days of one run; `read` may be called once."""

    def __init__(
        self, client: ProcessorClient, store: Store, run: Run, *, options: RunOptions, at_step: AtStep, now_ms: int
    ) -> None:
        self._client = client
        self._store = store
        self._run = run
        self._options = options
        self._at_step = at_step
        self._now_ms = now_ms
        self._out_of_reach: str | None = None
        self.days: list[EarlierDayRows] = []
        self.waiting: list[Date] = []
        self._planned: list[PlannedDay] = []

    async def read(self) -> None:
        """Read the days into `days`, and name in `waiting` those that a later run lists. Raises no `ProcessorError`."""
        plan: EarlierDaysPlan = await self._store.read(
            partial(
                plan_earlier_days,
                run=self._run,
                look_back_days=self._options.look_back_days,
                look_back_listings=self._options.look_back_listings,
                now_ms=self._now_ms,
            )
        )
        self.waiting, self._planned = plan.waiting, plan.days
        for planned in plan.days:
            if planned.ask:
                self.days.append(await self._ask(planned))
        relist = await self._days_to_list_after_all()
        for planned in plan.days:
            if not planned.ask:
                self.days.append(await self._list(planned))
            elif planned.day.date in relist:
                listed = await self._list(planned)
                if listed.given_up is None:
                    self._merge(listed)
                self.days.append(listed)
        self.days.sort(key=lambda each: each.period)

    async def give_up_the_rest(self, reason: str) -> None:
        """Name every day that is not read yet as given up, for that reason."""
        self._out_of_reach = reason
        read = {day.period for day in self.days}
        for planned in self._planned:
            if planned.day.date not in read:
                self.days.append(await self._list(planned))
        self.days.sort(key=lambda each: each.period)

    async def _ask(self, planned: PlannedDay) -> EarlierDayRows:
        """Asks for a day's owed rows by their ids, several at once."""
        found = self._begin(planned, is_listed=False)
        slots = asyncio.Semaphore(self._options.windows_max)
        answers: list[RowAnswer] = []

        async def ask(identity: str) -> None:
            async with slots:
                if self._out_of_reach is None:
                    await self._ask_one(found, identity, answers)

        async with asyncio.TaskGroup() as group:
            for identity in planned.ask:
                group.create_task(ask(identity))
        found.given_up = self._out_of_reach
        if answers:
            await self._store.write(partial(store_answers, run=self._run, answers=answers))
            self._at_step(Step.ROWS_STORED)
        return found

    async def _ask_one(self, found: EarlierDayRows, identity: str, answers: list[RowAnswer]) -> None:
        try:
            row, sent = await self._client.transaction(self._run.account, identity)
        except ProcessorUnavailable as error:
            self._out_of_reach = str(error)
            return
        except ProcessorError as error:
            if isinstance(error, ProcessorRejected) and error.status in NO_ROUTE:
                found.gone.add(identity)
            else:
                found.unread[identity] = str(error)
            return
        if row.id != identity:
            found.unread[identity] = f"the processor answered with another row, {row.id!a:.60}"
            return
        # Whatever day it says by now: it is settled as a late row of the day that it has been owed under.
        shown = RelistedDay(window=None, scale=self._options.scale, known={})
        shown.add([row])
        found.late |= shown.late
        found.pending |= shown.pending
        found.wrong |= shown.wrong
        found.shown.add(identity)
        period = found.period.isoformat()
        answers.append(RowAnswer(transaction_id=identity, period=period, body=sent, received_at_ms=clock_ms()))

    async def _days_to_list_after_all(self) -> set[Date]:
        """Return the days with rows that are not there by id: there may be no such route, or a row is gone for good.

        One that is known to have vanished calls for no further listing.
        """
        if not any(day.gone for day in self.days):
            return set()
        known = await self._store.read(partial(vanished_ids, account=self._run.account))
        return {day.period for day in self.days if day.gone - known}

    def _merge(self, listed: EarlierDayRows) -> None:
        """Puts what was found by id into the listing of the same day, which takes its place."""
        (asked,) = [day for day in self.days if day.period == listed.period]
        self.days.remove(asked)
        listed.late = asked.late | listed.late
        listed.pending = {**asked.pending, **listed.pending}
        listed.unread = asked.unread
        listed.missing = [identity for identity in listed.missing if identity not in asked.shown]

    async def _list(self, planned: PlannedDay) -> EarlierDayRows:
        found = self._begin(planned, is_listed=True)
        try:
            if self._out_of_reach is not None:
                raise ProcessorUnavailable(self._out_of_reach)
            await self._list_whole(planned, found)
        except ProcessorUnavailable as error:
            self._out_of_reach = found.given_up = str(error)
        except (ProcessorError, RunRefused) as error:
            found.given_up = str(error)
        if found.given_up is not None:
            period = planned.day.date.isoformat()
            await self._store.write(partial(give_up_reading, run=self._run, period=period, reason=found.given_up))
        return found

    async def _list_whole(self, planned: PlannedDay, found: EarlierDayRows) -> None:
        known, written_off, span, expected = await self._store.read(partial(_what_is_known, day=planned.day))
        found.window = Window.of_span(*span)
        reader = DayReader(
            self._client, self._store, self._run, planned.day, options=self._options, at_step=self._at_step, span=span
        )
        read = await reader.read(
            lambda: RelistedDay(window=found.window, scale=self._options.scale, known=known, written_off=written_off)
        )
        sink = read.sink
        wanted = dict.fromkeys([*planned.owed, *sorted(expected)])
        missing = sink.missing() + [
            identity for identity in wanted if identity not in known and not sink.shows(identity)
        ]
        to_look = await self._store.read(
            partial(to_look_for, account=self._run.account, day=planned.day.date, missing=missing)
        )
        sink.check_odd(len(to_look))
        found.page_count, found.is_unusual, found.missing = read.page_count, read.is_unusual, to_look
        found.late, found.pending, found.changed, found.wrong = sink.late, sink.pending, sink.changed, sink.wrong
        found.shown = (set(known) | set(sink.late) | set(sink.pending)) - set(missing) - set(sink.changed)
        found.written_off_available = sink.written_off_available

    def _begin(self, planned: PlannedDay, *, is_listed: bool) -> EarlierDayRows:
        return EarlierDayRows(
            day=planned.day,
            why=planned.why,
            is_listed=is_listed,
            began_at_ms=self._now_ms,
            window=planned.day.window,
        )


def _what_is_known(
    connection: apsw.Connection, day: Run
) -> tuple[Mapping[str, int | None], set[str], tuple[int, int], set[str]]:
    """The settled rows of a day, the rows that were written off, the day's span, and rows of other days that it had."""
    known, written_off = known_rows(connection, day, content_hash), set(all_written_off(connection, day.account))
    expected = expected_on(connection, day.account, day.date) - written_off
    return known, written_off, listing_span(connection, day), expected
