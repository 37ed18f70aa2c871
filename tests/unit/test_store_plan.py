"""The rules of the ledger, without a database: replays, conflicts, floors, ranges, and refusals that leave no trace.

Without these, one refused transfer in a batch could take its neighbours' money with it, or a retry book twice.
"""

import pytest

from paykit_settle.errors import BalanceOutOfRange, IdempotencyConflict, InsufficientFunds, SettleError, UnknownAccount
from paykit_settle.journal import CREDIT, Entry, Journal, opening_journal
from paykit_settle.money import AMOUNT_MAX
from paykit_settle.store.plan import AccountState, Plan, Receipt, Stored, account_keys, plan_journals
from tests.ledger_files import credit, move


def plan(*journals: Journal, stored: dict[str, Stored] | None = None, **accounts: AccountState) -> Plan:
    """A plan for tenant t's journals in usd; `stored` are credits by key."""
    return plan_journals(
        journals,
        stored={("t", CREDIT, key): value for key, value in (stored or {}).items()},
        accounts={("t", id_, "usd"): state for id_, state in accounts.items()},
        next_id=1,
    )


def account(balance: int, *, floor: int = 0, number: int = 1) -> AccountState:
    return number, balance, floor


def refusal(plan: Plan, index: int = 0) -> type[SettleError]:
    outcome = plan.outcomes[index]
    assert isinstance(outcome, SettleError)
    return type(outcome)


def test_first_credit_opens_the_balance() -> None:
    made = plan(credit("k", 500))
    assert made.opened == {("t", "balance", "usd"): ("t", "balance", "usd", 500, 0, 1)}
    assert made.moved == {}
    assert made.outcomes == [Receipt('{"currency":"USD","amount_minor":500}', False)]


def test_entries_carry_the_balance_before_and_after_through_a_batch() -> None:
    made = plan(credit("1", 5), credit("2", 7), balance=account(100))
    assert [row[2:7] for row in made.entries] == [
        ("@external", "usd", -5, None, None),
        ("balance", "usd", 5, 100, 105),
        ("@external", "usd", -7, None, None),
        ("balance", "usd", 7, 105, 112),
    ]
    assert made.moved == {("t", "balance", "usd"): (112, 1, 100)}


def test_used_key_gives_the_first_answer() -> None:
    wanted = credit("k", 500)
    made = plan(wanted, stored={"k": Stored(wanted.fingerprint, "first answer")}, balance=account(9))
    assert made.outcomes == [Receipt("first answer", True)]
    assert not made.journals
    assert not made.entries
    assert not made.moved


def test_used_key_with_another_request_is_a_conflict_and_moves_nothing() -> None:
    made = plan(credit("k", 900), stored={"k": Stored(credit("k", 500).fingerprint, "{}")}, balance=account(500))
    assert refusal(made) is IdempotencyConflict
    assert not made.journals
    assert not made.moved


def test_same_key_twice_in_one_batch_books_once() -> None:
    made = plan(credit("k", 5), credit("k", 5), credit("k", 6), balance=account(0))
    assert [outcome.replayed for outcome in made.outcomes[:2] if isinstance(outcome, Receipt)] == [False, True]
    assert refusal(made, 2) is IdempotencyConflict
    assert made.moved == {("t", "balance", "usd"): (5, 1, 0)}


def test_keys_belong_to_tenant_and_operation() -> None:
    made = plan(
        credit("k", 5), credit("k", 6, tenant="u"), move("k", "balance", "b", 1), balance=account(0), b=account(0)
    )
    assert all(isinstance(outcome, Receipt) and not outcome.replayed for outcome in made.outcomes)
    assert len(made.journals) == 3


@pytest.mark.parametrize("names", [(("a", "b:c"), ("a:b", "c")), (("a", ":b"), ("a:", "b"))])
def test_no_two_pairs_of_tenant_and_key_are_the_same(names: tuple[tuple[str, str], tuple[str, str]]) -> None:
    made = plan(*(credit(key, 5, tenant=tenant) for tenant, key in names))
    assert [outcome.replayed for outcome in made.outcomes if isinstance(outcome, Receipt)] == [False, False]


def test_transfer_moves_down_to_the_floor_and_not_below() -> None:
    made = plan(move("1", "a", "b", 90), move("2", "a", "b", 1), a=account(100, floor=10), b=account(0, number=2))
    assert isinstance(made.outcomes[0], Receipt)
    assert refusal(made, 1) is InsufficientFunds
    assert made.moved == {("t", "a", "usd"): (10, 1, 100), ("t", "b", "usd"): (90, 2, 0)}


def test_floor_may_lie_below_zero() -> None:
    made = plan(move("1", "a", "b", 50), a=account(0, floor=-50), b=account(0))
    assert made.moved[("t", "a", "usd")][0] == -50


def test_account_below_its_floor_may_still_receive() -> None:
    made = plan(move("1", "a", "b", 5), a=account(10), b=account(-100))
    assert made.moved[("t", "b", "usd")][0] == -95


def test_floors_do_not_bind_credits() -> None:
    made = plan(credit("k", -700), balance=account(500))
    assert made.moved == {("t", "balance", "usd"): (-200, 1, 500)}


@pytest.mark.parametrize(("source", "target"), [("a", "missing"), ("missing", "a"), ("a", "balance")])
def test_transfer_with_an_unknown_account_is_refused_as_a_whole(source: str, target: str) -> None:
    made = plan(move("1", source, target, 5), a=account(100))
    assert refusal(made) is UnknownAccount
    assert not made.moved
    assert not made.entries


def test_account_in_another_currency_is_unknown() -> None:
    made = plan(move("1", "a", "b", 5, currency="eur"), a=account(100), b=account(0))
    assert refusal(made) is UnknownAccount


def test_opening_needs_its_account() -> None:
    assert refusal(plan(opening_journal("t", "a", currency="usd", amount=5, at_ms=1))) is UnknownAccount


@pytest.mark.parametrize(("balance", "amount"), [(AMOUNT_MAX, 1), (-AMOUNT_MAX, -1), (1, AMOUNT_MAX)])
def test_balance_beyond_the_range_is_refused(balance: int, amount: int) -> None:
    made = plan(credit("k", amount), balance=account(balance))
    assert refusal(made) is BalanceOutOfRange
    assert not made.moved


def test_refused_journal_leaves_no_trace_for_those_after_it() -> None:
    """The debit alone was possible; the credit would overflow: neither may stay."""
    made = plan(move("1", "a", "b", 5), move("2", "a", "c", 5), a=account(5), b=account(AMOUNT_MAX), c=account(0))
    assert refusal(made, 0) is BalanceOutOfRange
    assert isinstance(made.outcomes[1], Receipt)
    assert [row[0] for row in made.journals] == [1]


def test_refused_journal_does_not_use_up_its_key() -> None:
    made = plan(move("1", "a", "b", 5), credit("k", 5), move("1", "balance", "b", 5), b=account(0))
    assert refusal(made, 0) is UnknownAccount
    assert isinstance(made.outcomes[2], Receipt)


def test_several_entries_of_one_account_follow_each_other() -> None:
    journal = Journal(
        tenant="t",
        operation="settlement",
        key="k",
        fingerprint=bytes(32),
        entries=(Entry("balance", "usd", 5), Entry("balance", "usd", -2), Entry("@fx", "usd", -3)),
        answer="{}",
        event_at_ms=1,
        recorded_at_ms=1,
    )
    made = plan(journal, balance=account(10))
    assert [row[5:7] for row in made.entries] == [(10, 15), (15, 13), (None, None)]
    assert made.moved == {("t", "balance", "usd"): (13, 1, 10)}


def test_credit_of_nothing_is_booked_without_moving_a_balance() -> None:
    made = plan(credit("k", 0), balance=account(10))
    assert made.moved == {}
    assert len(made.journals) == 1


def test_counter_accounts_need_no_state() -> None:
    assert account_keys([credit("k", 5), move("1", "a", "b", 1)]) == {
        ("t", "balance", "usd"), ("t", "a", "usd"), ("t", "b", "usd"),
    }  # fmt: skip
