"""Decodes pages whose rows are all written alike, and proves in the same breath that no member is named twice. Pure.

A typed decoder takes the last of two equal names without a word, and looking at every member in Python costs more than
the rest of the pull. One program writes all rows of a processor, so they share one sequence of names: decoded by a type
made of that sequence and encoded again, a page must give its own bytes back, and one with a repeat cannot.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

import msgspec

from paykit_settle.models import BalanceTransaction

MISSES_MAX = 16
"""Pages in a row that did not fit, after which no more are tried: this processor's rows are not alike."""
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
        self._is_spaced = False
        self._misses = 0

    def decode(self, body: bytes) -> PageBody | None:
        """The page, when it is written as the ones before, byte for byte; None says nothing about it."""
        if self._decoder is None or self._misses >= MISSES_MAX:
            return None
        try:
            page = self._decoder.decode(body)
            again = _encode(page)
            if (msgspec.json.format(again, indent=0) if self._is_spaced else again) == body:
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
            row = _record("Row", {name: _TYPES.get(name, Any) for name in rows[0]})
            types = {name: list[row] if name == "data" else Any for name in page}  # type: ignore[valid-type]  # made here
            self._decoder = msgspec.json.Decoder(_record("Page", types | {"has_more": bool}))
            self._is_spaced = b'": ' in body[:256]


_plain_decoder = msgspec.json.Decoder(dict[str, Any])


def _record(name: str, types: Mapping[str, Any]) -> type[msgspec.Struct]:
    """A record of exactly those members, each of them required, in that order."""
    return msgspec.defstruct(name, list(types.items()), frozen=True, gc=False, forbid_unknown_fields=True)


def _can_be_names(names: Sequence[str]) -> bool:
    return len(names) <= _NAMES_MAX and all(name.isidentifier() and not name.startswith("_") for name in names)
