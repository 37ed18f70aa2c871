"""Blocks of generated transactions, without their numbers and times.

A block holds 128 rows that belong together: a refund or dispute follows its own charge. How often each kind comes is
written down here, per mille. Amounts are integers from the first throw on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fake_processor.currencies import CURRENCIES
from fake_processor.dice import Dice

BLOCK_ROWS = 128

# Of a thousand rows, so many are of these kinds, as long as there is a charge to refer to; the rest are charges.
REFUNDS = 18
PART_REFUNDS = 16
DISPUTES = 4
DISPUTES_WON = 2
ADJUSTMENTS = 3
FEES = 3
REFUND_FAILURES = 2
CHARGE_FAILURES = 1
BANK_DEBITS = 60
PENDING = 15
OTHER_CURRENCIES = 600  # of a thousand charges, drawn among all currencies; the rest are in the first
FEES_RETURNED = 250  # of a thousand full refunds


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What one row says, but for its number and its times. Amounts are minor units of `currency`."""

    kind: str
    category: str
    prefix: str
    description: str
    currency: str
    amount: int
    fee: int
    pending: bool = False

    @property
    def net(self) -> int:
        return self.amount - self.fee


def block(seed: int, number: int, currencies: tuple[str, ...]) -> list[Draft]:
    """The rows of one block, newest first; refunds and disputes stand before (newer than) what they refer to."""
    dice = Dice(seed, 1, number)
    oldest_first: list[Draft] = []
    charges: list[Draft] = []  # those that nothing has been taken back from yet
    taken: list[Draft] = []  # refunds and disputes that may still be turned round
    for _ in range(BLOCK_ROWS):
        draft = _follow_up(dice, charges, taken)
        if draft is None:
            draft = _charge(dice, currencies)
            if not draft.pending:
                charges.append(draft)
        oldest_first.append(draft)
    return oldest_first[::-1]


def _charge(dice: Dice, currencies: tuple[str, ...]) -> Draft:
    currency = currencies[dice.below(len(currencies)) if dice.hits(OTHER_CURRENCIES) else 0]
    money = CURRENCIES[currency]
    size = dice.below(100)
    low, high = next(bounds for share, *bounds in _SIZES if size < share)
    amount = money.amount(dice.between(low, high))
    pending = dice.hits(PENDING)
    if dice.hits(BANK_DEBITS):
        fee = min(amount * 8 // 1000, money.amount(500))
        return Draft(
            kind="payment",
            category="charge",
            prefix="py",
            description="Bank debit",
            currency=currency,
            amount=amount,
            fee=fee,
            pending=pending,
        )
    return Draft(
        kind="charge",
        category="charge",
        prefix="ch",
        description="Card payment",
        currency=currency,
        amount=amount,
        fee=amount * 29 // 1000 + money.amount(30),
        pending=pending,
    )


# Share of the charges up to here in per cent, and their size in US cents.
_SIZES = ((55, 500, 5_999), (85, 6_000, 24_999), (98, 25_000, 149_999), (100, 150_000, 1_999_999))


def _follow_up(dice: Dice, charges: list[Draft], taken: list[Draft]) -> Draft | None:
    """A row that refers to an earlier one, or None when this one is to be a charge."""
    draw = dice.below(1000)
    for share, make in _FOLLOW_UPS:
        if draw < share:
            return make(dice, charges, taken)
        draw -= share
    return None


def _refund(dice: Dice, charges: list[Draft], taken: list[Draft]) -> Draft | None:
    if not charges:
        return None
    charge = charges.pop(dice.below(len(charges)))
    fee = -charge.fee if dice.hits(FEES_RETURNED) else 0
    refund = replace(
        charge, kind="refund", category="refund", prefix="re", description="Refund", amount=-charge.amount, fee=fee
    )
    taken.append(refund)
    return refund


def _part_refund(dice: Dice, charges: list[Draft], taken: list[Draft]) -> Draft | None:
    full = _refund(dice, charges, taken)
    if full is None:
        return None
    taken.pop()
    part = max(1, -full.amount * dice.between(5, 90) // 100)
    return replace(full, description="Part refund", amount=-part, fee=0)


def _dispute(dice: Dice, charges: list[Draft], taken: list[Draft]) -> Draft | None:
    if not charges:
        return None
    charge = charges.pop(dice.below(len(charges)))
    dispute = replace(
        charge,
        kind="adjustment",
        category="dispute",
        prefix="du",
        description="Dispute",
        amount=-charge.amount,
        fee=CURRENCIES[charge.currency].amount(1_500),
    )
    taken.append(dispute)
    return dispute


def _turned_round(taken: list[Draft], category: str) -> Draft | None:
    found = next((draft for draft in taken if draft.category == category), None)
    if found is not None:
        taken.remove(found)
    return found


def _dispute_won(_dice: Dice, _charges: list[Draft], taken: list[Draft]) -> Draft | None:
    lost = _turned_round(taken, "dispute")
    if lost is None:
        return None
    return replace(
        lost,
        category="dispute_reversal",
        description="Dispute won, its fee returned",
        amount=-lost.amount,
        fee=-lost.fee,
    )


def _refund_failure(_dice: Dice, _charges: list[Draft], taken: list[Draft]) -> Draft | None:
    refund = _turned_round(taken, "refund")
    if refund is None:
        return None
    return replace(
        refund,
        kind="refund_failure",
        category="refund_failure",
        description="A refund that could not be paid",
        amount=-refund.amount,
        fee=-refund.fee,
    )


def _charge_failure(dice: Dice, charges: list[Draft], _taken: list[Draft]) -> Draft | None:
    debits = [charge for charge in charges if charge.kind == "payment"]
    if not debits:
        return None
    debit = debits[dice.below(len(debits))]
    charges.remove(debit)
    return replace(
        debit,
        kind="payment_failure_refund",
        category="charge_failure",
        prefix="pyr",
        description="A bank debit that failed",
        amount=-debit.amount,
        fee=0,
    )


def _adjustment(dice: Dice, charges: list[Draft], _taken: list[Draft]) -> Draft | None:
    if not charges:
        return None
    return replace(
        charges[-1],
        kind="adjustment",
        category="other_adjustment",
        prefix="ad",
        description="Balance correction",
        amount=CURRENCIES[charges[-1].currency].amount(dice.between(-2_000, 2_000)),
        fee=0,
    )


def _fee(dice: Dice, charges: list[Draft], _taken: list[Draft]) -> Draft | None:
    if not charges:
        return None
    currency = charges[-1].currency
    amount = -CURRENCIES[currency].amount(dice.between(50, 3_000))
    return replace(
        charges[-1], kind="stripe_fee", category="fee", prefix="fee", description="Service fee", amount=amount, fee=0
    )


_FOLLOW_UPS = (
    (REFUNDS, _refund),
    (PART_REFUNDS, _part_refund),
    (DISPUTES, _dispute),
    (DISPUTES_WON, _dispute_won),
    (ADJUSTMENTS, _adjustment),
    (FEES, _fee),
    (REFUND_FAILURES, _refund_failure),
    (CHARGE_FAILURES, _charge_failure),
)
