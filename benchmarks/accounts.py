"""Many accounts at once through one process: is it quick, and does each get its turn?"""

import asyncio
import statistics
import time

from benchmarks import ours
from benchmarks.measuring import server, table


def run(*, accounts: int = 1_000, rows: int = 200) -> str:
    async def settle_all(url: str) -> tuple[float, list[float]]:
        async with ours.open_runner(ours.settings(url)) as runner:
            start = time.perf_counter()

            async def one(number: int) -> float:
                await ours.settle(runner, f"acct_{number}")
                return time.perf_counter() - start

            ends = await asyncio.gather(*(one(number) for number in range(accounts)))
            return time.perf_counter() - start, sorted(ends)

    with server(rows) as url:
        whole_s, ends = asyncio.run(settle_all(url))
    p50, p99 = statistics.median(ends), ends[int(len(ends) * 0.99)]
    # All begin at once: with perfect fairness each would end with the last.
    line = [f"{accounts:,} × {rows}", f"{whole_s:.1f} s", f"{whole_s / accounts * 1000:.2f} ms", f"{p50:.1f} s",
            f"{p99:.1f} s", f"{ends[-1] / p50:.2f}×"]  # fmt: skip
    head = ["accounts × rows", "all", "each", "p50", "p99", "the last, of p50"]
    return table("Many accounts, posted and booked", head, [line])


if __name__ == "__main__":
    print(run())
