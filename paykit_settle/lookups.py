"""Asks the processor, before late rows are taken in, whether a later day that this database does not know is settled.

A restored database has forgotten which late rows were taken in since its back-up; the processor has the settlements.
Nothing here refuses a run: what cannot be known leaves the late rows owed, with the reason.
"""

from collections.abc import Collection
from datetime import date as Date
from datetime import datetime, timedelta
from functools import partial

from paykit_settle.errors import ProcessorError
from paykit_settle.looking_up import LookUp
from paykit_settle.missing_days import EMPTY_KEPT_HOURS, LOOKUPS_MAX, is_long_over, missing_days, too_far_back
from paykit_settle.open_outcomes import named
from paykit_settle.store.lookups import days_known, keep_empty
from paykit_settle.store.runs import Run
from paykit_settle.store.store import Store
from paykit_settle.window import load_zone, yesterday


async def blocked_periods(
    look_up: LookUp, store: Store, run: Run, periods: Collection[Date], *, now: datetime, checked: bool
) -> dict[Date, str]:
    """Return, for each day whose late rows must stay owed, the reason in one sentence; the others may be taken in.

    The processor is asked for every day after a period, up to the newest that has ended, of which this database has no
    run that holds rows; the run's own day is looked up before the send. `checked`: a person has looked, so what cannot
    be asked blocks nothing; a settlement that is found still does. A look-up that fails blocks, and does not raise.
    """
    if not periods:
        return {}
    zone, oldest, now_ms = load_zone(run.zone), min(periods), _ms(now)
    kept_since_ms = now_ms - EMPTY_KEPT_HOURS * 3_600_000
    known = await store.read(
        lambda connection: days_known(
            connection, run.account, after=oldest, asked_since_ms=kept_since_ms, now_ms=now_ms
        )
    )
    missing = missing_days(oldest, yesterday(now, zone), known=known | {run.date}, zone=zone)
    blocked = {} if checked else too_far_back(periods, missing)
    first = min((period for period in periods if period not in blocked), default=Date.max)
    # The newest first: what is found there, or fails there, speaks for every day before it, and ends the asking.
    for day in [day for day in missing if day > first][:LOOKUPS_MAX]:
        try:
            found = await look_up.settlements(run.account, day)
        except ProcessorError as error:
            reason = f"the processor could not be asked whether {day} is settled: {error}"
            return blocked | {period: reason for period in periods if period < day}
        if found is None:
            reason = f"the processor has no look-up of settlements, so whether {day} is settled is not known"
            return blocked if checked else blocked | {period: reason for period in periods if period < day}
        if found:
            reason = f"the processor has a settlement of {day}, which is not settled here: {named(found)}"
            return blocked | {period: reason for period in periods if period < day}
        if is_long_over(day, zone, now):
            await store.write(
                partial(keep_empty, account=run.account, day=day, forget_before_ms=kept_since_ms, now_ms=now_ms)
            )
    return blocked


def _ms(moment: datetime) -> int:
    return (moment - datetime.fromtimestamp(0, moment.tzinfo)) // timedelta(milliseconds=1)
