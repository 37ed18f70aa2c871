"""A payment processor for tests and demonstrations, on a real local socket, that misbehaves on request.

It speaks the wire of `GET /v1/balance_transactions`, `GET /v1/fx/rates` and `POST /v1/settlements`.
It shares no code with the program it is used to test: a shared model would hide a shared mistake.
"""

from typing import TYPE_CHECKING

from fake_processor.clock import Clock
from fake_processor.fault_catalogue import FAULTS
from fake_processor.fixtures import load_fixtures
from fake_processor.generated import generated_state
from fake_processor.generator import Plan
from fake_processor.state import ProcessorState

if TYPE_CHECKING:
    from fake_processor.server import FakeProcessor

__all__ = ["FAULTS", "Clock", "FakeProcessor", "Plan", "ProcessorState", "generated_state", "load_fixtures"]


def __getattr__(name: str) -> object:
    # The server brings aiohttp, and pytest imports this package for its plugin in every run: only when asked for.
    if name == "FakeProcessor":
        from fake_processor.server import FakeProcessor

        return FakeProcessor
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
