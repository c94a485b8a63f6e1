"""Compressed bytes to plain bytes in bounded pieces: gzip and zstd by their magic, anything else unchanged.

Producers name files as they like, so the name decides nothing. A stream that ends inside a compressed frame is a fault,
also where the plain bytes before it happen to end between two nodes. Pure: pieces come in, pieces go out.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import Final

GZIP_MAGIC: Final = b"\x1f\x8b"
ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
MAX_ZSTD_WINDOW_BYTES: Final = 128 << 20
"""Largest window of a zstd frame; archives of many similar ranks are packed with `--long=27`."""
MAX_PLAIN_BYTES: Final = 64 << 30
"""Most that one file or archive may unpack to."""

_PLAIN_PIECE_BYTES: Final = 1 << 20
# A zstd block of 4 bytes can stand for 128 KiB, and its decoder's output for one input cannot be bounded: small inputs
# keep the worst case near the window's size.
_ZSTD_INPUT_BYTES: Final = 4 << 10
_GZIP_WINDOW_BITS: Final = 16 + zlib.MAX_WBITS


class CompressionFault(Exception):
    """The compressed stream is damaged or ends early; the text says what, the caller knows which file.

    `remedy`: what helps where another copy does not, else "".
    """

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(what)
        self.remedy = remedy


def decompressed(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The plain bytes of a file that comes as `pieces`.

    Raises `CompressionFault` for a compressed stream that is damaged, cut off, needs a window over the limit or
    unpacks to more than `MAX_PLAIN_BYTES`.
    """
    plain_bytes = 0
    for plain in _by_magic(pieces):
        plain_bytes += len(plain)
        if plain_bytes > MAX_PLAIN_BYTES:
            raise CompressionFault(f"it unpacks to more than {MAX_PLAIN_BYTES >> 30} GiB")
        yield plain


def _by_magic(pieces: Iterable[bytes]) -> Iterator[bytes]:
    source = iter(pieces)
    head = b""
    while len(head) < len(ZSTD_MAGIC) and (piece := next(source, b"")):
        head += piece
    if head.startswith(GZIP_MAGIC):
        yield from _gunzipped(_rejoined(head, source))
    elif head.startswith(ZSTD_MAGIC):
        yield from _unzstd(_rejoined(head, source))
    else:
        yield from _rejoined(head, source)


def _rejoined(head: bytes, source: Iterator[bytes]) -> Iterator[bytes]:
    if head:
        yield head
    yield from source


def _gunzipped(pieces: Iterator[bytes]) -> Iterator[bytes]:
    decoder = zlib.decompressobj(_GZIP_WINDOW_BITS)
    begun = False
    taken_bytes = whole_bytes = 0
    is_noise = False
    """Whether what follows the whole stream up to `whole_bytes` is none of its kind."""
    try:
        for piece in pieces:
            rest = piece
            taken_bytes += len(piece)
            while rest:
                if decoder.eof:
                    # Members may be padded with zeros, and may be followed by another member.
                    rest = rest.lstrip(b"\0")
                    if not rest:
                        break
                    decoder = zlib.decompressobj(_GZIP_WINDOW_BITS)
                    is_noise, whole_bytes = (
                        not rest.startswith(GZIP_MAGIC[: len(rest)]),
                        taken_bytes - len(rest),
                    )
                begun = True
                plain = decoder.decompress(rest, _PLAIN_PIECE_BYTES)
                rest = decoder.unused_data if decoder.eof else decoder.unconsumed_tail
                if plain:
                    yield plain
            while begun and not decoder.eof and (plain := decoder.decompress(b"", _PLAIN_PIECE_BYTES)):
                yield plain
    except zlib.error as error:
        if is_noise:
            what = f"its gzip stream is whole and ends before byte {whole_bytes}; what follows is no gzip"
            raise CompressionFault(what) from None
        raise CompressionFault(f"its gzip stream is damaged ({error})") from None
    if not decoder.eof:
        raise CompressionFault("its gzip stream is cut off")


def _unzstd(pieces: Iterator[bytes]) -> Iterator[bytes]:
    # Here, because most traces are not compressed, and it takes longer to load than one of them to read.
    import zstandard

    context = zstandard.ZstdDecompressor(max_window_size=MAX_ZSTD_WINDOW_BYTES)
    decoder = context.decompressobj()
    try:
        for piece in pieces:
            for first in range(0, len(piece), _ZSTD_INPUT_BYTES):
                rest = piece[first : first + _ZSTD_INPUT_BYTES]
                while rest:
                    if decoder.eof:
                        decoder = context.decompressobj()
                    plain = decoder.decompress(rest)
                    rest = decoder.unused_data if decoder.eof else b""
                    if plain:
                        yield plain
    except zstandard.ZstdError as error:
        raise CompressionFault(
            f"its zstd stream is damaged or needs a window over {MAX_ZSTD_WINDOW_BYTES >> 20} MiB ({error})"
        ) from None
    if not decoder.eof:
        raise CompressionFault("its zstd stream is cut off")
