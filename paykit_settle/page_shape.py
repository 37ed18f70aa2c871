"""Decodes pages whose rows are all written alike, and proves in the same breath that no member is named twice. Pure.

A typed decoder takes the last of two equal names without a word, and looking at every member in Python costs more than
the rest of the pull. One program writes all rows of a processor, so they share one set of names, and in most members
few texts. Decoded by a type that is made of just those, a page has as many members as its rows have names, each of them
required: more colons than that are a repeat, or stand in a text or deeper, and then the page must give its own bytes
back when it is encoded again.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, cast

import msgspec

from paykit_settle.models import BalanceTransaction

MISSES_MAX = 16
"""Pages in a row that did not fit, after which no more are tried: this processor's rows are not alike."""
ROWS_PER_TEXT = 4
"""A member has few texts when one stands for so many rows, and then those it had are all that is taken for it."""
TEXTS_MAX = 32
_NAMES_MAX = 64

_encode = msgspec.json.Encoder().encode
_TYPES = {field.encode_name: field.type for field in msgspec.structs.fields(BalanceTransaction)}


class PageBody(Protocol):
    """A decoded page. Its rows have the members of a `BalanceTransaction`, and whatever else the processor sends."""

    data: list[BalanceTransaction]
    has_more: bool


class AlikeRows:
    """Knows how the rows of the pages so far are written, and decodes pages that are written so too."""

    def __init__(self) -> None:
        self._decoder: msgspec.json.Decoder[Any] | None = None
        self._page_members = self._row_members = 0
        self._texts: dict[str, set[str | None]] = {}
        self._misses = 0

    def decode(self, body: bytes) -> PageBody | None:
        """The page, when it is written as the ones before; None says nothing about it."""
        if self._decoder is None or self._misses >= MISSES_MAX:
            return None
        try:
            page = self._decoder.decode(body)
            members = self._page_members + self._row_members * len(page.data)
            if body.count(b":") == members or _encoded_again(page, body):
                self._misses = 0
                return cast(PageBody, page)
        except (msgspec.MsgspecError, RecursionError, UnicodeError, OverflowError):
            pass  # the plain decoder says what is wrong with it, if anything is
        self._misses += 1
        return None

    def learn(self, body: bytes) -> None:
        """Takes a page, which was found free of repeats, as the example of how pages are written."""
        if self._misses >= MISSES_MAX:
            return
        page = _plain_decoder.decode(body)
        rows = page["data"]
        # A row that leaves an optional member out is read in the plain way, which knows what stands in its place.
        if rows and isinstance(rows[0], dict) and rows[0].keys() >= _TYPES.keys() and _can_be_names([*page, *rows[0]]):
            row = _record("Row", {name: self._type_of(name, rows) for name in rows[0]})
            types = {name: list[row] if name == "data" else Any for name in page}  # type: ignore[valid-type]  # made here
            self._decoder = msgspec.json.Decoder(_record("Page", types | {"has_more": bool}))
            self._page_members, self._row_members = len(page), len(rows[0])

    def _type_of(self, name: str, rows: Sequence[Mapping[str, object]]) -> Any:
        """What to decode a member as: the few texts it has had, which need no new text each time, or its type."""
        had = {row.get(name) for row in rows if isinstance(row.get(name), str | None)}
        few = {*self._texts.get(name, ()), *had}
        is_text = all(isinstance(row.get(name), str | None) for row in rows) and had != {None}
        if is_text and len(few) <= TEXTS_MAX and len(had) * ROWS_PER_TEXT <= len(rows):
            self._texts[name] = few
            return Literal[tuple(few)]
        self._texts.pop(name, None)
        return _TYPES.get(name, Any)


def _encoded_again(page: object, body: bytes) -> bool:
    again = _encode(page)
    return (msgspec.json.format(again, indent=0) if b'": ' in body[:256] else again) == body


_plain_decoder = msgspec.json.Decoder(dict[str, Any], float_hook=lambda _text: None)


def _record(name: str, types: Mapping[str, Any]) -> type[msgspec.Struct]:
    """A record of exactly those members, each of them required, in that order."""
    return msgspec.defstruct(name, list(types.items()), frozen=True, gc=False, forbid_unknown_fields=True)


def _can_be_names(names: Sequence[str]) -> bool:
    return len(names) <= _NAMES_MAX and all(name.isidentifier() and not name.startswith("_") for name in names)
