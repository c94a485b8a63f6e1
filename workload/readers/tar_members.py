"""Splits a tar stream into its members, forward only and in bounded memory; no member is unpacked to disk.

Written for hostile archives: names are used as lookup keys only, every header is checked, and an archive that ends
before its end mark is a fault, because the ranks after the cut would be missing without notice. Supports ustar, pax
(`path`, `size`) and GNU long names. Links are marked, so that a caller can refuse them; pax sparse members are
refused.

Format: POSIX.1-2017 pax, "ustar Interchange Format"; GNU tar manual, "Basic Tar Format". Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final

from etloop.contract.base.late_dataclass import dataclass

BLOCK_BYTES: Final = 512
MAX_EXTENSION_BYTES: Final = 1 << 20
"""Largest pax or long-name header."""
MAX_MEMBERS: Final = 1 << 22

_PIECE_BYTES: Final = 1 << 20


class TarFault(Exception):
    """The archive is damaged or ends early. The text describes the damage and its place."""


class MemberKind(Enum):
    """Kind of a member, as far as readers of files distinguish it."""

    FILE = "file"
    LINK = "link"
    OTHER = "other"


_KINDS: Final = {
    b"0": MemberKind.FILE,
    b"\0": MemberKind.FILE,
    b"7": MemberKind.FILE,
    b"1": MemberKind.LINK,
    b"2": MemberKind.LINK,
}


@dataclass(frozen=True, slots=True)
class TarMember:
    """One member. `content` may be left unread, and ends when the next member is requested."""

    name: str
    kind: MemberKind
    size_bytes: int
    content: Iterator[bytes]


def is_tar(head: bytes) -> bool:
    """Decide whether a stream that begins with `head` (a block or more) is a tar archive."""
    return len(head) >= BLOCK_BYTES and head[257:262] == b"ustar" and _checksum_fits(head[:BLOCK_BYTES])


def members(pieces: Iterable[bytes]) -> Iterator[TarMember]:
    """Yield the members of an archive in order. Raises `TarFault`."""
    source = _Forward(pieces)
    path: str | None = None
    size_bytes: int | None = None
    for _ in range(MAX_MEMBERS):
        header_offset = source.offset
        header = source.exactly(BLOCK_BYTES)
        if header == bytes(BLOCK_BYTES):
            return
        if not _checksum_fits(header):
            raise TarFault(f"no tar header at byte {header_offset}")
        kind = header[156:157]
        stated_bytes = _number(header[124:136], header_offset)
        if kind in (b"x", b"g", b"L", b"K"):
            text = source.extension(stated_bytes, header_offset)
            if kind == b"x":
                path, size_bytes = _pax(text, header_offset, path, size_bytes)
            elif kind == b"L":
                path = _text(text)
            continue
        size = stated_bytes if size_bytes is None else size_bytes
        member_end = source.offset + size + -size % BLOCK_BYTES
        name = _ustar_name(header) if path is None else path
        yield TarMember(
            name.removeprefix("./"), _KINDS.get(kind, MemberKind.OTHER), size, source.content(size)
        )
        source.skip_to(member_end)
        path = size_bytes = None
    raise TarFault(f"more than {MAX_MEMBERS} members")


class _Forward:
    """Byte pieces as one forward-only stream."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._rest = b""
        self._used = 0
        self.offset = 0

    def some(self, limit_bytes: int) -> bytes:
        """Return 1 to `limit_bytes` bytes. Raises `TarFault` at the end of the stream."""
        while self._used == len(self._rest):
            self._rest, self._used = next(self._pieces, b""), 0
            if not self._rest:
                raise TarFault(f"it is truncated at byte {self.offset}")
        piece = self._rest[self._used : self._used + min(limit_bytes, _PIECE_BYTES)]
        self._used += len(piece)
        self.offset += len(piece)
        return piece

    def exactly(self, size_bytes: int) -> bytes:
        """Return `size_bytes` bytes. Raises `TarFault` at the end of the stream."""
        received = bytearray()
        while len(received) < size_bytes:
            received += self.some(size_bytes - len(received))
        return bytes(received)

    def extension(self, size_bytes: int, at: int) -> bytes:
        """Return the content of a pax or long-name header, and skip its padding. Raises `TarFault` over the limit."""
        if size_bytes > MAX_EXTENSION_BYTES:
            raise TarFault(f"a name of {size_bytes} bytes at byte {at}, the limit is {MAX_EXTENSION_BYTES}")
        return self.exactly(size_bytes + -size_bytes % BLOCK_BYTES)[:size_bytes]

    def content(self, size_bytes: int) -> Iterator[bytes]:
        """Yield the next `size_bytes` bytes in pieces."""
        end = self.offset + size_bytes
        while self.offset < end:
            yield self.some(end - self.offset)

    def skip_to(self, offset: int) -> None:
        """Discard bytes up to `offset`."""
        while self.offset < offset:
            self.some(offset - self.offset)


def _checksum_fits(header: bytes) -> bool:
    checksum_text = header[148:156].strip(b" \0")
    if not checksum_text or not all(byte in b"01234567" for byte in checksum_text):
        return False
    return int(checksum_text, 8) == sum(header) - sum(header[148:156]) + 8 * ord(" ")


def _number(field: bytes, at: int) -> int:
    """Parse a size: octal text, or base 256 after a set top bit. Raises `TarFault`."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    digits = field.strip(b" \0")
    if not all(byte in b"01234567" for byte in digits):
        raise TarFault(f"a member without a size at byte {at}")
    return int(digits, 8) if digits else 0


def _text(field: bytes) -> str:
    return field.split(b"\0", 1)[0].decode(errors="surrogateescape")


def _ustar_name(header: bytes) -> str:
    name = _text(header[:100])
    # The GNU format uses the prefix field for other data, and has a space after "ustar".
    prefix = _text(header[345:500]) if header[257:263] == b"ustar\0" else ""
    return f"{prefix}/{name}" if prefix else name


def _pax(text: bytes, at: int, path: str | None, size_bytes: int | None) -> tuple[str | None, int | None]:
    """Return path and size of the next member, updated by a pax header: records of `LENGTH KEY=VALUE` and a line feed.
    Raises `TarFault`."""
    begin = 0
    while begin < len(text):
        space = text.find(b" ", begin, begin + 20)
        length = text[begin:space] if space > 0 else b""
        end = begin + int(length) if length.isdigit() else 0
        if not space < end <= len(text) or text[end - 1 : end] != b"\n":
            raise TarFault(f"a damaged pax header at byte {at}")
        key, _, value = text[space + 1 : end - 1].partition(b"=")
        if key == b"path":
            path = _text(value)
        elif key == b"size":
            if not value.isdigit() or len(value) > 20:
                raise TarFault(f"a damaged pax header at byte {at}")
            size_bytes = int(value)
        elif key.startswith(b"GNU.sparse"):
            raise TarFault(f"a sparse member at byte {at}, which is not supported; pack it without --sparse")
        begin = end
    return path, size_bytes
