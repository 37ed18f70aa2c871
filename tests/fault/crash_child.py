"""A program that settles a day and kills itself at a named step: `crash_child URL DATABASE STEP NTH`.

The kill is SIGKILL, so nothing is closed, flushed or said; STEP `none` runs to the end.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from paykit_settle.client import ProcessorClient
from paykit_settle.lifecycle import Step
from paykit_settle.run import RunOptions
from paykit_settle.run_request import make_run_request
from paykit_settle.runner import Runner
from paykit_settle.store.store import Store


def killer(name: str, nth: int) -> Callable[[Step], None]:
    """Kills this process the nth time that the step of that name is reached."""
    seen = 0

    def at_step(step: Step) -> None:
        nonlocal seen
        seen += step == name
        if step == name and seen == nth:
            os.kill(os.getpid(), signal.SIGKILL)

    return at_step


async def settle(url: str, database: str, name: str, nth: int) -> None:
    async with ProcessorClient(url) as client:
        runner = Runner(client, Store(Path(database)), options=RunOptions(page_size=1), at_step=killer(name, nth))
        await runner.run(make_run_request("acct_123", "2026-01-15", "usd"), requested_by="child")


if __name__ == "__main__":
    asyncio.run(settle(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
