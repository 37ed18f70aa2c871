"""Blocks of generated rows as text with holes for numbers and times, filled in by a few operations on the whole block.

A generated account is a row of blocks drawn from 32 patterns: any page can be written without the rows before it, and a
sum over millions of rows is a sum over blocks. Patterns are made when they are first needed, and kept.
"""

from __future__ import annotations

from itertools import accumulate

from fake_processor.dice import Dice, mix
from fake_processor.listing import Totals
from fake_processor.patterns import BLOCK_ROWS, Draft, block

PATTERN_COUNT = 32
SUBSECOND_BITS = 20
BLOCK_FIRST = 100_000_000

LAG_DAYS = 2
LAG_DAYS_PENDING = 7
DAY_S = 86_400

# No JSON text holds these, so they can stand for what is filled in.
_BLOCK, _AVAILABLE, _AVAILABLE_LATE, _CREATED = "\x01", "\x02", "\x03", "\x04"
# Every hole is filled to the same length, so a row lies at the same place in all blocks of its pattern.
_BLOCK_DIGITS = 9
_TIME_DIGITS = 10
_OFFSETS = [f"{offset:03d}" for offset in range(1_000)]


def row_number(block_number: int, offset: int) -> str:
    """What a row's id and source end in: twelve digits that grow from a row to an older one."""
    return f"{BLOCK_FIRST + block_number}{_OFFSETS[offset]}"


def row_text(draft: Draft, *, number: str, available_on: int | str, created: int | str, released: bool = False) -> str:
    """The JSON text of one row; `released`: one that was pending has become available."""
    fee_details = ""
    if draft.fee:
        fee_details = (
            f'{{"amount":{draft.fee},"application":null,"currency":"{draft.currency}",'
            f'"description":"Processing fees","type":"stripe_fee"}}'
        )
    status = "pending" if draft.pending and not released else "available"
    return (
        f'{{"id":"txn_{number}","object":"balance_transaction","amount":{draft.amount},"available_on":{available_on},'
        f'"balance_type":"payments","created":{created},"currency":"{draft.currency}",'
        f'"description":"{draft.description}","exchange_rate":null,"fee":{draft.fee},"fee_details":[{fee_details}],'
        f'"net":{draft.net},"reporting_category":"{draft.category}","source":"{draft.prefix}_{number}",'
        f'"status":"{status}","type":"{draft.kind}"}}'
    )


class Pattern:
    """The rows of one block, newest first: what they say, how they are written, and what their nets come to.

    Drafts and totals are those of the first day: a row that was pending then stays so in them, whatever is written.
    `ages_s` are the whole seconds by which each is older than the block's start.
    """

    def __init__(self, drafts: list[Draft], *, ages_s: list[int], released: bool) -> None:
        self.drafts = drafts
        self.ages_s = ages_s
        self.totals = sum_up(drafts)
        rows = [
            row_text(
                draft,
                number=f"{_BLOCK}{offset:03d}",
                available_on=_AVAILABLE_LATE if draft.pending else _AVAILABLE,
                created=_CREATED,
                released=released,
            )
            for offset, draft in enumerate(drafts)
        ]
        # Each row has its block's number twice, and two times.
        filled = 2 * (_BLOCK_DIGITS - 1) + 2 * (_TIME_DIGITS - 1)
        self._starts = [0, *accumulate(len(row) + filled + 1 for row in rows)]
        self._around_created = ",".join(rows).split(_CREATED)

    def text(self, block_number: int, *, start_s: int, day_start_s: int) -> bytes:
        """The JSON of a block's rows with commas between. Each step does all rows at once: one per row would show."""
        pieces = [""] * (2 * BLOCK_ROWS + 1)
        pieces[::2] = self._around_created
        pieces[1::2] = [str(start_s - age_s) for age_s in self.ages_s]
        text = "".join(pieces).encode("ascii")
        for hole, filling in (
            (_BLOCK, BLOCK_FIRST + block_number),
            (_AVAILABLE, day_start_s + LAG_DAYS * DAY_S),
            (_AVAILABLE_LATE, day_start_s + LAG_DAYS_PENDING * DAY_S),
        ):
            text = text.replace(hole.encode("ascii"), b"%d" % filling)
        return text

    def rows_of(self, text: bytes, start: int, stop: int) -> memoryview:
        """The part of a block's text that holds the rows from offset `start` to before `stop`, not copied."""
        return memoryview(text)[self._starts[start] : self._starts[stop] - 1]


class Patterns:
    """The patterns of one seed. `unit` is the time from row to row, in 2^-20 seconds."""

    def __init__(self, seed: int, *, currencies: tuple[str, ...], unit: int, released: bool) -> None:
        self._seed = seed
        self._names = mix(seed, 2)
        self._currencies = currencies
        self._unit = unit
        self._released = released
        self._made: dict[int, Pattern] = {}

    def of_block(self, block_number: int) -> Pattern:
        """The pattern that a block has."""
        number = mix(self._names ^ block_number) % PATTERN_COUNT
        pattern = self._made.get(number)
        if pattern is None:
            drafts = block(self._seed, number, self._currencies)
            dice = Dice(self._seed, 3, number)
            ages = [offset * self._unit + dice.below(self._unit) for offset in range(BLOCK_ROWS)]
            pattern = self._made[number] = Pattern(
                drafts, ages_s=[age >> SUBSECOND_BITS for age in ages], released=self._released
            )
        return pattern


def sum_up(drafts: list[Draft]) -> Totals:
    """Σ net by status and currency."""
    totals: Totals = {"available": {}, "pending": {}}
    for draft in drafts:
        by_currency = totals["pending" if draft.pending else "available"]
        by_currency[draft.currency] = by_currency.get(draft.currency, 0) + draft.net
    return totals


def add_up(totals: Totals, more: Totals) -> None:
    """Add the second to the first."""
    for status, by_currency in more.items():
        for currency, net in by_currency.items():
            totals[status][currency] = totals[status].get(currency, 0) + net
