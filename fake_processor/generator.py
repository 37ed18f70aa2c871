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
    LAG_DAYS,
    LAG_DAYS_PENDING,
    SUBSECOND_BITS,
    Patterns,
    add_up,
    sum_up,
    template,
    write_row,
)

TRANSACTIONS_MAX = 100_000_000
DAYS_MAX = 3_660
DAY_S = 86_400
NUMBER_FIRST = 1_000_000_000
BLOCKS_KEPT_MAX = 320  # about 60 kB each: what one client pages through for a while
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
        self._unit = (((DAY_S - len(currencies)) << SUBSECOND_BITS) - 1) // (self._body_rows + self._pad)
        self._patterns = Patterns(plan.seed, currencies=plan.currencies, unit=self._unit, released=released)
        first_day = dt.date(1970, 1, 1).toordinal()
        self._last_day_start_s = (plan.last_day.toordinal() - first_day) * DAY_S
        self.day_totals = lru_cache(maxsize=DAYS_MAX)(self._day_totals)
        self.block_texts = lru_cache(maxsize=BLOCKS_KEPT_MAX)(self._block_texts)
        self.count_from = lru_cache(maxsize=1024)(self._count_from)

    def __len__(self) -> int:
        return self.plan.transactions

    def texts(self, start: int, stop: int) -> list[bytes]:
        """The JSON texts of the rows from `start` to before `stop`."""
        texts: list[bytes] = []
        while start < stop:
            day, within = divmod(start, self._day_rows)
            if within >= self._body_rows:
                texts.append(self._payout_text(start))
                start += 1
                continue
            block, offset = divmod(within + self._pad, BLOCK_ROWS)
            count = min(stop - start, BLOCK_ROWS - offset, self._body_rows - within)
            texts += self.block_texts(day, block)[offset : offset + count]
            start += count
        return texts

    def _block_texts(self, day: int, block: int) -> list[bytes]:
        """The texts of a whole block: the pages that follow will want the rest of it."""
        day_start_s = self._last_day_start_s - day * DAY_S
        newest = ((day_start_s + DAY_S) << SUBSECOND_BITS) - 1 - (block * BLOCK_ROWS - self._pad) * self._unit
        available_on = {lag: str(day_start_s + lag * DAY_S) for lag in (LAG_DAYS, LAG_DAYS_PENDING)}
        number = NUMBER_FIRST + day * self._day_rows + block * BLOCK_ROWS - self._pad
        texts = []
        # `write_row` written out: these lines make every page, and a call per row would show.
        for after_number, after_available_on, after_created, end, lag_days, age in self._patterns.of_block(
            day, block
        ).rows:
            own = str(number)
            texts.append(
                f'{{"id":"txn_{own}{after_number}{available_on[lag_days]}{after_available_on}'
                f"{(newest - age) >> SUBSECOND_BITS}{after_created}{own}{end}".encode()
            )
            number += 1
        return texts

    def created(self, position: int) -> int:
        """The second of that row; it never grows from one position to the next."""
        day, within = divmod(position, self._day_rows)
        day_start_s = self._last_day_start_s - day * DAY_S
        if within >= self._body_rows:
            return day_start_s + self._day_rows - 1 - within
        block, offset = divmod(within + self._pad, BLOCK_ROWS)
        age = (block * BLOCK_ROWS - self._pad) * self._unit + self._patterns.of_block(day, block).ages[offset]
        return (((day_start_s + DAY_S) << SUBSECOND_BITS) - 1 - age) >> SUBSECOND_BITS

    def draft(self, position: int) -> Draft:
        """What that row says, but for its number and times."""
        day, within = divmod(position, self._day_rows)
        if within >= self._body_rows:
            return self._payout(day, self._payout_currencies[within - self._body_rows])
        block, offset = divmod(within + self._pad, BLOCK_ROWS)
        return self._patterns.of_block(day, block).drafts[offset]

    def payout_rows(self, position: int) -> tuple[int, int, str] | None:
        """Where the rows stand that a payout took, [start, stop), and its currency; None when it is no payout."""
        day, within = divmod(position, self._day_rows)
        if within < self._body_rows:
            return None
        start = (day + 1) * self._day_rows
        stop = min(start + self._body_rows, len(self))
        return start, stop, self._payout_currencies[within - self._body_rows]

    def totals(self) -> Totals:
        """Σ net by status and currency, over all rows."""
        totals: Totals = {"available": {}, "pending": {}}
        for day in range(-(-len(self) // self._day_rows)):
            add_up(totals, self.day_totals(day))
            for currency in self._payout_currencies if self._is_full(day) else ():
                available = totals["available"]
                available[currency] = available.get(currency, 0) + self._payout(day, currency).net
        if self.released:
            add_up(totals, {"available": totals["pending"]})
            totals["pending"] = {}
        return totals

    def _count_from(self, created_s: int) -> int:
        """How many rows are of that second or newer."""
        # Newest first means falling seconds; bisect wants a rising key, hence the sign.
        return bisect_left(range(len(self)), 1 - created_s, key=lambda position: -self.created(position))

    def _is_full(self, day: int) -> bool:
        return (day + 1) * self._day_rows <= len(self)

    def _day_totals(self, day: int) -> Totals:
        """Σ net of a day's rows, payouts left out, as it was when the day was paid out."""
        totals: Totals = {"available": {}, "pending": {}}
        stop = min(self._body_rows, max(0, len(self) - day * self._day_rows)) + self._pad
        at = self._pad
        while at < stop:
            block, offset = divmod(at, BLOCK_ROWS)
            count = min(BLOCK_ROWS - offset, stop - at)
            pattern = self._patterns.of_block(day, block)
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
        number = NUMBER_FIRST + position
        row = template(self.draft(position))
        return write_row(row, number=number, available_on=available_on, created=created).encode()
