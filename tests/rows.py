"""Balance transactions for tests, with the members that a test does not care about filled in."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date

from paykit_settle.lifecycle import State
from paykit_settle.models import BalanceTransaction, RollUp, Settlement
from paykit_settle.rates import Rates
from paykit_settle.settlement import roll_up, settle
from paykit_settle.store.runs import Run
from paykit_settle.window import day_window, load_zone

DAY = date(2026, 1, 15)
WINDOW = day_window(DAY, load_zone("Etc/UTC"))


def row(
    identity: str,
    amount: int,
    fee: int = 0,
    *,
    kind: str = "charge",
    currency: str = "usd",
    status: str = "available",
    category: str | None = None,
    created: int | None = WINDOW.start_unix_s,
) -> BalanceTransaction:
    """One row whose net follows from its amount and fee."""
    return BalanceTransaction(
        id=identity,
        type=kind,
        amount=amount,
        currency=currency,
        fee=fee,
        status=status,
        net=amount - fee,
        created=created,
        reporting_category=category,
    )


def settled(totals: RollUp, rates: Rates | None = None, currency: str = "usd") -> Settlement:
    """The settlement of those totals on the reference day."""
    return settle(totals, rates, account="acct_123", date=DAY, window=WINDOW, settlement_currency=currency)


def total_of(rows: Sequence[BalanceTransaction], rates: Rates | None = None, currency: str = "usd") -> int:
    """The total of those rows, in minor units of the settlement currency."""
    return settled(roll_up(rows), rates, currency).total_net


def nets(rows: Sequence[BalanceTransaction]) -> Mapping[str, int]:
    """The net of each currency."""
    return {line.currency: line.net for line in roll_up(rows).lines}


def a_run(**changes: object) -> Run:
    """A run of the reference day that somebody pulls, with those members changed."""
    run = Run(
        number=1,
        account="acct_123",
        date=DAY,
        tenant="acct_123",
        state=State.PULLING,
        settlement_currency="usd",
        zone="Etc/UTC",
        window_start_s=WINDOW.start_unix_s,
        window_end_s=WINDOW.end_unix_s,
        attempt=1,
        pull=1,
        pull_started_at_ms=0,
        owner="somebody",
        requested_by="test",
        settlement_id=None,
        error_code=None,
        error_detail=None,
        created_at_ms=0,
        changed_at_ms=0,
    )
    return replace(run, **changes)  # type: ignore[arg-type]  # members of a run, as each test names them
