"""The faults that answer in place of the processor: refusals, gateways' pages, redirects."""

from __future__ import annotations

from email.utils import formatdate

from fake_processor.clock import Clock
from fake_processor.faults import Fired
from fake_processor.limits import too_many_requests
from fake_processor.state import failure
from fake_processor.wire import Answer, Refusal, Request, invalid, refusal_answer

_ABSENT = {
    404: ("url_unknown", "Unrecognized request URL ({method}: {path})."),
    405: ("method_not_allowed", "{method} is not allowed here; allowed: POST."),
    410: ("gone", "{path} was taken out of service."),
    501: ("not_implemented", "{method} {path} is not implemented."),
}

GATEWAY_PAGE = b"<!doctype html><html><head><title>502 Bad Gateway</title></head><body>502 Bad Gateway</body></html>\n"


def refusal_of(fault: Fired, request: Request, clock: Clock) -> Answer | None:
    """What the fault answers; None when it does not concern this request."""
    if fault.name == "error_502":
        return Answer(status=502, body=GATEWAY_PAGE, content_type="text/html")
    if fault.name == "redirect":
        return Answer(status=302, body=b"", headers={"Location": fault.text("location")}, content_type="text/html")
    refusal = _refusal(fault, request, clock)
    return None if refusal is None else refusal_answer(refusal)


def _refusal(fault: Fired, request: Request, clock: Clock) -> Refusal | None:
    match fault.name:
        case "too_many_requests":
            return too_many_requests(
                str(fault.number("retry_after_s")), should_retry=bool(fault.number("should_retry"))
            )
        case "too_many_requests_date":
            # In the machine's time, as the client's clock is no business of the fake's.
            moment = formatdate(clock.machine_s + fault.number("retry_after_s"), usegmt=True)
            return too_many_requests(moment, should_retry=bool(fault.number("should_retry")))
        case "error_500":
            return failure()
        case "error_503":
            wait_s = fault.number("retry_after_s")
            headers = {"Retry-After": str(wait_s)} if wait_s else {}
            message = "The processor is down for maintenance."
            return Refusal(503, message, code="unavailable", error_type="api_error", headers=headers)
        case "unauthorized":
            return Refusal(401, "Expired API key provided: ***", code="api_key_expired")
        case "forbidden":
            return Refusal(403, "The API key may not do this.", code="permission_denied")
        case "in_flight":
            message = (
                "There is currently another in-progress request using this Idempotent Key. Please try again later."
            )
            return Refusal(409, message, code="idempotency_key_in_use", error_type="idempotency_error")
        case "no_such_route" | "lookup_missing":
            return _absent(fault.number("status"), request)
        case _:
            return _deleted_cursor(request)


def _absent(status: int, request: Request) -> Refusal:
    code, message = _ABSENT[status]
    headers = {"Allow": "POST"} if status == 405 else {}
    return Refusal(status, message.format(method=request.method, path=request.path), code=code, headers=headers)


def _deleted_cursor(request: Request) -> Refusal | None:
    for name, value in request.query:
        if name in ("starting_after", "ending_before"):
            return invalid(f"No such balance transaction: '{value}'", param=name, code="resource_missing")
    return None
