"""The way to the processor of a dry run: questions pass, anything else stays here.

Without it a dry run would rest on every caller's not sending, and one that forgets would settle a day.
"""

from collections.abc import Mapping

import pytest

from paykit_settle.gets_only import NOT_SENT, GetsOnly, Unsent
from paykit_settle.sending import RawAnswer
from paykit_settle.wire import decode_created


class Recorder:
    """A `Sender` that keeps what goes out."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    async def send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],  # noqa: ARG002 - the signature is the protocol's
        content: bytes | None,  # noqa: ARG002
        *,
        body_bytes_max: int,  # noqa: ARG002
    ) -> RawAnswer:
        self.sent.append(f"{method} {url}")
        return RawAnswer(200, {}, b"{}")

    async def aclose(self) -> None:
        self.sent.append("closed")


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "get", "HEAD"])
async def test_anything_but_a_get_is_kept_with_its_key_and_bytes_and_answered_here(method: str) -> None:
    out = Recorder()
    gets = GetsOnly(out)
    answer = await gets.send(method, "http://p/v1/settlements", {"Idempotency-Key": "k"}, b"body", body_bytes_max=9)
    assert decode_created(answer.body) == (NOT_SENT, NOT_SENT)
    assert gets.take() == [Unsent(idempotency_key="k", body=b"body")]
    assert (gets.take(), out.sent) == ([], [])


async def test_get_goes_out_and_its_answer_comes_back() -> None:
    out = Recorder()
    gets = GetsOnly(out)
    assert (await gets.send("GET", "http://p/x", {}, None, body_bytes_max=9)).body == b"{}"
    await gets.aclose()
    assert (out.sent, gets.take()) == (["GET http://p/x", "closed"], [])
