"""Decides what a batch of journals does, before any of it is written: replays, conflicts, floors, new balances.

Pure, and the only place with these rules: the one transfer of a script and a batch of a thousand credits are planned by
the same code. Journals are planned in order, each against the balances that those before it leave; a refused one
leaves no trace, so its neighbours are not touched.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from paykit_settle.errors import BalanceOutOfRange, IdempotencyConflict, InsufficientFunds, SettleError, UnknownAccount
from paykit_settle.journal import BALANCE, COUNTER_PREFIX, TRANSFER, Journal
from paykit_settle.money import AMOUNT_MAX

JournalKey = tuple[str, str, str]
"""Tenant, operation, idempotency key."""
AccountKey = tuple[str, str, str]
"""Tenant, account id, currency."""


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """What a posted journal gives back: the stored answer (JSON), and whether an earlier request made it."""

    answer: str
    replayed: bool


class Stored(msgspec.Struct, frozen=True, gc=False):
    """What the database knows of a key: the fingerprint of the request that used it, and its answer."""

    fingerprint: bytes
    answer: str


AccountState = tuple[int | None, int, int]
"""An account's row number (None: it opens with this batch), balance and floor, in minor units."""

Outcome = Receipt | SettleError


@dataclass(slots=True)
class Plan:
    """What to write, as rows for the statements, and what to answer, one outcome per journal in order.

    `opened` are the accounts that the batch opens, `moved` those that exist and whose balance it changes: the row
    says (after, number, before). `states` is what the accounts of the batch stand at once the plan is written, and
    `next_id` the number of the journal that follows.
    """

    outcomes: list[Outcome] = field(default_factory=list)
    journals: list[tuple[object, ...]] = field(default_factory=list)
    entries: list[tuple[object, ...]] = field(default_factory=list)
    opened: dict[AccountKey, tuple[object, ...]] = field(default_factory=dict)
    moved: dict[AccountKey, tuple[object, ...]] = field(default_factory=dict)
    states: dict[AccountKey, AccountState] = field(default_factory=dict)
    next_id: int = 1


def plan_journals(
    journals: Sequence[Journal],
    *,
    stored: Mapping[JournalKey, Stored],
    accounts: Mapping[AccountKey, AccountState],
    next_id: int,
) -> Plan:
    """The plan for journals in the order of their arrival, given what the database holds for their keys and accounts.

    A used key gives its first answer again, or `IdempotencyConflict` for another request. `UnknownAccount`,
    `InsufficientFunds` (transfers only) and `BalanceOutOfRange` refuse a journal as a whole.
    """
    plan = Plan()
    outcomes, rows, states = plan.outcomes, plan.journals, plan.states
    known: dict[JournalKey, Stored | Journal] = dict(stored)
    for journal in journals:
        tenant, operation, idempotency_key = key = journal.tenant, journal.operation, journal.key
        if (earlier := known.get(key)) is not None:
            outcomes.append(_replay(journal, earlier))
            continue
        refusal = _apply(journal, next_id, accounts, states, plan.entries)
        if refusal is not None:
            outcomes.append(refusal)
            continue
        known[key] = journal
        answer, fingerprint = journal.answer, journal.fingerprint
        event, recorded = journal.event_at_ms, journal.recorded_at_ms
        outcomes.append(Receipt(answer, False))
        rows.append(
            (next_id, tenant, operation, idempotency_key, fingerprint, answer, journal.details, event, recorded)
        )
        next_id += 1
    plan.next_id = next_id
    for account, (number, balance, floor) in states.items():
        if number is None:
            plan.opened[account] = (*account, balance, floor, journals[0].recorded_at_ms)
        elif balance != (before := accounts[account][1]):
            plan.moved[account] = (balance, number, before)
    return plan


def account_keys(journals: Iterable[Journal]) -> set[AccountKey]:
    """The accounts whose state a plan needs: all that have a row, so no counter-accounts."""
    return {
        (journal.tenant, entry.account, entry.currency)
        for journal in journals
        for entry in journal.entries
        if entry.account[0] != COUNTER_PREFIX
    }


def _replay(journal: Journal, earlier: Stored | Journal) -> Outcome:
    if earlier.fingerprint == journal.fingerprint:
        return Receipt(earlier.answer, True)
    return IdempotencyConflict(f"{journal.operation} {journal.key!r} was used before, for another request")


def _apply(
    journal: Journal,
    journal_id: int,
    accounts: Mapping[AccountKey, AccountState],
    states: dict[AccountKey, AccountState],
    entry_rows: list[tuple[object, ...]],
) -> SettleError | None:
    """Moves the balances in `states` and adds the entries' rows, or does neither and says why."""
    tenant, binds_floors = journal.tenant, journal.operation == TRANSFER
    begun, position = len(entry_rows), 0
    undo: list[tuple[AccountKey, AccountState | None]] = []
    refusal: SettleError | None = None
    for entry in journal.entries:
        account, currency, amount = entry.account, entry.currency, entry.amount
        if account[0] == COUNTER_PREFIX:
            entry_rows.append((journal_id, position, account, currency, amount, None, None, entry.details))
            position += 1
            continue
        key = (tenant, account, currency)
        moved = states.get(key)
        state = moved or accounts.get(key)
        if state is None:
            if account != BALANCE or binds_floors:
                refusal = UnknownAccount(f"the tenant has no account {account!r} in {currency.upper()}")
                break
            state = (None, 0, 0)
        number, before, floor = state
        after = before + amount
        if binds_floors and amount < 0 and after < floor:
            refusal = InsufficientFunds(
                f"account {account!r} has {before - floor} {currency.upper()} minor units above its floor, "
                f"the transfer takes {-amount}"
            )
            break
        if not -AMOUNT_MAX <= after <= AMOUNT_MAX:
            refusal = BalanceOutOfRange(f"the balance of {account!r} would go beyond ±{AMOUNT_MAX}")
            break
        undo.append((key, moved))
        states[key] = (number, after, floor)
        entry_rows.append((journal_id, position, account, currency, amount, before, after, entry.details))
        position += 1
    if refusal is not None:
        del entry_rows[begun:]
        for key, moved in reversed(undo):
            if moved is None:
                del states[key]
            else:
                states[key] = moved
    return refusal
