"""What must hold for every amount, rate, currency and order of rows, not just for the vectors.

The oracle is `fractions.Fraction`, which shares nothing with the product's own integer arithmetic.
"""

from fractions import Fraction
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paykit_settle.accumulator import Accumulator
from paykit_settle.errors import RunRefused
from paykit_settle.models import BalanceTransaction
from paykit_settle.money import AMOUNT_MAX, EXPONENTS
from paykit_settle.rates import Rates
from paykit_settle.settlement import roll_up
from tests.rows import row, settled

amounts = st.integers(min_value=-(10**12), max_value=10**12)
currencies = st.sampled_from(sorted(EXPONENTS))
rate_texts = st.builds(
    lambda digits, places: f"{digits[:-places] or '0'}.{digits[-places:]}" if places else digits,
    st.integers(min_value=1, max_value=10**9).map(str),
    st.integers(min_value=0, max_value=6),
).filter(lambda text: Fraction(text) > 0 and (text[0] != "0" or text[1:2] == "."))


def oracle(amount: int, source: str, target: str, rates: dict[str, str]) -> int:
    """Major units through the base, then minor units of the target, rounded half away from zero."""
    if source == target:
        return amount
    major = Fraction(amount, 10 ** EXPONENTS[source]) / Fraction(rates[source]) * Fraction(rates[target])
    minor = major * 10 ** EXPONENTS[target]
    rounded = int(abs(minor) + Fraction(1, 2))
    return -rounded if minor < 0 else rounded


@settings(max_examples=500)
@given(amounts, currencies, currencies, rate_texts, rate_texts)
def test_conversion_is_the_oracles_and_commutes_with_negation(
    amount: int, source: str, target: str, source_rate: str, target_rate: str
) -> None:
    published = {source: source_rate, target: target_rate, "usd": "1"}
    quotes = {code: text for code, text in published.items() if code != "usd"}
    rates = Rates("usd", quotes)
    expected = oracle(amount, source, target, published)
    if abs(expected) > AMOUNT_MAX:
        for sign in (1, -1):
            with pytest.raises(RunRefused, match="beyond the range"):
                rates.convert(sign * amount, source, target)
        return
    assert rates.convert(amount, source, target) == expected
    assert rates.convert(-amount, source, target) == -expected


@given(st.integers(min_value=-(10**6), max_value=10**6), rate_texts, st.sampled_from(["jpy", "usd", "kwd", "clf"]))
def test_result_scales_with_the_exponent_of_the_source(amount: int, rate: str, source: str) -> None:
    """The same number of major units of a finer currency is ten, a hundred … times the minor units."""
    shift = EXPONENTS[source]
    coarse = Rates("eur", {"krw": rate}).convert(amount, "krw", "eur")
    fine = Rates("eur", {source: rate}).convert(amount * 10**shift, source, "eur")
    assert fine == coarse


@given(
    st.lists(
        st.tuples(
            st.integers(min_value=-(10**9), max_value=10**9),
            st.integers(min_value=-(10**5), max_value=10**5),
            st.sampled_from(["usd", "eur", "jpy", "kwd", "USD"]),
            st.sampled_from(["charge", "refund", "adjustment", "payout", "mystery"]),
            st.sampled_from(["available", "pending"]),
        ),
        max_size=40,
    ),
    st.integers(min_value=1, max_value=50),
    st.randoms(use_true_random=False),
)
def test_order_paging_and_repeats_change_nothing(
    drawn: list[tuple[int, int, str, str, str]], page_size: int, random: Random
) -> None:
    rows: list[BalanceTransaction] = [
        row(f"txn_{index}", amount, fee, currency=currency, kind=kind, status=status)
        for index, (amount, fee, currency, kind, status) in enumerate(drawn)
    ]
    expected = roll_up(rows)
    shuffled = [*rows, *random.sample(rows, len(rows) // 2)]
    random.shuffle(shuffled)
    accumulator = Accumulator()
    for start in range(0, len(shuffled), page_size):
        accumulator.add(shuffled[start : start + page_size])
    totals = accumulator.finish(lambda: [shuffled])
    assert (totals.lines, totals.settled, totals.pending, totals.left_out, totals.unknown_types, totals.row_count) == (
        expected.lines, expected.settled, expected.pending, expected.left_out, expected.unknown_types,
        expected.row_count,
    )  # fmt: skip


@given(
    st.lists(
        st.tuples(amounts, st.sampled_from(["usd", "eur", "jpy", "kwd"]), st.sampled_from(["available", "pending"])),
        max_size=30,
    ),
    rate_texts,
    rate_texts,
    rate_texts,
    st.sampled_from(["usd", "eur", "jpy"]),
)
def test_lines_and_total_follow_from_the_rows(
    drawn: list[tuple[int, str, str]], eur: str, jpy: str, kwd: str, target: str
) -> None:
    """Nothing is dropped: every row is in a line, pending or left out, and the total is the sum of converted nets."""
    published = {"usd": "1", "eur": eur, "jpy": jpy, "kwd": kwd}
    rates = Rates("usd", {"eur": eur, "jpy": jpy, "kwd": kwd})
    rows = [row(f"t{i}", amount, currency=code, status=status) for i, (amount, code, status) in enumerate(drawn)]
    totals = roll_up(rows)
    by_hand: dict[str, int] = {}
    for amount, code, status in drawn:
        if status == "available":
            by_hand[code] = by_hand.get(code, 0) + amount
    converted = [oracle(net, code, target, published) for code, net in by_hand.items()]
    if any(abs(amount) > AMOUNT_MAX for amount in (*converted, sum(converted))):
        with pytest.raises(RunRefused, match="beyond"):
            settled(totals, rates, target)
        return
    settlement = settled(totals, rates, target)
    assert {line.currency: line.net for line in settlement.lines} == by_hand
    assert settlement.total_net == sum(converted)
    assert sum(group.count for group in (*totals.settled, *totals.pending, *totals.left_out)) == totals.row_count
