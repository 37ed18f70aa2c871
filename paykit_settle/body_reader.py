"""An answer's body, whole or refused: bounded as it travels and as it unpacks, whatever it claims to be.

Knows no HTTP library. A small compressed body that unpacks to gigabytes is stopped at the limit, not after it.
"""

import zlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

ACCEPT_ENCODING = "gzip"
"""What we ask for, and beside no encoding at all the only thing we unpack."""

_OTHER_ENCODINGS = frozenset({"br", "compress", "deflate", "zstd"})


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyLimits:
    """The most bytes of one answer, as it travels and unpacked."""

    wire_bytes_max: int = 8 * 1024 * 1024
    bytes_max: int = 32 * 1024 * 1024


async def read_bounded(chunks: AsyncIterator[bytes], bytes_max: int) -> tuple[bytes, bool]:
    """The bytes, and whether reading stopped because they are over the limit."""
    travelled = bytearray()  # not a list of chunks: a body of two-byte chunks would take many times its size
    async for chunk in chunks:
        travelled += chunk
        if len(travelled) > bytes_max:
            return bytes(travelled), True
    return bytes(travelled), False


def unpacked(body: bytes, *, is_cut: bool, encoding: str, limits: BodyLimits) -> bytes:
    """The body's bytes, unpacked; `ValueError` for a body over a limit, cut short, or in another encoding.

    `is_cut`: its reader stopped, because it travelled over the limit.
    """
    if is_cut:
        raise ValueError(f"body is over {limits.wire_bytes_max} bytes")
    coding = encoding.strip().lower()
    if coding not in ("", "identity", "gzip", "x-gzip"):
        # Named only if it is known: what else a header holds may be anything, an echoed key included.
        raise ValueError(f"content encoding {coding if coding in _OTHER_ENCODINGS else 'unknown'} was not asked for")
    if coding in ("gzip", "x-gzip"):
        body = _unpack(body, limits.bytes_max)
    if len(body) > limits.bytes_max:
        raise ValueError(f"body is over {limits.bytes_max} bytes")
    return body


def _unpack(packed: bytes, bytes_max: int) -> bytes:
    unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        body = unpacker.decompress(packed, bytes_max + 1)
    except zlib.error as error:
        raise ValueError(f"body is not gzip: {error}") from None
    if len(body) > bytes_max:
        raise ValueError(f"body unpacks to over {bytes_max} bytes")
    if not unpacker.eof or unpacker.unused_data:
        raise ValueError("gzip body is cut short or has bytes after its end")
    return body
