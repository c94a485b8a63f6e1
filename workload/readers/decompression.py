"""Decompresses bytes in bounded pieces: gzip and zstd by their magic, all other content unchanged.

File names vary between producers, so they are ignored. A stream that ends inside a compressed frame is a fault, even
if the plain bytes before it end between two nodes. Pure: pieces in, pieces out.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import Final

GZIP_MAGIC: Final = b"\x1f\x8b"
ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
MAX_ZSTD_WINDOW_BYTES: Final = 128 << 20
"""Largest window of a zstd frame. Archives of many similar ranks are packed with `--long=27`."""
MAX_PLAIN_BYTES: Final = 64 << 30
"""Limit of the decompressed size of one file or archive."""

_PLAIN_PIECE_BYTES: Final = 1 << 20
# A zstd block of 4 bytes can expand to 128 KiB, and the decoder's output for one input cannot be bounded. Small inputs
# keep the worst case near the window size.
_ZSTD_INPUT_BYTES: Final = 4 << 10
_GZIP_WINDOW_BITS: Final = 16 + zlib.MAX_WBITS


class CompressionFault(Exception):
    """The compressed stream is damaged or ends early. The text describes the damage; the caller knows the file.

    `remedy`: advice if another copy of the file would not help, else "".
    """

    def __init__(self, problem: str, remedy: str = "") -> None:
        super().__init__(problem)
        self.remedy = remedy


def decompress(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the plain bytes of a file that arrives as `pieces`.

    Raises `CompressionFault` for a compressed stream that is damaged, cut off, needs a window over the limit or
    unpacks to more than `MAX_PLAIN_BYTES`.
    """
    plain_bytes = 0
    for plain in _decompress_by_magic(pieces):
        plain_bytes += len(plain)
        if plain_bytes > MAX_PLAIN_BYTES:
            raise CompressionFault(f"its decompressed size exceeds {MAX_PLAIN_BYTES >> 30} GiB")
        yield plain


def _decompress_by_magic(pieces: Iterable[bytes]) -> Iterator[bytes]:
    source = iter(pieces)
    head = b""
    while len(head) < len(ZSTD_MAGIC) and (piece := next(source, b"")):
        head += piece
    if head.startswith(GZIP_MAGIC):
        yield from _gunzip(_chain_pieces(head, source))
    elif head.startswith(ZSTD_MAGIC):
        yield from _unzstd(_chain_pieces(head, source))
    else:
        yield from _chain_pieces(head, source)


def _chain_pieces(head: bytes, source: Iterator[bytes]) -> Iterator[bytes]:
    if head:
        yield head
    yield from source


def _gunzip(pieces: Iterator[bytes]) -> Iterator[bytes]:
    decoder = zlib.decompressobj(_GZIP_WINDOW_BITS)
    has_started = False
    input_bytes = complete_bytes = 0
    trailing_noise = False
    # True if the bytes after the complete streams, which end at `complete_bytes`, are not another gzip member.
    try:
        for piece in pieces:
            remaining = piece
            input_bytes += len(piece)
            while remaining:
                if decoder.eof:
                    # Members may be padded with zeros, and may be followed by another member.
                    remaining = remaining.lstrip(b"\0")
                    if not remaining:
                        break
                    decoder = zlib.decompressobj(_GZIP_WINDOW_BITS)
                    trailing_noise, complete_bytes = (
                        not remaining.startswith(GZIP_MAGIC[: len(remaining)]),
                        input_bytes - len(remaining),
                    )
                has_started = True
                plain = decoder.decompress(remaining, _PLAIN_PIECE_BYTES)
                remaining = decoder.unused_data if decoder.eof else decoder.unconsumed_tail
                if plain:
                    yield plain
            while has_started and not decoder.eof and (plain := decoder.decompress(b"", _PLAIN_PIECE_BYTES)):
                yield plain
    except zlib.error as error:
        if trailing_noise:
            problem = f"its gzip stream ends before byte {complete_bytes}; the bytes after it are not gzip"
            raise CompressionFault(problem) from None
        raise CompressionFault(f"its gzip stream is damaged ({error})") from None
    if not decoder.eof:
        raise CompressionFault("its gzip stream is truncated")


def _unzstd(pieces: Iterator[bytes]) -> Iterator[bytes]:
    # Imported here, because most traces are not compressed, and loading it takes longer than reading one of them.
    import zstandard

    context = zstandard.ZstdDecompressor(max_window_size=MAX_ZSTD_WINDOW_BYTES)
    decoder = context.decompressobj()
    try:
        for piece in pieces:
            for first in range(0, len(piece), _ZSTD_INPUT_BYTES):
                remaining = piece[first : first + _ZSTD_INPUT_BYTES]
                while remaining:
                    if decoder.eof:
                        decoder = context.decompressobj()
                    plain = decoder.decompress(remaining)
                    remaining = decoder.unused_data if decoder.eof else b""
                    if plain:
                        yield plain
    except zstandard.ZstdError as error:
        raise CompressionFault(
            f"its zstd stream is damaged or needs a window over {MAX_ZSTD_WINDOW_BYTES >> 20} MiB ({error})"
        ) from None
    if not decoder.eof:
        raise CompressionFault("its zstd stream is truncated")
