"""The pure modules are where the money is computed: each of their lines and branches is run by unit and property tests.

Without it, a branch that refuses a wrong amount could be dead, and every other test would still pass.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PURE = ["accumulator", "answers", "booking", "corrections", "days", "endpoint", "errors", "id_hashes",
        "journal", "lifecycle",
        "models", "money", "page_wire", "paging", "rates", "report", "retry", "run_request", "settlement",
        "strict_json", "taken", "verify_taken", "day_edges", "terms", "transaction_types", "verify",
        "verify_corrections", "verify_pages", "verify_rows", "window", "wire"]  # fmt: skip
NOT_OF_THEM = [
    "test_architecture",
    "test_coverage",
    "test_docs",
    "test_style",
    "test_fake",
    "test_client",
    "test_store",
    "test_random_processors",
]


@pytest.mark.timeout(600)
def test_pure_modules_are_covered_by_lines_and_branches(tmp_path: Path) -> None:
    files = [ROOT / "paykit_settle" / f"{name}.py" for name in PURE]
    tests = [
        str(path.relative_to(ROOT))
        for folder in ("unit", "property")
        for path in sorted((ROOT / "tests" / folder).glob("test_*.py"))
        if not path.stem.startswith(tuple(NOT_OF_THEM))
    ]
    environment = dict(os.environ, COVERAGE_FILE=str(tmp_path / "coverage"), HYPOTHESIS_PROFILE="brief")
    include = ",".join(str(path) for path in files if path.exists())
    run = [sys.executable, "-m", "coverage", "run", "--branch", f"--include={include}", "-m", "pytest", "-q", "-x",
           "-p", "no:cacheprovider", *tests]  # fmt: skip
    done = subprocess.run(run, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    report = [sys.executable, "-m", "coverage", "report", "--show-missing", "--skip-covered", "--fail-under=100"]
    told = subprocess.run(report, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout
