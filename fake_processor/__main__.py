"""`python -m fake_processor`: serves the fixtures, or generated data, until it is interrupted.

Prints its address only once the socket is bound, so a script may wait for that line. It never
answers on another port than the one asked for.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress

from fake_processor.fixtures import load_fixtures
from fake_processor.flags import make_parser, read_state
from fake_processor.oracle import right_settlement
from fake_processor.server import FakeProcessor
from fake_processor.state import ProcessorState
from fake_processor.wire import Refusal

EXIT_OK = 0
EXIT_USAGE = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGINT or SIGTERM (0), or say in one line why that cannot be (2)."""
    options = make_parser().parse_args(arguments)
    try:
        state = read_state(options) or load_fixtures()
        if options.settlement is not None:
            _print_settlement(state, options)
            return EXIT_OK
        return asyncio.run(_serve(state, options))
    except (Refusal, ValueError) as error:
        print(f"fake processor: {error}", file=sys.stderr)
        return EXIT_USAGE
    except KeyboardInterrupt:
        return EXIT_OK


def _print_settlement(state: ProcessorState, options: argparse.Namespace) -> None:
    currency = options.settlement_currency
    body = right_settlement(state, account=options.account, date=options.settlement, currency=currency)
    print(json.dumps(body, indent=2))


async def _serve(state: ProcessorState, options: argparse.Namespace) -> int:
    stop = asyncio.Event()
    for name in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):  # Windows has no signal handlers in its event loop
            asyncio.get_running_loop().add_signal_handler(name, stop.set)
    server = FakeProcessor(state, host=options.host, port=options.port)
    for name in options.fault:
        server.fault(name, per_mille=options.fault_per_mille, seed=options.seed)
    async with AsyncExitStack() as stack:
        try:
            fake = await stack.enter_async_context(server)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
            print(f"fake processor: cannot listen on {options.host}:{options.port}: {reason}", file=sys.stderr)
            return EXIT_USAGE
        # One write, so that a reader who leaves after the first line does no harm.
        print(f"fake processor listening on {fake.url}\n{_examples(fake.url)}", flush=True)
        gc.freeze()  # what is here now stays, so the collector need not go through it again and again
        await stop.wait()
    return EXIT_OK


def _examples(url: str) -> str:
    reads = (
        "/v1/balance_transactions?account=acct_123&created=2026-01-15&limit=3",
        "/v1/fx/rates?base=usd&date=2026-01-15",
        "/v1/settlements?account=acct_123&date=2026-01-15",
    )
    empty = '{"account":"acct_123","date":"2026-01-15","settlement_currency":"usd","lines":[],"total_net":0}'
    headers = "-H 'Content-Type: application/json' -H 'Idempotency-Key: try-1'"
    post = f"  curl -su sk_test_demo: {headers} -d '{empty}' '{url}/v1/settlements'"
    return "\n".join(
        [
            "try:",
            *(f"  curl -su sk_test_demo: '{url}{path}'" for path in reads),
            post,
            f"  curl -s '{url}/_fake/faults'",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
