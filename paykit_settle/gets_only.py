"""A way to the processor that nothing but questions goes out of: what a dry run uses, below everything that could send.

It sits where the bytes would leave, so what it keeps is what a run would have sent, whatever code has made it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from paykit_settle.sending import RawAnswer, Sender

NOT_SENT = "not sent"
"""The id and the status of a settlement that was kept here instead of being sent."""
_ANSWER = f'{{"id":"{NOT_SENT}","status":"{NOT_SENT}"}}'.encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsent:
    """A request that was not sent: its key and its bytes."""

    idempotency_key: str
    body: bytes


class GetsOnly:
    """A `Sender` that lets GETs through. Any other request is kept, and answered here as if it had been taken."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._kept: list[Unsent] = []

    def take(self) -> list[Unsent]:
        """Return what was kept since the last call."""
        kept, self._kept = self._kept, []
        return kept

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], content: bytes | None, *, body_bytes_max: int
    ) -> RawAnswer:
        if method == "GET":
            return await self._sender.send(method, url, headers, content, body_bytes_max=body_bytes_max)
        self._kept.append(Unsent(idempotency_key=headers.get("Idempotency-Key", ""), body=content or b""))
        return RawAnswer(200, {}, _ANSWER)

    async def aclose(self) -> None:
        await self._sender.aclose()
