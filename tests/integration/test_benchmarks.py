"""Each benchmark still runs, on a few rows: no time is asserted here, only that a table comes out.

Without it a benchmark would rot until somebody needs it, and the numbers in its README could not be checked.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.__main__ import ALL, PROGRAMS, QUICK


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", sorted(ALL))
def test_benchmark_prints_its_table(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--quick", name],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("### ")
    assert done.stdout.count("\n|") >= 3


def test_every_benchmark_has_a_quick_form() -> None:
    assert set(QUICK) == set(ALL)


@pytest.mark.timeout(600)
def test_benchmark_of_the_fake_prints_its_lines() -> None:
    """The ledger's has a test of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.fake_processor", *PROGRAMS["fake_processor"]],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    for line in ("each of 8 clients through a day of its own", "from start to the first line", "MiB at most"):
        assert line in done.stdout, done.stderr
