"""What a run is claimed with and what it goes on with: between the settings of who asks and the terms of the run.

A run that is gone on with uses the terms of its claim, whatever the settings say by now.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from paykit_settle.endpoint import ProcessorIdentity
from paykit_settle.errors import InvariantViolated
from paykit_settle.money import ScaleProfile
from paykit_settle.person import this_user
from paykit_settle.rates import Rates
from paykit_settle.run import RunOptions
from paykit_settle.run_request import RunRequest
from paykit_settle.store.claim_request import ClaimRequest
from paykit_settle.store.runs import Run
from paykit_settle.terms import Terms
from paykit_settle.wire import decode_rates


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """How a run is asked for, beside what is asked: `by` which way, and what a person says along with it.

    `principal` is who asks; None for the user of this process. `only_due`: nobody asks for this very day, so it is
    taken up only when it is due. `is_quiet`: what there is to say is said with what comes of it, not in the log of each
    try. The rest is as in `Runner.run`.
    """

    by: str
    principal: str | None = None
    retry_rejected: bool = False
    zone: str | None = None
    zone_changed: bool = False
    processor_moved: bool = False
    new_terms: bool = False
    after_restore_checked: bool = False
    only_due: bool = False
    is_quiet: bool = False


def claim_request(
    wanted: RunRequest,
    how: Asked,
    *,
    options: RunOptions,
    rates: Rates | None,
    tenants: Mapping[str, str],
    processor: ProcessorIdentity,
    owner: str,
    pull_age_max_ms: int,
    now: datetime,
    now_ms: int,
) -> ClaimRequest:
    """Return the claim of that run with everything in it that decides a row or an amount."""
    return ClaimRequest(
        account=wanted.account,
        date=wanted.date,
        settlement_currency=wanted.settlement_currency,
        tenant=tenants.get(wanted.account),
        zone=how.zone or options.zone,
        zone_named=how.zone is not None,
        zone_changed=how.zone_changed,
        processor=processor,
        processor_moved=how.processor_moved,
        terms=terms_of(options),
        rates_given=rates.document() if rates is not None else None,
        new_terms=how.new_terms,
        retry_rejected=how.retry_rejected,
        owner=owner,
        requested_by=how.by,
        principal=how.principal or this_user(),
        pull_age_max_ms=pull_age_max_ms,
        now=now,
        grace=timedelta(seconds=options.grace_s),
        only_due=how.only_due,
        now_ms=now_ms,
    )


def terms_of(options: RunOptions) -> Terms:
    """Return the part of the options that decides rows and amounts, to be kept with a claim."""
    return Terms(
        scales=options.scale.overrides,
        rates_base=options.rates_base,
        rate_age_max_h=options.rate_age_max_h,
        rate_ahead_max_h=options.rate_ahead_max_h,
        rows_without_created=options.rows_without_created,
    )


def options_of(run: Run, options: RunOptions) -> RunOptions:
    """Return the options with the terms that the run was begun on; its bounds and speed are those of who goes on."""
    if run.terms is None:
        return replace(options, zone=run.zone)
    terms = Terms.decode(run.terms)
    return replace(
        options,
        zone=run.zone,
        scale=ScaleProfile(overrides=terms.scales),
        rates_base=terms.rates_base,
        rate_age_max_h=terms.rate_age_max_h,
        rate_ahead_max_h=terms.rate_ahead_max_h,
        rows_without_created=terms.rows_without_created,
    )


def rates_of_run(run: Run) -> Rates | None:
    """Return the rate table that was given when the run was begun; None when the processor's is wanted."""
    if run.rates_given is None:
        return None
    try:
        return decode_rates(run.rates_given)
    except ValueError as error:
        raise InvariantViolated(f"the rate table that {run.id} was begun with cannot be read again: {error}") from None
