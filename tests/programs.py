"""Starts the product's own programs as a user would: real processes, a plain environment, no terminal."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAYKIT = Path(sys.executable).parent / "paykit-settle"
PROGRAM_TIMEOUT_S = 60


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The tester's environment without settings of ours, proxies or a terminal's width."""
    dropped = ("PAYKIT_", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
    kept = {name: value for name, value in os.environ.items() if not name.upper().startswith(dropped)}
    return kept | {"COLUMNS": "80", "TZ": "Asia/Dubai", "PYTHONUNBUFFERED": "1"} | dict(extra or {})


def paykit(*arguments: str, cwd: Path, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Runs `paykit-settle` to its end."""
    return subprocess.run(
        [str(PAYKIT), *arguments],
        cwd=cwd,
        env=environment(env),
        capture_output=True,
        text=True,
        timeout=PROGRAM_TIMEOUT_S,
        check=False,
    )


def paykit_with(constants: Mapping[str, int], *arguments: str) -> list[str]:
    """The command that is `paykit-settle` with other constants, such as `{"service.SHUTDOWN_TIMEOUT_S": 1}`."""
    modules = {name.rpartition(".")[0] for name in constants}
    lines = [f"import paykit_settle.{module}" for module in sorted(modules)]
    lines += [f"paykit_settle.{name} = {value}" for name, value in constants.items()]
    lines += ["from paykit_settle.cli import main", f"main({list(arguments)!r})"]
    return [sys.executable, "-c", "\n".join(lines)]


@contextmanager
def running(
    *command: str, cwd: Path, env: Mapping[str, str] | None = None
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A program that serves: the process, and the line it prints once it is ready. Killed at the end if still there."""
    process = subprocess.Popen(
        command, cwd=cwd, env=environment(env), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline()
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=PROGRAM_TIMEOUT_S)
