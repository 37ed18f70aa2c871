"""Millions of transactions of one account that exist only while they are looked at.

Every row follows from the seed and its position alone: position 0 is the newest, a day holds a fixed number of rows,
and a row's block names its pattern. Start-up makes nothing and memory does not grow with the number of rows. The same
seed gives the same bytes on every machine: integers only, no clock.
"""

from __future__ import annotations

import datetime as dt
from bisect import bisect_left
from dataclasses import dataclass
from functools import lru_cache

from fake_processor.currencies import CURRENCIES
from fake_processor.listing import Totals
from fake_processor.patterns import BLOCK_ROWS, Draft
from fake_processor.templates import (
    BLOCK_FIRST,
    BLOCK_STEP,
    DAY_S,
    SUBSECOND_BITS,
    Block,
    Patterns,
    add_up,
    row_number,
    row_text,
    sum_up,
)

TRANSACTIONS_MAX = 100_000_000
DAYS_MAX = 3_660
BLOCKS_KEPT_MAX = 64  # about 60 kB each: a page ends within a block, and the next one goes on in it
LAST_DAY = dt.date(2026, 1, 15)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to generate. `currencies` lead with the one that most charges are in; `last_day` is the newest day."""

    seed: int = 1
    transactions: int = 10_000
    days: int = 30
    currencies: tuple[str, ...] = ("usd", "eur", "gbp", "jpy")
    last_day: dt.date = LAST_DAY

    def __post_init__(self) -> None:
        if not 0 <= self.transactions <= TRANSACTIONS_MAX:
            raise ValueError(f"transactions must be 0 to {TRANSACTIONS_MAX}")
        if not 1 <= self.days <= DAYS_MAX:
            raise ValueError(f"days must be 1 to {DAYS_MAX}")
        if not 2012 <= self.last_day.year <= 2285:
            raise ValueError("the last day must lie in the years 2012 to 2285, whose seconds have ten digits")
        if not self.currencies or len(set(self.currencies)) != len(self.currencies):
            raise ValueError("currencies must be at least one, each named once")
        for code in self.currencies:
            if code not in CURRENCIES:
                raise ValueError(f"currency {code} cannot be generated; known: {', '.join(CURRENCIES)}")


class GeneratedRows:
    """The rows of a plan, by position: 0 is the newest. `released`: what was pending has become available."""

    def __init__(self, plan: Plan, *, released: bool = False) -> None:
        self.plan = plan
        self.released = released
        self._day_rows = max(1, -(-plan.transactions // plan.days))
        # The oldest rows of a full day are its payouts, one per currency, of what the day before made available.
        currencies = plan.currencies if self._day_rows >= 8 * len(plan.currencies) else ()
        self._payout_currencies = currencies
        self._body_rows = self._day_rows - len(currencies)
        # Whole blocks lie against the day's end, so that what a refund refers to (which is older) is always there.
        self._pad = -self._body_rows % BLOCK_ROWS
        self._day_blocks = (self._body_rows + self._pad) // BLOCK_ROWS + 1  # the last one is the payouts'
        # Two seconds less than the day has: whole seconds are taken of a block's start and of a row's age.
        span_s = DAY_S - len(currencies) - 2
        self._unit = (span_s << SUBSECOND_BITS) // (self._body_rows + self._pad)
        self._patterns = Patterns(plan.seed, currencies=plan.currencies, unit=self._unit, released=released)
        first_day = dt.date(1970, 1, 1).toordinal()
        self._last_day_start_s = (plan.last_day.toordinal() - first_day) * DAY_S
        self.day_totals = lru_cache(maxsize=DAYS_MAX)(self._day_totals)
        self.block = lru_cache(maxsize=BLOCKS_KEPT_MAX)(self._block)
        self.count_from = lru_cache(maxsize=1024)(self._count_from)

    def __len__(self) -> int:
        return self.plan.transactions

    def prepare(self) -> None:
        """Does once, in a tenth of a second, what the first pages would have to wait for."""
        self._patterns.make_all()

    def texts(self, start: int, stop: int) -> list[bytes | memoryview]:
        """The JSON of the rows from `start` to before `stop`, in parts of one or more rows with commas between."""
        texts: list[bytes | memoryview] = []
        while start < stop:
            day, block, offset = self._place(start)
            if block == self._day_blocks - 1:
                texts.append(self._payout_text(start))
                start += 1
                continue
            count = min(stop - start, BLOCK_ROWS - offset)
            texts.append(self.block(day, block).rows(offset, offset + count))
            start += count
        return texts

    def row_id(self, position: int) -> str:
        """The id of that row."""
        day, block, offset = self._place(position)
        return f"txn_{row_number(day * self._day_blocks + block, offset)}"

    def position(self, row_id: str) -> int | None:
        """Where the row of that id stands; None for an id that no row has."""
        digits = row_id[4:]
        if len(row_id) != 16 or not (row_id.startswith("txn_") and digits.isascii() and digits.isdigit()):
            return None
        number, offset = divmod(int(digits), BLOCK_STEP)
        day, block = divmod(number - BLOCK_FIRST, self._day_blocks)
        within = block * BLOCK_ROWS + offset - self._pad
        offsets = len(self._payout_currencies) if block == self._day_blocks - 1 else BLOCK_ROWS
        position = day * self._day_rows + within
        return position if offset < offsets and within >= 0 and 0 <= position < len(self) else None

    def created(self, position: int) -> int:
        """The second of that row; it never grows from one position to the next."""
        day, block, offset = self._place(position)
        if block == self._day_blocks - 1:
            return self._day_start_s(day) + len(self._payout_currencies) - 1 - offset
        pattern = self._patterns.of_block(day * self._day_blocks + block)
        return self._block_start_s(day, block) - pattern.ages_s[offset]

    def draft(self, position: int) -> Draft:
        """What that row says, but for its number and times."""
        day, block, offset = self._place(position)
        if block == self._day_blocks - 1:
            return self._payout(day, self._payout_currencies[offset])
        return self._patterns.of_block(day * self._day_blocks + block).drafts[offset]

    def payout_rows(self, position: int) -> tuple[int, int, str] | None:
        """Where the rows stand that a payout took, [start, stop), and its currency; None when it is no payout."""
        day, block, offset = self._place(position)
        if block != self._day_blocks - 1:
            return None
        start = (day + 1) * self._day_rows
        return start, min(start + self._body_rows, len(self)), self._payout_currencies[offset]

    def totals(self) -> Totals:
        """Σ net by status and currency, over all rows."""
        totals: Totals = {"available": {}, "pending": {}}
        for day in range(-(-len(self) // self._day_rows)):
            add_up(totals, self.day_totals(day))
            is_full = (day + 1) * self._day_rows <= len(self)
            for currency in self._payout_currencies if is_full else ():
                available = totals["available"]
                available[currency] = available.get(currency, 0) + self._payout(day, currency).net
        if self.released:
            add_up(totals, {"available": totals["pending"]})
            totals["pending"] = {}
        return totals

    def _place(self, position: int) -> tuple[int, int, int]:
        """The day (0 is the last), the block in it and the offset in that."""
        day, within = divmod(position, self._day_rows)
        if within >= self._body_rows:
            return day, self._day_blocks - 1, within - self._body_rows
        block, offset = divmod(within + self._pad, BLOCK_ROWS)
        return day, block, offset

    def _day_start_s(self, day: int) -> int:
        return self._last_day_start_s - day * DAY_S

    def _block_start_s(self, day: int, block: int) -> int:
        newest = (self._day_start_s(day) + DAY_S - 1) << SUBSECOND_BITS
        return (newest - (block * BLOCK_ROWS - self._pad) * self._unit) >> SUBSECOND_BITS

    def _block(self, day: int, block: int) -> Block:
        """A block is written as a whole: the page that follows will want the rest of it."""
        number = day * self._day_blocks + block
        start_s = self._block_start_s(day, block)
        return self._patterns.of_block(number).block(number, start_s=start_s, day_start_s=self._day_start_s(day))

    def _count_from(self, created_s: int) -> int:
        """How many rows are of that second or newer."""
        # Newest first means falling seconds; bisect wants a rising key, hence the sign.
        return bisect_left(range(len(self)), 1 - created_s, key=lambda position: -self.created(position))

    def _day_totals(self, day: int) -> Totals:
        """Σ net of a day's rows, payouts left out, as it was when the day was paid out."""
        totals: Totals = {"available": {}, "pending": {}}
        stop = min(self._body_rows, max(0, len(self) - day * self._day_rows)) + self._pad
        at = self._pad
        while at < stop:
            block, offset = divmod(at, BLOCK_ROWS)
            count = min(BLOCK_ROWS - offset, stop - at)
            pattern = self._patterns.of_block(day * self._day_blocks + block)
            add_up(totals, pattern.totals if count == BLOCK_ROWS else sum_up(pattern.drafts[offset : offset + count]))
            at += count
        return totals

    def _payout(self, day: int, currency: str) -> Draft:
        # Of either sign: a day that came to less than nothing is collected from the bank.
        paid = self.day_totals(day + 1)["available"].get(currency, 0)
        return Draft(
            kind="payout",
            category="payout",
            prefix="po",
            description="PAYKIT PAYOUT",
            currency=currency,
            amount=-paid,
            fee=0,
        )

    def _payout_text(self, position: int) -> bytes:
        created = self.created(position)
        available_on = created - created % DAY_S + DAY_S
        number = self.row_id(position).removeprefix("txn_")
        return row_text(self.draft(position), number=number, available_on=available_on, created=created).encode("ascii")
