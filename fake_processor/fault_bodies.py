"""The faults that spoil the bytes of an answer, whatever it is about."""

from __future__ import annotations

import gzip
import re
from dataclasses import replace

from fake_processor.faults import Fired
from fake_processor.wire import Answer

PAGE = b"<!doctype html><html><head><title>Please wait</title></head><body>We will be right back.</body></html>\n"

_FIRST_TEXT = re.compile(rb':\s*"')
_FIRST_MEMBER = re.compile(rb'\{\s*("[^"]*":\s*"[^"]*")')


def spoiled(answer: Answer, fault: Fired) -> Answer:
    """The answer as the fault leaves it."""
    body = answer.body
    match fault.name:
        case "truncated_json":
            return replace(answer, body=body[: len(body) // 2])
        case "html":
            return replace(answer, status=200, body=PAGE, content_type="text/html")
        case "wrong_content_type":
            return replace(answer, content_type="text/plain")
        case "bom":
            return replace(answer, body=b"\xef\xbb\xbf" + body)
        case "invalid_utf8":
            return replace(answer, body=_FIRST_TEXT.sub(lambda found: found[0] + b"\xff\xfe", body, count=1))
        case "duplicate_member":
            return replace(answer, body=_FIRST_MEMBER.sub(rb"{\1, \1", body, count=1))
        case _:
            packed = gzip.compress(body, mtime=0)
            if fault.name == "gzip_truncated":
                packed = packed[: len(packed) // 2]
            return replace(answer, body=packed, headers={**answer.headers, "Content-Encoding": "gzip"})
