"""A settlement of rows that came in an unusual way is computed a second time, from the stored pages, before its freeze.

Without it, a slip in the rare code for repeats and single lists would be posted like any other total.
"""

from pathlib import Path

import pytest

from fake_processor import FakeProcessor
from paykit_settle.accumulator import Accumulator
from paykit_settle.errors import InvariantViolated
from paykit_settle.run import RunOptions
from tests.fault.stage import LIST, a_processor, check_truth, host, posts, wire_row

SMALL_PAGES = RunOptions(page_size=2, windows_max=1)


def rows_that_repeat() -> FakeProcessor:
    fake = a_processor(wire_row(f"t{number}", 100 + number, second=60 * number) for number in range(5))
    fake.fault("overlapping_page", route=f"GET {LIST}")
    return fake


async def test_repeated_rows_that_are_taken_back_rightly_are_settled(tmp_path: Path) -> None:
    async with rows_that_repeat() as fake, host(tmp_path / "paykit.db", fake.url, options=SMALL_PAGES) as here:
        assert (await here.run()).total_net == 100 + 101 + 102 + 103 + 104
        await check_truth(here, fake)


async def test_repeated_row_that_was_counted_twice_is_found_before_anything_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Accumulator, "_take_back", lambda _self, _row: None)
    async with rows_that_repeat() as fake, host(tmp_path / "paykit.db", fake.url, options=SMALL_PAGES) as here:
        with pytest.raises(InvariantViolated, match="the stored pages do not give this settlement"):
            await here.run()
        assert posts(fake) == []
