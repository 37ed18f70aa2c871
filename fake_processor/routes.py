"""From a request to an answer: routes, keys of access and the headers of a POST.

Pure: a request record in, an answer record out, everything decided by the state. It must never put
a whole API key into an answer.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from urllib.parse import quote

from fake_processor.expand import with_source
from fake_processor.keys import read_key
from fake_processor.listing import Page, PageQuery
from fake_processor.query import (
    BALANCE_TRANSACTION_PARAMETERS,
    page_query,
    plain_parameters,
    read_currency,
    read_limit,
    read_parameters,
    split_expand,
)
from fake_processor.settlement_book import LookUp
from fake_processor.state import ProcessorState
from fake_processor.wire import (
    Answer,
    Refusal,
    Request,
    invalid,
    json_answer,
    refusal_answer,
)

ACCOUNT_DEFAULT = "acct_123"
KEY_PREFIX = "sk_test_"
EXPANDABLE = frozenset({"data.source"})
SETTLEMENT_PARAMETERS = frozenset({"account", "date", "limit", "starting_after"})
CURSORS = frozenset({"starting_after", "ending_before"})

_PLAIN = re.compile(r"[A-Za-z0-9_.=&\[\]-]*")
_VERSION = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(\.[a-z_]+)?")

INDEX = b"""fake payment processor
GET  /v1/balance_transactions?account=&created=&limit=&starting_after=&ending_before=&currency=&type=&source=&payout=
GET  /v1/balance_transactions/{id}?account=
GET  /v1/balance?account=
GET  /v1/fx/rates?base=usd&date=
POST /v1/settlements
GET  /v1/settlements?account=&date=&limit=&starting_after=
GET  /v1/settlements/{id}
GET  /_fake/faults  what can go wrong on request, and how to ask for it
"""

# A handler gets the last part of the path where its route ends in {id}, else an empty string.
Handler = Callable[[ProcessorState, Request, str], Answer]


def answer(
    state: ProcessorState,
    request: Request,
    *,
    api_keys: Collection[str] | None = None,
    refused: Refusal | None = None,
) -> Answer:
    """What the processor says to `request`. A refusal is an answer too, in Stripe's error shape.

    `api_keys` are the keys let in; None lets in every key that starts with `sk_test_`. `refused` is why the request
    goes no further than past the door: it is said to those who have a right to hear it.
    """
    try:
        if request.path == "/" and request.method == "GET":
            return Answer(status=200, body=INDEX, content_type="text/plain")
        handler, leaf = _route(request)
        _authorize(request.headers.get("authorization"), api_keys=api_keys)
        _check_version(request.headers.get("stripe-version"))
        if refused is not None:
            raise refused
        return handler(state, request, leaf)
    except Refusal as refusal:
        return refusal_answer(refusal)


def _list_transactions(state: ProcessorState, request: Request, _leaf: str) -> Answer:
    account, query, expand = _read_list(tuple(request.query))
    page = state.page(_account(account, request), query)
    if expand:
        page = Page(rows=[with_source(row) for row in page.rows], has_more=page.has_more)
    return Answer(
        status=200,
        body=_list_body(page.texts, has_more=page.has_more),
        headers=_link(request, page, backwards=query.ending_before is not None),
    )


Pairs = tuple[tuple[str, str], ...]


def _read_list(pairs: Pairs) -> tuple[str | None, PageQuery, frozenset[str]]:
    """The account, the page wanted, and what is to be expanded."""
    if pairs and pairs[-1][0] == "starting_after" and pairs[-1][1] and (window := _read_window(pairs[:-1])) is not None:
        account, query = window
        return account, query._replace(starting_after=pairs[-1][1]), frozenset()
    others, expand = split_expand(pairs, known=EXPANDABLE)
    parameters = read_parameters(others, known=BALANCE_TRANSACTION_PARAMETERS)
    return parameters.get("account"), page_query(parameters), expand


# The pages of one window differ in their cursors alone, so the rest of their query is read once.
@lru_cache(maxsize=256)
def _read_window(pairs: Pairs) -> tuple[str | None, PageQuery] | None:
    """The same of a query without a cursor; None for one that is not as plain as most."""
    parameters = plain_parameters(pairs, known=BALANCE_TRANSACTION_PARAMETERS - CURSORS)
    return None if parameters is None else (parameters.get("account"), page_query(parameters))


def _list_body(texts: Iterable[bytes | memoryview], *, has_more: bool) -> bytes:
    """The envelope around rows that are JSON already, copied once: pages are large."""
    opening = b'{"object": "list", "url": "/v1/balance_transactions", "data": ['
    parts = [part for text in texts for part in (b",", text)]
    closing = b'], "has_more": true}\n' if has_more else b'], "has_more": false}\n'
    return b"".join([opening, *parts[1:], closing])


def _link(request: Request, page: Page, *, backwards: bool) -> dict[str, str]:
    """The next page in the direction of travel as a Link header (RFC 8288), beside the envelope's `has_more`."""
    if not page.has_more or page.edges is None:
        return {}
    kept = tuple([pair for pair in request.query if pair[0] not in CURSORS])
    name, edge, rel = ("starting_after", page.edges[1], "next")
    if backwards:
        name, edge, rel = ("ending_before", page.edges[0], "prev")
    # Encoded once for all pages of a window, unless the cursor is to be encoded too.
    is_plain = edge.isascii() and edge.isidentifier()
    query = f"{_encoded(kept)}&{name}={edge}" if kept and is_plain else _encoded((*kept, (name, edge)))
    return {"Link": f'<{request.path}?{query}>; rel="{rel}"'}


@lru_cache(maxsize=256)
def _encoded(pairs: tuple[tuple[str, str], ...]) -> str:
    text = "&".join([f"{name}={value}" for name, value in pairs])
    if not _PLAIN.fullmatch(text):
        text = "&".join([f"{name}={quote(value, safe='')}" for name, value in pairs])
    return text.replace("[", "%5B").replace("]", "%5D")


def _one_transaction(state: ProcessorState, request: Request, leaf: str) -> Answer:
    pairs, expand = split_expand(request.query, known=frozenset({"source"}))
    parameters = read_parameters(pairs, known=frozenset({"account"}))
    row = state.transaction(_account(parameters.get("account"), request), leaf)
    return json_answer(with_source(row) if expand else row)


def _balance(state: ProcessorState, request: Request, _leaf: str) -> Answer:
    parameters = read_parameters(request.query, known=frozenset({"account"}))
    return json_answer(state.balance(_account(parameters.get("account"), request)))


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
    key = read_key(request.headers)
    if key is None:
        raise invalid("An Idempotency-Key header is required.", param="Idempotency-Key")
    content_type = request.headers.get("content-type", "")
    created = state.settle(request.body, idempotency_key=key, content_type=content_type)
    headers = {"Idempotent-Replayed": "true"} if created.replayed else {}
    return json_answer(created.settlement, headers=headers)


def _list_settlements(state: ProcessorState, request: Request, _leaf: str) -> Answer:
    parameters = read_parameters(request.query, known=SETTLEMENT_PARAMETERS)
    look_up = LookUp(
        account=parameters.get("account", request.headers.get("stripe-account")),
        date=parameters.get("date"),
        # All of them when nothing is said: an account has one a day.
        limit=read_limit(parameters["limit"]) if "limit" in parameters else None,
        starting_after=parameters.get("starting_after"),
    )
    rows, has_more = state.look_up(look_up)
    return _list("/v1/settlements", rows, has_more=has_more)


def _one_settlement(state: ProcessorState, request: Request, leaf: str) -> Answer:
    read_parameters(request.query, known=frozenset())
    return json_answer(state.settlement(leaf))


ROUTES: Mapping[str, Mapping[str, Handler]] = {
    "/v1/balance_transactions": {"GET": _list_transactions},
    "/v1/balance_transactions/{id}": {"GET": _one_transaction},
    "/v1/balance": {"GET": _balance},
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


def _account(named: str | None, request: Request) -> str:
    return named or request.headers.get("stripe-account") or ACCOUNT_DEFAULT


def _check_version(version: str | None) -> None:
    if version is not None and not _VERSION.fullmatch(version):
        raise invalid(f"Invalid Stripe API version: {version}", param="Stripe-Version")


def _authorize(header: str | None, *, api_keys: Collection[str] | None) -> None:
    key = _api_key(header or "")
    if key is None:
        raise _unauthorized("You did not provide an API key, as Bearer or as the user name of Basic.")
    known = (key.startswith(KEY_PREFIX) and key != KEY_PREFIX) if api_keys is None else key in api_keys
    if not known:
        shown = f"***{key[-4:]}" if len(key) >= 16 else "***"
        raise _unauthorized(f"Invalid API key provided: {shown}")


@lru_cache(maxsize=64)
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
