"""Does a row cost more on a larger day? Whole runs, evidence on."""

from functools import partial

from benchmarks import ours
from benchmarks.measuring import ROUNDS, interleaved, server, table


def run(*, sizes: tuple[int, ...] = (10_000, 100_000, 1_000_000, 5_000_000), rounds: int = ROUNDS) -> str:
    lines = []
    base = 0.0
    for rows in sizes:
        with server(rows) as url:
            works = {"ours": partial(ours.settle_day, ours.settings(url))}
            us = interleaved(works, rounds=rounds if rows < 1_000_000 else 1)["ours"].wall_s / rows * 1e6
        base = base or us
        lines.append([f"{rows:,}", f"{us:.2f}", f"{us / base:.2f}×"])
    return table("Growth, evidence on", ["rows", "µs per row", "of the smallest"], lines)


if __name__ == "__main__":
    print(run())
