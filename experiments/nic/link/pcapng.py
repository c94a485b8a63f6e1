"""Writes the frames of an experiment to a pcapng file (draft-ietf-opsawg-pcapng): section, one interface, packets.

Frames of a modelled card have the addresses of the model.
"""

from __future__ import annotations

import struct
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self

_ETHERNET: Final = 1
_NANOSECONDS: Final = bytes((9, 0, 1, 0, 9, 0, 0, 0)) + bytes(4)
"""Option if_tsresol 9, and the end of options."""
MOST_BYTES: Final = 256 << 20
"""Largest file; later frames are left out."""


class PcapngFile:
    """A file that frames are added to."""

    def __init__(self, path: Path) -> None:
        self._file: BinaryIO = path.open("wb")
        self._bytes = 0
        self.frames = 0
        self.left_out = 0
        self._block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))
        self._block(1, struct.pack("<HHI", _ETHERNET, 0, 0) + _NANOSECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def add(self, at_ns: int, frame: bytes, frame_bytes: int | None = None) -> None:
        """Add a frame without FCS, or the beginning of one of `frame_bytes`."""
        if self._bytes > MOST_BYTES:
            self.left_out += 1
            return
        self.frames += 1
        head = struct.pack(
            "<IIIII", 0, at_ns >> 32, at_ns & 0xFFFFFFFF, len(frame), frame_bytes or len(frame)
        )
        self._block(6, head + frame + bytes(-len(frame) % 4))

    def _block(self, kind: int, body: bytes) -> None:
        total = len(body) + 12
        self._file.write(struct.pack("<II", kind, total) + body + struct.pack("<I", total))
        self._bytes += total
