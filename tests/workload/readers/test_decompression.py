"""Compressed streams in any pieces, cut anywhere, and larger than they have a right to be."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from etloop.contract.base.errors import TraceError
from etloop.workload.readers import decompression
from etloop.workload.readers.decompression import CompressionFault, decompress
from etloop.workload.readers.files import read_trace

PLAIN = bytes(range(256)) * 40 + bytes(300_000)
COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda plain: gzip.compress(plain, mtime=0),
    "zstd": zstandard.compress,
    "zstd with a checksum": zstandard.ZstdCompressor(write_checksum=True).compress,
    "nothing": bytes,
}


def pieces_of(content: bytes, piece_bytes: int) -> Iterator[bytes]:
    return (content[first : first + piece_bytes] for first in range(0, len(content), piece_bytes))


@pytest.mark.parametrize("packing", COMPRESSORS)
@given(piece_bytes=st.integers(1, 5000))
def test_pieces_of_any_size_give_the_same_bytes(packing: str, piece_bytes: int) -> None:
    assert b"".join(decompress(pieces_of(COMPRESSORS[packing](PLAIN), piece_bytes))) == PLAIN


@pytest.mark.parametrize("packing", ["gzip", "zstd", "zstd with a checksum"])
def test_a_stream_cut_anywhere_is_a_fault(packing: str) -> None:
    packed = COMPRESSORS[packing](PLAIN[:300])
    for size in range(4, len(packed)):
        with pytest.raises(CompressionFault, match=r"its (gzip|zstd) stream is truncated"):
            list(decompress([packed[:size]]))


@pytest.mark.parametrize("packing", ["gzip", "zstd"])
def test_noise_behind_a_stream_is_a_fault(packing: str) -> None:
    packed = COMPRESSORS[packing](PLAIN)
    found = rf"its {packing} stream is damaged"
    if packing == "gzip":
        found = rf"its gzip stream ends before byte {len(packed)}; the bytes after it are not gzip"
    for piece_bytes in (1, 1000, 1 << 20):
        with pytest.raises(CompressionFault, match=found):
            list(decompress(pieces_of(packed + b"noise behind it", piece_bytes)))


def test_a_damaged_stream_behind_another_is_told_as_damaged() -> None:
    packed = COMPRESSORS["gzip"](os.urandom(5000))
    with pytest.raises(CompressionFault, match="its gzip stream is damaged"):
        list(decompress([packed + packed[:4000] + bytes(4000)]))


@pytest.mark.parametrize("packing", COMPRESSORS)
def test_no_file_unpacks_without_limit(packing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decompression, "MAX_PLAIN_BYTES", len(PLAIN) - 1)
    with pytest.raises(CompressionFault, match="its decompressed size exceeds"):
        list(decompress([COMPRESSORS[packing](PLAIN)]))


@pytest.mark.parametrize("packing", COMPRESSORS)
def test_a_bomb_comes_in_pieces_that_fit_in_memory(packing: str) -> None:
    bomb = COMPRESSORS[packing](bytes(8 << 20))
    sizes = [len(piece) for piece in decompress(pieces_of(bomb, 1 << 20))]
    assert sum(sizes) == 8 << 20
    assert packing.startswith("zstd") or max(sizes) <= 1 << 20


def test_a_window_of_128_mib_is_read_and_a_larger_one_refused() -> None:
    def packed(window_log: int) -> bytes:
        parameters = zstandard.ZstdCompressionParameters(
            window_log=window_log, strategy=1, hash_log=6, chain_log=6
        )
        stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
        return stream.compress(PLAIN) + stream.flush()

    assert b"".join(decompress([packed(27)])) == PLAIN
    with pytest.raises(CompressionFault, match="needs a window over 128 MiB"):
        list(decompress([packed(28)]))


def test_a_pipe_in_place_of_a_file_does_not_hang_the_reader(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "w.0.et")
    with pytest.raises(TraceError) as raised:
        read_trace(tmp_path)
    assert str(raised.value) == (
        f"{tmp_path}/w.0.et: cannot be read: Not a regular file; check that it exists and is readable"
    )
