"""What an answer of the processor means: nothing wrong, or the one error it stands for.

Knows HTTP statuses and the processor's error codes, but no HTTP library. The split that matters is certainty: a 5xx to
a POST says nothing about its effect, a 429 says that there is none. No text of the processor leaves unbounded, with a
control character, or with our API key in it.
"""

import re
from dataclasses import dataclass
from datetime import datetime

from paykit_settle.errors import (
    OutcomeUnknown,
    ProcessorError,
    ProcessorRejected,
    ProcessorUnavailable,
    ProtocolError,
    SettleError,
    SettlementConflict,
)
from paykit_settle.faults import Exchange
from paykit_settle.retry import IN_FLIGHT_CODES, RETRIED_STATUSES, parse_retry_after
from paykit_settle.sending import Failure
from paykit_settle.wire import decode_error

TEXT_SHOWN_MAX = 500
"""How many characters of a text of the processor an error shows."""

SECRET_BEGINNING = 12
"""Characters of the API key by which it is known: four more than the `sk_live_` that all keys begin with."""

MOVED_STATUSES = frozenset({301, 307, 308})
"""Redirects that say "not here": the request was certainly not acted on. A 302 or 303 often follows an effect."""


SUCCESSES = frozenset({200, 201})


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer that is no success, read to its end; its body is None if it could not be read."""

    exchange: Exchange
    status: int
    retry_after: str | None
    received_at: datetime
    replayed: bool
    body: bytes | None


def error_of_answer(answer: Answer, *, secret: str) -> ProcessorError:
    """The error that an answer stands for, retryable only where another attempt can change something.

    `secret` (the API key) is taken out of every text that the processor sent, should it echo it.
    """
    status = answer.status
    text = answer.body or b""
    said = decode_error(text)
    detail = f"the processor answered {status}"
    if 300 <= status < 400:
        detail += ", a redirect, which is never followed"
    if said.code:
        detail += f" {shown(said.code, secret=secret)}"
    if said.message:
        detail += f": {shown(said.message, secret=secret)}"
    is_garbled = answer.body is None or (text != b"" and not said.is_json)
    is_post = answer.exchange.method == "POST"
    kind = _kind(status, is_post=is_post, error_type=said.type, code=said.code, is_garbled=is_garbled)
    body = shown(text.decode("utf-8", "replace"), secret=secret)
    error = kind(detail, exchange=answer.exchange, status=status, body=body)
    error.retry_after_s = parse_retry_after(answer.retry_after, answer.received_at)
    error.replayed = answer.replayed
    return error


def _kind(status: int, *, is_post: bool, error_type: str, code: str, is_garbled: bool) -> type[ProcessorError]:
    uncertain = OutcomeUnknown if is_post else ProcessorUnavailable
    if status < 400:
        # A redirect is not followed: it would carry the key and the settlement to a place nobody configured.
        return OutcomeUnknown if is_post and status not in MOVED_STATUSES else ProtocolError
    if status == 409 and (code in IN_FLIGHT_CODES or error_type == "idempotency_error" or (is_post and is_garbled)):
        return uncertain  # also where it cannot be read which conflict it is
    if status == 501 and not is_post:
        return ProcessorRejected  # a route that does not exist: asking again changes nothing
    if status >= 500 or status == 408:
        return uncertain
    if status in RETRIED_STATUSES:
        return ProcessorUnavailable
    return SettlementConflict if error_type == "idempotency_error" else ProcessorRejected


def unreadable(what: str, exchange: Exchange, *, status: int | None = None) -> ProcessorError:
    """The error for an answer that cannot be used: after a POST its outcome is then unknown."""
    kind = OutcomeUnknown if exchange.method == "POST" else ProtocolError
    return kind(f"the processor's answer cannot be used: {what}", exchange=exchange, status=status)


def error_of_failure(failure: Failure, what: str, exchange: Exchange) -> ProcessorError:
    """The error for a request without a usable answer. A POST that broke on its way is `OutcomeUnknown`."""
    if failure is Failure.BAD_ANSWER:
        return unreadable(what, exchange)
    if failure is Failure.NEVER_SENT or exchange.method != "POST":
        return ProcessorUnavailable(f"the processor could not be reached: {what}", exchange=exchange)
    return OutcomeUnknown(f"the connection broke: {what}", exchange=exchange)


def still_unknown(failure: SettleError, exchange: Exchange) -> SettleError:
    """How a request ends, of which an attempt may have had an effect: the last failure, or that it is unknown.

    A refusal of the content stays one, and says that an earlier attempt may have had an effect (`was_uncertain`). One
    that is not about the content (a key revoked meanwhile), or a processor out of reach, says nothing of them.
    """
    known = failure if isinstance(failure, ProcessorError) else ProcessorError("", exchange=exchange)
    if isinstance(known, OutcomeUnknown) or known.status in (400, 422):
        known.was_uncertain = True
        return known
    unknown = OutcomeUnknown(
        f"the request may have taken effect; its last attempt: {failure}",
        exchange=known.exchange,
        status=known.status,
        body=known.body,
    )
    unknown.retry_after_s = known.retry_after_s
    unknown.replayed = known.replayed
    return unknown


def shown(text: str, *, secret: str) -> str:
    """A text of the processor's, fit for a message or a log: no secret, no control character, and bounded."""
    # Its beginning too, with all that may be more of it: a text may have been cut within the key.
    without = re.sub(re.escape(secret[:SECRET_BEGINNING]) + "[!-~]*", "[api key]", text.replace(secret, "[api key]"))
    bounded = without[:TEXT_SHOWN_MAX]
    return "".join(char if char.isprintable() else " " for char in bounded)
