"""The benchmark of the ledger runs from a checkout and prints its three tables; no time is judged here.

Without it, the table that the docs refer to could no longer be made.
"""

import subprocess
import sys

import pytest

from tests.programs import ROOT, environment


@pytest.mark.timeout(600)
def test_benchmark_prints_its_tables() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.ledger", "--quick"],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for row in (
        "one connection, one commit",
        "ledger, 100 callers",
        "credits, against constant",
        "credits, against naive",
    ):
        assert row in done.stdout
