"""`python -m fake_processor`: serves the fixtures until it is interrupted.

Prints its address only once the socket is bound, so a script may wait for that line. It never
answers on another port than the one asked for.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress

from fake_processor.server import FakeProcessor

PORT_DEFAULT = 8787
EXIT_OK = 0
EXIT_USAGE = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGINT or SIGTERM (0), or say in one line why that cannot be (2)."""
    parser = argparse.ArgumentParser(prog="python -m fake_processor", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument(
        "--port", type=_port, default=PORT_DEFAULT, help="port, 0 for a free one (default: %(default)s)"
    )
    options = parser.parse_args(arguments)
    try:
        return asyncio.run(_serve(options.host, options.port))
    except KeyboardInterrupt:
        return EXIT_OK


async def _serve(host: str, port: int) -> int:
    stop = asyncio.Event()
    for name in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):  # Windows has no signal handlers in its event loop
            asyncio.get_running_loop().add_signal_handler(name, stop.set)
    async with AsyncExitStack() as stack:
        try:
            fake = await stack.enter_async_context(FakeProcessor(host=host, port=port))
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
            print(f"fake processor: cannot listen on {host}:{port}: {reason}", file=sys.stderr)
            return EXIT_USAGE
        # One write, so that a reader who leaves after the first line does no harm.
        print(f"fake processor listening on {fake.url}\n{_examples(fake.url)}", flush=True)
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
    return "\n".join(["try:", *(f"  curl -su sk_test_demo: '{url}{path}'" for path in reads), post])


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= 65_535):
        raise argparse.ArgumentTypeError(f"{text} is no port (0 to 65535)")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
