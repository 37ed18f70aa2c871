"""What does a row cost when the processor is next door? Pull and roll-up against four peers, evidence off and on."""

from functools import partial

from benchmarks import ours, peers
from benchmarks.measuring import ROUNDS, interleaved, server, table

OFF, ON = "ours, evidence off", "ours, evidence on, posted and booked"
PAGES_OF_4_SHARE = 20
"""The loop with pages of 4 reads a twentieth of the rows; its figure is for a row, all the same."""


def run(*, rows: int = 200_000, rounds: int = ROUNDS) -> str:
    few = max(400, rows // PAGES_OF_4_SHARE)
    with server(rows) as url, server(few) as few_url:
        chosen = ours.settings(url)
        nets = peers.floor(url)
        works = {
            OFF: (rows, partial(ours.pull_only, chosen)),
            ON: (rows, partial(ours.settle_day, chosen)),
            "ours over httpx, evidence off": (rows, partial(ours.pull_only, chosen, plain=True)),
            "urllib + json + dict, pages of 4": (few, partial(peers.urllib_loop, few_url, 4)),
            "urllib + json + dict, pages of 100": (rows, partial(peers.urllib_loop, url, 100)),
            "httpx + json + dataclass": (rows, partial(peers.httpx_dataclass, url)),
            "official stripe SDK, async": (few, partial(peers.stripe_sdk, few_url)),
            "the floor": (rows, partial(peers.floor, url)),
        }
        for name, (count, work) in works.items():
            assert count != rows or work() == nets, name
        took = interleaved({name: work for name, (_, work) in works.items()}, rounds=rounds)
    wall = {name: took[name].wall_s / count * 1e6 for name, (count, _) in works.items()}
    cpu = {name: took[name].cpu_s / count * 1e6 for name, (count, _) in works.items()}
    off, on, own_cpu = wall[OFF], wall[ON], cpu[OFF]
    return table(
        f"Loopback, {rows:,} rows, pages of 100",
        ["", "µs per row", "of ours, evidence off", "of ours, evidence on", "CPU µs per row", "of ours, evidence off"],
        [
            [
                name,
                f"{us:.2f}",
                f"{us / off:.2f}×",
                f"{us / on:.2f}×",
                f"{cpu[name]:.2f}",
                f"{cpu[name] / own_cpu:.2f}×",
            ]
            for name, us in wall.items()
        ],
    )


if __name__ == "__main__":
    print(run())
