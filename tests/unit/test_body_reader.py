"""A body is read whole within its bounds, or refused: at every chunk size, packed or not.

Without these a few kilobytes could unpack to all the memory there is, or half a body could pass for a whole one.
"""

import gzip
import zlib
from collections.abc import AsyncIterator

import pytest

from paykit_settle.body_reader import BodyLimits, read_bounded, unpacked

TEXT = b'{"amount":9007199254740993}' * 20
LIMITS = BodyLimits(wire_bytes_max=1000, bytes_max=2000)


async def chunks(body: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(body), size):
        yield body[start : start + size]


async def read(body: bytes, encoding: str = "", *, size: int = 64, limits: BodyLimits = LIMITS) -> bytes:
    travelled, is_cut = await read_bounded(chunks(body, size), limits.wire_bytes_max)
    return unpacked(travelled, is_cut=is_cut, encoding=encoding, limits=limits)


@pytest.mark.parametrize("size", [*range(1, 12), 539, 540, 541])
async def test_body_is_the_same_at_every_chunk_size(size: int) -> None:
    assert await read(TEXT, size=size) == TEXT
    assert await read(gzip.compress(TEXT), "gzip", size=size) == TEXT


@pytest.mark.parametrize("encoding", ["gzip", "GZIP", " x-gzip "])
async def test_gzip_is_known_by_its_names(encoding: str) -> None:
    assert await read(gzip.compress(TEXT), encoding) == TEXT


@pytest.mark.parametrize("encoding", ["", "identity", "Identity"])
async def test_plain_body_is_taken_as_it_is(encoding: str) -> None:
    assert await read(TEXT, encoding) == TEXT
    assert await read(b"", encoding) == b""


@pytest.mark.parametrize(
    "encoding", ["br", "deflate", "zstd", "compress", "gzip, gzip", "gzip,br", "*", "é", "x" * 9999]
)
async def test_encoding_that_was_not_asked_for_is_refused(encoding: str) -> None:
    with pytest.raises(ValueError, match="was not asked for") as caught:
        await read(TEXT, encoding)
    assert len(str(caught.value)) < 100


async def test_travelling_bytes_are_bounded_to_the_byte() -> None:
    assert len(await read(b"x" * 1000)) == 1000
    with pytest.raises(ValueError, match="over 1000 bytes"):
        await read(b"x" * 1001)


async def test_body_without_end_is_left_as_soon_as_it_is_over_the_limit() -> None:
    taken = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal taken
        while True:
            taken += 100
            yield b"x" * 100

    assert (await read_bounded(endless(), 1000))[1]
    assert taken == 1100


async def test_plain_body_obeys_the_limit_of_unpacked_bytes_too() -> None:
    with pytest.raises(ValueError, match="over 5 bytes"):
        await read(b"x" * 6, limits=BodyLimits(wire_bytes_max=10, bytes_max=5))


async def test_unpacked_bytes_are_bounded_to_the_byte() -> None:
    assert len(await read(gzip.compress(b"x" * 2000), "gzip")) == 2000
    with pytest.raises(ValueError, match="unpacks to over 2000 bytes"):
        await read(gzip.compress(b"x" * 2001), "gzip")


async def test_bomb_is_stopped_at_the_limit() -> None:
    bomb = gzip.compress(b"\0" * 500_000)
    assert len(bomb) < 1000
    with pytest.raises(ValueError, match="unpacks to over 2000 bytes"):
        await read(bomb, "gzip")


@pytest.mark.parametrize("cut", [1, 4, 8, 9, 12, 17])
async def test_gzip_cut_short_anywhere_is_refused(cut: int) -> None:
    with pytest.raises(ValueError, match="cut short"):
        await read(gzip.compress(b"{}" * 3)[:-cut], "gzip")


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b"", "cut short"),
        (TEXT, "not gzip"),
        (zlib.compress(TEXT), "not gzip"),
        (gzip.compress(TEXT) + b"x", "bytes after its end"),
        (gzip.compress(TEXT) + gzip.compress(TEXT), "bytes after its end"),
        (gzip.compress(TEXT)[:-8] + b"\0" * 8, "not gzip"),
    ],
    ids=["empty", "plain", "zlib", "trailing", "two members", "wrong checksum"],
)
async def test_body_that_is_not_one_whole_gzip_is_refused(body: bytes, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        await read(body, "gzip")
