"""A claim that was taken over: whoever held it before can change nothing any more, however late it wakes up.

Without the condition on owner and state, a process that was thought dead would overwrite what its successor stored.
"""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import apsw
import pytest

from paykit_settle.endpoint import ProcessorIdentity
from paykit_settle.errors import RunInProgress
from paykit_settle.lifecycle import Event, State
from paykit_settle.store.claim_request import ClaimRequest
from paykit_settle.store.claims import claim
from paykit_settle.store.runs import Run, move, run_by_number
from paykit_settle.store.store import Store
from paykit_settle.terms import Terms
from tests.rows import DAY


def wanted(owner: str) -> ClaimRequest:
    return ClaimRequest(
        account="acct_123",
        date=DAY,
        settlement_currency="usd",
        tenant=None,
        zone=None,
        processor=ProcessorIdentity(url="http://127.0.0.1:1", key_mode="test"),
        terms=Terms(scales={}, rates_base="usd", rate_age_max_h=120, rate_ahead_max_h=24),
        rates_given=None,
        owner=owner,
        requested_by="test",
        principal="ada",
        pull_age_max_ms=3_600_000,
        now=datetime(2026, 6, 1, tzinfo=UTC),
        grace=timedelta(0),
        now_ms=1,
    )


def claimed(connection: apsw.Connection, request: ClaimRequest, *, alive: bool) -> Run:
    return claim(connection, request, is_alive=lambda _: alive).run


@pytest.mark.parametrize("event", [Event.FREEZE, Event.FAIL])
async def test_owner_that_was_replaced_changes_nothing(tmp_path: Path, event: Event) -> None:
    store = Store(tmp_path / "paykit.db")
    try:
        first = await store.write(lambda connection: claimed(connection, wanted("first"), alive=True))
        with pytest.raises(RunInProgress):
            await store.write(lambda connection: claimed(connection, wanted("second"), alive=True))
        second = await store.write(lambda connection: claimed(connection, wanted("second"), alive=False))
        with pytest.raises(RunInProgress, match="taken over"):
            await store.write(lambda connection: move(connection, first, event, now_ms=2))
        assert await stored(store, first) == second
    finally:
        store.close()


async def test_write_from_a_state_that_has_passed_changes_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path / "paykit.db")
    try:
        run = await store.write(lambda connection: claimed(connection, wanted("first"), alive=True))
        frozen = await store.write(lambda connection: move(connection, run, Event.FREEZE, now_ms=2))
        assert (frozen.state, frozen.owner) == (State.FROZEN, "first")
        for stale in (run, replace(run, owner="second")):
            with pytest.raises(RunInProgress):
                await store.write(lambda connection, was=stale: move(connection, was, Event.FAIL, now_ms=3))  # type: ignore[misc]
        assert await stored(store, run) == frozen
    finally:
        store.close()


async def stored(store: Store, run: Run) -> Run:
    return await store.read(lambda connection: run_by_number(connection, run.number))
