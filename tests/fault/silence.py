"""A processor that does its work and keeps the answer to itself, until the client has given up.

Real time plays no part in it: the request has arrived, its effect is done, the client waits for nothing but the answer;
then the loop's clock is put forward, by as much as the client's patience.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from contextlib import contextmanager

import pytest
from aiohttp import web

from fake_processor import server
from fake_processor.delivery import deliver
from fake_processor.processor import Reply
from tests.loop_clock import everybody_waits, pass_time


@contextmanager
def unanswered(route: str, *, nth: Collection[int] = (), patience_s: int) -> Iterator[list[int]]:
    """Within the block no fake in this loop answers the `nth` requests of the route, or any of them.

    Each time `patience_s` pass, once. Gives the numbers of the requests that were left without an answer.
    """
    seen, left = 0, list[int]()
    ended = asyncio.Event()

    async def keep(incoming: web.BaseRequest, reply: Reply) -> web.StreamResponse:
        nonlocal seen
        if f"{incoming.method} {incoming.path}" == route:
            seen += 1
            if not nth or seen in nth:
                left.append(seen)
                await everybody_waits()
                pass_time(patience_s)
                await ended.wait()
        return await deliver(incoming, reply)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server, "deliver", keep)
        try:
            yield left
        finally:
            ended.set()
