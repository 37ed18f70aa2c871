"""The pytest plugin and the thread that it runs the fake in, used as others use them.

People install the package for these fixtures. If one were missing, shared what it should not, or warned, the first five
lines of somebody's test would fail.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import urllib.request
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from fake_processor import FakeProcessor

CHECKOUT = Path(__file__).resolve().parents[2]

SETTINGS = """
[pytest]
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
filterwarnings = error
"""

TESTS = """
import json
import urllib.request


def ask(fake, path):
    request = urllib.request.Request(fake.url + path, headers={"Authorization": "Bearer sk_test_mine"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def test_one(fake_processor, fake_processor_session):
    fake_processor.state.remove_transaction("acct_123", "txn_2001")
    fake_processor_session.state.remove_transaction("acct_123", "txn_2001")
    assert ask(fake_processor, "/v1/balance_transactions?limit=1")["data"][0]["id"] == "txn_2002"


def test_two(fake_processor, fake_processor_session):
    assert ask(fake_processor, "/v1/balance_transactions?limit=1")["data"][0]["id"] == "txn_2001"
    assert ask(fake_processor_session, "/v1/balance_transactions?limit=1")["data"][0]["id"] == "txn_2002"
    assert fake_processor.url != fake_processor_session.url


async def test_three(fake_processor):
    import asyncio

    body = await asyncio.to_thread(ask, fake_processor, "/v1/fx/rates?base=usd")
    assert body["base"] == "usd"
"""


def test_fixtures_work_in_a_project_of_others(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(TESTS, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text(SETTINGS, encoding="utf-8")
    installed = any(entry.value == "fake_processor.pytest_plugin" for entry in entry_points(group="pytest11"))
    plugin = [] if installed else ["-p", "fake_processor.pytest_plugin"]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin, str(tmp_path)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


def test_plugin_alone_imports_nothing_heavy() -> None:
    code = "import sys, fake_processor.pytest_plugin; sys.exit('aiohttp' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, timeout=60, check=False)
    assert done.returncode == 0


def test_plain_with_runs_it_in_a_thread_that_ends() -> None:
    before = threading.active_count()
    with FakeProcessor() as fake:
        with urllib.request.urlopen(f"{fake.url}/", timeout=60) as answer:  # noqa: S310 - our own address
            assert answer.status == 200
        assert threading.active_count() == before + 1
    assert threading.active_count() == before
    with pytest.raises(RuntimeError):
        _ = fake.url


def test_plain_with_raises_what_keeps_it_from_starting() -> None:
    with FakeProcessor() as fake:
        port = int(fake.url.rpartition(":")[2])
        with pytest.raises(OSError, match="address already in use"), FakeProcessor(port=port):
            pass
