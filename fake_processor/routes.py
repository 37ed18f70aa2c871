"""From a request to an answer: routes, keys of access and the headers of a POST.

Pure: a request record in, an answer record out, everything decided by the state. It must never put
a whole API key into an answer.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Collection, Mapping

from fake_processor.query import (
    BALANCE_TRANSACTION_PARAMETERS,
    page_query,
    read_currency,
    read_parameters,
)
from fake_processor.state import ProcessorState
from fake_processor.wire import (
    JSON_TYPE,
    Answer,
    Refusal,
    Request,
    invalid,
    json_answer,
    refusal_answer,
)

ACCOUNT_DEFAULT = "acct_123"
KEY_PREFIX = "sk_test_"
IDEMPOTENCY_KEY_MAX = 255

INDEX = b"""fake payment processor
GET  /v1/balance_transactions?account=&created=&limit=&starting_after=&ending_before=&currency=&type=
GET  /v1/balance_transactions/{id}?account=
GET  /v1/fx/rates?base=usd&date=
POST /v1/settlements
GET  /v1/settlements?account=&date=
GET  /v1/settlements/{id}
"""

# A handler gets the last part of the path where its route ends in {id}, else an empty string.
Handler = Callable[[ProcessorState, Request, str], Answer]


def answer(state: ProcessorState, request: Request, *, api_keys: Collection[str] | None = None) -> Answer:
    """What the processor says to `request`. A refusal is an answer too, in Stripe's error shape.

    `api_keys` are the keys let in; None lets in every key that starts with `sk_test_`.
    """
    try:
        if request.path == "/" and request.method == "GET":
            return Answer(status=200, body=INDEX, content_type="text/plain")
        handler, leaf = _route(request)
        _authorize(request.headers.get("authorization"), api_keys=api_keys)
        return handler(state, request, leaf)
    except Refusal as refusal:
        return refusal_answer(refusal)


def _list_transactions(state: ProcessorState, request: Request, _leaf: str) -> Answer:
    parameters = read_parameters(request.query, known=BALANCE_TRANSACTION_PARAMETERS)
    page = state.page(_account(parameters, request), page_query(parameters))
    return _list("/v1/balance_transactions", page.rows, has_more=page.has_more)


def _one_transaction(state: ProcessorState, request: Request, leaf: str) -> Answer:
    parameters = read_parameters(request.query, known=frozenset({"account"}))
    return json_answer(state.transaction(_account(parameters, request), leaf))


def _rates(state: ProcessorState, request: Request, _leaf: str) -> Answer:
    parameters = read_parameters(request.query, known=frozenset({"base", "base_currency", "date"}))
    # Stripe's own SDK swallows a parameter called `base`, so it has a second name.
    names = [name for name in ("base", "base_currency") if name in parameters]
    if not names:
        raise invalid("Missing required param: base.", param="base", code="parameter_missing")
    if len(names) > 1:
        raise invalid("base is given twice.", param="base", code="parameters_exclusive")
    base = read_currency(parameters[names[0]], param="base")
    return json_answer(state.rates(base, day=parameters.get("date")))


def _post_settlement(state: ProcessorState, request: Request, _leaf: str) -> Answer:
    read_parameters(request.query, known=frozenset())
    key = idempotency_key(request.headers)
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != JSON_TYPE:
        raise invalid(f"Content-Type must be {JSON_TYPE}.", param="Content-Type")
    created = state.settle(request.body, idempotency_key=key)
    headers = {"Idempotent-Replayed": "true"} if created.replayed else {}
    return json_answer(created.settlement, headers=headers)


def _list_settlements(state: ProcessorState, request: Request, _leaf: str) -> Answer:
    parameters = read_parameters(request.query, known=frozenset({"account", "date"}))
    account = parameters.get("account", request.headers.get("stripe-account"))
    rows = state.settlements(account=account, date=parameters.get("date"))
    return _list("/v1/settlements", rows, has_more=False)


def _one_settlement(state: ProcessorState, request: Request, leaf: str) -> Answer:
    read_parameters(request.query, known=frozenset())
    return json_answer(state.settlement(leaf))


ROUTES: Mapping[str, Mapping[str, Handler]] = {
    "/v1/balance_transactions": {"GET": _list_transactions},
    "/v1/balance_transactions/{id}": {"GET": _one_transaction},
    "/v1/fx/rates": {"GET": _rates},
    "/v1/settlements": {"GET": _list_settlements, "POST": _post_settlement},
    "/v1/settlements/{id}": {"GET": _one_settlement},
}


def _route(request: Request) -> tuple[Handler, str]:
    methods, leaf = ROUTES.get(request.path), ""
    if methods is None:
        parent, _, leaf = request.path.rpartition("/")
        methods = ROUTES.get(f"{parent}/{{id}}") if leaf else None
    if methods is None:
        raise Refusal(404, f"Unrecognized request URL ({request.method}: {request.path}).", code="url_unknown")
    if request.method not in methods:
        allowed = ", ".join(sorted(methods))
        raise Refusal(
            405,
            f"{request.method} is not allowed here; allowed: {allowed}.",
            code="method_not_allowed",
            headers={"Allow": allowed},
        )
    return methods[request.method], leaf


def _list(url: str, rows: list[dict[str, object]], *, has_more: bool) -> Answer:
    return json_answer({"object": "list", "url": url, "data": rows, "has_more": has_more})


def _account(parameters: Mapping[str, str], request: Request) -> str:
    return parameters.get("account") or request.headers.get("stripe-account") or ACCOUNT_DEFAULT


def idempotency_key(headers: Mapping[str, str]) -> str:
    """The key of a POST, without the quotes that the HTTP draft asks for and Stripe leaves out."""
    key = headers.get("idempotency-key", "").strip()
    if len(key) >= 2 and key.startswith('"') and key.endswith('"'):
        key = key[1:-1].replace('\\"', '"').replace("\\\\", "\\")
    if not key:
        raise invalid("An Idempotency-Key header is required.", param="Idempotency-Key")
    if len(key) > IDEMPOTENCY_KEY_MAX:
        raise invalid(f"An Idempotency-Key has at most {IDEMPOTENCY_KEY_MAX} characters.", param="Idempotency-Key")
    if not (key.isascii() and key.isprintable()):
        raise invalid("An Idempotency-Key is printable ASCII.", param="Idempotency-Key")
    return key


def _authorize(header: str | None, *, api_keys: Collection[str] | None) -> None:
    key = _api_key(header or "")
    if key is None:
        raise _unauthorized("You did not provide an API key, as Bearer or as the user name of Basic.")
    known = (key.startswith(KEY_PREFIX) and key != KEY_PREFIX) if api_keys is None else key in api_keys
    if not known:
        shown = f"***{key[-4:]}" if len(key) >= 16 else "***"
        raise _unauthorized(f"Invalid API key provided: {shown}")


def _api_key(header: str) -> str | None:
    scheme, _, value = header.strip().partition(" ")
    value = value.strip()
    if scheme.lower() == "bearer":
        return value or None
    if scheme.lower() == "basic":
        try:
            user, _, _password = base64.b64decode(value, validate=True).decode("utf-8").partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return None
        return user or None
    return None


def _unauthorized(message: str) -> Refusal:
    challenge = 'Bearer realm="fake processor", Basic realm="fake processor"'
    return Refusal(401, message, code="api_key_invalid", headers={"WWW-Authenticate": challenge})
