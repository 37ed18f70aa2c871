"""Exchange rates: a dated table with one direction, and the conversion of an amount with one rounding.

A rate stays as it was published ("1 base = r quote"): never inverted, never rounded, never through a float. The whole
conversion is one exact ratio of integers, divided once and rounded half away from zero.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Self

from paykit_settle.errors import InvalidRequest, RunRefused
from paykit_settle.faults import Problem
from paykit_settle.money import AMOUNT_MAX, canonical_currency, exponent, round_half_away

RATE_DIGITS_MAX = 40
RATE_EXPONENT_MAX = 30

# JSON's own number grammar, without its minus sign. Python would also read "+1", "1_000", " 1", "١" and ".5".
_PUBLISHED = re.compile(r"(0|[1-9][0-9]*)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]{1,3}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Rate:
    """One published rate: its text, digit for digit, and the exact fraction it means (both parts positive)."""

    text: str
    numerator: int
    denominator: int

    @classmethod
    def parse(cls, published: object) -> Self:
        """Reads a rate from its text, an `int` or a `Decimal`; `ValueError` says what is wrong with it.

        A float is refused: its digits are no longer the ones that were published.
        """
        if isinstance(published, bool) or not isinstance(published, str | int | Decimal):
            raise ValueError(f"must be text or a number as published, got {type(published).__name__}")
        text = str(published)
        matched = _PUBLISHED.fullmatch(text)
        if matched is None:
            raise ValueError(f"is not a positive decimal number: {text!r:.60}")
        whole, fraction, power = matched[1], matched[2] or "", int(matched[3] or 0)
        if len(whole) + len(fraction) > RATE_DIGITS_MAX or abs(power) > RATE_EXPONENT_MAX:
            raise ValueError(f"has more than {RATE_DIGITS_MAX} digits or an exponent beyond {RATE_EXPONENT_MAX}")
        value = int(whole + fraction)
        if value == 0:
            raise ValueError("is zero")
        shift = power - len(fraction)
        return cls(text, value * 10 ** max(shift, 0), 10 ** max(-shift, 0))


_ONE = Rate("1", 1, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """How an amount was converted: `amount` source minor units × numerator / denominator, rounded to `result`.

    The fraction includes the difference of the exponents. `remainder` / `denominator` (sign kept) is what rounding
    left out, in target minor units: exact value = result + remainder / denominator. `published` are the rates that
    were used, currency → text ("1 base = r"); none for the identity.
    """

    source: str
    target: str
    amount: int
    numerator: int
    denominator: int
    result: int
    published: Mapping[str, str]

    @property
    def remainder(self) -> int:
        return self.amount * self.numerator - self.result * self.denominator


class Rates:
    """A table of published rates: 1 `base` = `rates[quote]` of each quote currency, as of one moment.

    `rates` maps currency code → rate as text, `int` or `Decimal`, kept as published. Codes are case-insensitive; two
    spellings of one code raise `InvalidRequest`, an unusable base `UnsupportedCurrency`. A rate that is malformed is
    refused when it is needed, so a table may quote things that no settlement ever touches.
    `as_of` is an aware datetime, or None when the table is undated (which `check_age` then refuses). `received` are
    the bytes that the table was read from, if it was.
    """

    __slots__ = ("_quotes", "_received", "as_of", "base", "source")

    def __init__(
        self,
        base: str,
        rates: Mapping[str, object],
        *,
        as_of: datetime | None = None,
        source: str = "",
        received: bytes | None = None,
    ) -> None:
        if as_of is not None and as_of.utcoffset() is None:
            raise InvalidRequest("as_of of a rate table must name its zone")
        self.base = canonical_currency(base)
        self.as_of = as_of
        self.source = source
        self._received = received
        self._quotes: dict[str, object] = {}
        for code, published in rates.items():
            if code.lower() in self._quotes:
                raise InvalidRequest(f"rate table names {code.upper()} twice")
            self._quotes[code.lower()] = published

    def __repr__(self) -> str:
        return f"Rates(base={self.base!r}, {len(self._quotes)} quotes, as_of={self.as_of!s}, source={self.source!r})"

    def rate(self, currency: str) -> Rate:
        """1 base = this rate of `currency`. `RunRefused` naming the currency when it is missing or unusable."""
        if currency == self.base:
            return _ONE
        if currency not in self._quotes:
            raise _refused(currency, f"no rate for {currency.upper()} in the table of base {self.base.upper()}")
        try:
            return Rate.parse(self._quotes[currency])
        except ValueError as error:
            raise _refused(currency, f"rate of {currency.upper()} {error}") from None

    def convert(self, amount: int, source: str, target: str) -> int:
        """`amount` minor units of `source` in minor units of `target`, rounded half away from zero, once.

        The same currency is the identity, whatever the table says. Raises `UnsupportedCurrency` for a code without
        an exponent, `RunRefused` for a missing or unusable rate or a result beyond the range of an amount.
        """
        return self.conversion(amount, source, target).result

    def conversion(self, amount: int, source: str, target: str) -> Conversion:
        """The same, with the exact fraction that was applied: what an explanation shows."""
        if type(amount) is not int:
            raise TypeError(f"amount must be an int of minor units, got {type(amount).__name__}")
        source, target = canonical_currency(source), canonical_currency(target)
        numerator = denominator = 1
        published = {}
        if source != target:
            # source → base divides by the source's rate, base → target multiplies by the target's: one ratio.
            sold, bought = self.rate(source), self.rate(target)
            published = {c: self.rate(c).text for c in (source, target) if c != self.base}
            shift = exponent(target) - exponent(source)
            numerator = bought.numerator * sold.denominator * 10 ** max(shift, 0)
            denominator = bought.denominator * sold.numerator * 10 ** max(-shift, 0)
        result = round_half_away(amount * numerator, denominator)
        if abs(result) > AMOUNT_MAX:
            raise _refused(source, f"{amount} {source} is beyond the range of an amount in {target}")
        return Conversion(
            source=source,
            target=target,
            amount=amount,
            numerator=numerator,
            denominator=denominator,
            result=result,
            published=published,
        )

    def provenance(self) -> dict[str, str]:
        """Where the table comes from, as texts: `base`, `as_of` (ISO 8601, empty when undated) and `source`."""
        return {"base": self.base, "as_of": self._stamp(), "source": self.source}

    def check(self) -> None:
        """Pass when the table can be used whole: it is dated, and every rate in it is one. `RunRefused` names the rest.

        For a table that somebody gives by hand; one that is published may quote what no settlement ever touches.
        """
        problems = [] if self.as_of is not None else [_problem(self.base, "the rate table is undated")]
        for code, published in self._quotes.items():
            try:
                Rate.parse(published)
            except ValueError as error:
                problems.append(_problem(code, f"rate of {code.upper()} {error}"))
        if problems:
            raise RunRefused(problems)

    def document(self) -> bytes:
        """The table as it was received; one made in Python as JSON of the same form, its rates as text.

        Read again it is the same table: what is no rate, such as a float, stays none.
        """
        if self._received is not None:
            return self._received
        rates = {
            code: str(published) if isinstance(published, str | int | Decimal) else None
            for code, published in self._quotes.items()
        }
        table = {"base": self.base, "as_of": self._stamp() or None, "source": self.source, "rates": rates}
        return json.dumps(table, allow_nan=False).encode("ascii")

    def check_age(self, window_end: datetime, *, behind: timedelta, ahead: timedelta) -> None:
        """Passes when `as_of` lies within [window_end - behind, window_end + ahead]; `RunRefused` naming the age.

        A rate belongs to the day it settles, so its age is measured against that day's end, not against now.
        """
        if self.as_of is None:
            raise _refused(self.base, "the rate table is undated")
        age = window_end - self.as_of
        if age > behind:
            raise _refused(
                self.base,
                f"the rate table of {self._stamp()} is {_hours(age)} older than the window's end "
                f"(at most {_hours(behind)})",
            )
        if -age > ahead:
            raise _refused(
                self.base,
                f"the rate table of {self._stamp()} is {_hours(-age)} later than the window's end "
                f"(at most {_hours(ahead)})",
            )

    def _stamp(self) -> str:
        return self.as_of.isoformat() if self.as_of else ""


def _refused(currency: str, detail: str) -> RunRefused:
    return RunRefused([_problem(currency, detail)])


def _problem(currency: str, detail: str) -> Problem:
    return Problem(kind="rate", subject=currency, detail=detail)


def _hours(span: timedelta) -> str:
    minutes = span // timedelta(minutes=1)
    return f"{minutes // 60} h" + (f" {minutes % 60} min" if minutes % 60 else "")
