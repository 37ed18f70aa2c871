"""The wheel, installed outside the checkout: what a user gets who has never seen the sources.

Without it, a file that is only in the checkout (the fixtures, a query) would be missed by users and by no test.
"""

import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.programs import ROOT, environment

PIP = ("-m", "pip", "--disable-pip-version-check", "--no-input")


def python(program: Path, *arguments: str, cwd: Path) -> str:
    done = subprocess.run(
        [str(program), *arguments], cwd=cwd, env=environment(), capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.timeout(600)
def test_wheel_runs_the_demo_in_a_fresh_environment(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    python(
        Path(sys.executable), *PIP, "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(wheels),
        str(ROOT), cwd=tmp_path,
    )  # fmt: skip
    (wheel,) = wheels.glob("*.whl")
    home = tmp_path / "environment"
    venv.create(home, with_pip=True)
    fresh = home / "bin" / "python"
    python(
        fresh, *PIP, "install", "--quiet", "--require-hashes", "-r", str(ROOT / "requirements/run.txt"), cwd=tmp_path
    )
    python(fresh, *PIP, "install", "--quiet", "--no-deps", str(wheel), cwd=tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    origin = python(fresh, "-c", "import paykit_settle; print(paykit_settle.__file__)", cwd=elsewhere)
    assert str(home) in origin
    shown = python(home / "bin" / "paykit-settle", "demo", cwd=elsewhere)
    assert "setl_0001 created, total_net 145199 usd ($1,451.99)" in shown
    for total in ("14712", "9772", "100000", "20715"):
        assert total in shown
