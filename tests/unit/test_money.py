"""Currencies, exponents, ranges and scales: a wrong exponent is a hundredfold error, a lost check a silent one.

Without these, a display-oriented table, a default of two decimals or a float at an edge would go unnoticed.
"""

import pytest
from iso4217 import Currency

from paykit_settle.errors import InvalidAmount, UnsupportedCurrency
from paykit_settle.money import (
    AMOUNT_MAX,
    EXPONENTS,
    ScaleProfile,
    canonical_currency,
    check_amount,
    exponent,
    format_amount,
    round_half_away,
)

WITHDRAWN = {"ang": 2, "bgn": 2, "cuc": 2, "hrk": 2, "sll": 2, "zwl": 2}


def test_exponents_are_the_published_iso_4217_list_and_the_withdrawn_codes() -> None:
    published = {code.code.lower(): code.exponent for code in Currency if code.exponent is not None}
    assert dict(EXPONENTS) == WITHDRAWN | published


@pytest.mark.parametrize(
    ("codes", "digits"),
    [
        ("HUF COP IDR PKR RSD ALL LBP MMK UZS TWD MGA MRU CRC", 2),
        ("IQD KWD BHD OMR TND JOD LYD", 3),
        ("ISK UGX CLP PYG VND XOF KRW JPY", 0),
        ("CLF UYW", 4),
    ],
)
def test_exponents_are_iso_and_not_display_digits(codes: str, digits: int) -> None:
    """CUR-04: CLDR and ICU answer 0 for HUF and IQD, for display only."""
    assert {exponent(code) for code in codes.split()} == {digits}


def test_currency_has_one_canonical_form() -> None:
    """CUR-10."""
    assert canonical_currency("USD") == canonical_currency("usd") == canonical_currency("Usd") == "usd"


@pytest.mark.parametrize(
    "code", ["xqq", "XXX", "xau", "", "us", "usdd", "u$d", "uſd", "ÚSD", "US ", None, 840, True, ["usd"], "usd\n"]
)
def test_currency_without_an_exponent_is_refused(code: object) -> None:
    """CUR-09: there is no default of two decimals."""
    with pytest.raises(UnsupportedCurrency):
        canonical_currency(code)


def test_refused_currency_is_named() -> None:
    with pytest.raises(UnsupportedCurrency, match="XQQ"):
        canonical_currency("xqq")


@pytest.mark.parametrize("value", [0, 1, -1, AMOUNT_MAX, -AMOUNT_MAX, 9007199254740993])
def test_amount_within_the_range_is_itself(value: int) -> None:
    assert check_amount(value) == value


@pytest.mark.parametrize("value", [True, False, 1.0, 1e2, "199", None, AMOUNT_MAX + 1, -AMOUNT_MAX - 1, float("nan")])
def test_amount_that_is_no_integer_in_range_is_refused(value: object) -> None:
    with pytest.raises(InvalidAmount, match=r"^fee "):
        check_amount(value, "fee")


def test_scale_profile_reads_and_writes_the_processors_own_scale() -> None:
    """CUR-06: ISK has no decimals by ISO and two on some processors' wire."""
    profile = ScaleProfile(overrides={"ISK": 2, "idr": 0})
    assert profile.from_wire(84000, "isk") == 840
    assert profile.to_wire(840, "isk") == 84000
    assert profile.from_wire(5, "idr") == 500
    assert profile.to_wire(500, "idr") == 5
    assert profile.from_wire(84000, "usd") == profile.to_wire(84000, "usd") == 84000
    assert ScaleProfile().from_wire(84000, "isk") == 84000


@pytest.mark.parametrize("amount", [84001, -1, 99])
def test_wire_amount_without_an_exact_iso_value_is_refused(amount: int) -> None:
    with pytest.raises(InvalidAmount, match=f"{amount} isk is not a multiple of 100"):
        ScaleProfile(overrides={"isk": 2}).from_wire(amount, "isk")


def test_iso_amount_that_the_wire_cannot_express_is_refused() -> None:
    with pytest.raises(InvalidAmount, match="501 idr"):
        ScaleProfile(overrides={"idr": 0}).to_wire(501, "idr")


@pytest.mark.parametrize("decimals", [-1, 7, True, "2", 2.0])
def test_scale_must_be_a_small_integer(decimals: object) -> None:
    with pytest.raises(InvalidAmount):
        ScaleProfile(overrides={"isk": decimals})  # type: ignore[dict-item]


def test_scale_of_an_unknown_currency_is_refused() -> None:
    with pytest.raises(UnsupportedCurrency):
        ScaleProfile(overrides={"xqq": 2})


@pytest.mark.parametrize(
    ("numerator", "denominator", "rounded"),
    [
        (3, 2, 2),
        (-3, 2, -2),
        (5, 2, 3),
        (-5, 2, -3),
        (1, 2, 1),
        (-1, 2, -1),
        (1, 3, 0),
        (2, 3, 1),
        (-2, 3, -1),
        (0, 7, 0),
    ],
)
def test_rounding_is_half_away_from_zero(numerator: int, denominator: int, rounded: int) -> None:
    """FX-09: -1.5 is -2, as 1.5 is 2."""
    assert round_half_away(numerator, denominator) == rounded


@pytest.mark.parametrize(
    ("amount", "currency", "shown"),
    [
        (145199, "usd", "$1,451.99"),
        (-3500, "usd", "-$35.00"),
        (150000, "jpy", "¥150,000"),
        (5, "gbp", "£0.05"),
        (1250, "kwd", "1.250 KWD"),
        (-1, "clf", "-0.0001 CLF"),
        (AMOUNT_MAX, "eur", "€92,233,720,368,547,758.07"),
    ],
)
def test_amount_is_shown_with_its_currencys_digits(amount: int, currency: str, shown: str) -> None:
    assert format_amount(amount, currency) == shown


@pytest.mark.parametrize("sign", [1, -1])
def test_wire_amount_that_leaves_the_range_in_minor_units_is_refused(sign: int) -> None:
    scale = ScaleProfile(overrides={"usd": 0})
    assert scale.from_wire(sign * (AMOUNT_MAX // 100), "usd") == sign * (AMOUNT_MAX // 100) * 100
    with pytest.raises(InvalidAmount, match="beyond"):
        scale.from_wire(sign * (AMOUNT_MAX // 100 + 1), "usd")
