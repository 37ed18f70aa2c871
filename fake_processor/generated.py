"""A processor's state over generated data: one account, and a rate table for each of its days."""

from __future__ import annotations

import datetime as dt

from fake_processor.clock import Clock
from fake_processor.currencies import rate_table
from fake_processor.generated_listing import GeneratedListing
from fake_processor.generator import GeneratedRows, Plan
from fake_processor.state import ProcessorState


def generated_state(
    plan: Plan, *, account: str = "acct_123", clock: Clock | None = None, prepared: bool = False
) -> ProcessorState:
    """The state of a plan. No row is made before it is asked for; `prepared`: but what rows are made of is."""
    rows = GeneratedRows(plan)
    if prepared:
        rows.prepare()
    days = [plan.last_day - dt.timedelta(days=back) for back in range(plan.days)]
    return ProcessorState(
        accounts={account: GeneratedListing(rows)},
        rates={day.isoformat(): rate_table(plan.seed, day, plan.currencies) for day in days},
        clock=clock,
    )
