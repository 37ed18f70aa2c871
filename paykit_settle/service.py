"""The HTTP service: aiohttp routes around a run, and one middleware that turns errors into answers.

A handler reads its request strictly, calls the story in `run.py` and writes JSON; it decides nothing about money.
Errors are `application/problem+json` (RFC 9457) with the stable `error` code; an unforeseen one is a bare 500.
"""

import asyncio
import json
import logging
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from aiohttp import web

from paykit_settle.client import ProcessorClient
from paykit_settle.config import Settings
from paykit_settle.errors import SettleError
from paykit_settle.http_json import guard_bodies, json_response, read_json
from paykit_settle.ledger_routes import add_ledger_routes
from paykit_settle.rates import Rates
from paykit_settle.report import posted_json
from paykit_settle.run import RunOptions, run_settlement
from paykit_settle.run_request import read_run_request

RETRY_AFTER_S = 10
"""What a 503 advises when the processor itself did not say."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSetup:
    """What every run of this application uses, beside its client."""

    settings: Settings
    options: RunOptions
    rates: Rates | None


_client_key = web.AppKey("client", ProcessorClient)
_setup_key = web.AppKey("setup", RunSetup)


def create_app(
    settings: Settings | None = None, *, client: ProcessorClient | None = None, rates: Rates | None = None
) -> web.Application:
    """The service as an aiohttp application.

    `client` and `rates` inject what the settings would make: one client for the application's life (an injected one
    stays the caller's to close), and a rate table that is used for every day instead of the processor's. The ledger's
    routes are there when the settings name a database.
    """
    settings = settings or Settings()
    app = web.Application(middlewares=[problem_middleware], client_max_size=settings.request_body_bytes_max)
    app[_setup_key] = RunSetup(settings=settings, options=settings.run_options(), rates=rates)
    if client is None:
        app.cleanup_ctx.append(_own_client)
    else:
        app[_client_key] = client
    guard_bodies(app)
    app.router.add_get("/healthz", healthz)
    app.router.add_post("/settlements/run", run)
    if settings.database is not None:
        add_ledger_routes(app, settings.open_store, currencies=settings.accepted_currencies())
    return app


async def _own_client(app: web.Application) -> AsyncIterator[None]:
    async with app[_setup_key].settings.make_client() as client:
        app[_client_key] = client
        yield


async def healthz(_request: web.Request) -> web.Response:
    """200 while the process serves requests; asks nobody else."""
    return json_response({"status": "ok"})


async def run(request: web.Request) -> web.Response:
    """`POST /settlements/run`: settles one account's day and answers with the processor's settlement."""
    wanted = read_run_request(await read_json(request))
    setup = request.app[_setup_key]
    posted = await run_settlement(
        request.app[_client_key],
        setup.rates,
        wanted.account,
        wanted.date,
        wanted.settlement_currency,
        options=setup.options,
    )
    return json_response(posted_json(posted))


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def problem_middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The one place where an error becomes an answer."""
    try:
        return await handler(request)
    except SettleError as error:
        headers = {}
        if error.http_status == 503:
            headers["Retry-After"] = str(getattr(error, "retry_after_s", None) or RETRY_AFTER_S)
        if error.http_status >= 500:
            logger.warning("%s %s: %s: %s", request.method, request.path, error.code, error)
        return _problem(error.http_status, error.code, str(error), members=error.details, headers=headers)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        headers = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
        code = HTTP_CODES.get(error.status, "http_error")
        return _problem(error.status, code, error.text or error.reason, headers=headers)
    except Exception:
        logger.exception("%s %s: unforeseen error", request.method, request.path)
        return _problem(500, "internal_error", "an unforeseen error; the log of the service has it")


HTTP_CODES = {
    404: "not_found",
    405: "method_not_allowed",
    408: "request_timeout",
    413: "body_too_large",
    415: "unsupported_media_type",
}
"""Codes of the errors that HTTP itself knows."""


def _problem(
    status: int,
    code: str,
    detail: str,
    *,
    members: dict[str, object] | None = None,
    headers: dict[str, str] | None = None,
) -> web.Response:
    body = {"type": "about:blank", "title": code.replace("_", " "), "status": status, "error": code, "detail": detail}
    return web.Response(
        text=json.dumps(body | (members or {}), allow_nan=False),
        status=status,
        content_type="application/problem+json",
        headers=headers,
    )


SHUTDOWN_TIMEOUT_S = 60


async def serve(app: web.Application, *, host: str, port: int, on_ready: Callable[[str], None]) -> None:
    """Serves until SIGINT or SIGTERM, then finishes what is in flight (at most SHUTDOWN_TIMEOUT_S) and returns.

    `on_ready` gets the URL once the socket is bound; port 0 takes a free one. `OSError` when it cannot be bound.
    """
    # Access logs would double the cost of a request, and every failure is logged by the middleware.
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_TIMEOUT_S)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        stopped = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stopped.set)
        bound_host, bound_port = runner.addresses[0][:2]
        on_ready(f"http://[{bound_host}]:{bound_port}" if ":" in bound_host else f"http://{bound_host}:{bound_port}")
        await stopped.wait()
    finally:
        await runner.cleanup()
