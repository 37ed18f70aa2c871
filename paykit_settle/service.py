"""The HTTP service: an aiohttp application around a store, a client and a runner, and one error middleware.

What its routes do is in `run_routes.py` and `ledger_routes.py`. Errors are `application/problem+json` (RFC 9457) with
the stable `error` code; an unforeseen one is a bare 500.
"""

import asyncio
import gc
import json
import logging
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial

from aiohttp import web

from paykit_settle.client import ProcessorClient
from paykit_settle.config import Settings
from paykit_settle.driving import Driver
from paykit_settle.errors import RunInProgress, SettleError
from paykit_settle.http_json import guard_bodies, json_response
from paykit_settle.ledger_routes import LEDGER, add_ledger_routes
from paykit_settle.rates import Rates
from paykit_settle.report import warnings_of
from paykit_settle.run_routes import add_run_routes, runner_key, store_key
from paykit_settle.runner import Runner
from paykit_settle.store.store import clock_ms

RETRY_AFTER_S = 10
"""What a 503, or a run in progress, advises when nobody said how long."""
SHUTDOWN_TIMEOUT_S = 60
"""How long a stopping service waits for requests and runs in flight; a run cut off then is given back, due at once."""

stopped_at_key = web.AppKey("stopped_at", list[float])
"""When the application began to stop, by the event loop's clock; empty while it serves."""

logger = logging.getLogger(__name__)


def create_app(
    settings: Settings | None = None,
    *,
    client: ProcessorClient | None = None,
    rates: Rates | None = None,
    now_ms: Callable[[], int] = clock_ms,
) -> web.Application:
    """The service as an aiohttp application, on the database that the settings name.

    `client` and `rates` inject what the settings would make: one client for the application's life (an injected one
    stays the caller's to close), and a rate table that is used for every day instead of the processor's. `now_ms` is
    the clock by which unfinished runs are due.
    """
    settings = settings or Settings()
    app = web.Application(middlewares=[problem_middleware], client_max_size=settings.request_body_bytes_max)
    app[stopped_at_key] = []
    app.on_shutdown.append(_note_stop)
    guard_bodies(app)
    app.router.add_get("/healthz", healthz)
    add_ledger_routes(app, settings.open_store, currencies=settings.accepted_currencies())
    add_run_routes(app)
    # After the ledger's routes, which open the store: what is opened last is closed first.
    app.cleanup_ctx.append(lambda app: _runs(app, settings, client, rates, now_ms))
    return app


async def _note_stop(app: web.Application) -> None:
    app[stopped_at_key].append(asyncio.get_running_loop().time())


async def _runs(
    app: web.Application,
    settings: Settings,
    client: ProcessorClient | None,
    rates: Rates | None,
    now_ms: Callable[[], int],
) -> AsyncIterator[None]:
    """From start to stop: resumes what is due, and at the end finishes what is in flight or gives it back."""
    own = client is None
    client = client or settings.make_client()
    store = app[store_key] = app[LEDGER].store
    runner = app[runner_key] = Runner(
        client, store, options=settings.run_options(), rates=rates, tenants=settings.tenants, now_ms=now_ms
    )
    driver = Driver(partial(runner.resume, requested_by="service", is_quiet=True), store, now_ms=now_ms)
    resuming = asyncio.create_task(driver.drive())
    try:
        yield
    finally:
        resuming.cancel()
        await asyncio.gather(resuming, return_exceptions=True)
        # The server has waited for its requests already: both waits together are bounded, not each.
        now_s = asyncio.get_running_loop().time()
        stopped_at = app[stopped_at_key]
        waited_s = now_s - stopped_at[0] if stopped_at else 0
        await runner.close(timeout_s=max(0, SHUTDOWN_TIMEOUT_S - int(waited_s)))
        if own:
            await client.aclose()


async def healthz(_request: web.Request) -> web.Response:
    """200 while the process serves requests; asks nobody else."""
    return json_response({"status": "ok"})


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def problem_middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The one place where an error becomes an answer."""
    try:
        return await handler(request)
    except SettleError as error:
        headers = {}
        if error.http_status == 503 or isinstance(error, RunInProgress):
            headers["Retry-After"] = str(getattr(error, "retry_after_s", None) or RETRY_AFTER_S)
        if error.http_status >= 500:
            logger.warning("%s %s: %s: %s", request.method, request.path, error.code, error)
        said = {"warnings": warnings} if (warnings := warnings_of(error)) else {}
        return _problem(error.http_status, error.code, str(error), members=error.details | said, headers=headers)
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
        # What is here now stays, and the collector going through it again and again costs 6 % of a credit.
        gc.freeze()
        await stopped.wait()
    finally:
        await runner.cleanup()
