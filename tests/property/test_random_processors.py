"""Whatever the processor's habits: the settlement equals the truth, or the run was refused and said why.

Each seed draws a processor (`tests/random_processor.py`): newest first, oldest first, rows of one second, no order, one
row astray; each bound of `created` honoured always, never, now and then or off by a second, either way; pages shorter
than asked for; rows with and without `created`; windows that lag and requests that fail; crashes, after which the next
run goes on; 1 to 64 windows. Everything else is the real thing: planner, decoder, client, store, runner, `verify`.

Left out, because nothing that is answered could tell: rows that no answer ever shows (so none lie where the day's own
bound, taken too narrow, hides them, and no page but the last says that nothing follows), an early end of the only list,
and rows of other days without `created` from a processor that filters now and then, or whose bounds are both a second
off in the same direction.

Without it, each way of losing a row would be found by a customer.
"""

import asyncio
import os
from pathlib import Path
from random import Random
from typing import TypeVar, cast

import pytest

from paykit_settle.checking import verify_run
from paykit_settle.client import ProcessorClient
from paykit_settle.errors import ProcessorUnavailable, RunRefused, SettleError
from paykit_settle.models import PostedSettlement
from paykit_settle.retry import RetryPolicy
from paykit_settle.run import RunOptions
from paykit_settle.run_request import make_run_request
from paykit_settle.runner import Runner
from paykit_settle.store.history import find_run, read_history
from paykit_settle.store.store import Store
from tests.mortal import Crash, Death, Mortal
from tests.random_processor import DAY, InMemory, RandomProcessor

T = TypeVar("T")

SEEDS = 2_000 if os.environ.get("PAYKIT_TEST_LONG") else 200
SEEDS_AT_ONCE = 50
RUNS_MAX = 8
POLICY = RetryPolicy(attempts_max=3, wait_first_ms=1)
REFUSALS = ("outside the window", "does not filter by created")
"""What a refusal of a processor without wrong rows may say."""


async def settle(processor: RandomProcessor, store: Store, death: Death) -> PostedSettlement:
    """One process's run, which may die on the way."""
    client = ProcessorClient("http://127.0.0.1:1", policy=POLICY, sender=InMemory(processor, death.at_request))
    options = RunOptions(windows_max=processor.windows_max, page_size=processor.page_size)
    mortal = cast(Store, Mortal(store, death))
    runner = Runner(client, mortal, options=options, at_step=death.at_step)
    try:
        return await runner.run(make_run_request(processor.account, DAY, "usd"), requested_by="test")
    finally:
        await runner.close()


def draw_death(random: Random) -> Death:
    after, is_hard = random.choice((1, 2, 3, 7, 20)), random.random() < 0.5
    return random.choice((Death(), Death(pages=after, is_hard=is_hard), Death(requests=after, is_hard=is_hard)))


async def settle_at_last(processor: RandomProcessor, store: Store) -> PostedSettlement:
    """Runs the day until it is settled or refused, through crashes and failures."""
    random = Random(processor.seed)  # noqa: S311 - where to crash, no secret
    is_mortal = random.random() < 0.5
    for _ in range(RUNS_MAX):
        try:
            return await settle(processor, store, draw_death(random) if is_mortal else Death())
        except (Crash, ProcessorUnavailable):
            continue
    processor.heal()
    return await settle(processor, store, Death())


async def check(seed: int, store: Store) -> str:
    """What became of one seed; an assertion fails if a total is wrong or a refusal says nothing."""
    processor = RandomProcessor(seed, account=f"acct_{seed}")
    try:
        outcome: PostedSettlement | SettleError = await settle_at_last(processor, store)
    except SettleError as error:
        outcome = error
    if isinstance(outcome, PostedSettlement):
        totals = outcome.settlement.roll_up
        told = (totals.row_count, outcome.total_net, len(processor.settlements))
        assert told == (processor.row_count, processor.truth, 1), processor
        history = await store.read(lambda connection: read_history(connection, find_run(connection, outcome.run_id)))
        assert await verify_run(store, history) == [], processor
        return "settled" if len(history.windows) > 1 else "settled as one list"
    assert isinstance(outcome, RunRefused), (processor, outcome)
    assert processor.settlements == [], processor
    details = [problem.detail for problem in outcome.problems]
    assert all(any(each in detail for each in REFUSALS) for detail in details), (processor, outcome)
    assert {processor.gte, processor.lt} & {"never", "sometimes", "outer"}, (processor, outcome)
    return "refused"


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_AT_ONCE))
async def test_settlement_equals_the_truth_or_the_run_was_refused_and_said_why(tmp_path: Path, first: int) -> None:
    store = Store(tmp_path / "paykit.db")
    try:
        outcomes = [await check(seed, store) for seed in range(first, first + SEEDS_AT_ONCE)]
    finally:
        await asyncio.to_thread(store.close)
    assert {"settled", "settled as one list"} <= set(outcomes)
