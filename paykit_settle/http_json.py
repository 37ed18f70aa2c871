"""JSON over HTTP, in and out: the one way in which handlers read a body and write an answer."""

import json

from aiohttp import web

from paykit_settle.strict_json import loads

json_text = json.JSONEncoder(allow_nan=False).encode
"""A value as JSON text; no float gets that far, and NaN would be refused."""


async def read_json(request: web.Request) -> object:
    """The body as strict JSON; `InvalidJson` if it is not, 415 if it is but does not say so.

    A JSON content type is insisted on because a web page cannot send one to us without the browser asking first.
    """
    value = loads(await request.read())
    if request.content_type != "application/json":
        raise web.HTTPUnsupportedMediaType(text="send JSON with Content-Type: application/json")
    return value


def json_response(body: object, *, status: int = 200) -> web.Response:
    """A JSON answer, written without any float."""
    return web.Response(text=json_text(body), status=status, content_type="application/json")
