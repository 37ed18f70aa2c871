"""Starting the server, timing peers in turn, and writing a table."""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROUNDS = 5


@contextmanager
def server(rows: int, *, latency_ms: int = 0, per_second: int = 0) -> Iterator[str]:
    """The URL of a processor in a process of its own."""
    words = [f"--rows={rows}", f"--latency-ms={latency_ms}", f"--per-second={per_second}"]
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.server", *words],
        cwd=Path(__file__).parents[1],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()


@dataclass(frozen=True, slots=True)
class Took:
    """Median seconds: by the clock, and of this process's own CPU."""

    wall_s: float
    cpu_s: float


def interleaved(peers: Mapping[str, Callable[[], object]], *, rounds: int = ROUNDS) -> dict[str, Took]:
    """The median of each, one of each per round, so that a slow minute of the machine meets all of them."""
    walls: dict[str, list[float]] = {name: [] for name in peers}
    cpus: dict[str, list[float]] = {name: [] for name in peers}
    for _ in range(rounds):
        for name, work in peers.items():
            start, cpu = time.perf_counter(), time.process_time()
            work()
            walls[name].append(time.perf_counter() - start)
            cpus[name].append(time.process_time() - cpu)
    return {name: Took(statistics.median(walls[name]), statistics.median(cpus[name])) for name in peers}


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [f"### {title}", "", "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def show(name: str, rates: list[float], ratios: list[float], target: float | None) -> None:
    """A row of a table: a median rate, the median of its ratios to a peer's in the same round, and a target."""
    ratio = statistics.median(ratios)
    verdict = "" if target is None else f"  target {target}x: {'reached' if ratio >= target else 'missed'}"
    spread = f"({min(ratios):.2f} to {max(ratios):.2f})"
    print(f"  {name:34} {statistics.median(rates):10,.0f}/s {ratio:6.2f}x  {spread}{verdict}")
