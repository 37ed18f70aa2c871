"""What a settlement books, entry by entry, held to the reference in the design: signs, accounts, order, balance.

Without it, a sign could flip, or an exchange be booked on one side only, and every total would still look right.
"""

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime

import pytest

from paykit_settle.booking import settlement_journal
from paykit_settle.errors import InvariantViolated
from paykit_settle.journal import Entry, Journal
from paykit_settle.models import BalanceTransaction, LatePeriod, Settlement
from paykit_settle.rates import Rates
from paykit_settle.settlement import roll_up, settle
from tests.rows import DAY, WINDOW, row, settled

RATES = Rates("usd", {"eur": "0.92", "gbp": "0.79", "jpy": "150"}, as_of=datetime(2026, 1, 15, 16, tzinfo=UTC))
REFERENCE = [
    row("e1", 14000, 465, currency="eur"),
    row("g1", 8000, 280, currency="gbp"),
    row("j1", 150000, currency="jpy"),
    row("u1", 25000, 785),
    row("u2", -3500, kind="refund"),
]


def booked(settlement: Settlement, *, settlement_id: str = "setl_0001") -> Journal:
    return settlement_journal(
        settlement,
        tenant="tenant",
        idempotency_key="key",
        body_sha256="ab" * 32,
        settlement_id=settlement_id,
        now_ms=1,
    )


def of(rows: Sequence[BalanceTransaction]) -> Settlement:
    return settled(roll_up(rows), RATES)


def amounts(journal: Journal) -> list[tuple[str, str, int]]:
    return [(entry.account, entry.currency, entry.amount) for entry in journal.entries]


def test_reference_settlement_is_booked_as_the_design_lists_it() -> None:
    assert amounts(booked(of(REFERENCE))) == [
        ("@processor.charged", "eur", -14000),
        ("@processor.fees", "eur", 465),
        ("@fx", "eur", 13535),
        ("@fx", "usd", -14712),
        ("@processor.charged", "gbp", -8000),
        ("@processor.fees", "gbp", 280),
        ("@fx", "gbp", 7720),
        ("@fx", "usd", -9772),
        ("@processor.charged", "jpy", -150000),
        ("@fx", "jpy", 150000),
        ("@fx", "usd", -100000),
        ("@processor.charged", "usd", -25000),
        ("@processor.refunded", "usd", 3500),
        ("@processor.fees", "usd", 785),
        ("balance", "usd", 145199),
    ]


def test_each_currency_sums_to_zero() -> None:
    sums: dict[str, int] = {}
    for _, currency, amount in amounts(booked(of(REFERENCE))):
        sums[currency] = sums.get(currency, 0) + amount
    assert sums == {"eur": 0, "gbp": 0, "jpy": 0, "usd": 0}


def test_each_exchange_keeps_its_rate_its_fraction_and_what_rounding_left() -> None:
    details = [json.loads(entry.details) for entry in booked(of(REFERENCE)).entries if entry.details]
    assert details[0] == details[1]
    assert details[0] == {"rates": {"eur": "0.92"}, "fraction": "100/92", "remainder": "-4/92", "period": None}
    assert [each["remainder"] for each in details[2::2]] == ["12/79", "0/150"]


def test_negative_settlement_takes_from_the_balance() -> None:
    """ROW-13."""
    journal = booked(of([row("c1", 1000, 59), row("r1", -5000, kind="refund")]))
    assert amounts(journal) == [
        ("@processor.charged", "usd", -1000),
        ("@processor.refunded", "usd", 5000),
        ("@processor.fees", "usd", 59),
        ("balance", "usd", -4059),
    ]


def test_returned_fee_is_booked_with_its_sign() -> None:
    assert amounts(booked(of([row("a1", 5000, -1500)]))) == [
        ("@processor.charged", "usd", -5000),
        ("@processor.fees", "usd", -1500),
        ("balance", "usd", 6500),
    ]


@pytest.mark.parametrize("rows", [[], [row("c1", 100), row("r1", -100)]], ids=["no rows", "net of nothing"])
def test_settlement_of_nothing_still_books_its_balance_entry(rows: list[BalanceTransaction]) -> None:
    assert amounts(booked(of(rows)))[-1] == ("balance", "usd", 0)


def test_line_of_an_earlier_day_names_it_in_its_exchange() -> None:
    late = LatePeriod(period=date(2026, 1, 14), roll_up=roll_up([row("l1", 92, currency="eur", created=None)]))
    settlement = settle(
        roll_up([row("u1", 7)]),
        RATES,
        account="acct_123",
        date=DAY,
        window=WINDOW,
        settlement_currency="usd",
        late=[late],
    )
    journal = booked(settlement)
    assert amounts(journal)[-1] == ("balance", "usd", 107)
    exchanges = [json.loads(entry.details) for entry in journal.entries if entry.details]
    assert [each["period"] for each in exchanges] == ["2026-01-14", "2026-01-14"]


def test_journal_is_dated_by_the_settlements_day_and_keyed_by_account_and_day() -> None:
    journal = booked(of(REFERENCE))
    assert (journal.operation, journal.key) == ("settlement", "2026-01-15 acct_123")
    assert (journal.event_at_ms, journal.recorded_at_ms) == (1768435200000, 1)
    assert json.loads(journal.answer) == {"settlement_id": "setl_0001", "idempotency_key": "key"}


def test_second_booking_of_a_day_is_told_from_a_replay_by_its_body() -> None:
    settlement = of(REFERENCE)
    assert booked(settlement).fingerprint == booked(settlement, settlement_id="setl_0002").fingerprint
    other = settlement_journal(
        settlement, tenant="tenant", idempotency_key="k", body_sha256="cd" * 32, settlement_id="s", now_ms=1
    )
    assert other.fingerprint != booked(settlement).fingerprint


def test_journal_that_does_not_balance_cannot_be_made() -> None:
    with pytest.raises(InvariantViolated):
        Journal(
            tenant="t",
            operation="settlement",
            key="k",
            fingerprint=bytes(32),
            entries=(Entry("@fx", "usd", -1), Entry("balance", "usd", 2)),
            answer="{}",
            event_at_ms=0,
            recorded_at_ms=0,
        )
