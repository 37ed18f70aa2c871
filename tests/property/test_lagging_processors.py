"""A day is settled once, however little the processor tells of it, or the run waits for a person.

Each seed draws a processor (`tests/lagging_processor.py`): a list that lags by anything below the age at which absence
is believed, or that is missing, refused, broken or unfiltered now and then; sends that are stored and lost, arrive
late, or are answered by an error that is replayed for a day; keys that are forgotten after it; processes that crash,
clocks that are set back, hours between two tries. All else is the real thing: client, store, runner.

Without it each of these would one day pay somebody twice.
"""

import asyncio
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import cast

import pytest

from paykit_settle.client import ProcessorClient
from paykit_settle.errors import SettleError
from paykit_settle.lifecycle import State
from paykit_settle.retry import RetryPolicy
from paykit_settle.run import RunOptions
from paykit_settle.run_request import make_run_request
from paykit_settle.runner import Runner
from paykit_settle.store.runs import Run, run_by_day
from paykit_settle.store.store import Store
from paykit_settle.window import parse_date
from tests.lagging_processor import DAY, LAG_MAX_S, NET, InMemory, LaggingProcessor
from tests.mortal import Crash, Death, Mortal

SEEDS = 2_000 if os.environ.get("PAYKIT_TEST_LONG") else 200
SEEDS_AT_ONCE = 50
TRIES_MAX = 12
TRIES_AFTER_MAX = 60
POLICY = RetryPolicy(attempts_max=2, wait_first_ms=1)
OPTIONS = RunOptions(absence_age_s=LAG_MAX_S + 1)
PAUSES_S = (0, 1, 30, 100, 200, 300, 400, 601, 3_600, 25 * 3_600)


@dataclass(slots=True)
class Host:
    """Whoever settles the account of one seed, on a clock that may be set back."""

    processor: LaggingProcessor
    store: Store
    account: str
    set_back_s: int = 0

    async def attempt(self, death: Death, *, retry_rejected: bool) -> Run | None:
        """One process's try; the run as it stands afterwards."""
        client = ProcessorClient(
            f"http://127.0.0.1:{1 + self.processor.seed}",
            policy=POLICY,
            sender=InMemory(self.processor, death.at_request),
        )
        runner = Runner(
            client,
            cast(Store, Mortal(self.store, death)),
            options=OPTIONS,
            at_step=death.at_step,
            now=lambda: datetime.fromtimestamp(self._now_s, UTC),
            now_ms=lambda: self._now_s * 1000,
        )
        wanted = make_run_request(self.account, DAY, "usd")
        try:
            await runner.run(wanted, requested_by="test", retry_rejected=retry_rejected)
        except (Crash, SettleError):
            pass
        finally:
            await runner.close()
        return await self.store.read(lambda connection: run_by_day(connection, self.account, parse_date(DAY)))

    @property
    def _now_s(self) -> int:
        return self.processor.now_s - self.set_back_s


async def check(seed: int, store: Store) -> str:
    """What became of one seed; an assertion fails if the day is settled twice, or a run has no way out."""
    random = Random(seed)  # noqa: S311 - where to crash, no secret
    processor = LaggingProcessor(seed)
    here = Host(processor, store, f"acct_{seed}")
    is_mortal = random.random() < 0.5
    for _ in range(TRIES_MAX):
        death = Death(requests=random.randint(1, 8), is_hard=random.random() < 0.5) if is_mortal else Death()
        await here.attempt(death, retry_rejected=random.random() < 0.2)
        assert len(processor.settlements) <= 1, processor
        processor.now_s += random.choice(PAUSES_S)
        here.set_back_s += 120 * (random.random() < 0.1)
    processor.heal()
    for _ in range(TRIES_AFTER_MAX):
        run = await here.attempt(Death(), retry_rejected=False)
        assert run is not None
        assert len(processor.settlements) <= 1, processor
        if run.state is State.POSTED:
            assert run.settlement_id == processor.settlements[0]["id"], processor
            return "posted"
        if run.state is State.REJECTED or run.needs_person:
            return "for a person"
        processor.now_s += LAG_MAX_S // 2
    raise AssertionError(f"{processor} has no end: {run}")


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_AT_ONCE))
async def test_day_is_settled_once_or_the_run_waits_for_a_person(tmp_path: Path, first: int) -> None:
    store = Store(tmp_path / "paykit.db")
    try:
        ends = [await check(seed, store) for seed in range(first, first + SEEDS_AT_ONCE)]
        posted = ends.count("posted")
        booked = await store.read(
            lambda connection: connection.execute("SELECT count(*), sum(balance) FROM accounts").get
        )
    finally:
        await asyncio.to_thread(store.close)
    assert booked == (posted, posted * NET)
    assert posted >= SEEDS_AT_ONCE // 2
