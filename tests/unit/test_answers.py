"""What each status means for a GET and for a POST: the split between "certainly not" and "nobody knows" is the product.

Without these a 5xx to a settlement would be called a failure and settled again, or a refusal would be retried until the
budget was gone.
"""

from datetime import UTC, datetime

import pytest

from paykit_settle.answers import SUCCESSES, TEXT_SHOWN_MAX, Answer, error_of_answer, shown, still_unknown, unreadable
from paykit_settle.errors import (
    InvariantViolated,
    OutcomeUnknown,
    ProcessorError,
    ProcessorRejected,
    ProcessorUnavailable,
    ProtocolError,
    SettlementConflict,
)
from paykit_settle.faults import Exchange

KEY = "sk_test_Secret"


def exchange(method: str) -> Exchange:
    return Exchange(method=method, path="/v1/thing", request_id="req_7", attempt=2, elapsed_ms=1234)


def answered(status: int, method: str = "GET", *, body: bytes = b"", retry_after: str | None = None) -> ProcessorError:
    answer = Answer(
        exchange=exchange(method),
        status=status,
        retry_after=retry_after,
        received_at=datetime(2026, 1, 15, tzinfo=UTC),
        replayed=False,
        body=body,
    )
    return error_of_answer(answer, secret=KEY)


def test_nothing_but_200_and_201_is_a_success() -> None:
    assert {200, 201} == SUCCESSES


MEANINGS: list[tuple[int, type[ProcessorError], type[ProcessorError]]] = [
    (202, ProtocolError, OutcomeUnknown),
    (204, ProtocolError, OutcomeUnknown),
    (101, ProtocolError, OutcomeUnknown),
    (300, ProtocolError, OutcomeUnknown),
    (302, ProtocolError, OutcomeUnknown),
    (303, ProtocolError, OutcomeUnknown),
    (301, ProtocolError, ProtocolError),
    (307, ProtocolError, ProtocolError),
    (308, ProtocolError, ProtocolError),
    (400, ProcessorRejected, ProcessorRejected),
    (401, ProcessorRejected, ProcessorRejected),
    (403, ProcessorRejected, ProcessorRejected),
    (404, ProcessorRejected, ProcessorRejected),
    (409, ProcessorRejected, ProcessorRejected),
    (422, ProcessorRejected, ProcessorRejected),
    (499, ProcessorRejected, ProcessorRejected),
    (408, ProcessorUnavailable, OutcomeUnknown),
    (425, ProcessorUnavailable, ProcessorUnavailable),
    (429, ProcessorUnavailable, ProcessorUnavailable),
    (500, ProcessorUnavailable, OutcomeUnknown),
    (501, ProcessorRejected, OutcomeUnknown),
    (503, ProcessorUnavailable, OutcomeUnknown),
    (599, ProcessorUnavailable, OutcomeUnknown),
    (999, ProcessorUnavailable, OutcomeUnknown),
]


@pytest.mark.parametrize(("status", "got", "posted"), MEANINGS)
def test_status_means_what_is_certain(status: int, got: type[ProcessorError], posted: type[ProcessorError]) -> None:
    for method, kind in (("GET", got), ("POST", posted)):
        error = answered(status, method)
        assert type(error) is kind
        assert error.status == status
        assert error.retryable == (kind in (ProcessorUnavailable, OutcomeUnknown))


@pytest.mark.parametrize(
    ("status", "error_type", "code", "kind"),
    [
        (409, "idempotency_error", "idempotency_key_in_use", OutcomeUnknown),
        (409, "idempotency_error", "", OutcomeUnknown),
        (409, "invalid_request_error", "lock_timeout", OutcomeUnknown),
        (409, "invalid_request_error", "other", ProcessorRejected),
        (400, "idempotency_error", "idempotency_key_reused", SettlementConflict),
        (422, "idempotency_error", "", SettlementConflict),
        (400, "invalid_request_error", "amount_mismatch", ProcessorRejected),
    ],
)
def test_conflict_is_in_flight_or_for_a_person(
    status: int, error_type: str, code: str, kind: type[ProcessorError]
) -> None:
    body = f'{{"error":{{"type":"{error_type}","code":"{code}","message":"why"}}}}'.encode()
    error = answered(status, "POST", body=body)
    assert type(error) is kind
    assert str(error).startswith(f"the processor answered {status}" + (f" {code}" if code else "") + ": why (POST")


def test_error_names_request_id_attempt_and_elapsed_seconds() -> None:
    error = answered(404)
    assert str(error).endswith("(GET /v1/thing, attempt 2, after 1.234 s, request id req_7)")
    assert error is not None
    assert error.details == {"processor_status": 404, "request_id": "req_7", "attempt": 2, "elapsed_ms": 1234}


@pytest.mark.parametrize(("value", "seconds"), [(None, None), ("7", 7), ("soon", None)])
def test_error_says_how_long_to_stay_away(value: str | None, seconds: int | None) -> None:
    error = answered(429, retry_after=value)
    assert error is not None
    assert error.retry_after_s == seconds


def test_redirect_is_named_as_one() -> None:
    assert "answered 302, a redirect, which is never followed" in str(answered(302))


@pytest.mark.parametrize(
    "body", [b"<html>It broke</html>", b"", b"\xff\xfe", b"[]", b'{"error":"no"}', b'{"error":{"code":1}}']
)
def test_body_that_explains_nothing_does_not_hide_the_status(body: bytes) -> None:
    error = answered(502, body=body)
    assert error is not None
    assert str(error).startswith("the processor answered 502 (GET")
    assert error.body == body.decode("utf-8", "replace")


def test_echoed_key_and_control_characters_are_taken_out_everywhere() -> None:
    body = f'{{"error":{{"type":"{KEY}","code":"{KEY}","message":"no {KEY}\\n\\u001b[31m"}}}}\n'.encode()
    error = answered(401, body=body)
    assert error is not None
    assert KEY not in f"{error} {error!r} {error.body} {error.details}"
    assert "answered 401 [api key]: no [api key]" in str(error)
    assert str(error).isprintable()
    assert error.body.isprintable()


def test_texts_are_bounded() -> None:
    error = answered(400, body=b'{"error":{"code":"%s","message":"%s"}}' % (b"c" * 100_000, b"m" * 100_000))
    assert error is not None
    assert len(str(error)) < 2 * TEXT_SHOWN_MAX + 200
    assert len(error.body) == TEXT_SHOWN_MAX


def test_key_across_the_cut_is_taken_out_before_it() -> None:
    assert KEY[:4] not in shown("x" * (TEXT_SHOWN_MAX - 5) + KEY, secret=KEY)


@pytest.mark.parametrize(("method", "kind"), [("GET", ProtocolError), ("POST", OutcomeUnknown)])
def test_answer_that_cannot_be_used_is_unknown_after_a_post(method: str, kind: type[ProcessorError]) -> None:
    error = unreadable("page 1: no", exchange(method), status=200)
    assert type(error) is kind
    assert str(error).startswith("the processor's answer cannot be used: page 1: no (")
    assert error.status == 200


@pytest.mark.parametrize("status", [400, 422])
def test_refusal_of_the_content_speaks_for_the_attempts_before_it(status: int) -> None:
    for error in (ProcessorRejected("no", status=status), SettlementConflict("no", status=status)):
        assert still_unknown(error, exchange("POST")) is error


def test_unknown_stays_the_unknown_that_it_is() -> None:
    error = OutcomeUnknown("hm", exchange=exchange("POST"))
    assert still_unknown(error, exchange("POST")) is error


@pytest.mark.parametrize(
    "failure",
    [
        ProcessorRejected("no", exchange=exchange("POST"), status=401, body="said"),
        ProcessorRejected("no", exchange=exchange("POST"), status=404, body="said"),
        ProcessorUnavailable("no", exchange=exchange("POST"), status=429, body="said"),
        ProtocolError("no", exchange=exchange("POST"), status=301, body="said"),
    ],
)
def test_anything_else_leaves_the_request_unknown_and_keeps_what_was_said(failure: ProcessorError) -> None:
    failure.retry_after_s = 9
    error = still_unknown(failure, Exchange(method="POST", path="/"))
    assert isinstance(error, OutcomeUnknown)
    assert str(error).startswith("the request may have taken effect; its last attempt: no (")
    kept = (error.status, error.body, error.retry_after_s, error.exchange)
    assert kept == (failure.status, "said", 9, failure.exchange)


def test_bug_after_an_uncertain_attempt_is_still_unknown() -> None:
    error = still_unknown(InvariantViolated("oops"), exchange("POST"))
    assert isinstance(error, OutcomeUnknown)
    assert "oops" in str(error)
    assert error.exchange == exchange("POST")


@pytest.mark.parametrize("body", [b"<html>", b'{"error":{"type":"idempotency_er', None])
def test_conflict_that_cannot_be_read_may_be_any_conflict(body: bytes | None) -> None:
    for method, kind in (("POST", OutcomeUnknown), ("GET", ProcessorRejected)):
        answer = Answer(
            exchange=exchange(method),
            status=409,
            retry_after=None,
            received_at=datetime(2026, 1, 15, tzinfo=UTC),
            replayed=False,
            body=body,
        )
        assert type(error_of_answer(answer, secret=KEY)) is kind


def test_key_that_was_cut_short_is_not_shown_either() -> None:
    assert shown(f"row ({KEY[:13]}) is odd", secret=KEY) == "row ([api key] is odd"
    assert shown(f"{KEY[:11]} is too little to know it by", secret=KEY).startswith(KEY[:11])
