"""The claim: a run is made or taken over in one transaction, on terms that stay with it.

A new run takes the terms of who asks, and the account's own tenant, zone and processor; one that is gone on with keeps
what it was begun on, and what differs in the settings of who goes on is named. Nothing is asked of a processor before.
"""

import apsw

from paykit_settle.errors import InvalidRequest, ProcessorRejected, RunInProgress, SettlementConflict
from paykit_settle.lifecycle import Event, State, next_state
from paykit_settle.store.accounts import (
    SettledAccount,
    account_of,
    change_account,
    check_processor,
    has_frozen,
    insert_account,
    move_processor,
)
from paykit_settle.store.changes import note
from paykit_settle.store.claim_request import (
    Claimed,
    ClaimRequest,
    IsAlive,
    answered_all_the_same,
    changed_zone,
    check_asked,
    differences,
)
from paykit_settle.store.coverage import list_again_since
from paykit_settle.store.edges import keep_edges, window_of_day, window_of_run
from paykit_settle.store.elsewhere import let_go
from paykit_settle.store.queries import load_queries
from paykit_settle.store.rows import change
from paykit_settle.store.runs import Run, attempt_of, note_state, run_by_day, run_by_number
from paykit_settle.store.waiting import Taker, check_due
from paykit_settle.window import DEFAULT_ZONE, Window

_SQL = load_queries("runs.sql")
_SETTLED = load_queries("settled.sql")


def claim(connection: apsw.Connection, wanted: ClaimRequest, *, is_alive: IsAlive) -> Claimed:
    """Make the run or take it over; a posted one is given as it is, to be answered again.

    Raises `RunInProgress` while its owner lives, and `RunWaiting` for one that is not due where only such is wanted;
    `SettlementConflict` for a currency, zone, tenant or processor that are not the run's or the account's;
    `ProcessorRejected` for a rejected run unless `retry_rejected`; `WindowOpen` and `NoSuchDay`. Then nothing has
    changed.
    """
    if wanted.zone_changed and wanted.zone is None:
        raise InvalidRequest("a change of zone needs the zone: name it with --zone or the setting")
    run = run_by_day(connection, wanted.account, wanted.date)
    if wanted.only_due:
        check_due(connection, run, _taker(wanted, is_alive))
    if run is None:
        return _begin(connection, wanted, is_alive)
    if run.owner is not None and run.owner != wanted.owner and is_alive(run.owner):
        raise RunInProgress(f"{run.id} for {run.account} on {run.date} is in progress")
    is_frozen = run.state in (State.FROZEN, State.POSTED, State.UNKNOWN) or (
        run.state is State.FAILED and attempt_of(connection, run.number, run.attempt) is not None
    )
    if is_frozen:
        check_asked(run, wanted)
    if run.state is State.POSTED:
        return Claimed(run=run, warnings=_answered(connection, run, wanted))
    if run.state is State.REJECTED and not wanted.retry_rejected:
        kind = SettlementConflict if run.error_code == SettlementConflict.code else ProcessorRejected
        raise kind(
            f"attempt {run.attempt} of {run.id} was rejected: {run.error_detail}; a new attempt starts on request only"
        )
    if is_frozen:
        return _take_over_frozen(connection, run, wanted, is_alive)
    return _take_over(connection, run, wanted, is_alive)


def _taker(wanted: ClaimRequest, is_alive: IsAlive) -> Taker:
    return Taker(
        processor=wanted.processor,
        now_ms=wanted.now_ms,
        is_held=lambda run: run.owner is not None and run.owner != wanted.owner and is_alive(run.owner),
        processor_moved=wanted.processor_moved,
    )


def _begin(connection: apsw.Connection, wanted: ClaimRequest, is_alive: IsAlive) -> Claimed:
    account = account_of(connection, wanted.account)
    zone = wanted.zone or (account.zone if account else DEFAULT_ZONE)
    if account is not None and zone != account.zone and not wanted.zone_changed:
        raise SettlementConflict(
            f"{wanted.account} is settled in zone {account.zone}, not in {zone}; if that has changed, say so with "
            "--zone-changed"
        )
    if account is not None and (other := _other_tenant(connection, account, wanted)):
        raise SettlementConflict(other)
    warnings = _put_in_force(connection, account, wanted, zone, is_alive)
    window = window_of_day(connection, wanted.account, wanted.date, zone)
    window.check_closed(wanted.now, grace=wanted.grace)
    keep_edges(connection, wanted.account, wanted.date, window)
    change(
        connection,
        _SQL["insert_run"],
        account=wanted.account,
        date=wanted.date.isoformat(),
        tenant=_in_force(connection, wanted).tenant,
        settlement_currency=wanted.settlement_currency,
        zone=zone,
        window_start_s=window.start_unix_s,
        window_end_s=window.end_unix_s,
        owner=wanted.owner,
        requested_by=wanted.requested_by,
        principal=wanted.principal,
        now_ms=wanted.now_ms,
        processor_url=wanted.processor.url,
        key_mode=wanted.processor.key_mode,
        terms=wanted.terms.encode(),
        rates_given=wanted.rates_given,
    )
    run = run_by_number(connection, connection.last_insert_rowid())
    said = f"{run.date} in {run.settlement_currency}"
    note(connection, wanted.asker, account=run.account, what="begin", subject=run.id, detail=said, at_ms=wanted.now_ms)
    return Claimed(run=run, warnings=warnings)


def _put_in_force(
    connection: apsw.Connection, account: SettledAccount | None, wanted: ClaimRequest, zone: str, is_alive: IsAlive
) -> list[str]:
    """Keep the account's tenant, zone and processor for what follows; says what was changed, or kept only now."""
    processor, tenant = wanted.processor, wanted.tenant
    if account is None:
        tenant = wanted.account if tenant is None else tenant
        insert_account(connection, wanted.account, tenant=tenant, zone=zone, processor=processor)
        return []
    said = []
    if account.processor is None:
        said.append(f"no processor was kept for {account.account} so far: it is settled at {processor} from now on")
    elif account.processor != processor:
        if not wanted.processor_moved:
            check_processor(account, processor, what=f"{wanted.account} on {wanted.date}")
        move_processor(connection, account, processor, owner=wanted.owner, is_alive=is_alive)
        moved = f"from {account.processor} to {processor}"
        _note_account(connection, wanted, "processor moved", moved)
        said.append(f"the processor of {account.account} has moved {moved}")
    if zone != account.zone:
        _note_account(connection, wanted, "zone changed", f"from {account.zone} to {zone}")
        said.append(f"the zone of {account.account} has changed from {account.zone} to {zone}")
    if tenant is None or _other_tenant(connection, account, wanted) is not None:
        tenant = account.tenant
    change_account(connection, account, tenant=tenant, zone=zone, processor=processor)
    return said


def _note_account(connection: apsw.Connection, wanted: ClaimRequest, what: str, detail: str) -> None:
    account = wanted.account
    note(connection, wanted.asker, account=account, what=what, subject=account, detail=detail, at_ms=wanted.now_ms)


def _other_tenant(connection: apsw.Connection, account: SettledAccount, wanted: ClaimRequest) -> str | None:
    """Why the tenant that the settings name is not the account's; None when it is, or may still become it."""
    if wanted.tenant is None or wanted.tenant == account.tenant:
        return None
    if wanted.new_terms and not has_frozen(connection, account.account):
        return None
    return f"{account.account} is booked for tenant {account.tenant}, which is fixed, not for {wanted.tenant}"


def _in_force(connection: apsw.Connection, wanted: ClaimRequest) -> SettledAccount:
    account = account_of(connection, wanted.account)
    if account is None:
        raise InvalidRequest(f"{wanted.account} is no settled account")
    return account


def _answered(connection: apsw.Connection, run: Run, wanted: ClaimRequest) -> list[str]:
    account = account_of(connection, run.account)
    return answered_all_the_same(run, wanted, account.processor if account else None)


def _take_over_frozen(connection: apsw.Connection, run: Run, wanted: ClaimRequest, is_alive: IsAlive) -> Claimed:
    account = account_of(connection, run.account)
    said = _put_in_force(connection, account, wanted, account.zone if account else run.zone, is_alive)
    said += differences(run, wanted, zone=run.zone)
    return Claimed(
        run=_reclaim(connection, run, wanted, state=next_state(run.state, Event.CLAIM_FROZEN)), warnings=said
    )


def _take_over(connection: apsw.Connection, run: Run, wanted: ClaimRequest, is_alive: IsAlive) -> Claimed:
    """Go on with a run of which nothing is frozen, or begin it anew where that was asked for."""
    is_retry = run.state is State.REJECTED
    is_anew = is_retry or wanted.new_terms
    account = account_of(connection, run.account)
    new_zone = changed_zone(run, wanted)
    if not is_anew and run.settlement_currency != wanted.settlement_currency:
        raise SettlementConflict(
            f"{run.account} on {run.date} was begun in {run.settlement_currency.upper()} ({run.id}, {run.state}), not "
            f"in {wanted.settlement_currency.upper()}; --new-terms begins it anew"
        )
    if is_anew and account is not None and (other := _other_tenant(connection, account, wanted)):
        raise SettlementConflict(other)
    said = _put_in_force(connection, account, wanted, new_zone or (account.zone if account else run.zone), is_alive)
    said += differences(run, wanted, zone=new_zone or run.zone, is_anew=is_anew)
    window = window_of_run(connection, run, new_zone)
    window.check_closed(wanted.now, grace=wanted.grace)
    keep_edges(connection, run.account, run.date, window)
    state = next_state(run.state, Event.RETRY_REJECTED if is_retry else Event.CLAIM)
    if is_retry:
        _free_rows(connection, run, now_ms=wanted.now_ms)
    keeps_terms = run.terms is not None and not is_anew
    if run.terms is None and not is_anew:
        said.append(f"{run.id} was begun by an older version, which kept no terms: it keeps those of now")
    taken = _reclaim(
        connection,
        run,
        wanted,
        state=state,
        settlement_currency=wanted.settlement_currency,
        tenant=_in_force(connection, wanted).tenant,
        zone=new_zone or run.zone,
        window=window,
        attempt=run.attempt + is_retry,
        is_read_anew=is_anew or window != run.window or _is_worn_out(run, wanted),
        terms=run.terms if keeps_terms else wanted.terms.encode(),
        rates_given=run.rates_given if keeps_terms else wanted.rates_given,
    )
    return Claimed(run=taken, warnings=said)


def _free_rows(connection: apsw.Connection, run: Run, *, now_ms: int) -> None:
    """What the rejected attempt had taken in is free again: its pull starts anew."""
    change(connection, _SQL["forget_late_rows"], run=run.number)
    change(connection, _SQL["forget_outstanding"], run=run.number)
    change(connection, _SETTLED["forget_taken"], run=run.number)
    change(connection, _SETTLED["forget_listings"], account=run.account, run=run.number)
    change(connection, _SETTLED["forget_moved_rows"], run=run.number)
    change(connection, _SQL["forget_corrections"], run=run.number)
    change(connection, _SQL["forget_differences"], run=run.number, now_ms=now_ms)
    let_go(connection, run)
    list_again_since(connection, run)


def _is_worn_out(run: Run, wanted: ClaimRequest) -> bool:
    # Rows that were refused, a cursor that was, or a pull of long ago: read again from the start; else it goes on.
    is_old = wanted.now_ms - run.pull_started_at_ms > wanted.pull_age_max_ms
    return run.error_code in ("run_refused", "processor_rejected") or is_old


def _reclaim(
    connection: apsw.Connection,
    run: Run,
    wanted: ClaimRequest,
    *,
    state: State,
    window: Window | None = None,
    is_read_anew: bool = False,
    **changes: object,
) -> Run:
    window = window or run.window
    values: dict[str, object] = {
        "settlement_currency": run.settlement_currency,
        "tenant": run.tenant,
        "zone": run.zone,
        "attempt": run.attempt,
        "terms": run.terms,
        "rates_given": run.rates_given,
    }
    change(
        connection,
        _SQL["claim_run"],
        **values | changes,
        owner=wanted.owner,
        state=state,
        window_start_s=window.start_unix_s,
        window_end_s=window.end_unix_s,
        pull=run.pull + is_read_anew,
        pull_started_at_ms=wanted.now_ms if is_read_anew else run.pull_started_at_ms,
        requested_by=wanted.requested_by,
        principal=wanted.principal,
        processor_url=wanted.processor.url,
        key_mode=wanted.processor.key_mode,
        now_ms=wanted.now_ms,
        number=run.number,
    )
    note_state(connection, run, state, who=wanted.asker, now_ms=wanted.now_ms)
    return run_by_number(connection, run.number)
