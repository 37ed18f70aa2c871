"""Who wants to run what, on which terms; and what there is to say when they are not those of the run or the account.

Nothing here writes. How a run is made or taken over is in `claims.py`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date as Date
from datetime import datetime, timedelta

from paykit_settle.endpoint import ProcessorIdentity
from paykit_settle.errors import SettlementConflict
from paykit_settle.person import Person
from paykit_settle.store.runs import Run
from paykit_settle.terms import Terms, differing

IsAlive = Callable[[str], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequest:
    """Who wants to run what, and on which terms.

    `tenant` and `zone` are None where nobody named them: the account's own are used. `zone_named`: the caller named
    the zone for this very run. `zone_changed`, `processor_moved` and `new_terms` are a person's word that what is in
    force for the account, or what an unfrozen run was begun on, no longer is. `only_due`: only an unfinished run,
    and only if it is due.
    """

    account: str
    date: Date
    settlement_currency: str
    tenant: str | None
    zone: str | None
    processor: ProcessorIdentity
    terms: Terms
    rates_given: bytes | None
    owner: str
    requested_by: str
    principal: str
    pull_age_max_ms: int
    now: datetime
    grace: timedelta
    now_ms: int
    retry_rejected: bool = False
    zone_named: bool = False
    zone_changed: bool = False
    processor_moved: bool = False
    new_terms: bool = False
    only_due: bool = False

    @property
    def asker(self) -> Person:
        """Who asks, and by which way."""
        return Person(principal=self.principal, channel=self.requested_by)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """The run as it is now, and what there is to say about how it was claimed."""

    run: Run
    warnings: Sequence[str] = ()


def check_asked(run: Run, wanted: ClaimRequest) -> None:
    """Pass when a frozen run is asked for as what it is: in its currency, and in its zone where one is named."""
    if run.settlement_currency != wanted.settlement_currency:
        raise SettlementConflict(
            f"{run.account} on {run.date} is settled in {run.settlement_currency.upper()} ({run.id}, {run.state}), "
            f"not in {wanted.settlement_currency.upper()}"
        )
    if wanted.zone_named and wanted.zone != run.zone:
        raise SettlementConflict(
            f"{run.account} on {run.date} is settled in zone {run.zone} ({run.id}, {run.state}), not in {wanted.zone}"
        )


def answered_all_the_same(run: Run, wanted: ClaimRequest, processor: ProcessorIdentity | None) -> list[str]:
    """Return what in the settings is not what a posted day was settled with; `processor` is the account's."""
    said = []
    if wanted.zone is not None and wanted.zone != run.zone:
        said.append(
            f"{run.id} was settled in zone {run.zone}, and is answered although the settings name {wanted.zone}"
        )
    if processor is not None and processor != wanted.processor:
        said.append(f"{run.account} is settled at {processor}: {run.id} is answered although {wanted.processor} is set")
    return said


def changed_zone(run: Run, wanted: ClaimRequest) -> str | None:
    """Return the zone that an unfrozen run changes to; None when it keeps its own."""
    if wanted.zone is None or wanted.zone == run.zone:
        return None
    if wanted.zone_changed:
        return wanted.zone
    if wanted.zone_named:
        raise SettlementConflict(
            f"{run.account} on {run.date} was begun in zone {run.zone} ({run.id}, {run.state}), not in {wanted.zone}; "
            "if that has changed, say so with --zone-changed"
        )
    return None


def differences(run: Run, wanted: ClaimRequest, *, zone: str, is_anew: bool = False) -> list[str]:
    """Return what a run goes on with, or leaves, because it differs from the settings of who goes on, in a sentence."""
    others = []
    if wanted.zone is not None and wanted.zone != zone:
        others.append(f"zone = {zone}, not {wanted.zone}")
    if run.terms is not None and is_anew:
        others += differing(wanted.terms, Terms.decode(run.terms)) + _tables(wanted.rates_given, run.rates_given)
        return [f"{run.id} begins anew, on other terms than before: {'; '.join(others)}"] if others else []
    if wanted.tenant is not None and wanted.tenant != run.tenant:
        others.append(f"tenant = {run.tenant}, not {wanted.tenant}")
    if run.terms is not None:
        others += differing(Terms.decode(run.terms), wanted.terms) + _tables(run.rates_given, wanted.rates_given)
    return [f"{run.id} goes on with what it was begun on: {'; '.join(others)}"] if others else []


def _tables(own: bytes | None, other: bytes | None) -> list[str]:
    named = ["the processor's rate table" if table is None else "a rate table that was given" for table in (own, other)]
    if own == other:
        return []
    return [f"{named[0]}, not {'another one' if own and other else named[1]}"]
