"""What a row that changed after it was settled adds to its day: signs, currencies, kinds that are not settled, bounds.

Without these a correction could be counted in the wrong column, leave a fee behind, or settle a payout.
"""

from dataclasses import replace
from datetime import date as Date
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paykit_settle.corrections import (
    CORRECTION,
    Correction,
    content_of,
    corrected,
    correction_fault,
    correction_groups,
    raw_rows,
    with_corrections,
)
from paykit_settle.errors import RunRefused
from paykit_settle.models import BalanceTransaction, LatePeriod
from paykit_settle.money import AMOUNT_MAX, ScaleProfile
from paykit_settle.settlement import check_settlement, roll_up, settle
from paykit_settle.verify_corrections import correction_rows
from tests.rows import DAY, WINDOW, row

ISO = ScaleProfile()
BEFORE = Date(2026, 1, 14)
Sums = tuple[str, str, int, int, int]


def raw(found: BalanceTransaction | None) -> bytes | None:
    return None if found is None else msgspec.json.encode(found)


def correction(
    was: BalanceTransaction | None, now: BalanceTransaction | None, *, identity: str = "t1", period: Date = BEFORE
) -> Correction:
    return Correction(transaction_id=identity, revision=1, period=period, was=raw(was), is_now=raw(now))


def sums(was: BalanceTransaction | None, now: BalanceTransaction | None, scale: ScaleProfile = ISO) -> list[Sums]:
    """Currency, type, charged, refunded and fees of each row that the correction adds."""
    groups = correction_groups(correction(was, now), scale)
    assert all(
        (group.count, group.reporting_category, group.status) == (1, CORRECTION, "available") for group in groups
    )
    return [(group.currency, group.type, group.charged, group.refunded, group.fees) for group in groups]


@pytest.mark.parametrize(
    ("was", "now", "expected"),
    [
        (row("t", 1000, 30), row("t", 1200, 36), [("usd", "charge", 200, 0, 6)]),
        (row("t", 1000, 30), row("t", 900, 27), [("usd", "charge", 0, -100, -3)]),
        (row("t", -1000), row("t", -900), [("usd", "charge", 100, 0, 0)]),
        (row("t", -1000), row("t", -1500), [("usd", "charge", 0, -500, 0)]),
        (row("t", 1000), row("t", -1000, kind="refund"), [("usd", "refund", 0, -2000, 0)]),
        (row("t", 1000, 30), row("t", 1000, 20), [("usd", "charge", 0, 0, -10)]),
        (row("t", 0), row("t", 0, 5), [("usd", "charge", 0, 0, 5)]),
        (row("t", 1000, 30), None, [("usd", "charge", 0, -1000, -30)]),
        (row("t", -1000, -30), None, [("usd", "charge", 1000, 0, 30)]),
        (None, row("t", 1000, 30), [("usd", "charge", 1000, 0, 30)]),
        (
            row("t", 1000, 30, currency="gbp"),
            row("t", 1300, 40, currency="eur"),
            [("eur", "charge", 1300, 0, 40), ("gbp", "charge", 0, -1000, -30)],
        ),
    ],
)
def test_correction_is_new_less_old_in_the_column_of_its_sign(
    was: BalanceTransaction | None, now: BalanceTransaction | None, expected: list[Sums]
) -> None:
    assert sums(was, now) == expected
    by_other_means = [
        (each["currency"], each["amount"], each["fee"]) for each in correction_rows([(raw(was), raw(now))])
    ]
    assert sorted(by_other_means) == [(currency, up + down, fees) for currency, _, up, down, fees in expected]


@pytest.mark.parametrize(
    "uncounted",
    [
        row("t", 900, 27, status="pending"),
        row("t", 900, 27, status="failed"),
        *(row("t", 900, 27, kind=kind) for kind in ("payout", "payout_cancel", "payout_failure", "topup")),
        row("t", 900, 27, currency="xxx", kind="topup_reversal"),
        None,
    ],
)
def test_side_that_is_not_counted_comes_to_nothing(uncounted: BalanceTransaction | None) -> None:
    assert sums(row("t", 1000, 30), uncounted) == [("usd", "charge", 0, -1000, -30)]
    assert sums(uncounted, row("t", 1000, 30)) == [("usd", "charge", 1000, 0, 30)]
    assert sums(uncounted, uncounted) == []


def test_row_whose_money_is_the_same_adds_nothing() -> None:
    assert sums(row("t", 1000, 30), row("t", 1000, 30, kind="payment", category="other")) == []
    assert sums(row("t", 1000, 30), row("t", 1000, 30, currency="USD")) == []


def test_amounts_are_taken_from_the_processors_scale() -> None:
    scale = ScaleProfile(overrides={"isk": 2, "bhd": 2})
    assert sums(row("t", 10000, 100, currency="isk"), row("t", 30000, 300, currency="isk"), scale) == [
        ("isk", "charge", 200, 0, 2)
    ]
    assert sums(row("t", 100, currency="bhd"), row("t", 50, currency="isk", status="pending"), scale) == [
        ("bhd", "charge", 0, -1000, 0)
    ]


@pytest.mark.parametrize(
    ("now", "fault"),
    [
        (row("t", 1, currency="xxx"), "no exponent"),
        (row("t", 150, currency="isk"), "not a multiple of 100"),
        (row("t", -AMOUNT_MAX), "beyond"),
        (msgspec.structs.replace(row("t", 5), fee=-AMOUNT_MAX, net=None), "beyond"),
        (msgspec.structs.replace(row("t", 1000, 30), net=1000), "net 1000 is not amount 1000 - fee 30"),
    ],
)
def test_correction_without_an_exact_value_is_left_out_and_holds_nothing_up(
    now: BalanceTransaction, fault: str
) -> None:
    scale = ScaleProfile(overrides={"isk": 2})
    wrong, right = correction(row("t", 2), now), correction(row("u", 2), None, identity="u")
    assert fault in (correction_fault(wrong, scale) or "")
    done = corrected([], [wrong, right], scale=scale)
    assert ([each.transaction_id for each in done.taken], len(done.late)) == (["u"], 1)
    assert [each.transaction_id for each, why in done.left_out if fault in why] == ["t1"]


def test_side_that_is_no_row_is_a_fault_too() -> None:
    broken = Correction(transaction_id="t", revision=1, period=BEFORE, was=b"{}", is_now=None)
    assert correction_fault(broken, ISO) is not None


def late(*rows_: BalanceTransaction, period: Date = BEFORE) -> LatePeriod:
    return LatePeriod(period=period, roll_up=roll_up(rows_), changed_ids=("c1",))


def test_corrections_join_the_late_rows_of_their_day_in_one_line_per_currency() -> None:
    taken_in = late(row("a", 500, 10), row("b", -100), row("e", 70, currency="eur"))
    done = with_corrections(
        taken_in, [correction(row("t", 1000, 30), row("t", 900, 27)), correction(row("u", 5), None)], scale=ISO
    )
    shown = [(line.currency, line.charged, line.refunded, line.fees, line.net) for line in done.roll_up.lines]
    assert shown == [("eur", 70, 0, 0, 70), ("usd", 500, -205, 7, 288)]
    assert [(group.type, group.count) for group in done.roll_up.settled if group.reporting_category == CORRECTION] == [
        ("charge", 2)
    ]
    assert (done.period, done.changed_ids, done.roll_up.row_count) == (BEFORE, ("c1",), 5)
    assert with_corrections(taken_in, [], scale=ISO).roll_up.lines == taken_in.roll_up.lines


def test_settlement_with_corrections_keeps_its_identities_and_its_days_in_order() -> None:
    other = Date(2026, 1, 12)
    done = corrected(
        [late(row("a", 500, 10))],
        [correction(row("t", 1000, 30), None), correction(row("u", 7), row("u", 9), identity="u", period=other)],
        scale=ISO,
    )
    assert [each.period for each in done.late] == [other, BEFORE]
    settlement = settle(
        roll_up([row("own", 100)]),
        None,
        account="acct_123",
        date=DAY,
        window=WINDOW,
        settlement_currency="usd",
        late=done.late,
    )
    check_settlement(settlement)
    assert settlement.total_net == 100 + 2 + (490 - 970)


def test_day_whose_corrections_come_to_nothing_gets_no_line_and_they_are_taken() -> None:
    nothing = correction(row("t", 1000), row("t", 1000, kind="payment"))
    done = corrected([], [nothing], scale=ISO)
    assert (list(done.late), list(done.taken), list(done.left_out)) == ([], [nothing], [])


def test_unknown_type_of_a_correction_is_named() -> None:
    done = with_corrections(None, [correction(None, row("t", 5, kind="novelty"))], scale=ISO)
    assert done.roll_up.unknown_types == ("novelty",)


def test_sum_beyond_the_range_leaves_out_the_correction_that_takes_it_there() -> None:
    most = [correction(None, row(name, AMOUNT_MAX - 1), identity=name) for name in ("a", "b")]
    done = corrected([], most, scale=ISO)
    assert [each.transaction_id for each in done.taken] == ["a"]
    assert "charged is beyond" in done.left_out[0][1]
    with pytest.raises(RunRefused):
        with_corrections(None, most, scale=ISO)


def test_later_corrections_of_a_row_wait_for_one_that_is_left_out() -> None:
    """Usd became a currency that has no exponent, and then usd again: the second alone would add the row once more."""
    first = correction(row("t1", 1000), row("t1", 1000, currency="xxq"))
    second = replace(correction(row("t1", 1000, currency="xxq"), row("t1", 1100)), revision=2)
    other = correction(row("t2", 5), row("t2", 7), identity="t2")
    done = corrected([], [second, other, first], scale=ISO)
    assert [each.transaction_id for each in done.taken] == ["t2"]
    assert [(each.revision, "earlier correction" in why) for each, why in done.left_out] == [(1, False), (2, True)]


def test_several_revisions_of_a_row_add_up_to_the_last() -> None:
    stations = [row("t", 1000, 30), row("t", 1500, 40, currency="eur"), None, row("t", -20)]
    steps = [
        Correction(transaction_id="t", revision=number, period=BEFORE, was=raw(was), is_now=raw(now))
        for number, (was, now) in enumerate(pairwise(stations), start=1)
    ]
    (day,) = corrected([], steps, scale=ISO).late
    assert [(line.currency, line.net) for line in day.roll_up.lines] == [("eur", 0), ("usd", -970 - 20)]


SIDES = st.none() | st.builds(
    lambda amount, fee, currency, kind, status: row("t", amount, fee, currency=currency, kind=kind, status=status),
    st.integers(-3, 3),
    st.integers(-2, 2),
    st.sampled_from(["usd", "USD", "eur"]),
    st.sampled_from(["charge", "refund", "payout", "novelty"]),
    st.sampled_from(["available", "pending", "odd"]),
)


@given(st.lists(st.tuples(SIDES, SIDES), min_size=1, max_size=4))
def test_verify_comes_to_the_same_rows_by_other_means(
    pairs: list[tuple[BalanceTransaction | None, BalanceTransaction | None]],
) -> None:
    found = correction_rows([(raw(was), raw(now)) for was, now in pairs])
    day = with_corrections(None, [correction(was, now) for was, now in pairs], scale=ISO)
    for line in day.roll_up.lines:
        own = [each for each in found if each["currency"] == line.currency]
        assert line.charged == sum(each["amount"] for each in own if each["amount"] >= 0)
        assert line.refunded == sum(each["amount"] for each in own if each["amount"] < 0)
        assert line.fees == sum(each["fee"] for each in own)
    assert {each["currency"] for each in found} == {line.currency for line in day.roll_up.lines}
    assert len(found) == day.roll_up.row_count


def test_content_is_type_amount_currency_fee_and_status_and_not_the_time() -> None:
    first = row("t", 1000, 30)
    same = [
        msgspec.structs.replace(first, created=None),
        msgspec.structs.replace(first, currency="USD"),
        msgspec.structs.replace(first, reporting_category="x"),
    ]
    others = [
        row("t", 1001, 30),
        row("t", 1000, 31),
        row("t", 1000, 30, kind="payment"),
        row("t", 1000, 30, currency="eur"),
    ]
    assert all(content_of(raw(each)) == content_of(raw(first)) for each in same)
    assert all(
        content_of(raw(each)) != content_of(raw(first)) for each in [*others, row("t", 1000, 30, status="x"), None]
    )
    assert content_of(b"no row") == b"no row"


def test_raw_rows_are_the_bytes_that_stand_in_the_page() -> None:
    rows = ['{"id": "a",  "amount": 1, "odd": [1e3, "\\u00e9"]}', '{"amount":2,"id":"b"}', '{"id":"\\u0063"}']
    body = '{"object":"list","data":[ ' + " , ".join(rows) + ' ],"has_more":false}'
    assert raw_rows(body.encode(), {"a", "c", "x"}) == {"a": rows[0].encode(), "c": rows[2].encode()}
