"""Does memory grow with the day? Peak resident size of a process that settles it, evidence on."""

import subprocess
import sys
from pathlib import Path

from benchmarks import ours
from benchmarks.measuring import server, table

BYTES_PER_ROW_MAX, ALLOWANCE_BYTES = 16, 8 * 1024 * 1024


def peak_kib(rows: int) -> int:
    """The peak of a fresh process that settles a day of so many rows."""
    with server(rows) as url:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.memory", url],
            cwd=Path(__file__).parents[1],
            capture_output=True,
            text=True,
            check=True,
        )
    return int(done.stdout)


def own_peak_kib() -> int:
    """This process's own peak. `getrusage` would give its parent's, where that was larger when it started this one."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))


def run(*, sizes: tuple[int, ...] = (10_000, 200_000, 1_000_000)) -> str:
    peaks = {rows: peak_kib(rows) for rows in sizes}
    base = peaks[sizes[0]]
    lines = []
    for rows, peak in peaks.items():
        growth = (peak - base) * 1024
        allowed = BYTES_PER_ROW_MAX * (rows - sizes[0]) + ALLOWANCE_BYTES
        lines.append([f"{rows:,}", f"{peak / 1024:.1f} MiB", f"{growth / 1024 / 1024:.1f} MiB",
                      f"{allowed / 1024 / 1024:.1f} MiB"])  # fmt: skip
    return table("Memory, evidence on", ["rows", "peak", "growth", "growth allowed"], lines)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        ours.settle_day(ours.settings(sys.argv[1]))
        print(own_peak_kib())
    else:
        print(run())
