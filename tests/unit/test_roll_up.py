"""The roll-up: each test is a way in which a total was wrong for somebody.

Without these, a sign applied by type, a dropped type, a payout, a pending row or a repeat would bend the total and
every screen would still add up.
"""

import tracemalloc
from datetime import timedelta

import msgspec
import pytest

from paykit_settle.accumulator import PROBLEMS_MAX, Accumulator
from paykit_settle.errors import InvariantViolated, RunRefused
from paykit_settle.models import BalanceTransaction, LatePeriod, SettlementLine
from paykit_settle.money import AMOUNT_MAX, ScaleProfile
from paykit_settle.rates import Rates
from paykit_settle.settlement import check_settlement, needs_rates, roll_up, settle
from tests.rows import DAY, WINDOW, nets, row, settled, total_of


def test_sign_decides_the_column_and_the_type_does_not() -> None:
    line = roll_up(
        [
            row("c", 1000, 30),
            row("r", -200, kind="refund"),
            row("a", -50, kind="adjustment"),
            row("b", 70, kind="adjustment"),
            row("f", 40, kind="refund_failure"),
        ]
    ).lines[0]
    assert (line.charged, line.refunded, line.fees, line.net) == (1110, -250, 30, 830)


def test_refund_that_is_negative_already_is_added_as_it_comes() -> None:
    """ROW-01."""
    assert nets([row("c1", 61000), row("r1", -61000, kind="refund")]) == {"usd": 0}


def test_returned_fee_keeps_its_sign() -> None:
    """ROW-02."""
    line = roll_up([row("c1", 25000, 755), row("r1", -25000, -725, kind="refund")]).lines[0]
    assert (line.net, line.fees, line.charged, line.refunded) == (-30, 30, 25000, -25000)


def test_net_that_does_not_follow_is_refused_by_name() -> None:
    """ROW-04."""
    wrong = msgspec.structs.replace(row("c1", 1000, 59), net=1000)
    with pytest.raises(RunRefused, match=r"c1: net 1000 is not amount 1000 - fee 59"):
        roll_up([wrong])


def test_net_and_created_may_be_absent() -> None:
    bare = msgspec.structs.replace(row("c1", 1000, 59), net=None, created=None)
    assert roll_up([bare], window=WINDOW).lines[0].net == 941


def test_unknown_type_is_counted_by_sign_and_named() -> None:
    """ROW-05."""
    totals = roll_up([row("c1", 9000, 290), row("u1", -700, kind="quantum_fee")])
    assert totals.lines[0].net == 8010
    assert totals.unknown_types == ("quantum_fee",)


def test_known_types_are_not_called_unknown() -> None:
    totals = roll_up([row("c1", 9000, 290), row("u1", -700, kind="stripe_balance_payment_debit")])
    assert totals.lines[0].net == 8010
    assert totals.unknown_types == ()


@pytest.mark.parametrize("kind", ["payout", "payout_cancel", "payout_failure", "topup", "topup_reversal"])
@pytest.mark.parametrize("status", ["available", "pending"])
def test_row_that_moves_the_balance_is_left_out_by_name(kind: str, status: str) -> None:
    """ROW-06, whatever its sign and status."""
    rows = [row("c1", 5300, 184), row("c2", 4250, 153), row("p1", -9213, kind=kind, status=status)]
    totals = roll_up(rows)
    assert totals.lines[0].net == 9213
    assert [(group.type, group.count, group.net) for group in totals.left_out] == [(kind, 1, -9213)]
    assert totals.pending == ()


def test_dispute_lost_and_won_back_is_kept_by_category() -> None:
    """ROW-08."""
    totals = roll_up(
        [
            row("c1", 5000, 175),
            row("a1", -5000, 1500, kind="adjustment", category="dispute"),
            row("a2", 5000, 0, kind="adjustment", category="dispute_reversal"),
        ]
    )
    line = totals.lines[0]
    assert (line.net, line.fees) == (3325, 1675)
    assert {group.reporting_category: group.net for group in totals.settled} == {
        None: 4825,
        "dispute": -6500,
        "dispute_reversal": 5000,
    }


def test_bank_debits_count_under_their_own_type_names() -> None:
    """ROW-12."""
    line = roll_up(
        [
            row("p1", 3000, 80, kind="payment", currency="eur"),
            row("p2", -3000, kind="payment_failure_refund", currency="eur"),
            row("p3", 4500, 90, kind="payment", currency="eur"),
            row("p4", -500, kind="payment_refund", currency="eur"),
        ]
    ).lines[0]
    assert (line.net, line.charged, line.refunded, line.fees) == (3830, 7500, -3500, 170)


def test_negative_net_stays_negative() -> None:
    """ROW-13."""
    assert total_of([row("c1", 1000, 59), row("r1", -5000, kind="refund")]) == -4059
    mixed = [row("c1", 10000), row("e1", -2000, kind="refund", currency="eur")]
    assert total_of(mixed, Rates("eur", {"usd": "1.10"})) == 7800


def test_exchange_rate_of_a_row_is_not_applied_again() -> None:
    """ROW-16: the amount is in the balance's currency already."""
    body = (
        b'{"id":"c1","type":"charge","amount":10800,"fee":343,"net":10457,"currency":"usd","status":"available",'
        b'"exchange_rate":1.08,"source":{"amount":10000,"currency":"eur"}}'
    )
    decoded = msgspec.json.decode(body, type=BalanceTransaction)
    assert total_of([decoded], Rates("eur", {"usd": "1.10"})) == 10457


def test_net_is_converted_once_and_not_row_by_row() -> None:
    """FX-11: row by row it would be 151."""
    rows = [row(name, amount, currency="eur") for name, amount in (("a", 33), ("b", 33), ("c", 34))]
    assert total_of(rows, Rates("eur", {"usd": "1.5"})) == 150


def test_currency_case_makes_one_line() -> None:
    """CUR-10."""
    totals = roll_up([row("t1", 700, 20, currency="usd"), row("t2", 300, 10, currency="USD")])
    assert [(line.currency, line.net) for line in totals.lines] == [("usd", 970)]


def test_currency_without_exponent_refuses_the_run_and_names_the_row() -> None:
    """CUR-09."""
    with pytest.raises(RunRefused, match=r"row txn_x1: currency XQQ"):
        roll_up([row("txn_x1", 100, currency="xqq")])


def test_processors_scale_is_applied_to_amount_and_fee() -> None:
    """CUR-06."""
    scale = ScaleProfile(overrides={"ISK": 2})
    rates = Rates("isk", {"usd": "0.0072"})
    rows = [row("txn_i1", 84000, currency="isk")]
    assert roll_up(rows, scale=scale).lines[0].net == 840
    assert settled(roll_up(rows, scale=scale), rates).total_net == 605
    assert settled(roll_up(rows), rates).total_net == 60480
    assert roll_up([row("i", 84000, 200, currency="isk")], scale=scale).lines[0].fees == 2


@pytest.mark.parametrize(("amount", "fee"), [(84001, 0), (84000, 1)])
def test_amount_without_an_iso_value_refuses_the_run(amount: int, fee: int) -> None:
    with pytest.raises(RunRefused, match="txn_i1"):
        roll_up([row("txn_i1", amount, fee, currency="isk")], scale=ScaleProfile(overrides={"isk": 2}))


def test_pending_row_is_not_settled_and_is_named() -> None:
    totals = roll_up([row("t1", 100), row("t2", 200, status="pending"), row("t3", 9, currency="eur", status="pending")])
    assert [(line.currency, line.net) for line in totals.lines] == [("usd", 100)]
    assert [(group.currency, group.count, group.net) for group in totals.pending] == [("eur", 1, 9), ("usd", 1, 200)]


@pytest.mark.parametrize("status", ["failed", "", "Available", "posted"])
def test_any_other_status_refuses_the_run(status: str) -> None:
    with pytest.raises(RunRefused, match="t2: status"):
        roll_up([row("t2", 200, status=status)])


def test_identical_repeat_counts_once() -> None:
    """PAG-01."""
    pages = [[row("t3", 300), row("t2", 200)], [row("t2", 200), row("t1", 100)]]
    accumulator = Accumulator()
    accumulator.add(pages[0])
    assert not accumulator.may_repeat()
    accumulator.add(pages[1])
    assert accumulator.may_repeat()
    totals = accumulator.finish(lambda: pages)
    assert (totals.lines[0].net, totals.row_count, totals.repeat_count) == (600, 3, 1)


def test_repeats_are_taken_back_in_every_column_and_register() -> None:
    rows = [
        row("c", 500, 20),
        row("r", -300, 0, kind="refund"),
        row("p", 900, status="pending"),
        row("i", 84000, 200, currency="isk"),
    ]
    accumulator = Accumulator(scale=ScaleProfile(overrides={"isk": 2}), known={"k"})
    accumulator.add([*rows, row("k", 1), *rows])
    totals = accumulator.finish(lambda: [[*rows, row("k", 1), *rows]])
    once = roll_up(rows, scale=ScaleProfile(overrides={"isk": 2}))
    assert (totals.settled, totals.pending, totals.row_count) == (once.settled, once.pending, 4)
    assert totals.repeat_count == 4
    assert [each.id for each in accumulator.pending_rows] == ["p"]
    assert accumulator.available_ids == ["c", "r", "i"]


def test_ids_that_share_a_hash_by_chance_are_both_counted() -> None:
    """A hash only raises the question; the rows themselves answer it."""
    rows = [row("t1", 100), row("t2", 200), row("u1", 400), row("t1", 100)]
    accumulator = Accumulator(hash_of=lambda identity: ord(identity[0]))
    accumulator.add(rows)
    totals = accumulator.finish(lambda: [rows])
    assert (totals.lines[0].net, totals.row_count, totals.repeat_count) == (700, 3, 1)


@pytest.mark.parametrize(
    "again",
    [
        pytest.param([], id="nothing"),
        pytest.param([row("t1", 100), row("t2", 200)], id="without the repeat"),
        pytest.param([row("t1", 100), row("t2", 200), row("t3", 100)], id="another in its place"),
        pytest.param([row("t1", 100), row("t2", 200), row("t1", 100), row("t4", 1)], id="one more"),
    ],
)
def test_repeat_that_the_second_reading_does_not_find_is_an_invariant_violated(again: list[BalanceTransaction]) -> None:
    """Counting it twice in silence would settle it twice."""
    accumulator = Accumulator()
    accumulator.add([row("t1", 100), row("t2", 200), row("t1", 100)])
    with pytest.raises(InvariantViolated, match="found again"):
        accumulator.finish(lambda: [again])


def test_rows_are_not_kept_while_they_are_added() -> None:
    """A day of a million rows must not need the memory of a million rows."""
    accumulator = Accumulator(window=WINDOW)
    accumulator.add([row(f"t{number}", 100) for number in range(2_000)])
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for start in range(2_000, 42_000, 100):
        accumulator.add([row(f"t{number}", 100) for number in range(start, start + 100)])
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (after - before) / 40_000 < 16


@pytest.mark.parametrize(
    "changed", [row("t2", 201), row("t2", 200, status="pending"), row("t2", 200, currency="eur"), row("t2", 200, 1)]
)
def test_differing_repeat_refuses_the_run(changed: BalanceTransaction) -> None:
    with pytest.raises(RunRefused, match="t2: came twice"):
        roll_up([row("t2", 200), changed])


def test_repeat_of_a_faulty_row_is_one_problem() -> None:
    with pytest.raises(RunRefused) as caught:
        roll_up([row("x", 1, currency="xqq"), row("x", 1, currency="xqq")])
    assert caught.value.problem_count == 1


def test_repeat_of_a_faulty_row_that_is_only_counted_is_one_problem() -> None:
    rows = [row(f"x{number}", 1, currency="xqq") for number in range(PROBLEMS_MAX + 1)]
    with pytest.raises(RunRefused) as caught:
        roll_up([*rows, rows[-1]])
    assert caught.value.problem_count == PROBLEMS_MAX + 1


def test_row_created_outside_the_window_refuses_the_run() -> None:
    """PAG-06: the start belongs to the window, the end does not."""
    start, end = WINDOW.start_unix_s, WINDOW.end_unix_s
    inside = [row("t1", 100, created=start), row("t2", 200, created=end - 1)]
    assert roll_up(inside, window=WINDOW).lines[0].net == 300
    for created in (start - 1, end):
        with pytest.raises(RunRefused, match="t3: created"):
            roll_up([*inside, row("t3", 400, created=created)], window=WINDOW)


def test_every_problem_is_counted_and_the_first_hundred_are_listed() -> None:
    rows = [row(f"t{index}", 1, currency="xqq") for index in range(PROBLEMS_MAX + 7)]
    with pytest.raises(RunRefused) as caught:
        roll_up(rows)
    assert caught.value.problem_count == PROBLEMS_MAX + 7
    assert [problem.subject for problem in caught.value.problems] == [f"t{index}" for index in range(PROBLEMS_MAX)]
    assert "and 104 more" in str(caught.value)


def test_sum_beyond_the_range_refuses_the_run_by_currency() -> None:
    with pytest.raises(RunRefused, match="line eur: charged"):
        roll_up([row("a", AMOUNT_MAX, currency="eur"), row("b", 1, currency="eur")])


def test_total_beyond_the_range_refuses_the_run() -> None:
    rows = [row("a", AMOUNT_MAX), row("b", 92, currency="eur")]
    with pytest.raises(RunRefused, match="line usd: total"):
        total_of(rows, Rates("usd", {"eur": "0.92"}))


def test_large_integers_stay_exact() -> None:
    """JSN-09."""
    assert total_of([row("a", 9007199254740993)]) == 9007199254740993


def test_window_without_rows_settles_to_nothing() -> None:
    settlement = settled(roll_up([]))
    assert (settlement.lines, settlement.total_net, settlement.rates) == ((), 0, None)


def test_line_that_nets_to_zero_needs_no_rate() -> None:
    rows = [row("c", 500, currency="jpy"), row("r", -500, kind="refund", currency="jpy"), row("u", 7)]
    totals = roll_up(rows)
    assert not needs_rates(totals, "usd")
    settlement = settled(totals, None)
    assert [(line.currency, line.net_settlement) for line in settlement.lines] == [("jpy", 0), ("usd", 7)]


def test_missing_rates_are_all_named() -> None:
    """FX-01: neither one to one nor left out."""
    rows = [row("a", 2_400_000, currency="jpy"), row("b", 5000), row("c", 1, currency="eur")]
    assert needs_rates(roll_up(rows), "usd")
    for rates in (Rates("usd", {"chf": "1.08"}), None):
        with pytest.raises(RunRefused) as caught:
            total_of(rows, rates)
        assert [problem.subject for problem in caught.value.problems] == ["eur", "jpy"]


def test_settlement_says_which_table_it_used() -> None:
    settlement = settled(roll_up([row("a", 92, currency="eur")]), Rates("usd", {"eur": "0.92"}, source="by hand"))
    assert settlement.rates == {"base": "usd", "as_of": "", "source": "by hand"}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"net": 3}, "net is not the sum"),
        ({"charged": -1, "net": -1, "refunded": 0, "fees": 0}, "net is not the sum"),
        ({"charged": -10, "refunded": 20}, "wrong sign"),
        ({"net_settlement": 11}, "converted although"),
    ],
)
def test_broken_identity_is_an_invariant_violated(change: dict[str, int], named: str) -> None:
    settlement = settled(roll_up([row("a", 10)]))
    line: SettlementLine = msgspec.structs.replace(settlement.lines[0], **change)
    with pytest.raises(InvariantViolated, match=named):
        check_settlement(msgspec.structs.replace(settlement, lines=(line,)))


def test_total_that_is_not_the_sum_is_an_invariant_violated() -> None:
    settlement = settled(roll_up([row("a", 10)]))
    with pytest.raises(InvariantViolated, match="total"):
        check_settlement(msgspec.structs.replace(settlement, total_net=11))


def test_rows_that_were_taken_in_before_are_passed_over() -> None:
    accumulator = Accumulator(known={"t1", "t3"})
    accumulator.add([row("t1", 100), row("t2", 200), row("t3", 400, status="pending"), row("p", -9, kind="payout")])
    totals = accumulator.finish(list)
    assert [(line.currency, line.net) for line in totals.lines] == [("usd", 200)]
    assert accumulator.available_ids == ["t2", "p"]
    assert totals.row_count == 2


def test_rows_that_are_owed_are_kept_apart() -> None:
    accumulator = Accumulator(known=frozenset())
    accumulator.add([row("a", 1), row("b", 2, status="pending"), row("c", -3, kind="payout", status="pending")])
    accumulator.finish(list)
    assert [owed.id for owed in accumulator.pending_rows] == ["b"]
    assert accumulator.available_ids == ["a"]


def test_rows_of_an_earlier_day_have_lines_of_their_own_at_this_runs_rate() -> None:
    late = LatePeriod(period=DAY - timedelta(days=2), roll_up=roll_up([row("x", 92, currency="eur"), row("y", 5)]))
    own = roll_up([row("a", 46, currency="eur")])
    assert needs_rates(roll_up([]), "usd", late=[late])
    settlement = settle(
        own, Rates("usd", {"eur": "0.92"}), account="acct_123", date=DAY, window=WINDOW, settlement_currency="usd",
        late=[late],
    )  # fmt: skip
    assert [(line.currency, line.period, line.net_settlement) for line in settlement.lines] == [
        ("eur", None, 50),
        ("eur", late.period, 100),
        ("usd", late.period, 5),
    ]
    assert (settlement.total_net, settlement.rates) == (155, {"base": "usd", "as_of": "", "source": ""})


def test_missing_rate_of_two_lines_is_one_problem() -> None:
    late = LatePeriod(period=DAY - timedelta(days=1), roll_up=roll_up([row("x", 92, currency="eur")]))
    with pytest.raises(RunRefused) as caught:
        settle(
            roll_up([row("a", 46, currency="eur")]), None, account="acct_123", date=DAY, window=WINDOW,
            settlement_currency="usd", late=[late],
        )  # fmt: skip
    assert [problem.subject for problem in caught.value.problems] == ["eur"]
