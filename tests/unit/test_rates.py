"""Conversion with one exact ratio and one rounding: every vector here is somebody's real loss.

Without these, an inverted, rounded, float, default or stale rate would settle wrong amounts without a word.
"""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from paykit_settle.errors import InvalidRequest, RunRefused, UnsupportedCurrency
from paykit_settle.money import AMOUNT_MAX
from paykit_settle.rates import Rate, Rates
from paykit_settle.wire import decode_rates

REFERENCE = Rates("usd", {"eur": "0.92", "gbp": "0.79", "jpy": "150"})


@pytest.mark.parametrize(
    ("amount", "currency", "converted"),
    [(13535, "eur", 14712), (7720, "gbp", 9772), (150000, "jpy", 100000), (20715, "usd", 20715)],
)
def test_reference_nets_convert_as_designed(amount: int, currency: str, converted: int) -> None:
    assert REFERENCE.convert(amount, currency, "usd") == converted


@pytest.mark.parametrize(
    ("base", "rates", "amount", "source", "target", "converted"),
    [
        ("jpy", {"usd": "0.0067"}, 73500, "JPY", "USD", 49245),  # CUR-01: exponent 0 → 2
        ("kwd", {"usd": "3.25"}, 48250, "KWD", "USD", 15681),  # CUR-03: exponent 3 → 2
        ("idr", {"usd": "0.000077220077"}, 10_000_000, "IDR", "USD", 772),  # FX-06: every digit counts
        ("usd", {"eur": "1.015"}, 100, "usd", "eur", 102),  # FX-08: a tie that a float misses
        ("usd", {"eur": "1.015"}, -100, "usd", "eur", -102),
        ("usd", {"eur": "0.5"}, 3, "usd", "eur", 2),  # FX-09
        ("usd", {"eur": "0.5"}, -3, "usd", "eur", -2),
        ("eur", {"usd": "1.25"}, 8000, "eur", "usd", 10000),  # FX-17: 1 EUR = 1.25 USD
        ("usd", {"eur": "0.8"}, 8000, "eur", "usd", 10000),  # the same, quoted the other way
        ("isk", {"usd": "0.0072"}, 840, "isk", "usd", 605),  # CUR-06
        ("isk", {"usd": "0.0072"}, 84000, "isk", "usd", 60480),
    ],
)
def test_public_vectors_convert_exactly(
    base: str, rates: dict[str, object], amount: int, source: str, target: str, converted: int
) -> None:
    assert Rates(base, rates).convert(amount, source, target) == converted


def test_conversion_rounds_once_where_decimal_division_rounds_twice() -> None:
    # 1 / 3 × 1.5 is exactly one half; a quotient cut to any number of digits first falls below it.
    assert Rates("usd", {"eur": "3", "gbp": "1.5"}).convert(1, "eur", "gbp") == 1


def test_cross_rate_goes_through_the_base_in_one_ratio() -> None:
    # 12345 EUR cents / 0.92 × 150 / 100 = 20127.717… yen; through rounded dollars it would be 20127.
    assert REFERENCE.convert(12345, "eur", "jpy") == 20128
    assert REFERENCE.convert(REFERENCE.convert(12345, "eur", "usd"), "usd", "jpy") == 20127
    assert REFERENCE.convert(1, "eur", "jpy") == 2


def test_same_currency_is_the_identity_whatever_the_table_says() -> None:
    """FX-03: a stale self-rate is never applied."""
    rates = Rates("eur", {"chf": "0.93", "eur": "0.95"})
    assert rates.convert(15501, "chf", "CHF") == 15501
    assert rates.convert(15501, "eur", "eur") == 15501
    assert rates.convert(100, "eur", "chf") == 93


def test_missing_rate_is_refused_by_name_and_never_one() -> None:
    """FX-01."""
    with pytest.raises(RunRefused, match="JPY"):
        Rates("usd", {"eur": "1.08"}).convert(2_400_000, "jpy", "usd")


@pytest.mark.parametrize(
    "published",
    ["0", "0.00", "-1", "NaN", "Infinity", "", " 0.92", "0.92 ", "+0.92", "1_0", "٠.٩", ".5", "5.", "00.92", "0,92",
     "1/2", "0x1", 0, -1, 0.92, None, True, [], "1" * 41, "1e31", "0.92\n", Decimal("NaN"), Decimal("-0.92")],
)  # fmt: skip
def test_rate_that_is_no_positive_decimal_is_refused_by_name(published: object) -> None:
    rates = Rates("usd", {"eur": published})
    with pytest.raises(RunRefused, match="EUR"):
        rates.convert(1, "eur", "usd")


@pytest.mark.parametrize("published", ["0.92", Decimal("0.92"), "0.920", "92e-2", "9.2E-1"])
def test_rate_keeps_its_digits_and_its_value(published: object) -> None:
    rate = Rate.parse(published)
    assert rate.text == str(published)
    assert rate.numerator * 100 == 92 * rate.denominator


def test_integer_rate_is_exact() -> None:
    assert Rate.parse(150) == Rate("150", 150, 1)
    assert Rate.parse("1.5e3") == Rate("1.5e3", 1500, 1)


def test_unusable_rate_matters_only_when_it_is_needed() -> None:
    rates = Rates("usd", {"eur": "0.92", "xau": None, "gbp": "0"})
    assert rates.convert(92, "eur", "usd") == 100


def test_json_numbers_and_texts_are_read_exactly() -> None:
    """FX-08: a number on the wire never becomes a float."""
    as_numbers = decode_rates(b'{"base":"usd","rates":{"eur":1.015,"idr":7.7220077e-05}}')
    as_texts = decode_rates(b'{"base":"usd","rates":{"eur":"1.015","idr":"0.000077220077"}}')
    for rates in (as_numbers, as_texts):
        assert rates.convert(100, "usd", "eur") == 102
        assert rates.convert(10**9, "usd", "idr") == 77220


def test_currency_without_exponent_cannot_be_converted() -> None:
    rates = Rates("usd", {"xqq": "1.5"})
    with pytest.raises(UnsupportedCurrency, match="XQQ"):
        rates.convert(100, "xqq", "usd")
    with pytest.raises(UnsupportedCurrency):
        Rates("xqq", {})


def test_table_that_names_a_currency_twice_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="EUR twice"):
        Rates("usd", {"eur": "0.92", "EUR": "0.93"})


def test_result_beyond_the_range_is_refused() -> None:
    rates = Rates("usd", {"jpy": "0.5"})
    with pytest.raises(RunRefused, match="beyond the range"):
        rates.convert(AMOUNT_MAX, "jpy", "usd")


@pytest.mark.parametrize("amount", [1.0, True, "1", Decimal(1)])
def test_amount_must_be_an_int(amount: object) -> None:
    with pytest.raises(TypeError):
        REFERENCE.convert(amount, "eur", "usd")  # type: ignore[arg-type]


def test_conversion_explains_itself_exactly() -> None:
    conversion = REFERENCE.conversion(13535, "eur", "usd")
    assert conversion.published == {"eur": "0.92"}
    # 13535 / 0.92 = 14711.956521…: the result and what rounding left make the exact value again.
    exact = conversion.amount * conversion.numerator
    assert exact == conversion.result * conversion.denominator + conversion.remainder
    assert (conversion.result, conversion.remainder, conversion.denominator) == (14712, -4, 92)
    assert REFERENCE.conversion(5, "eur", "jpy").published == {"eur": "0.92", "jpy": "150"}
    assert REFERENCE.conversion(5, "usd", "usd").published == {}


WINDOW_END = datetime(2025, 6, 16, tzinfo=UTC)


@pytest.mark.parametrize(
    ("as_of", "named"),
    [
        ("2025-06-13T14:15:00Z", None),
        ("2025-06-11T00:00:00Z", None),
        ("2025-06-17T00:00:00Z", None),
        ("2025-06-10T23:59:59Z", "120 h"),
        ("2025-06-02T14:15:00Z", "321 h 45 min"),
        ("2025-06-17T00:00:01Z", "24 h"),
        ("2025-06-18T00:00:00Z", "48 h"),
        (None, "undated"),
    ],
)
def test_table_must_belong_to_the_day_it_settles(as_of: str | None, named: str | None) -> None:
    """FX-15, measured against the window's end."""
    moment = datetime.fromisoformat(as_of) if as_of else None
    rates = Rates("usd", {"eur": "0.92"}, as_of=moment)
    limits = {"behind": timedelta(hours=120), "ahead": timedelta(hours=24)}
    if named is None:
        rates.check_age(WINDOW_END, **limits)
    else:
        with pytest.raises(RunRefused, match=named):
            rates.check_age(WINDOW_END, **limits)


def test_table_dated_without_a_zone_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="zone"):
        Rates("usd", {}, as_of=datetime(2025, 6, 16))  # noqa: DTZ001 - the very thing that is refused


def test_repr_shows_the_table_briefly() -> None:
    assert "base='usd'" in repr(REFERENCE)


def test_table_is_kept_as_it_was_received() -> None:
    received = b'{"base": "usd",  "rates": {"eur": 0.920}}'
    assert decode_rates(received).document() == received


def test_table_made_by_hand_documents_itself_in_the_same_form() -> None:
    rates = Rates("usd", {"eur": "0.920", "jpy": 150}, as_of=datetime(2026, 1, 15, tzinfo=UTC), source="by hand")
    again = decode_rates(rates.document())
    assert (again.base, again.as_of, again.source) == ("usd", rates.as_of, "by hand")
    assert (again.rate("eur").text, again.rate("jpy").text) == ("0.920", "150")
    assert decode_rates(Rates("usd", {}).document()).as_of is None


def test_table_that_is_given_is_checked_whole() -> None:
    """Also what no line needs: a person who gives a table means all of it."""
    now = datetime(2026, 1, 15, tzinfo=UTC)
    Rates("usd", {"eur": "0.92", "xau": 3}, as_of=now).check()
    with pytest.raises(RunRefused) as refused:
        Rates("usd", {"eur": "0.92", "gbp": "0", "jpy": 150.5}).check()
    assert [problem.subject for problem in refused.value.problems] == ["usd", "gbp", "jpy"]
