"""The HTTP routes of runs: ask for one, list them, read one, explain it, stream its rows; and what differs since.

Handlers read strictly and answer JSON; what they tell comes from the store, not from the processor.
"""

import csv
import io
import json
import logging
from collections.abc import Callable, Sequence
from datetime import date as Date
from functools import partial
from typing import Any

from aiohttp import web

from paykit_settle.difference_report import difference_json
from paykit_settle.errors import InvalidRequest, SettleError
from paykit_settle.explain import explanation
from paykit_settle.http_json import json_response, read_json
from paykit_settle.models import BalanceTransaction
from paykit_settle.report import posted_json
from paykit_settle.run_request import read_posted_request
from paykit_settle.run_shown import run_json, run_summary
from paykit_settle.runner import Runner
from paykit_settle.store.decisions import list_differences
from paykit_settle.store.history import find_run, list_runs, page_keys, page_rows, read_history
from paykit_settle.store.store import Store
from paykit_settle.window import parse_date

LIST_LIMIT_MAX = 100
LIST_LIMIT = 10
CSV_COLUMNS = ("period", "id", "type", "reporting_category", "status", "currency", "amount", "fee", "net", "created")

runner_key = web.AppKey("runner", Runner)
store_key = web.AppKey("store", Store)

logger = logging.getLogger(__name__)


def add_run_routes(app: web.Application) -> None:
    """Registers the routes; the application provides `runner_key` and `store_key` before it serves."""
    app.router.add_post("/settlements/run", run)
    app.router.add_get("/settlements", list_settlements)
    app.router.add_get("/settlements/{id:(?!run$)[^/]+}", show)
    app.router.add_get("/settlements/{id}/explain", explain)
    app.router.add_get("/settlements/{id}/transactions", transactions)
    app.router.add_get("/differences", differences)


async def run(request: web.Request) -> web.Response:
    """`POST /settlements/run`: settles one account's day, once, and answers with the processor's settlement."""
    wanted, retry_rejected = read_posted_request(await read_json(request))
    posted = await request.app[runner_key].run(wanted, requested_by="http", retry_rejected=retry_rejected)
    return json_response(posted_json(posted))


async def list_settlements(request: web.Request) -> web.Response:
    """`GET /settlements`: runs, newest day first, by `account`, `from`, `to`, `limit` and `starting_after` (a run)."""
    query = _query(request, {"account", "from", "to", "limit", "starting_after"})
    for name in ("from", "to"):
        if name in query:
            _date(name, query[name])
    limit = _limit(query.get("limit"))
    runs, has_more = await request.app[store_key].read(
        lambda connection: list_runs(
            connection,
            account=query.get("account", ""),
            first=query.get("from", ""),
            last=query.get("to", ""),
            before=query.get("starting_after"),
            limit=limit,
        )
    )
    shown = [run_summary(each) for each in runs]
    return json_response({"object": "list", "url": "/settlements", "data": shown, "has_more": has_more})


async def differences(request: web.Request) -> web.Response:
    """`GET /differences`: an account's register, newest first, by `state` (open, all), `limit`, `starting_after`."""
    query = _query(request, {"account", "state", "limit", "starting_after"})
    if "account" not in query:
        raise InvalidRequest("account is missing")
    state = query.get("state", "open")
    if state not in ("open", "all"):
        raise InvalidRequest(f"state must be open or all, got {state!r:.40}")
    found, has_more = await request.app[store_key].read(
        partial(
            list_differences,
            account=query["account"],
            with_ended=state == "all",
            after=query.get("starting_after"),
            limit=_limit(query.get("limit")),
        )
    )
    shown = [difference_json(each) for each in found]
    return json_response({"object": "list", "url": "/differences", "data": shown, "has_more": has_more})


async def show(request: web.Request) -> web.Response:
    """`GET /settlements/{id}`: one run, by its own or its settlement's id."""
    return json_response(await _of(request, run_json))


async def explain(request: web.Request) -> web.Response:
    """`GET /settlements/{id}/explain`: the walk from its total down to its pages."""
    return json_response(await _of(request, explanation))


async def _of(request: web.Request, shape: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    _query(request, set())
    identity = request.match_info["id"]
    return shape(
        await request.app[store_key].read(lambda connection: read_history(connection, find_run(connection, identity)))
    )


async def transactions(request: web.Request) -> web.StreamResponse:
    """`GET /settlements/{id}/transactions`: every row of its evidence, as JSON lines or (`?format=csv`) CSV.

    Streamed page by page, so that a day of millions of rows needs the memory of one page.
    """
    form = _query(request, {"format"}).get("format", "jsonl")
    if form not in ("jsonl", "csv"):
        raise InvalidRequest(f"format must be jsonl or csv, got {form!r:.40}")
    store, identity = request.app[store_key], request.match_info["id"]
    run_ = await store.read(lambda connection: find_run(connection, identity))
    keys, pruned = await store.read(lambda connection: page_keys(connection, run_))
    if pruned:
        raise InvalidRequest(
            f"{pruned} of {len(keys)} pages of {run_.id} were pruned: its rows are not all here any more"
        )
    response = web.StreamResponse(headers={"Content-Type": "text/csv" if form == "csv" else "application/x-ndjson"})
    await response.prepare(request)
    if form == "csv":
        await response.write((",".join(CSV_COLUMNS) + "\r\n").encode())
    try:
        for period, number in keys:
            rows = await store.read(partial(page_rows, run=run_, period=period, number=number))
            await response.write(_render(period, rows, form))
        await response.write_eof()
    except SettleError as error:  # such as a page that was pruned just now: what was begun must not end as if whole
        logger.warning("the rows of %s were cut off: %s", run_.id, error)
        if request.transport is not None:
            request.transport.abort()
    return response


def _render(period: str, transactions: Sequence[BalanceTransaction], form: str) -> bytes:
    rows = [
        {
            "period": period,
            "id": row.id,
            "type": row.type,
            "reporting_category": row.reporting_category,
            "status": row.status,
            "currency": row.currency.lower(),
            "amount": row.amount,
            "fee": row.fee,
            "net": row.amount - row.fee,
            "created": row.created,
        }
        for row in transactions
    ]
    if form == "jsonl":
        return "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows).encode()
    text = io.StringIO()
    csv.DictWriter(text, CSV_COLUMNS).writerows(rows)
    return text.getvalue().encode()


def _query(request: web.Request, known: set[str]) -> dict[str, str]:
    unknown = sorted(set(request.query) - known)
    repeated = sorted(name for name in set(request.query) if len(request.query.getall(name)) > 1)
    if unknown or repeated:
        raise InvalidRequest(f"unknown or repeated query parameters: {', '.join(unknown + repeated)}")
    return dict(request.query)


def _date(name: str, text: str) -> Date:
    try:
        return parse_date(text)
    except ValueError as error:
        raise InvalidRequest(f"{name} {error}") from None


def _limit(text: str | None) -> int:
    if text is None:
        return LIST_LIMIT
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:9]) <= LIST_LIMIT_MAX):
        raise InvalidRequest(f"limit must be 1 to {LIST_LIMIT_MAX}, got {text!r:.40}")
    return int(text)
