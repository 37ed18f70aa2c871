"""The currencies that generated data may have, and a rate table for each of their days.

The rates are made up around a level and say so in their source; a day's rates follow from the seed and the day
alone. A rate is a text of decimal digits, made from integers.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from fake_processor.dice import Dice

MICRO = 1_000_000
SWING_PER_MILLE = 12
BASE = "usd"
MINOR_UNITS = (1, 10, 100, 1_000)  # by exponent


@dataclass(frozen=True, slots=True)
class Currency:
    """A currency's decimals by ISO 4217, and about how many millionths of it are one US dollar."""

    exponent: int
    level_micro: int

    def amount(self, usd_cents: int) -> int:
        """About that much money, in this currency's minor units."""
        return usd_cents * self.level_micro * MINOR_UNITS[self.exponent] // (100 * MICRO)


CURRENCIES = {
    "usd": Currency(2, MICRO),
    "eur": Currency(2, 920_000),
    "gbp": Currency(2, 790_000),
    "jpy": Currency(0, 150_000_000),
    "chf": Currency(2, 800_000),
    "cad": Currency(2, 1_370_000),
    "aud": Currency(2, 1_520_000),
    "sek": Currency(2, 10_450_000),
    "krw": Currency(0, 1_380_000_000),
    "kwd": Currency(3, 306_000),
    "clp": Currency(0, 942_000_000),
    "mxn": Currency(2, 18_300_000),
}


def rate_table(seed: int, day: dt.date, currencies: tuple[str, ...]) -> dict[str, object]:
    """The table of one day: 1 US dollar is worth each of these rates."""
    rates = {code: _rate(seed, day, code) for code in currencies if code != BASE}
    return {
        "object": "fx_rates",
        "base": BASE,
        "as_of": f"{day.isoformat()}T16:00:00Z",
        "source": f"generated from seed {seed}, not market rates",
        "rates": rates,
    }


def _rate(seed: int, day: dt.date, code: str) -> str:
    level = CURRENCIES[code].level_micro
    swing = level * SWING_PER_MILLE // 1000
    micro = Dice(seed, day.toordinal(), *code.encode("ascii")).between(level - swing, level + swing)
    return f"{micro // MICRO}.{micro % MICRO:06d}".rstrip("0").rstrip(".")
