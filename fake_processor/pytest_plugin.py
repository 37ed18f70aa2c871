"""A pytest plugin: a fake processor on a real socket, fresh for each test or shared by a whole session.

Its server runs in a thread, so tests may be synchronous or asynchronous. It is imported in every pytest run of an
environment that has this package; what is heavy is therefore imported only when a fixture is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from fake_processor.server import FakeProcessor


@pytest.fixture
def fake_processor() -> Iterator[FakeProcessor]:
    """A fake processor of this test's own: `url`, `state`, `fault()`, `heal()`, `clock`, `requests`."""
    yield from _running()


@pytest.fixture(scope="session")
def fake_processor_session() -> Iterator[FakeProcessor]:
    """One fake processor for all tests: what one of them leaves behind, the next one finds."""
    yield from _running()


def _running() -> Iterator[FakeProcessor]:
    from fake_processor.server import FakeProcessor

    with FakeProcessor() as fake:
        yield fake
