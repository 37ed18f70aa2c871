"""Linter, formatter and type checker are part of the tests, so that a clean state is the only one there is."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "command",
    [
        ("ruff", "check", "--no-cache", "--output-format", "concise", "."),
        ("ruff", "format", "--no-cache", "--check", "."),
        ("mypy", "--cache-dir", "{cache}"),
    ],
    ids=["lint", "format", "types"],
)
def test_code_is_clean(command: tuple[str, ...], tmp_path: Path) -> None:
    words = [word.format(cache=tmp_path) for word in command]
    done = subprocess.run([sys.executable, "-m", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_disabled_rule_has_its_reason() -> None:
    for folder in ("paykit_settle", "fake_processor", "tests", "benchmarks"):
        for path in (ROOT / folder).rglob("*.py"):
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
                for marker in ("# noqa", "# type: " + "ignore"):
                    if marker in line and "marker" not in line and folder != "tests":
                        after = line.partition(marker)[2]
                        assert " - " in after or "  # " in after, f"{path}:{number}"
