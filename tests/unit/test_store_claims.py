"""A claim that was taken over: whoever held it before can change nothing any more, however late it wakes up.

Without the condition on owner and state, a process that was thought dead would overwrite what its successor stored.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from paykit_settle.errors import RunInProgress
from paykit_settle.lifecycle import Event, State
from paykit_settle.store.runs import ClaimRequest, Run, claim, move, run_by_number
from paykit_settle.store.store import Store
from tests.rows import DAY, WINDOW


def wanted(owner: str) -> ClaimRequest:
    return ClaimRequest(
        account="acct_123",
        date=DAY,
        settlement_currency="usd",
        tenant="acct_123",
        zone="Etc/UTC",
        window=WINDOW,
        owner=owner,
        requested_by="test",
        retry_rejected=False,
        pull_age_max_ms=3_600_000,
        now_ms=1,
    )


@pytest.mark.parametrize("event", [Event.FREEZE, Event.FAIL])
async def test_owner_that_was_replaced_changes_nothing(tmp_path: Path, event: Event) -> None:
    store = Store(tmp_path / "paykit.db")
    try:
        first = await store.write(lambda connection: claim(connection, wanted("first"), is_alive=lambda _: True))
        with pytest.raises(RunInProgress):
            await store.write(lambda connection: claim(connection, wanted("second"), is_alive=lambda _: True))
        second = await store.write(lambda connection: claim(connection, wanted("second"), is_alive=lambda _: False))
        with pytest.raises(RunInProgress, match="taken over"):
            await store.write(lambda connection: move(connection, first, event, now_ms=2))
        assert await stored(store, first) == second
    finally:
        store.close()


async def test_write_from_a_state_that_has_passed_changes_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path / "paykit.db")
    try:
        run = await store.write(lambda connection: claim(connection, wanted("first"), is_alive=lambda _: True))
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
