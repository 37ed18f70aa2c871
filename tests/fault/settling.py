"""Settling a day at a fake that misbehaves, and what is at the processor afterwards.

Retries wait a millisecond and no Retry-After is honoured, so that a run through every fault takes no time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

from fake_processor import FakeProcessor
from paykit_settle.client import ProcessorClient
from paykit_settle.models import PostedSettlement
from paykit_settle.retry import RetryPolicy
from paykit_settle.run import RunOptions, run_settlement

ACCOUNT = "acct_123"
DAY = "2026-01-15"
LIST = "GET /v1/balance_transactions"
POST = "POST /v1/settlements"

QUICK = RetryPolicy(attempts_max=3, wait_first_ms=1, retry_after_max_s=0, request_timeout_s=30, deadline_s=60)
MEMBERS = ("account", "date", "settlement_currency", "lines", "total_net")


@asynccontextmanager
async def client_of(fake: FakeProcessor, *, policy: RetryPolicy = QUICK) -> AsyncIterator[ProcessorClient]:
    """The product's client, on an httpx client that never loads certificates: that would take longer than a test."""
    # `verify=False`: plain http on this machine.
    http = httpx.AsyncClient(verify=False, trust_env=False, timeout=policy.request_timeout_s)  # noqa: S501
    async with http, ProcessorClient(fake.url, policy=policy, http=http) as client:
        yield client


async def settle(
    fake: FakeProcessor, *, page_size: int = 4, policy: RetryPolicy = QUICK, day: str = DAY
) -> PostedSettlement:
    """One run of the product over the fake's day."""
    async with client_of(fake, policy=policy) as client:
        return await run_settlement(client, None, ACCOUNT, day, options=RunOptions(page_size=page_size))


def at_processor(fake: FakeProcessor) -> list[dict[str, object]]:
    """The bodies of the settlements that the processor holds."""
    return [{name: settlement[name] for name in MEMBERS} for settlement in fake.state.settlements()]


def right(fake: FakeProcessor, *, day: str = DAY) -> dict[str, object]:
    """The body that is right for the data as it is now, by the fake's oracle."""
    return fake.right_settlement(account=ACCOUNT, date=day)
