"""Blocks of generated rows: pieces of text with numbers and times between, put together for all rows at once.

A generated account is a row of blocks drawn from 32 patterns: any page can be written without the rows before it, and a
sum over millions of rows is a sum over blocks. Patterns are made when they are first needed, or beforehand, and kept.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from operator import itemgetter
from typing import NamedTuple

from fake_processor.dice import Dice, mix
from fake_processor.listing import Totals
from fake_processor.patterns import BLOCK_ROWS, Draft, block

PATTERN_COUNT = 32
SUBSECOND_BITS = 20
BLOCK_FIRST = 100_000_000
BLOCK_STEP = 1_000

LAG_DAYS = 2
LAG_DAYS_PENDING = 7
DAY_S = 86_400

# No JSON text holds this, so it can stand where a number or a time is filled in.
_HOLE = "\x01"
# Every hole is filled to the same length, so a row lies at the same place in all blocks of its pattern.
_BLOCK_DIGITS = 9
_TIME_DIGITS = 10
_ROW_PIECES = 7
# Neighbours' times differ in the last four digits, and seldom in those before. The four, falling as times do from row
# to row, and twice round so that any stretch of them is one slice.
_TURN_S = 10_000
_SECONDS = [b"%04d" % second for second in reversed(range(_TURN_S))] * 2


def row_number(block_number: int, offset: int) -> str:
    """What a row's id and source end in: twelve digits that grow from a row to an older one."""
    return f"{(BLOCK_FIRST + block_number) * BLOCK_STEP + offset}"


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


class Block(NamedTuple):
    """The JSON of a block's rows with commas between; each row lies from its start to a comma before the next."""

    text: memoryview
    starts: list[int]

    def rows(self, first: int, last: int) -> memoryview:
        """The part that holds the rows from offset `first` to before `last`, not copied."""
        return self.text[self.starts[first] : self.starts[last] - 1]


class Pattern:
    """The rows of one block, newest first: what they say, how they are written, and what their nets come to.

    Drafts and totals are those of the first day: a row that was pending then stays so in them, whatever is written.
    `ages_s` are the whole seconds by which each is older than the block's start; they never fall.
    """

    def __init__(self, drafts: list[Draft], *, ages_s: list[int], released: bool) -> None:
        self.drafts = drafts
        self.ages_s = ages_s
        self.totals = sum_up(drafts)
        self._pending = [offset for offset, draft in enumerate(drafts) if draft.pending]
        self._ages_span = min(ages_s[-1] + 1, _TURN_S)
        self._at_ages = itemgetter(*[age_s % _TURN_S for age_s in ages_s])
        self._pieces: list[bytes] = []
        lengths = []
        for offset, draft in enumerate(drafts):
            row = row_text(draft, number=f"{_HOLE}{offset:03d}", available_on=_HOLE, created=_HOLE, released=released)
            opening, as_far_as_times, between, as_far_as_source, closing = row.encode("ascii").split(_HOLE.encode())
            self._pieces += (b"", as_far_as_times, b"", b"", as_far_as_source, b"", closing)
            self._opening, self._between = opening, between  # the same in every row
            lengths.append(len(row) + 2 * (_BLOCK_DIGITS - 1) + 2 * (_TIME_DIGITS - 1) + 1)
        self._starts = [0, *accumulate(lengths)]

    def block(self, block_number: int, *, start_s: int, day_start_s: int) -> Block:
        """The block of that number, written. Each step does all rows at once: one per row would show."""
        number = b"%d" % (BLOCK_FIRST + block_number)
        newest = _TURN_S - 1 - start_s % _TURN_S
        pieces = self._pieces.copy()
        pieces[0::_ROW_PIECES] = [b",%b%b" % (self._opening, number)] * BLOCK_ROWS
        pieces[2::_ROW_PIECES] = self._times(start_s, day_start_s)
        pieces[3::_ROW_PIECES] = self._at_ages(_SECONDS[newest : newest + self._ages_span])
        pieces[5::_ROW_PIECES] = [number] * BLOCK_ROWS
        pieces[0] = self._opening + number
        return Block(memoryview(b"".join(pieces)), self._starts)

    def _times(self, start_s: int, day_start_s: int) -> list[bytes]:
        """Of each row both times and what stands between them, but for the last four digits."""
        after_available_on = b"%d%b" % (day_start_s + LAG_DAYS * DAY_S, self._between)
        times: list[bytes] = []
        turn, second = divmod(start_s, _TURN_S)
        while len(times) < BLOCK_ROWS:
            times += [b"%b%d" % (after_available_on, turn)] * (bisect_right(self.ages_s, second) - len(times))
            turn, second = turn - 1, second + _TURN_S
        for offset in self._pending:
            turn = (start_s - self.ages_s[offset]) // _TURN_S
            times[offset] = b"%d%b%d" % (day_start_s + LAG_DAYS_PENDING * DAY_S, self._between, turn)
        return times


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
        return self._pattern(mix(self._names ^ block_number) % PATTERN_COUNT)

    def make_all(self) -> None:
        """Makes those that are not made yet, so that no request has to wait for them."""
        for number in range(PATTERN_COUNT):
            self._pattern(number)

    def _pattern(self, number: int) -> Pattern:
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
