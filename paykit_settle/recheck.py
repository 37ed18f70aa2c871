"""`recheck`: days that were settled are listed again and held against what was settled of them. It settles nothing.

What differs goes into the register of differences, for a person to end.
"""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from datetime import date as Date
from typing import Any, Literal, NamedTuple

import apsw
import msgspec

from paykit_settle.client import ProcessorClient
from paykit_settle.corrections import Content, content_of, raw_rows
from paykit_settle.errors import ProcessorError, RunRefused
from paykit_settle.models import BalanceTransaction
from paykit_settle.money import ScaleProfile
from paykit_settle.run import RunOptions
from paykit_settle.settlement import roll_up
from paykit_settle.store.differences import Seen, live_ids, note_differences, note_unchanged, settled_content
from paykit_settle.store.evidence import counted_pages, own_rows
from paykit_settle.store.evidence_rows import covered_ids, settled_rows
from paykit_settle.store.relisting import late_rows_of_day, written_off_ids
from paykit_settle.store.runs import Run, posted_days, run_by_number
from paykit_settle.store.settled import passed_over_ids
from paykit_settle.store.store import Store
from paykit_settle.window import Window


@dataclass(frozen=True, slots=True, kw_only=True)
class RecheckedDay:
    """What one day shows when it is listed again. `reason`: why it could not be read whole; then nothing else counts.

    `late_ids` are rows that are available and that nobody has settled yet, `pending_ids` those that are owed;
    `unchanged_ids` rows with an open difference that are as they should be.
    """

    day: Date
    row_count: int = 0
    late_ids: Sequence[str] = ()
    pending_ids: Sequence[str] = ()
    changed: Sequence[Seen] = ()
    vanished: Sequence[Seen] = ()
    wrong: Sequence[Seen] = ()
    unchanged_ids: Sequence[str] = field(default=())
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
    return [
        await _recheck_day(client, store, runs[day], options)
        if day in runs
        else RecheckedDay(day=day, reason="it is not settled")
        for day in days
    ]


async def _recheck_day(client: ProcessorClient, store: Store, run: Run, options: RunOptions) -> RecheckedDay:
    window = Window(
        start=datetime.fromtimestamp(run.window_start_s, UTC), end=datetime.fromtimestamp(run.window_end_s, UTC)
    )
    settled, written_off = await store.read(
        lambda connection: (_settled(connection, run), _written_off(connection, run))
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
    """A row that was settled: by which run and pull, and with which content (None: only its id is kept)."""

    run: int
    pull: int
    content: Content | bytes | None
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
    gone = [identity for identity, each in settled.items() if not each.is_shown and identity not in shown]
    changed = [identity for identity in shown if identity in settled]
    before = _sent(connection, run, {identity: settled[identity] for identity in [*gone, *changed]})

    def note(identity: str, kind: Kind, is_now: bytes | None, detail: str | None = None) -> Seen:
        held_by = settled[identity].run if identity in settled else None
        return Seen(
            account=run.account,
            transaction_id=identity,
            kind=kind,
            period=run.date,
            held_by_run=held_by,
            was=before.get(identity),
            is_now=is_now,
            detail=detail,
        )

    new = {identity: row for identity, (row, _) in shown.items() if identity not in settled}
    faults = {identity: _fault(row, window, scale) for identity, row in new.items()}
    live = live_ids(connection, run.account, run.date)
    odd = {*gone, *changed, *(identity for identity, fault in faults.items() if fault)}
    return RecheckedDay(
        day=run.date,
        row_count=row_count,
        late_ids=[i for i, row in new.items() if not faults[i] and row.status == "available"],
        pending_ids=[i for i, row in new.items() if not faults[i] and row.status == "pending"],
        changed=[note(identity, "changed", shown[identity][1]) for identity in changed],
        vanished=[note(identity, "vanished", None) for identity in gone],
        wrong=[note(i, "wrong", shown[i][1], fault) for i, fault in faults.items() if fault],
        unchanged_ids=sorted(set(live) - odd),
    )


def _is_news(row: BalanceTransaction, settled: dict[str, _Settled]) -> bool:
    known = settled.get(row.id)
    return known is None or (known.content is not None and known.content != _content(row))


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
            found |= {identity: _Settled(run.number, run.pull, None) for identity in page.available_ids}
        else:
            rows = [row for row in own_rows(page) if row.status == "available"]
            found |= {row.id: _Settled(run.number, run.pull, _content(row)) for row in rows}
    for identity in passed_over_ids(connection, run):
        found.pop(identity, None)
    if (covered := covered_ids(connection, run)) is not None:
        found = {identity: found.get(identity, _Settled(run.number, run.pull, None)) for identity in covered}
    for (number, pull), ids in late_rows_of_day(connection, run.account, run.date).items():
        found |= {identity: _Settled(number, pull, None) for identity in ids}
        kept = settled_rows(connection, run_by_number(connection, number), period, ids)
        found |= {identity: _Settled(number, pull, content_of(row)) for identity, row in kept.items()}
    for identity, sent in settled_content(connection, run.account, list(found)).items():
        found[identity] = found[identity]._replace(content=content_of(sent))
    return found


def _written_off(connection: apsw.Connection, run: Run) -> set[str]:
    return set(written_off_ids(connection, run.account, run.date))


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
    """Return the same, with what differs entered in the register of differences."""
    days = await recheck(client, store, account, first, last, options)

    def register(connection: apsw.Connection) -> None:
        for day in days:
            if day.reason is None:
                note_differences(connection, None, [*day.changed, *day.vanished, *day.wrong], now_ms=now_ms)
                note_unchanged(connection, account, day.unchanged_ids, now_ms=now_ms)

    await store.write(register)
    return days


def recheck_json(account: str, day: RecheckedDay) -> dict[str, Any]:
    """Return one day as JSON values: counts, and the ids of what there is to see."""
    return {
        "account": account,
        "date": day.day.isoformat(),
        "rows": day.row_count,
        "late": list(day.late_ids),
        "pending": list(day.pending_ids),
        "changed": [seen.transaction_id for seen in day.changed],
        "vanished": [seen.transaction_id for seen in day.vanished],
        "wrong": [{"id": seen.transaction_id, "detail": seen.detail} for seen in day.wrong],
        "reason": day.reason,
    }


def recheck_lines(day: RecheckedDay) -> list[str]:
    """Return the same for a person: one line for a day that is as it was settled."""
    if day.reason is not None:
        return [f"{day.day}  not read: {day.reason}"]
    found = [
        *(("late", identity) for identity in day.late_ids),
        *(("pending", identity) for identity in day.pending_ids),
        *((seen.kind, seen.transaction_id + (f"  {seen.detail}" if seen.detail else ""))
          for seen in (*day.changed, *day.vanished, *day.wrong)),
    ]  # fmt: skip
    rows = f"{day.day}  {day.row_count} row{'s' * (day.row_count != 1)}"
    return [rows + ("" if found else ", as they were settled"), *(f"    {kind:<9} {what}" for kind, what in found)]
