"""A payment processor for tests and demonstrations, on a real local socket.

It speaks the wire of `GET /v1/balance_transactions`, `GET /v1/fx/rates` and `POST /v1/settlements`.
It shares no code with the program it is used to test: a shared model would hide a shared mistake.
"""

from fake_processor.fixtures import load_fixtures
from fake_processor.server import FakeProcessor
from fake_processor.state import ProcessorState

__all__ = ["FakeProcessor", "ProcessorState", "load_fixtures"]
