"""Currencies and amounts: ISO 4217 exponents, the range of an amount, and processor scales that differ from ISO's.

An amount is an `int` of minor units. Nothing here ever makes or accepts a binary float, and no currency ever gets a
default exponent. Display formatting is at the bottom; it is never parsed back.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from paykit_settle.errors import InvalidAmount, UnsupportedCurrency

AMOUNT_MAX = 2**63 - 1
"""The largest magnitude of an amount, and of a sum that is stored or sent: a signed 64-bit integer, symmetric."""

# ISO 4217 list one (active codes), by exponent. A test compares it with the published list, so it cannot drift.
# Codes that ISO lists without minor units (metals, testing, "no currency") are absent: they are refused.
_ISO_4217 = {
    0: "bif clp djf gnf isk jpy kmf krw pyg rwf ugx uyi vnd vuv xaf xof xpf",
    2: """
        aed afn all amd aoa ars aud awg azn bam bbd bdt bmd bnd bob bov brl bsd btn bwp byn bzd cad cdf che chf chw
        cny cop cou crc cup cve czk dkk dop dzd egp ern etb eur fjd fkp gbp gel ghs gip gmd gtq gyd hkd hnl htg huf
        idr ils inr irr jmd kes kgs khr kpw kyd kzt lak lbp lkr lrd lsl mad mdl mga mkd mmk mnt mop mru mur mvr mwk
        mxn mxv myr mzn nad ngn nio nok npr nzd pab pen pgk php pkr pln qar ron rsd rub sar sbd scr sdg sek sgd shp
        sle sos srd ssp stn svc syp szl thb tjs tmt top try ttd twd tzs uah usd usn uyu uzs ved ves wst xad xcd xcg
        yer zar zmw zwg
    """,
    3: "bhd iqd jod kwd lyd omr tnd",
    4: "clf uyw",
}
# Withdrawn lately, and still met in old rows; their last ISO exponent.
_WITHDRAWN = {2: "ang bgn cuc hrk sll zwl"}

EXPONENTS: Mapping[str, int] = {
    code: exponent for table in (_ISO_4217, _WITHDRAWN) for exponent, codes in table.items() for code in codes.split()
}
"""Canonical currency code → number of decimals of its minor unit (ISO 4217)."""


def canonical_currency(code: object) -> str:
    """The one form used inside: three ASCII letters in lower case, with an exponent in ISO 4217.

    Raises `UnsupportedCurrency` for everything else, naming the code as it came.
    """
    if type(code) is not str or len(code) != 3 or not (code.isascii() and code.isalpha()):
        raise UnsupportedCurrency(f"currency must be three ASCII letters, got {code!r:.40}")
    canonical = code.lower()
    if canonical not in EXPONENTS:
        raise UnsupportedCurrency(f"currency {code.upper()} has no exponent in ISO 4217")
    return canonical


def exponent(currency: str) -> int:
    """Decimals of the currency's minor unit: 0, 2, 3 or 4; `UnsupportedCurrency` when ISO 4217 gives none."""
    return EXPONENTS[canonical_currency(currency)]


def check_amount(value: object, name: str = "amount") -> int:
    """The value itself when it is an `int` of minor units within ±AMOUNT_MAX; `InvalidAmount` naming it otherwise.

    `bool` is refused although Python counts it as an int, and so is every float, whole or not.
    """
    if type(value) is not int:
        raise InvalidAmount(f"{name} must be an integer of minor units, got {type(value).__name__}")
    if not -AMOUNT_MAX <= value <= AMOUNT_MAX:
        raise InvalidAmount(f"{name} is beyond ±{AMOUNT_MAX}")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleProfile:
    """A processor's scales that differ from ISO 4217: currency → decimals of the integer on its wire.

    Empty by default: a processor that sends ISO minor units needs none. Some send, say, Icelandic crowns with two
    decimals though ISO says none; a guess there would be wrong by a hundred, so it is always written down.
    Raises `UnsupportedCurrency` for an unknown code and `InvalidAmount` for a scale outside 0 to 6.
    """

    overrides: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        checked = {}
        for code, decimals in self.overrides.items():
            if type(decimals) is not int or not 0 <= decimals <= 6:
                raise InvalidAmount(f"scale of {code} must be an integer from 0 to 6, got {decimals!r:.40}")
            checked[canonical_currency(code)] = decimals
        object.__setattr__(self, "overrides", checked)

    def from_wire(self, amount: int, currency: str) -> int:
        """ISO minor units of a wire amount; `InvalidAmount` when it has no exact value in their range."""
        return _rescale(amount, exponent(currency) - self._wire_exponent(currency), currency)

    def to_wire(self, amount: int, currency: str) -> int:
        """The wire amount of ISO minor units; `InvalidAmount` when the wire cannot express it exactly."""
        return _rescale(amount, self._wire_exponent(currency) - exponent(currency), currency)

    def _wire_exponent(self, currency: str) -> int:
        return self.overrides.get(currency, exponent(currency))


def _rescale(amount: int, shift: int, currency: str) -> int:
    factor: int = 10 ** abs(shift)
    if shift >= 0:
        if abs(amount * factor) > AMOUNT_MAX:
            raise InvalidAmount(f"{amount} {currency} is beyond ±{AMOUNT_MAX} in the other scale")
        return amount * factor
    scaled, rest = divmod(amount, factor)
    if rest:
        raise InvalidAmount(f"{amount} {currency} is not a multiple of {factor}, as the processor's scale demands")
    return scaled


def round_half_away(numerator: int, denominator: int) -> int:
    """The ratio rounded once to the nearest integer, a tie away from zero; `denominator` is positive.

    Away from zero, so that a reversal mirrors its original: the rounding of -x is the negative of that of x.
    """
    rounded = (2 * abs(numerator) + denominator) // (2 * denominator)
    return -rounded if numerator < 0 else rounded


_SYMBOLS = {"usd": "$", "eur": "€", "gbp": "£", "jpy": "¥"}


def format_amount(amount: int, currency: str) -> str:
    """For people: `$1,451.99`, `-¥150,000`, `1.250 KWD`. Built from the integer's digits, never through a float."""
    decimals = exponent(currency)
    major, minor = divmod(abs(amount), 10**decimals)
    digits = f"{major:,}" + (f".{minor:0{decimals}d}" if decimals else "")
    sign = "-" if amount < 0 else ""
    symbol = _SYMBOLS.get(currency)
    return f"{sign}{symbol}{digits}" if symbol else f"{sign}{digits} {currency.upper()}"
