"""The control plane, `/_fake/...`: the fake's own switches as HTTP, for those who cannot call its Python methods.

No API key and no faults here: it must work when everything else has been told not to.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from fake_processor.bodies import NotAnInteger, decode_json
from fake_processor.clock import unix_s
from fake_processor.fault_catalogue import FAULTS
from fake_processor.oracle import right_settlement
from fake_processor.processor import Processor
from fake_processor.query import read_parameters
from fake_processor.wire import Answer, Refusal, Request, invalid, json_answer, refusal_answer

PREFIX = "/_fake/"
RULE_NUMBERS = ("after", "count", "nth", "per_mille", "seed")

Control = Callable[[Processor, Request], object]


def control(processor: Processor, request: Request) -> Answer:
    """What the control plane says to a request below `/_fake/`."""
    try:
        methods = CONTROLS.get(request.path)
        if methods is None:
            raise Refusal(404, f"No such switch: {request.path}", code="url_unknown")
        if request.method not in methods:
            allowed = ", ".join(sorted(methods))
            message = f"{request.method} is not allowed here; allowed: {allowed}."
            raise Refusal(405, message, code="method_not_allowed", headers={"Allow": allowed})
        return json_answer(methods[request.method](processor, request))
    except Refusal as refusal:
        return refusal_answer(refusal)
    except (ValueError, KeyError) as error:
        return refusal_answer(invalid(str(error), param="body"))


def _faults(processor: Processor, _request: Request) -> object:
    known = {
        kind.name: {"description": kind.description, "route": kind.route, "options": dict(kind.options)}
        for kind in FAULTS.values()
    }
    return {"faults": known, "rules": [rule.shown() for rule in processor.faults.rules]}


def _add_fault(processor: Processor, request: Request) -> object:
    """`{"fault": "latency", "route"?, "after"?, "count"?, "nth"?, "per_mille"?, "seed"?, "options"?: {...}}`."""
    body = _members(request, ("fault", "route", "options", *RULE_NUMBERS))
    name, route, options = body.get("fault"), body.get("route"), body.get("options", {})
    if not isinstance(name, str) or not isinstance(options, dict) or not isinstance(route, str | None):
        raise invalid("fault and route are texts, options an object.", param="fault")
    numbers = {member: body[member] for member in RULE_NUMBERS if body.get(member) is not None}
    rule = processor.faults.add(name, route=route, **numbers, **options)  # type: ignore[arg-type]  # it checks them
    return rule.shown()


def _heal(processor: Processor, _request: Request) -> object:
    processor.faults.heal()
    return {"rules": []}


def _clock(processor: Processor, _request: Request) -> object:
    clock = processor.state.clock
    return {"now": clock.text(), "now_s": clock.now_s, "frozen": clock.frozen}


def _set_clock(processor: Processor, request: Request) -> object:
    """`{"freeze": "2026-01-16T06:00:00Z" or true}`, `{"advance_s": 86400}` or `{"run": true}`."""
    body = _members(request, ("freeze", "advance_s", "run"))
    clock = processor.state.clock
    freeze, advance_s = body.get("freeze"), body.get("advance_s")
    if isinstance(freeze, str):
        clock.freeze(unix_s(freeze))
    elif freeze is True:
        clock.freeze()
    if type(advance_s) is int:
        clock.advance(advance_s)
    if body.get("run") is True:
        clock.run()
    return _clock(processor, request)


def _requests(processor: Processor, _request: Request) -> object:
    return {"requests": [record.shown() for record in processor.requests]}


def _forget_requests(processor: Processor, _request: Request) -> object:
    processor.requests.clear()
    return {"requests": []}


def _add_transactions(processor: Processor, request: Request) -> object:
    """`{"account": "acct_123", "rows": [{...}]}`: rows as the wire has them, right or wrong."""
    body = _members(request, ("account", "rows"))
    account, rows = body.get("account"), body.get("rows")
    if not isinstance(account, str) or not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise invalid("account is a text and rows an array of objects.", param="rows")
    processor.state.add_transactions(account, rows)
    return {"account": account, "added": len(rows)}


def _release_pending(processor: Processor, request: Request) -> object:
    """`{"account": "acct_123"}`: its pending rows become available."""
    account = _members(request, ("account",)).get("account")
    if not isinstance(account, str) or not processor.state.has_account(account):
        raise invalid(f"No such account: {account}", param="account")
    processor.state.release_pending(account)
    return {"account": account}


def _settlement(processor: Processor, request: Request) -> object:
    parameters = read_parameters(request.query, known=frozenset({"account", "date", "settlement_currency"}))
    if "date" not in parameters:
        raise invalid("Missing required param: date.", param="date", code="parameter_missing")
    return right_settlement(
        processor.state,
        account=parameters.get("account", "acct_123"),
        date=parameters["date"],
        currency=parameters.get("settlement_currency", "usd"),
    )


def _members(request: Request, known: tuple[str, ...]) -> dict[str, object]:
    body = decode_json(request.body)
    if not isinstance(body, dict):
        raise invalid("A JSON object is expected.", param="body")
    for name in body:
        if name not in known:
            raise invalid(f"Received unknown parameter: {name}", param=name, code="parameter_unknown")
    # Rows may hold what no honest body does, such as 12.0: then they are put in as the texts they were.
    plain: dict[str, object] = json.loads(json.dumps(body, default=_as_text))
    return plain


def _as_text(value: object) -> str:
    if isinstance(value, NotAnInteger):
        return value.text
    raise ValueError("The body repeats a member.")


CONTROLS: Mapping[str, Mapping[str, Control]] = {
    "/_fake/faults": {"GET": _faults, "POST": _add_fault, "DELETE": _heal},
    "/_fake/heal": {"POST": _heal},
    "/_fake/clock": {"GET": _clock, "POST": _set_clock},
    "/_fake/requests": {"GET": _requests, "DELETE": _forget_requests},
    "/_fake/transactions": {"POST": _add_transactions},
    "/_fake/release": {"POST": _release_pending},
    "/_fake/settlement": {"GET": _settlement},
}
