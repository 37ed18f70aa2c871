"""`python -m benchmarks`: prints every table, or those named; `--quick` on a fraction of the rows."""

import subprocess
import sys

from benchmarks import accounts, far, growth, idle, loopback, memory

ALL = {"far": far, "loopback": loopback, "memory": memory, "growth": growth, "accounts": accounts, "idle": idle}
QUICK: dict[str, dict[str, object]] = {
    "far": {"rows": 2_000, "rounds": 1, "latency_ms": 5, "per_second": 100},
    "loopback": {"rows": 2_000, "rounds": 1},
    "memory": {"sizes": (1_000, 2_000)},
    "growth": {"sizes": (1_000, 2_000), "rounds": 1},
    "accounts": {"accounts": 20, "rows": 50},
    "idle": {"settlements": 10},
}
PROGRAMS = {"ledger": ["--quick"], "fake_processor": ["--seconds", "1", "--rounds", "1"]}
"""Benchmarks that measure whole processes of their own, each a program by itself, with what makes them quick."""


def main(words: list[str]) -> None:
    names = [word for word in words if not word.startswith("-")] or [*ALL, *PROGRAMS]
    for name in names:
        if name in PROGRAMS:
            options = PROGRAMS[name] if "--quick" in words else []
            subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *options], check=False)
            continue
        arguments = QUICK[name] if "--quick" in words else {}
        print(ALL[name].run(**arguments), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
