"""The pages of a list of balance transactions, from their bytes: strictly, typed, and never going in circles. Pure.

Whatever the contract does not allow raises `ValueError` naming page, row and field; the client adds the exchange.
"""

import re

import msgspec

from paykit_settle.errors import InvalidJson
from paykit_settle.models import BalanceTransaction
from paykit_settle.page_shape import AlikeRows, PageBody
from paykit_settle.strict_json import loads


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """One page of a list: its rows, whether more follow, and its bytes as they came. Pages count from 1."""

    number: int
    rows: list[BalanceTransaction]
    has_more: bool
    body: bytes

    @property
    def next_cursor(self) -> str | None:
        """What to ask for next: the id of the last row, None on the last page."""
        return self.rows[-1].id if self.has_more else None


class PageReader:
    """Reads the pages of one list, in order, and stops one that would go on for ever.

    `read` raises `ValueError`, as `decode_page` does, for rows promised but none sent, for a cursor that came before,
    and when more than `pages_max` pages are wanted. `pages_read` were read before, when a list is gone on with. With
    `alike`, rows that are written like those before are decoded faster, as records of their own kind.
    """

    def __init__(self, *, pages_max: int, pages_read: int = 0, alike: AlikeRows | None = None) -> None:
        self._pages_max = pages_max
        self._pages_read = pages_read
        self._alike = alike
        self._cursors: set[str] = set()

    def read(self, body: bytes) -> Page:
        number = self._pages_read + len(self._cursors) + 1
        page = decode_page(body, number, alike=self._alike)
        if not page.has_more:
            return page
        if not page.rows:
            raise ValueError(f"page {number} has no rows, yet says that more follow")
        cursor = page.rows[-1].id
        if cursor in self._cursors:
            raise ValueError(f"page {number} ends at {cursor}, as an earlier page did: paging goes in circles")
        if number >= self._pages_max:
            raise ValueError(f"page {number} says that more follow, but {self._pages_max} pages are the limit")
        self._cursors.add(cursor)
        return page


class _PageBody(msgspec.Struct, gc=False):
    data: list[BalanceTransaction]
    has_more: bool


_page_decoder = msgspec.json.Decoder(_PageBody)
_any_decoder = msgspec.json.Decoder(float_hook=lambda _text: None)
_any_encoder = msgspec.json.Encoder()
_ROW_PATH = re.compile(r"(?P<what>.*) - at `\$\.data\[(?P<index>\d+)\](?:\.(?P<field>\w+))?")


def decode_page(body: bytes, number: int, *, alike: AlikeRows | None = None) -> Page:
    """Rows and `has_more` of one list page; `ValueError` naming the page, the row and the field at fault.

    Types are exact: a boolean, a text, `1.0` or `1e2` is no amount, and neither is an integer beyond 64 bits. A member
    that is named twice is refused, in an unknown member too, and so is a name that cannot be printed.
    """
    is_ascii = body.isascii()
    decoded: PageBody | None = alike.decode(body) if alike is not None and is_ascii else None
    if decoded is None:
        decoded = _decode(body, number)
        if alike is not None:
            alike.learn(body)
    # Texts of a page in ASCII without escapes hold what can be printed, but for DEL: no need to look at each.
    if not is_ascii or b"\\" in body or b"\x7f" in body:
        for index, row in enumerate(decoded.data):
            if not (row.id.isprintable() and row.type.isprintable() and (row.reporting_category or "").isprintable()):
                raise ValueError(f"page {number} row {index + 1} ({row.id!a:.60}): a name holds a control character")
    return Page(number=number, rows=decoded.data, has_more=decoded.has_more, body=body)


def decode_row(body: bytes, *, account: str | None = None) -> BalanceTransaction:
    """Return one row from its bytes, as strictly as a row of a page; `ValueError` for what the contract does not allow.

    With `account`, a row that names another account is refused too.
    """
    page = decode_page(b'{"data":[' + body + b'],"has_more":false}', 1)
    if len(page.rows) != 1:
        raise ValueError(f"expected one row, got {len(page.rows)}")
    shown = loads(body)
    owner = shown.get("account") if isinstance(shown, dict) else None
    if account is not None and owner is not None and owner != account:
        raise ValueError(f"row {page.rows[0].id:.60} is another account's")
    return page.rows[0]


def _decode(body: bytes, number: int) -> PageBody:
    try:
        body.decode("utf-8", "strict")
        decoded = _page_decoder.decode(body)
        _refuse_repeated_members(body)
    except UnicodeDecodeError as error:
        raise ValueError(f"page {number}: not UTF-8 at byte {error.start}") from None
    except RecursionError:
        raise ValueError(f"page {number}: nested too deeply") from None
    except msgspec.DecodeError as error:
        raise ValueError(f"page {number}{_explain(str(error), body)}") from None
    except InvalidJson as error:
        raise ValueError(f"page {number}: {error}") from None
    return decoded


def _refuse_repeated_members(body: bytes) -> None:
    """`InvalidJson` when a member is named twice: the typed decoder would take the last one without a word.

    Every member that a decoder drops takes two quotes of its name with it, so counting them finds one without a walk in
    Python. Where an escaped quote could balance the count, the slow strict reader decides.
    """
    kept = _any_encoder.encode(_any_decoder.decode(body))
    if kept.count(b'"') != body.count(b'"') or b"\\u0022" in body:
        loads(body)


def _explain(message: str, body: bytes) -> str:
    matched = _ROW_PATH.match(message)
    if matched is None:
        return f": {message}"
    index = int(matched["index"])
    field = f" field {matched['field']}" if matched["field"] else ""
    return f" row {index + 1}{_row_id(body, index)}{field}: {matched['what']}"


def _row_id(body: bytes, index: int) -> str:
    """The id of a row that does not decode, so that a person can find it; empty when it has none to show."""
    try:
        page = loads(body)
    except InvalidJson:
        return ""
    rows = page.get("data") if isinstance(page, dict) else None
    row = rows[index] if isinstance(rows, list) and index < len(rows) else None
    identity = row.get("id") if isinstance(row, dict) else None
    return f" ({identity:.60})" if isinstance(identity, str) else ""
