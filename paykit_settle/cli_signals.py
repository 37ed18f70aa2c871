"""Ctrl-C and SIGTERM while the command line settles: the first ends what is being read, the second leaves the rest.

Nothing is cut off in silence: what became of a run is printed either way. A third signal ends the process as it is.
"""

import asyncio
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from paykit_settle.cli_output import Output
from paykit_settle.runner import Runner

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def minding_signals(runner: Runner, output: Output) -> Iterator[None]:
    """Within the block, in a running event loop, signals are for the runner."""
    loop = asyncio.get_running_loop()
    if threading.current_thread() is not threading.main_thread():  # which is the only one that hears of signals
        yield
        return

    def heard() -> None:
        if runner.is_interrupted:
            ignore()
            runner.leave()
            return
        runner.interrupt()
        if runner.is_sending:
            output.warn("a settlement is being posted, which is finished first; once more leaves it to `resume`")

    def ignore() -> None:
        for number in SIGNALS:
            loop.remove_signal_handler(number)

    for number in SIGNALS:
        loop.add_signal_handler(number, heard)
    try:
        yield
    finally:
        ignore()
