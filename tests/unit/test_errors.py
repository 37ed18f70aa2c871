"""The error tree is a contract: what the docstring draws is what the classes say, and nothing of a library's leaks out.

Without these a code could change under a caller who branches on it, or a new httpx exception would end a run as a bug.
"""

import re
from collections.abc import Iterator

import httpx
import pytest

from paykit_settle import errors
from paykit_settle.errors import (
    InvariantViolated,
    OutcomeUnknown,
    ProcessorError,
    ProcessorRejected,
    ProcessorUnavailable,
    ProtocolError,
    RunInProgress,
    RunRefused,
    SettleError,
)
from paykit_settle.faults import Exchange, FieldError, Problem
from paykit_settle.httpx_sender import error_of_transport

KEY = "sk_test_Secret"
DRAWN = re.compile(r"^ {4}(?P<bars>[│├└─ ]*)(?P<name>[A-Z]\w+) +(?P<rest>.+)$", re.MULTILINE)


def classes(root: type[BaseException] = SettleError) -> Iterator[type[BaseException]]:
    """The class and all below it, parents first."""
    yield root
    for child in root.__subclasses__():
        yield from classes(child)


def tree() -> dict[str, tuple[str | None, str]]:
    """Class name → (parent, the rest of its line), as the docstring draws it."""
    found: dict[str, tuple[str | None, str]] = {}
    path: list[str] = []
    for line in DRAWN.finditer(errors.__doc__ or ""):
        depth = len(line["bars"]) // 4
        path[depth:] = [line["name"]]
        found[line["name"]] = (path[depth - 1] if depth else None, line["rest"].strip())
    return found


def own_classes() -> dict[str, type[SettleError]]:
    return {
        kind.__name__: kind
        for kind in classes()
        if issubclass(kind, SettleError) and kind.__module__ == errors.__name__
    }


def test_tree_in_the_docstring_is_the_tree_of_the_classes() -> None:
    drawn = {name: parent for name, (parent, _) in tree().items() if parent is not None}
    assert drawn == {
        name: kind.__bases__[0].__name__ for name, kind in own_classes().items() if kind is not SettleError
    }


@pytest.mark.parametrize("name", sorted(name for name, kind in own_classes().items() if "code" in vars(kind)))
def test_code_status_and_exit_code_are_as_drawn(name: str) -> None:
    kind = own_classes()[name]
    assert tree()[name][1].split() == [kind.code, str(kind.http_status), str(kind.exit_code)]


def test_every_class_without_a_code_is_drawn_as_a_group() -> None:
    groups = {name for name, kind in own_classes().items() if "code" not in vars(kind)} - {"SettleError"}
    assert groups == {name for name, (_, rest) in tree().items() if rest.startswith("(")}


def test_codes_are_unique_and_snake_case() -> None:
    codes = [kind.code for kind in own_classes().values() if "code" in vars(kind)]
    assert len(codes) == len(set(codes))
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", code) for code in codes)


def test_statuses_exit_codes_and_retries_agree() -> None:
    """503, 504 and a run in progress mean "ask again": those alone are retryable, and exit with 3, 4 or 130."""
    for kind in (kind for kind in own_classes().values() if "code" in vars(kind)):
        assert 400 <= kind.http_status <= 599
        assert kind.retryable == (kind.http_status in (503, 504) or kind is RunInProgress), kind
        assert kind.retryable == (kind.exit_code in (3, 4, 130)), kind
    unknown = [kind for kind in own_classes().values() if getattr(kind, "exit_code", None) == 4]
    assert unknown == [OutcomeUnknown]


def test_every_class_has_a_docstring_of_its_own() -> None:
    assert [name for name, kind in own_classes().items() if not vars(kind).get("__doc__")] == []


# What an error tells.


def test_processor_error_carries_request_id_attempt_and_elapsed_in_text_and_details() -> None:
    exchange = Exchange(method="POST", path="/v1/settlements", request_id="req_9", attempt=3, elapsed_ms=61_005)
    for kind in (kind for kind in own_classes().values() if issubclass(kind, ProcessorError)):
        error = kind("what", exchange=exchange, status=503, body="said")
        assert str(error) == "what (POST /v1/settlements, attempt 3, after 61.005 s, request id req_9)"
        expected = {"processor_status": 503, "request_id": "req_9", "attempt": 3, "elapsed_ms": 61_005}
        assert error.details == expected
        assert (error.status, error.body, error.retry_after_s) == (503, "said", None)


def test_processor_error_without_an_exchange_claims_none() -> None:
    error = ProcessorUnavailable("the day could not be read")
    assert (str(error), error.details) == ("the day could not be read", {})
    assert "request id none" in str(Exchange(method="GET", path="/"))


def test_refused_run_shows_three_problems_lists_the_rest_and_counts_them_all() -> None:
    problems = [Problem(kind="row", subject=f"t{number}", detail="no") for number in range(5)]
    error = RunRefused(problems, problem_count=120)
    assert str(error) == "settlement refused: row t0: no; row t1: no; row t2: no; and 117 more"
    assert error.details["problem_count"] == 120
    assert error.details["problems"] == [
        {"kind": "row", "subject": f"t{number}", "detail": "no"} for number in range(5)
    ]
    assert str(RunRefused(problems[:1])) == "settlement refused: row t0: no"


def test_invalid_request_lists_its_fields_when_it_has_any() -> None:
    field = FieldError(field="date", detail="is missing")
    assert errors.InvalidRequest("no", fields=[field]).details == {
        "fields": [{"field": "date", "detail": "is missing"}]
    }
    assert errors.InvalidRequest("no").details == {}
    assert InvariantViolated("no").details == {}


# httpx.


HTTPX_ROOTS = (httpx.HTTPError, httpx.InvalidURL, httpx.CookieConflict, httpx.StreamError)
NEVER_SENT = {"ConnectError", "ConnectTimeout", "PoolTimeout", "ProxyError"}
BUGS = {
    "LocalProtocolError",
    "CookieConflict",
    "StreamError",
    "StreamConsumed",
    "StreamClosed",
    "ResponseNotRead",
    "RequestNotRead",
}
BAD_ANSWERS = {"TooManyRedirects", "DecodingError", "InvalidURL"}


def meaning(name: str, method: str) -> type[SettleError]:
    """The table, written down a second time: by name, and by what is certain."""
    if name == "UnsupportedProtocol" or (name in BUGS and method == "GET"):
        return InvariantViolated
    if name in NEVER_SENT:
        return ProcessorUnavailable
    if name in BAD_ANSWERS and method == "GET":
        return ProtocolError
    return ProcessorUnavailable if method == "GET" else OutcomeUnknown


def made(kind: type[BaseException], text: str) -> Exception:
    """An exception of that class, whatever its constructor wants."""
    error = kind.__new__(kind, text)
    error.args = (text,)
    assert isinstance(error, Exception)
    return error


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("kind", sorted({kind for root in HTTPX_ROOTS for kind in classes(root)}, key=str))
def test_every_httpx_exception_means_what_is_certain(kind: type[BaseException], method: str) -> None:
    exchange = Exchange(method=method, path="/v1/settlements", request_id="req_9", attempt=2, elapsed_ms=7)
    error = error_of_transport(made(kind, f"why {KEY}\r\n"), exchange, secret=KEY)
    assert type(error) is meaning(kind.__name__, method)
    assert kind.__name__ in str(error)
    assert str(exchange) in str(error)
    assert f"{kind.__name__}: why [api key]" in str(error)
    assert KEY not in f"{error} {error!r}"
    assert str(error).isprintable()


def test_no_httpx_exception_is_left_out() -> None:
    known = {kind for root in HTTPX_ROOTS for kind in classes(root)}
    exported = {getattr(httpx, name) for name in httpx.__all__}
    raised = {kind for kind in exported if isinstance(kind, type) and issubclass(kind, BaseException)}
    assert raised <= known


@pytest.mark.parametrize(("method", "kind"), [("GET", ProtocolError), ("POST", OutcomeUnknown)])
def test_what_httpxs_url_parser_lets_out_is_a_bad_answer(method: str, kind: type[ProcessorError]) -> None:
    error = error_of_transport(UnicodeError("label"), Exchange(method=method, path="/"), secret=KEY)
    assert type(error) is kind


def test_exception_without_a_text_is_named_by_its_class() -> None:
    error = error_of_transport(httpx.ReadTimeout(""), Exchange(method="GET", path="/"), secret=KEY)
    assert "could not be reached: ReadTimeout (GET /" in str(error)


def test_rejection_is_the_only_processor_error_that_is_definite() -> None:
    definite = [kind for kind in own_classes().values() if issubclass(kind, ProcessorError) and not kind.retryable]
    assert set(definite) == {ProcessorError, ProcessorRejected, errors.SettlementConflict, ProtocolError}
