"""`recheck`: days that were settled are listed again and held against what was settled of them. It settles nothing.

What differs goes into the register of differences, for a person to end.
"""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from datetime import date as Date
from typing import Literal, NamedTuple

import apsw
import msgspec

from paykit_settle.client import ProcessorClient
from paykit_settle.corrections import Content, content_of, raw_rows
from paykit_settle.errors import ProcessorError, RunRefused
from paykit_settle.models import BalanceTransaction
from paykit_settle.money import ScaleProfile
from paykit_settle.run import RunOptions
from paykit_settle.settlement import roll_up
from paykit_settle.store.differences import (
    Seen,
    live_ids,
    note_differences,
    note_moved,
    note_unchanged,
    settled_content,
)
from paykit_settle.store.earlier_plan import all_written_off, owed_ids
from paykit_settle.store.elsewhere import (
    SeenElsewhere,
    all_elsewhere,
    expected_on,
    forget_elsewhere,
    list_again,
    note_elsewhere,
    seen_elsewhere,
    to_look_for,
)
from paykit_settle.store.evidence import counted_pages, own_rows
from paykit_settle.store.evidence_rows import covered_ids, settled_rows
from paykit_settle.store.relisting import late_rows_of_day
from paykit_settle.store.runs import Run, posted_days, run_by_number
from paykit_settle.store.settled import digest_function, find_holders, passed_over_ids
from paykit_settle.store.store import Store
from paykit_settle.window import Window


@dataclass(frozen=True, slots=True, kw_only=True)
class RecheckedDay:
    """What one day shows when it is listed again. `reason`: why it could not be read whole; then nothing else counts.

    `late_ids` are rows that are available and that nobody has settled yet, `pending_ids` those that are owed;
    `unchanged_ids` rows with an open difference that are as they should be. `elsewhere` are rows that are settled under
    another day, `home_ids` rows that were last seen under another day and stand here again, `gone_ids` rows that this
    day was to show.
    """

    day: Date
    row_count: int = 0
    late_ids: Sequence[str] = ()
    pending_ids: Sequence[str] = ()
    changed: Sequence[Seen] = ()
    vanished: Sequence[Seen] = ()
    wrong: Sequence[Seen] = ()
    unchanged_ids: Sequence[str] = field(default=())
    elsewhere: Sequence[SeenElsewhere] = ()
    moved_ids: Sequence[str] = ()
    home_ids: Sequence[str] = ()
    gone_ids: Sequence[str] = ()
    reason: str | None = None

    @property
    def has_something_to_see(self) -> bool:
        """Whether somebody should look: rows that were not settled, or not as they are; pending ones are only named."""
        return bool(self.reason or self.late_ids or self.changed or self.vanished or self.wrong)


async def recheck(
    client: ProcessorClient, store: Store, account: str, first: Date, last: Date, options: RunOptions
) -> list[RecheckedDay]:
    """Return each day of the span, in order, as the processor lists it now; one without a posted run has a `reason`."""
    after = last + timedelta(days=1)
    runs = {
        run.date: run for run in await store.read(lambda connection: posted_days(connection, account, first, after))
    }
    days = [first + timedelta(days=offset) for offset in range((last - first).days + 1)]
    return _without_shown(
        [
            await _recheck_day(client, store, runs[day], options)
            if day in runs
            else RecheckedDay(day=day, reason="it is not settled")
            for day in days
        ]
    )


def _without_shown(days: Sequence[RecheckedDay]) -> list[RecheckedDay]:
    """The days, where nothing has vanished that another of them shows."""
    shown = {identity for day in days for identity in (*day.home_ids, *day.late_ids, *day.pending_ids)}
    shown |= {seen.transaction_id for day in days for seen in (*day.changed, *day.wrong)}
    shown |= {seen.transaction_id for day in days for seen in day.elsewhere}
    return [replace(day, vanished=[seen for seen in day.vanished if seen.transaction_id not in shown]) for day in days]


async def _recheck_day(client: ProcessorClient, store: Store, run: Run, options: RunOptions) -> RecheckedDay:
    window = Window(
        start=datetime.fromtimestamp(run.window_start_s, UTC), end=datetime.fromtimestamp(run.window_end_s, UTC)
    )
    settled, written_off = await store.read(
        lambda connection: (_settled(connection, run), all_written_off(connection, run.account))
    )
    shown: dict[str, tuple[BalanceTransaction, bytes]] = {}
    row_count = 0
    try:
        async with (
            asyncio.timeout(options.pull_deadline_s),
            aclosing(client.pages(run.account, window=window, page_size=options.page_size)) as pages,
        ):
            async for page in pages:
                row_count += len(page.rows)
                told = {row.id: row for row in page.rows if _is_news(row, settled) and row.id not in written_off}
                sent = raw_rows(page.body, told)
                shown |= {identity: (row, sent[identity]) for identity, row in told.items()}
                seen = [row.id for row in page.rows if row.id in settled and row.id not in told]
                for identity in seen:
                    settled[identity] = settled[identity]._replace(is_shown=True)
    except ProcessorError as error:
        return RecheckedDay(day=run.date, reason=str(error))
    except TimeoutError:
        return RecheckedDay(day=run.date, reason=f"it could not be read within {options.pull_deadline_s} s")
    return await store.read(
        lambda connection: _compared(connection, run, window, settled, shown, row_count, options.scale)
    )


Kind = Literal["changed", "vanished", "wrong"]


class _Settled(NamedTuple):
    """A row that was settled: by which run and pull, and what is settled of it (None: nothing any more).

    Not `is_kept`: of what was settled only the id is known.
    """

    run: int
    pull: int
    content: Content | bytes | None
    is_kept: bool = True
    is_shown: bool = False


def _compared(
    connection: apsw.Connection,
    run: Run,
    window: Window,
    settled: dict[str, _Settled],
    shown: dict[str, tuple[BalanceTransaction, bytes]],
    row_count: int,
    scale: ScaleProfile,
) -> RecheckedDay:
    owed = set(owed_ids(connection, run.account))
    expected = expected_on(connection, run.account, run.date) - settled.keys()
    gone = [i for i in (*settled, *sorted(expected)) if i not in shown and not (i in settled and settled[i].is_shown)]
    gone = to_look_for(connection, run.account, run.date, gone)
    gone = [i for i in gone if i not in settled or settled[i].content is not None or not settled[i].is_kept]
    digest = digest_function(connection)
    held = find_holders(connection, run.account, [*(shown.keys() - settled.keys()), *expected], digest)
    elsewhere = {identity: held[identity] for identity in shown if identity in held}
    settled |= {
        i: _Settled(each.run.number, each.run.pull, content_of(each.content), each.is_kept) for i, each in held.items()
    }
    changed = [i for i in shown if i in settled and not (i in elsewhere and not elsewhere[i].is_other(shown[i][1]))]
    before = _sent(connection, run, {i: settled[i] for i in (*gone, *changed) if i in settled})

    def note(identity: str, kind: Kind, is_now: bytes | None, detail: str | None = None) -> Seen:
        held_by = settled[identity].run if identity in settled else None
        return Seen(
            account=run.account,
            transaction_id=identity,
            kind=kind,
            period=held[identity].period if identity in held else run.date,
            held_by_run=held_by,
            was=held[identity].content if identity in held else before.get(identity),
            is_now=is_now,
            detail=detail,
        )

    new = {identity: row for identity, (row, _) in shown.items() if identity not in settled}
    faults = {identity: _fault(row, window, scale) for identity, row in new.items()}
    live = live_ids(connection, run.account, run.date)
    missing = owed - shown.keys()
    odd = {*gone, *changed, *(identity for identity, fault in faults.items() if fault)}
    return RecheckedDay(
        day=run.date,
        row_count=row_count,
        late_ids=[i for i, row in new.items() if not faults[i] and row.status == "available"],
        pending_ids=[i for i, row in new.items() if not faults[i] and row.status == "pending"],
        changed=[note(identity, "changed", shown[identity][1]) for identity in changed],
        vanished=[note(identity, "vanished", None) for identity in gone],
        wrong=[note(i, "wrong", shown[i][1], fault) for i, fault in faults.items() if fault],
        unchanged_ids=sorted(live - odd - elsewhere.keys() - _elsewhere_by_now(connection, run, live) - missing),
        elsewhere=[
            SeenElsewhere(transaction_id=i, period=run.date, held_by_run=each.run.number)
            for i, each in elsewhere.items()
        ],
        moved_ids=sorted(set(elsewhere) - odd),
        home_ids=sorted(all_elsewhere(connection, run.account) & {i for i in settled if settled[i].is_shown}),
        gone_ids=gone,
    )


def _elsewhere_by_now(connection: apsw.Connection, run: Run, ids: set[str]) -> set[str]:
    """Those of the rows that another day's list is to show: this one says nothing of them."""
    return {identity for identity, day in seen_elsewhere(connection, run.account, ids).items() if day != run.date}


def _is_news(row: BalanceTransaction, settled: dict[str, _Settled]) -> bool:
    known = settled.get(row.id)
    return known is None or (known.is_kept and known.content != _content(row))


def _fault(row: BalanceTransaction, window: Window, scale: ScaleProfile) -> str | None:
    try:
        roll_up([row], window=window, scale=scale)
    except RunRefused as refused:
        return "; ".join(problem.detail for problem in refused.problems)
    return None


def _content(row: BalanceTransaction) -> Content | bytes | None:
    return content_of(msgspec.json.encode(row))


def _settled(connection: apsw.Connection, run: Run) -> dict[str, _Settled]:
    """Return the rows of a posted day that are settled: available in its own pull, or taken in late."""
    found: dict[str, _Settled] = {}
    period = run.date.isoformat()
    for page in counted_pages(connection, run.number, run.pull, period):
        if page.body is None:
            found |= {identity: _Settled(run.number, run.pull, None, False) for identity in page.available_ids}
        else:
            rows = [row for row in own_rows(page) if row.status == "available"]
            found |= {row.id: _Settled(run.number, run.pull, _content(row)) for row in rows}
    for identity in passed_over_ids(connection, run):
        found.pop(identity, None)
    if (covered := covered_ids(connection, run)) is not None:
        found = {identity: found.get(identity, _Settled(run.number, run.pull, None, False)) for identity in covered}
    for (number, pull), ids in late_rows_of_day(connection, run.account, run.date).items():
        found |= {identity: _Settled(number, pull, None, False) for identity in ids}
        kept = settled_rows(connection, run_by_number(connection, number), period, ids)
        found |= {identity: _Settled(number, pull, content_of(row)) for identity, row in kept.items()}
    for identity, sent in settled_content(connection, run.account, list(found)).items():
        found[identity] = found[identity]._replace(content=content_of(sent), is_kept=True)
    return found


def _sent(connection: apsw.Connection, run: Run, rows: dict[str, _Settled]) -> dict[str, bytes | None]:
    """Return the bytes with which rows were settled, where they are kept."""
    found: dict[str, bytes | None] = {}
    for number in {each.run for each in rows.values()}:
        ids = {identity for identity, each in rows.items() if each.run == number}
        found |= settled_rows(connection, run_by_number(connection, number), run.date.isoformat(), ids)
    return found | settled_content(connection, run.account, list(rows))


async def recheck_and_register(
    client: ProcessorClient, store: Store, account: str, first: Date, last: Date, options: RunOptions, *, now_ms: int
) -> list[RecheckedDay]:
    """Return the same, with what differs entered in the register of differences.

    Days with rows that nobody has settled are listed again by the runs to come, which take them in.
    """
    days = await recheck(client, store, account, first, last, options)

    def register(connection: apsw.Connection) -> None:
        for day in days:
            if day.reason is None:
                forget_elsewhere(connection, account, [*day.home_ids, *day.gone_ids])
                note_differences(connection, None, [*day.changed, *day.vanished, *day.wrong], now_ms=now_ms)
                note_unchanged(connection, account, day.unchanged_ids, now_ms=now_ms)
                note_moved(connection, account, day.moved_ids, now_ms=now_ms)
                if day.late_ids or set(day.pending_ids) - set(owed_ids(connection, account)):
                    list_again(connection, account, day.day)
        note_elsewhere(connection, account, [each for day in days for each in day.elsewhere])

    await store.write(register)
    return days
