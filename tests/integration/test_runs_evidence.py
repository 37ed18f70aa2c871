"""The pages of a run are kept whole or not at all: one that could not be written leaves no hole behind it.

Without these, a run that goes on after its last stored page would skip the page that is missing, and settle less.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import apsw
import httpx
import pytest

from fake_processor import FakeProcessor
from paykit_settle.errors import StoreFull
from paykit_settle.run import RunOptions
from paykit_settle.store.history import evidence_pages
from tests.fault.stage import LIST, TOTAL, check_truth, host, of_kind

T = TypeVar("T")


@pytest.mark.parametrize("lost", [1, 2, 3])
async def test_page_that_could_not_be_stored_is_read_again_with_all_behind_it(tmp_path: Path, lost: int) -> None:
    async with (
        FakeProcessor() as fake,
        host(tmp_path / "paykit.db", fake.url, options=RunOptions(page_size=1, windows_max=1)) as here,
    ):
        write, calls = here.store.write, 0

        async def refuse_one(work: Callable[[apsw.Connection], T]) -> T:
            nonlocal calls
            calls += 1
            if calls == 1 + lost:  # the first is the claim
                raise StoreFull("full for a moment")
            return await write(work)

        here.store.write = refuse_one  # type: ignore[method-assign]  # the one moment in which the queue is full
        assert isinstance(await here.attempt(), StoreFull)
        here.store.write = write  # type: ignore[method-assign]  # and it is not any more
        assert (await here.run()).total_net == TOTAL
        run = await here.stored()
        pages = await here.store.read(lambda connection: [page.number for _, page in evidence_pages(connection, run)])
        assert pages == list(range(1, 14))
        await check_truth(here, fake)


async def test_every_page_is_kept_as_it_came(tmp_path: Path) -> None:
    async with (
        FakeProcessor() as fake,
        host(tmp_path / "paykit.db", fake.url, options=RunOptions(page_size=4)) as here,
    ):
        await here.run()
        run = await here.stored()
        kept = await here.store.read(lambda connection: [page.body for _, page in evidence_pages(connection, run)])
        seen: list[bytes] = []
        async with httpx.AsyncClient(trust_env=False, timeout=60) as plain:
            for request in of_kind(fake, "GET", LIST):
                query = "&".join(f"{name}={value}" for name, value in request.query)
                answer = await plain.get(
                    f"{fake.url}{LIST}?{query}", headers={"Authorization": "Bearer sk_test_paykit"}
                )
                seen.append(answer.content)
        assert kept == seen
