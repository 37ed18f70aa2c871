"""The story of a run on one screen: pull the window, roll it up, convert, post.

Nothing is sent before the whole window was read and every check on money has passed; what is sent is one body under
one key that follow from the account and the date alone, so a repeat can never settle twice.
"""

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from datetime import date as Date

from paykit_settle.accumulator import Accumulator
from paykit_settle.client import PAGE_SIZE_MAX, ProcessorClient
from paykit_settle.errors import ProcessorUnavailable
from paykit_settle.filter_check import refuse_unless_filtered
from paykit_settle.found_settlements import LookUpMode
from paykit_settle.models import BalanceTransaction, PostedSettlement, RollUp, Settlement
from paykit_settle.money import ScaleProfile
from paykit_settle.rates import Rates
from paykit_settle.run_request import make_run_request
from paykit_settle.settlement import needs_rates, settle
from paykit_settle.terms import RowsWithoutCreated
from paykit_settle.window import DEFAULT_ZONE, Window, day_window, existing_window, load_zone
from paykit_settle.wire import encode_body, settlement_key, settlement_payload

WINDOWS_MAX = 16
"""Windows of one day that are read at once, unless a setting says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How an account is settled: its zone and scales, the age a rate may have, and the bounds of a pull.

    `zone` is None where none is named: the one that the account is settled in, else UTC.
    """

    zone: str | None = None
    grace_s: int = 300
    rate_age_max_h: int = 120
    rate_ahead_max_h: int = 24
    rates_base: str = "usd"
    page_size: int = PAGE_SIZE_MAX
    windows_max: int = WINDOWS_MAX
    look_back_days: int = 3
    look_back_listings: int = 3
    pull_deadline_s: int = 3600
    scale: ScaleProfile = field(default_factory=ScaleProfile)
    rows_without_created: RowsWithoutCreated = "refuse"
    lookup: LookUpMode = "list"
    absence_age_s: int = 600


_DEFAULT_OPTIONS = RunOptions()


async def run_settlement(
    client: ProcessorClient,
    rates: Rates | None,
    account: str,
    date: Date | str,
    settlement_currency: str = "usd",
    *,
    options: RunOptions = _DEFAULT_OPTIONS,
    now: datetime | None = None,
) -> PostedSettlement:
    """Settles one account's day at the processor, and gives its answer.

    Asking again posts the same bytes under the same key, which the processor answers with the same settlement.
    Raises what `build_settlement` and `ProcessorClient.post` raise; after `OutcomeUnknown` simply ask again.
    """
    settlement = await build_settlement(client, rates, account, date, settlement_currency, options=options, now=now)
    return await post_settlement(client, settlement, scale=options.scale)


async def build_settlement(
    client: ProcessorClient,
    rates: Rates | None,
    account: str,
    date: Date | str,
    settlement_currency: str = "usd",
    *,
    options: RunOptions = _DEFAULT_OPTIONS,
    now: datetime | None = None,
    allow_open: bool = False,
    window: Window | None = None,
) -> Settlement:
    """Reads the whole day and computes its settlement; posts nothing.

    `rates=None` asks the processor for the day's table, if any line needs one. `now` is the clock (default: the
    system's); a day that has not ended is `WindowOpen` unless `allow_open`. `window` is the day's where it is known not
    to be that of the zone. Raises `InvalidRequest` for a wrong
    argument, `RunRefused` for rows or rates that allow no exact settlement, a `ProcessorError` when the day could not
    be read whole.
    """
    request = make_run_request(account, date, settlement_currency)
    if window is None:
        zone = options.zone or DEFAULT_ZONE
        window = existing_window(request.date, day_window(request.date, load_zone(zone)), zone)
    if not allow_open:
        window.check_closed(now or datetime.now(UTC), grace=timedelta(seconds=options.grace_s))
    totals = await _pull(client, request.account, window, options)
    if needs_rates(totals, request.settlement_currency):
        rates = await rates_of_day(client, rates, day=request.date, window=window, options=options)
    return settle(
        totals,
        rates,
        account=request.account,
        date=request.date,
        window=window,
        settlement_currency=request.settlement_currency,
    )


async def rates_of_day(
    client: ProcessorClient, rates: Rates | None, *, day: Date, window: Window, options: RunOptions
) -> Rates:
    """The given table, or the processor's for that day; `RunRefused` unless it belongs to the window."""
    table = rates if rates is not None else await client.rates(base=options.rates_base, day=day)
    table.check_age(
        window.end,
        behind=timedelta(hours=options.rate_age_max_h),
        ahead=timedelta(hours=options.rate_ahead_max_h),
    )
    return table


async def post_settlement(client: ProcessorClient, settlement: Settlement, *, scale: ScaleProfile) -> PostedSettlement:
    """Posts a settlement under the key of its account and date; `InvalidAmount` if `scale` cannot express it."""
    body = encode_body(settlement_payload(settlement, scale))
    key = settlement_key(settlement.account, settlement.date)
    settlement_id, status = await client.create_settlement(body, idempotency_key=key)
    return PostedSettlement(
        settlement_id=settlement_id,
        status=status,
        total_net=settlement.total_net,
        currency=settlement.settlement_currency,
        idempotency_key=key,
        settlement=settlement,
    )


async def _pull(client: ProcessorClient, account: str, window: Window, options: RunOptions) -> RollUp:
    accumulator = Accumulator(window=window, scale=options.scale)
    read: list[list[BalanceTransaction]] = []  # without a store there is nowhere else to look a repeat up
    try:
        async with asyncio.timeout(options.pull_deadline_s):
            async with aclosing(client.pages(account, window=window, page_size=options.page_size)) as pages:
                async for page in pages:
                    accumulator.add(page.rows)
                    read.append(page.rows)
            if options.rows_without_created != "accept" and any(row.created is None for rows in read for row in rows):
                ids = {row.id for rows in read for row in rows}
                span = (window.start_unix_s, window.end_unix_s)
                await refuse_unless_filtered(
                    client, account, span, page_size=options.page_size, is_own=ids.__contains__
                )
    except TimeoutError:
        raise ProcessorUnavailable(f"the day could not be read within {options.pull_deadline_s} s") from None
    return accumulator.finish(lambda: read)
