"""Generated rows as text with holes for their number and times, so that writing a page is joining pieces.

A generated account is a row of blocks drawn from 32 patterns: any page can be written without the rows before it, and
a sum over millions of rows is a sum over blocks. Patterns are made when they are first needed, and kept.
"""

from __future__ import annotations

from fake_processor.dice import Dice, mix
from fake_processor.listing import Totals
from fake_processor.patterns import BLOCK_ROWS, Draft, block

PATTERN_COUNT = 32
SUBSECOND_BITS = 20

LAG_DAYS = 2
LAG_DAYS_PENDING = 7

_START = '{"id":"txn_'


Template = tuple[str, str, str, str, int, int]
"""A row's text after its number, after available_on, after created and after the second number; the days until it is
available; its age, by which it is older than its block's start, in 2^-20 seconds. A tuple, as it is unpacked for every
row of every page."""


def template(draft: Draft, *, age: int = 0, released: bool = False) -> Template:
    """The text of a row of that age; `released`: one that was pending has become available."""
    fee_details = ""
    if draft.fee:
        fee_details = (
            f'{{"amount":{draft.fee},"application":null,"currency":"{draft.currency}",'
            f'"description":"Processing fees","type":"stripe_fee"}}'
        )
    status = "pending" if draft.pending and not released else "available"
    return (
        f'","object":"balance_transaction","amount":{draft.amount},"available_on":',
        ',"balance_type":"payments","created":',
        f',"currency":"{draft.currency}","description":"{draft.description}","exchange_rate":null,"fee":{draft.fee},'
        f'"fee_details":[{fee_details}],"net":{draft.net},"reporting_category":"{draft.category}",'
        f'"source":"{draft.prefix}_',
        f'","status":"{status}","type":"{draft.kind}"}}',
        LAG_DAYS_PENDING if draft.pending else LAG_DAYS,
        age,
    )


def write_row(row: Template, *, number: int, available_on: int, created: int) -> str:
    """The JSON text of one row, in the spelling that pages have."""
    after_number, after_available_on, after_created, end, _, _ = row
    return f"{_START}{number}{after_number}{available_on}{after_available_on}{created}{after_created}{number}{end}"


class Pattern:
    """The rows of one block, newest first: what they say, how they are written, and what their nets come to.

    Drafts and totals are those of the first day: a row that was pending then stays so in them, whatever is written."""

    def __init__(self, drafts: list[Draft], *, ages: list[int], released: bool) -> None:
        self.drafts = drafts
        self.ages = ages
        self.rows = [template(draft, age=age, released=released) for draft, age in zip(drafts, ages, strict=True)]
        self.totals = sum_up(drafts)


class Patterns:
    """The patterns of one seed. `unit` is the time from row to row, in 2^-20 seconds."""

    def __init__(self, seed: int, *, currencies: tuple[str, ...], unit: int, released: bool) -> None:
        self._seed = seed
        self._names = mix(seed, 2)
        self._currencies = currencies
        self._unit = unit
        self._released = released
        self._made: dict[int, Pattern] = {}

    def of_block(self, day: int, block_of_day: int) -> Pattern:
        """The pattern that a block has."""
        number = mix(self._names ^ (day << 32) ^ block_of_day) % PATTERN_COUNT
        pattern = self._made.get(number)
        if pattern is None:
            drafts = block(self._seed, number, self._currencies)
            dice = Dice(self._seed, 3, number)
            ages = [offset * self._unit + dice.below(self._unit) for offset in range(BLOCK_ROWS)]
            pattern = self._made[number] = Pattern(drafts, ages=ages, released=self._released)
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
