"""What an answer of the processor means: nothing wrong, or the one error it stands for.

Knows HTTP statuses and the processor's error codes, but no HTTP library. The split that matters is certainty: a 5xx to
a POST says nothing about its effect, a 429 says that there is none.
"""

from dataclasses import dataclass
from datetime import datetime

from paykit_settle.errors import (
    Exchange,
    OutcomeUnknown,
    ProcessorError,
    ProcessorRejected,
    ProcessorUnavailable,
    ProtocolError,
    SettlementConflict,
)
from paykit_settle.retry import IN_FLIGHT_CODES, RETRIED_STATUSES, parse_retry_after
from paykit_settle.wire import decode_error

BODY_SHOWN_MAX = 500


@dataclass(slots=True, kw_only=True)
class Answer:
    """One answer, read to its end; `fault` says why its body could not be read, empty if it was."""

    exchange: Exchange
    status: int
    retry_after: str | None
    received_at: datetime
    body: bytes = b""
    fault: str = ""


def error_of_answer(answer: Answer, *, redact: str) -> ProcessorError | None:
    """None for a success; else the error, retryable only where another attempt can change something.

    `redact` (the API key) is taken out of every text that the processor sent, should it echo it.
    """
    status, is_post = answer.status, answer.exchange.method == "POST"
    if status in (200, 201):
        return None
    said = decode_error(answer.body)
    text = answer.body.decode("utf-8", "replace").replace(redact, "[api key]")[:BODY_SHOWN_MAX]
    message = said.message.replace(redact, "[api key]")[:BODY_SHOWN_MAX]
    detail = f"the processor answered {status}" + (f" {said.code}" if said.code else "")
    detail += f": {message}" if message else ""
    error = _kind(status, is_post=is_post, error_type=said.type, code=said.code)(
        detail, exchange=answer.exchange, status=status, body=text
    )
    error.retry_after_s = parse_retry_after(answer.retry_after, answer.received_at)
    return error


def _kind(status: int, *, is_post: bool, error_type: str, code: str) -> type[ProcessorError]:
    uncertain = OutcomeUnknown if is_post else ProcessorUnavailable
    if status < 400:
        # Also a redirect: following one would carry the key and the settlement to a place nobody configured.
        return OutcomeUnknown if is_post and status < 300 else ProtocolError
    if status == 409 and (code in IN_FLIGHT_CODES or error_type == "idempotency_error"):
        return uncertain
    if status >= 500 or status == 408:
        return uncertain
    if status in RETRIED_STATUSES:
        return ProcessorUnavailable
    return SettlementConflict if error_type == "idempotency_error" else ProcessorRejected


def unreadable(what: str, exchange: Exchange, *, status: int | None = None) -> ProcessorError:
    """The error for an answer that cannot be understood: after a POST its outcome is then unknown."""
    kind = OutcomeUnknown if exchange.method == "POST" else ProtocolError
    return kind(f"the processor's answer cannot be read: {what}", exchange=exchange, status=status)
