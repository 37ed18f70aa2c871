"""Decides which rows of earlier days a run takes in, and what else of them is named. Asks nobody but the database.

A row that another run holds, that stands on the run's own day, or that a later day may have settled is not taken in.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date as Date

from paykit_settle.accumulator import Accumulator
from paykit_settle.corrections import Correction, content_of
from paykit_settle.earlier_days import EarlierDayRows
from paykit_settle.errors import RunRefused
from paykit_settle.models import BalanceTransaction, EarlierDay, HeldBack, LatePeriod, MovedRow, RollUp
from paykit_settle.money import ScaleProfile
from paykit_settle.store.differences import Seen
from paykit_settle.store.earlier_plan import OwedRow
from paykit_settle.store.elsewhere import SeenElsewhere
from paykit_settle.store.settled import Holder
from paykit_settle.transaction_types import MOVES_BALANCE

ROWS_NAMED_MAX = 100


@dataclass(slots=True, kw_only=True)
class LateRows:
    """What a run takes in of earlier days (`late`, `late_ids`), what they owe (`pending`), and what is named."""

    late: list[LatePeriod] = field(default_factory=list)
    late_ids: list[tuple[Date, str]] = field(default_factory=list)
    pending: list[tuple[Date, BalanceTransaction]] = field(default_factory=list)
    moved: list[MovedRow] = field(default_factory=list)
    differences: list[Seen] = field(default_factory=list)
    moved_ids: set[str] = field(default_factory=set)
    shown_ids: set[str] = field(default_factory=set)
    elsewhere: list[SeenElsewhere] = field(default_factory=list)
    missing_ids: set[str] = field(default_factory=set)
    held_back: list[HeldBack] = field(default_factory=list)
    written_off_available: set[str] = field(default_factory=set)
    unusual_days: list[Date] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known when rows are chosen: who holds which row, which stand on the run's own day, and the rows' bytes.

    `written_off` are rows that a person dealt with, perhaps since they were read; `blocked` days whose late rows must
    stay owed, with the reason; `sent` the bytes of rows as they are shown now, by day and id; `owed` what was
    registered of rows that are owed.
    """

    account: str
    scale: ScaleProfile
    holders: Mapping[str, Holder]
    own_ids: Collection[str]
    written_off: Collection[str]
    blocked: Mapping[Date, str]
    sent: Mapping[Date, Mapping[str, bytes]]
    owed: Mapping[str, OwedRow]


def odd_ids(days: Iterable[EarlierDayRows]) -> set[str]:
    """Return the rows of earlier days of which somebody has to ask who holds them."""
    return {
        identity
        for day in days
        if day.given_up is None
        for identity in (*day.late, *day.pending, *day.changed, *day.missing, *day.wrong)
    }


def choose_late_rows(days: Iterable[EarlierDayRows], facts: Facts) -> LateRows:
    """Return what a run takes in of the days, in their order."""
    chosen, taken = LateRows(), set[str]()
    days = [day for day in days if day.given_up is None]
    for day in days:
        _choose(day, days, facts, chosen, taken)
    chosen.elsewhere = [each for each in chosen.elsewhere if each.transaction_id not in chosen.shown_ids]
    return chosen


def is_shown(identity: str, days: Iterable[EarlierDayRows]) -> bool:
    """Return whether any of the days shows a row, as whatever."""
    return any(identity in each for day in days for each in (day.shown, day.late, day.pending, day.changed, day.wrong))


def earlier_day_notes(days: Iterable[EarlierDayRows]) -> tuple[EarlierDay, ...]:
    """Return the days that were read, how and why, and which of them were given up."""
    return tuple(EarlierDay(period=day.period, how=day.how, why=day.why, given_up=day.given_up) for day in days)


def _choose(
    day: EarlierDayRows, days: Sequence[EarlierDayRows], facts: Facts, chosen: LateRows, taken: set[str]
) -> None:
    free: dict[str, BalanceTransaction] = {}
    for identity, row in (day.late | day.pending).items():
        if identity in facts.holders:
            continue
        if identity in facts.written_off:
            chosen.written_off_available |= {identity} & set(day.late)
        elif identity not in facts.own_ids and identity not in taken:
            free[identity] = row
    late = {identity: row for identity, row in free.items() if identity in day.late}
    if late and (why := facts.blocked.get(day.period)) is not None:
        ids = tuple(sorted(late))[:ROWS_NAMED_MAX]
        chosen.held_back.append(HeldBack(period=day.period, count=len(late), ids=ids, why=why))
        # It is owed like a row that is not available yet: the register keeps it for the run that may take it in.
        late = {}
    pending = {identity: row for identity, row in free.items() if identity not in late}
    roll_up = _roll_up(day, late, pending, facts)
    if roll_up is None:
        return
    taken |= set(free)
    chosen.late_ids += [(day.period, identity) for identity in late]
    chosen.pending += [(day.period, row) for row in pending.values() if row.type not in MOVES_BALANCE]
    passed = [identity for identity in (*day.late, *day.pending, *day.wrong) if identity in facts.holders]
    for identity in passed:
        _note_moved(day, identity, facts.holders[identity], facts, chosen)
    chosen.shown_ids |= day.shown.difference(passed)
    chosen.written_off_available |= day.written_off_available
    chosen.unusual_days += [day.period] * day.is_unusual
    chosen.missing_ids |= set(day.missing)
    vanished = [i for i in day.missing if i not in facts.own_ids and not is_shown(i, days)]
    _note_differences(day, vanished, facts, chosen)
    amended = tuple(sorted(identity for identity, row in late.items() if _is_amended(row, facts)))
    if late or day.changed or vanished or day.wrong:
        chosen.late.append(
            LatePeriod(
                period=day.period,
                roll_up=roll_up,
                changed_ids=tuple(sorted(day.changed))[:ROWS_NAMED_MAX],
                vanished_ids=tuple(sorted(vanished))[:ROWS_NAMED_MAX],
                wrong_ids=tuple(sorted(day.wrong))[:ROWS_NAMED_MAX],
                amended_ids=amended[:ROWS_NAMED_MAX],
            )
        )


def _roll_up(
    day: EarlierDayRows,
    late: Mapping[str, BalanceTransaction],
    pending: Mapping[str, BalanceTransaction],
    facts: Facts,
) -> RollUp | None:
    """The sums of a day's rows; None, and the day is given up, when they leave the range of an amount."""
    accumulator = Accumulator(scale=facts.scale)  # each row has been looked at, and may be of any time by now
    accumulator.add([*late.values(), *(row for row in pending.values() if row.status == "pending")])
    try:
        return accumulator.finish(lambda: ())
    except RunRefused as refused:
        day.given_up = str(refused)
        return None


def _note_moved(day: EarlierDayRows, identity: str, holder: Holder, facts: Facts, chosen: LateRows) -> None:
    now = facts.sent.get(day.period, {}).get(identity)
    is_different = now is not None and holder.is_other(now)
    chosen.moved.append(
        MovedRow(
            id=identity,
            period=day.period,
            run=holder.run.id,
            held_under=holder.period,
            is_different=is_different,
        )
    )
    if is_different:
        chosen.differences.append(seen_of(facts.account, identity, holder, "changed", holder.period, now))
    else:
        chosen.moved_ids.add(identity)
    if holder.period != day.period:
        chosen.elsewhere.append(
            SeenElsewhere(transaction_id=identity, period=day.period, held_by_run=holder.run.number)
        )


def _note_differences(day: EarlierDayRows, vanished: Iterable[str], facts: Facts, chosen: LateRows) -> None:
    sent = facts.sent.get(day.period, {})
    for identity in sorted(day.changed):
        holder = facts.holders.get(identity)
        chosen.differences.append(seen_of(facts.account, identity, holder, "changed", day.period, sent.get(identity)))
    for identity in sorted(vanished):
        holder = facts.holders.get(identity)
        period = day.period if holder is None else holder.period
        chosen.differences.append(seen_of(facts.account, identity, holder, "vanished", period, None))
    for identity, detail in sorted(day.wrong.items()):
        if identity not in facts.holders:
            seen = seen_of(facts.account, identity, None, "wrong", day.period, sent.get(identity), detail)
            chosen.differences.append(seen)


def seen_of(
    account: str,
    identity: str,
    holder: Holder | None,
    kind: str,
    period: Date,
    is_now: bytes | None,
    detail: str | None = None,
) -> Seen:
    """Return what was seen of a row, for the register of differences."""
    return Seen(
        account=account,
        transaction_id=identity,
        kind=kind,  # type: ignore[arg-type]  # one of the three kinds, from the callers above
        period=period,
        held_by_run=holder.run.number if holder is not None else None,
        was=holder.content if holder is not None else None,
        is_now=is_now,
        detail=detail,
    )


def _is_amended(row: BalanceTransaction, facts: Facts) -> bool:
    owed = facts.owed.get(row.id)
    if owed is None:
        return False
    currency = row.currency.lower()
    now = (row.type, currency, facts.scale.from_wire(row.amount, currency), facts.scale.from_wire(row.fee, currency))
    return now != (owed.type, owed.currency, owed.amount, owed.fee)


def still_standing(
    corrections: Iterable[Correction], shown_ids: Collection[str], seen: Iterable[Seen]
) -> list[Correction]:
    """Return the corrections whose rows were not just seen otherwise: as they were settled before, or changed again.

    Of a row that has several the last one decides: each begins with what the one before it came to.
    """
    corrections = list(corrections)
    now = {each.transaction_id: content_of(each.is_now) for each in seen}
    newest = {each.transaction_id: content_of(each.is_now) for each in sorted(corrections, key=lambda it: it.revision)}
    return [
        each
        for each in corrections
        if each.transaction_id not in shown_ids
        and now.get(each.transaction_id, newest[each.transaction_id]) == newest[each.transaction_id]
    ]
