"""The HTTP routes of the ledger: credits, balances, accounts and transfers of many tenants.

Thin: a handler reads its request, asks the ledger and writes the answer. What was booked was committed before the
answer is written; a client that goes away in between gets the same answer when it asks again with its key.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from aiohttp import web

from paykit_settle.http_json import json_response, json_text, read_body, read_json, require_json, send_json
from paykit_settle.journal import BALANCE
from paykit_settle.ledger_requests import (
    read_account,
    read_credit,
    read_currency,
    read_list,
    read_path_text,
    read_query,
    read_transfer,
)
from paykit_settle.store.ledger import Account, Ledger
from paykit_settle.store.store import Store

LEDGER = web.AppKey("ledger", Ledger)
_CURRENCIES: web.AppKey[Collection[str]] = web.AppKey("credit_currencies")
_DEFAULT_CURRENCY = "usd"

TENANT = "/v1/tenants/{tenant_id}"


def add_ledger_routes(
    app: web.Application, open_store: Callable[[], Store], *, currencies: Collection[str] = (_DEFAULT_CURRENCY,)
) -> None:
    """Adds the routes, and opens the store when the application starts; it is closed last, after all requests.

    `currencies` are those that credits are accepted in, in the canonical form.
    """
    app[_CURRENCIES] = frozenset(currencies)
    app.cleanup_ctx.append(_store_context(open_store))
    app.router.add_post(f"{TENANT}/credits", post_credit)
    app.router.add_get(f"{TENANT}/balance", get_balance)
    app.router.add_post(f"{TENANT}/accounts", post_account)
    app.router.add_get(f"{TENANT}/accounts", get_accounts)
    app.router.add_get(f"{TENANT}/accounts/{{name}}", get_account)
    app.router.add_post(f"{TENANT}/transfers", post_transfer)
    app.router.add_get(f"{TENANT}/transfers", get_transfers)


def _store_context(
    open_store: Callable[[], Store],
) -> Callable[[web.Application], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def context(app: web.Application) -> AsyncIterator[None]:
        store = await asyncio.to_thread(open_store)
        reserved = asyncio.get_running_loop().run_in_executor(None, store.reserve_log)
        app[LEDGER] = Ledger(store)
        try:
            yield
        finally:
            await reserved
            await asyncio.to_thread(store.close)

    return context


async def post_credit(request: web.Request) -> web.StreamResponse:
    """`POST .../credits`: 201 with the sum of the lines, or 200 and the first answer for a retry with its key."""
    tenant = _tenant(request)
    credit = read_credit(await read_body(request), request.app[_CURRENCIES])
    require_json(request)
    receipt = await request.app[LEDGER].credit(
        tenant,
        credit.key,
        currency=credit.currency,
        amounts=credit.amounts,
        fingerprint=credit.fingerprint,
        details=credit.lines,
    )
    replayed = "true" if receipt.replayed else "false"
    return await _answer(request, f'{{"replayed":{replayed},{receipt.answer[1:]}', replayed=receipt.replayed)


async def get_balance(request: web.Request) -> web.Response:
    """`GET .../balance[?currency=USD]`: what credits and settlements came to, less what was transferred away."""
    tenant = _tenant(request)
    currency = _query_currency(request) or _DEFAULT_CURRENCY
    amount = await request.app[LEDGER].balance(tenant, currency)
    return json_response({"currency": currency.upper(), "amount_minor": amount})


async def post_account(request: web.Request) -> web.Response:
    """`POST .../accounts`: 201 for a new account at 0, 200 for the same again, 409 on other terms."""
    tenant = _tenant(request)
    terms = read_account(await read_json(request))
    wanted = Account(id=terms.name, currency=terms.currency, floor=terms.floor_minor)
    account, is_new = await request.app[LEDGER].create_account(tenant, wanted)
    return json_response(_account_json(account), status=201 if is_new else 200)


async def get_accounts(request: web.Request) -> web.Response:
    """`GET .../accounts`: the tenant's accounts by name."""
    tenant = _tenant(request)
    asked = read_list(request.rel_url.raw_query_string)
    page = await request.app[LEDGER].accounts(tenant, after=asked.starting_after or "", limit=asked.limit)
    return _list(request, map(json_text, map(_account_json, page.items)), has_more=page.has_more)


async def get_account(request: web.Request) -> web.Response:
    """`GET .../accounts/{name}[?currency=]`: one account; 404 if there is none, for missing is not 0."""
    tenant, name = (
        _tenant(request),
        read_path_text(request.match_info["name"], lambda: request.rel_url.raw_path, "name"),
    )
    currency = _query_currency(request)
    if name == BALANCE and currency is None:
        currency = _DEFAULT_CURRENCY
    return json_response(_account_json(await request.app[LEDGER].account(tenant, name, currency)))


async def post_transfer(request: web.Request) -> web.StreamResponse:
    """`POST .../transfers`: 201 for a new transfer, 200 and the first answer for the same again."""
    tenant = _tenant(request)
    receipt = await request.app[LEDGER].transfer(tenant, read_transfer(await read_json(request)))
    return await _answer(request, receipt.answer, replayed=receipt.replayed)


async def get_transfers(request: web.Request) -> web.Response:
    """`GET .../transfers`: the tenant's transfers, newest first."""
    tenant = _tenant(request)
    asked = read_list(request.rel_url.raw_query_string)
    page = await request.app[LEDGER].transfers(tenant, after=asked.starting_after, limit=asked.limit)
    return _list(request, page.items, has_more=page.has_more)


def _tenant(request: web.Request) -> str:
    return _path_text(request, "tenant_id")


def _path_text(request: web.Request, name: str) -> str:
    return read_path_text(request.match_info[name], lambda: request.rel_url.raw_path, name)


def _query_currency(request: web.Request) -> str | None:
    currency = read_query(request.rel_url.raw_query_string, {"currency": read_currency})["currency"]
    return currency if isinstance(currency, str) else None


def _account_json(account: Account) -> dict[str, object]:
    return {
        "object": "account",
        "name": account.id,
        "currency": account.currency.upper(),
        "balance_minor": account.balance,
        "floor_minor": account.floor,
    }


async def _answer(request: web.Request, text: str, *, replayed: bool) -> web.StreamResponse:
    """The stored answer: 201 when it was made now, 200 and a header when an earlier request made it."""
    headers = (("Idempotent-Replayed", "true"),) if replayed else ()
    return await send_json(request, text, status=200 if replayed else 201, headers=headers)


def _list(request: web.Request, items: Iterable[str], *, has_more: bool) -> web.Response:
    """A page as the processor's API writes lists; the items are JSON already."""
    url = json_text(request.rel_url.raw_path)
    text = f'{{"object":"list","url":{url},"has_more":{json_text(has_more)},"data":[{",".join(items)}]}}'
    return web.Response(text=text, content_type="application/json")
