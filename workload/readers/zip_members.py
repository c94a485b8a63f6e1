"""Splits a zip archive into its members, each in pieces and in bounded memory; no member is unpacked to disk.

Written for hostile archives: names are used as lookup keys only, a member may unpack only to the size in the
directory, its checksum must match, and the total size of all members is bounded. Reads stored and deflated members,
and zip64. Members that are encrypted or compressed otherwise are refused with their method. Links are marked, so
that a caller can refuse them.

Format: PKWARE APPNOTE.TXT 6.3.10, sections 4.3 and 4.5.3.
"""

from __future__ import annotations

import stat
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.readers.decompression import MAX_PLAIN_BYTES, CompressionFault
from etloop.workload.readers.tar_members import MemberKind, TarMember

MAX_DIRECTORY_BYTES: Final = 128 << 20
MAX_MEMBERS: Final = 1 << 20

_MAGICS: Final = (b"PK\x03\x04", b"PK\x05\x06")
_END: Final = struct.Struct("<4s4H2LH")
_END_MAGIC: Final = b"PK\x05\x06"
_MOST_COMMENT_BYTES: Final = 0xFFFF
_LOCATOR: Final = struct.Struct("<4sLQL")
_END_64: Final = struct.Struct("<4sQ2H2L4Q")
_ENTRY: Final = struct.Struct("<4s6H3L5H2L")
_LOCAL: Final = struct.Struct("<4s5H3L2H")
_FULL_16: Final = 0xFFFF
_FULL_32: Final = 0xFFFFFFFF
_ZIP_64: Final = 1
_ENCRYPTED: Final = 1
_UTF_8: Final = 1 << 11
_UNIX: Final = 3
_STORED: Final = 0
_DEFLATED: Final = 8
_PIECE_BYTES: Final = 1 << 20
_INPUT_BYTES: Final = 64 << 10


class ZipFault(CompressionFault):
    """The archive is damaged, or packed by an unsupported method. The text describes the defect and its place."""


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    kind: MemberKind
    method: int
    is_encrypted: bool
    checksum: int
    packed_bytes: int
    plain_bytes: int
    offset: int


def is_zip(head: bytes) -> bool:
    """Decide whether a file that begins with `head` (4 bytes or more) is a zip archive."""
    return head.startswith(_MAGICS)


def zip_members(path: Path) -> Iterator[TarMember]:
    """Yield the members of an archive, without folders, in the order of its directory. Raises `ZipFault`, `OSError`.

    A content must be read before the next member is requested; an unread one is not unpacked.
    """
    with path.open("rb") as file:
        entries = _directory(file)
        if sum(entry.plain_bytes for entry in entries) > MAX_PLAIN_BYTES:
            raise ZipFault(f"its decompressed size exceeds {MAX_PLAIN_BYTES >> 30} GiB")
        for entry in entries:
            yield TarMember(entry.name, entry.kind, entry.plain_bytes, _content(file, entry))


def _read_exactly(file: BinaryIO, offset: int, size_bytes: int) -> bytes:
    file.seek(offset)
    content = file.read(size_bytes)
    if len(content) < size_bytes:
        raise ZipFault(f"it is truncated at byte {offset + len(content)}")
    return content


def _directory(file: BinaryIO) -> list[_Entry]:
    count, size_bytes, offset, end = _place_of_directory(file)
    if size_bytes > MAX_DIRECTORY_BYTES or count > MAX_MEMBERS:
        problem = f"its directory has {count} members in {size_bytes} bytes"
        raise ZipFault(f"{problem}, the limits are {MAX_MEMBERS} and {MAX_DIRECTORY_BYTES}")
    if offset + size_bytes > end:
        raise ZipFault(f"its directory of {size_bytes} bytes at byte {offset} does not end before byte {end}")
    content = _read_exactly(file, offset, size_bytes)
    entries = []
    position = 0
    for _ in range(count):
        entry, position = _entry(content, position, offset)
        if not entry.name.endswith("/"):
            entries.append(entry)
    return entries


def _place_of_directory(file: BinaryIO) -> tuple[int, int, int, int]:
    """Return number of members, bytes and offset of the directory, and the offset of the record that states them.
    Raises `ZipFault`."""
    file_bytes = file.seek(0, 2)
    tail_bytes = min(file_bytes, _END.size + _MOST_COMMENT_BYTES)
    tail = _read_exactly(file, file_bytes - tail_bytes, tail_bytes)
    mark = tail.rfind(_END_MAGIC)
    while mark >= 0:
        if mark + _END.size <= len(tail):
            fields = _END.unpack_from(tail, mark)
            # A comment may contain the magic too. The true end record has a comment of exactly the length it states.
            if mark + _END.size + fields[7] == len(tail):
                break
        mark = tail.rfind(_END_MAGIC, 0, mark)
    else:
        raise ZipFault("it has no directory at its end: it is truncated")
    end = file_bytes - tail_bytes + mark
    _, disk, _, _, count, size_bytes, offset, _ = fields
    if _FULL_16 in (disk, count) or _FULL_32 in (size_bytes, offset):
        if end < _LOCATOR.size:
            raise ZipFault("it has no zip64 directory where its end record points to one")
        magic, _, end_64, _ = _LOCATOR.unpack(_read_exactly(file, end - _LOCATOR.size, _LOCATOR.size))
        if magic == b"PK\x06\x07":
            fields_64 = _END_64.unpack(_read_exactly(file, end_64, _END_64.size))
            if fields_64[0] != b"PK\x06\x06":
                raise ZipFault(f"no zip64 directory end at byte {end_64}")
            return fields_64[7], fields_64[8], fields_64[9], end_64
    if disk not in (0, _FULL_16):
        raise ZipFault(
            "it is one part of a multi-part archive, which is not supported", "pack it as one file"
        )
    return count, size_bytes, offset, end


def _entry(content: bytes, at: int, begin: int) -> tuple[_Entry, int]:
    """Parse the directory entry at `at`; return it and the position of the next one. Raises `ZipFault`."""
    if at + _ENTRY.size > len(content):
        raise ZipFault(f"its directory ends inside an entry, at byte {begin + at}")
    (magic, made_by, _, flags, method, _, _, checksum, packed_bytes, plain_bytes, name_bytes, extra_bytes,
     comment_bytes, _, _, mode, offset) = _ENTRY.unpack_from(content, at)  # fmt: skip
    first = at + _ENTRY.size
    end = first + name_bytes + extra_bytes + comment_bytes
    if magic != b"PK\x01\x02" or end > len(content):
        raise ZipFault(f"no directory entry at byte {begin + at}")
    name = content[first : first + name_bytes]
    extra = content[first + name_bytes : first + name_bytes + extra_bytes]
    plain_bytes, packed_bytes, offset = _zip64_values((plain_bytes, packed_bytes, offset), extra, begin + at)
    kind = MemberKind.FILE
    if made_by >> 8 == _UNIX:
        # Packers that do not store modes write 0.
        kind = MemberKind.LINK if stat.S_ISLNK(mode >> 16) else kind
    decoded_name = name.decode("utf-8", errors="surrogateescape") if flags & _UTF_8 else name.decode("cp437")
    entry = _Entry(
        decoded_name.removeprefix("./"),
        kind,
        method,
        bool(flags & _ENCRYPTED),
        checksum,
        packed_bytes,
        plain_bytes,
        offset,
    )
    return entry, end


def _zip64_values(values: tuple[int, int, int], extra: bytes, place: int) -> tuple[int, int, int]:
    """Return the values, with those over 32 bits taken from the zip64 field of `extra`, which lists them in this order.
    Raises `ZipFault`."""
    if _FULL_32 not in values:
        return values
    position = 0
    while position + 4 <= len(extra):
        tag, size_bytes = struct.unpack_from("<2H", extra, position)
        field = extra[position + 4 : position + 4 + size_bytes]
        position += 4 + size_bytes
        if tag != _ZIP_64:
            continue
        count = values.count(_FULL_32)
        if len(field) < 8 * count:
            break
        wide = iter(struct.unpack_from(f"<{count}Q", field))
        plain_bytes, packed_bytes, offset = (next(wide) if value == _FULL_32 else value for value in values)
        return plain_bytes, packed_bytes, offset
    raise ZipFault(f"a directory entry without its zip64 sizes at byte {place}")


def _content(file: BinaryIO, entry: _Entry) -> Iterator[bytes]:
    if entry.is_encrypted:
        raise ZipFault("is encrypted", "pack it without a password")
    if entry.method not in (_STORED, _DEFLATED):
        problem = f"is packed by method {entry.method}, supported are only 0 (stored) and 8 (deflated)"
        raise ZipFault(problem, "pack it with zip")
    local = _LOCAL.unpack(_read_exactly(file, entry.offset, _LOCAL.size))
    if local[0] != b"PK\x03\x04":
        raise ZipFault(f"no member at byte {entry.offset}, where its directory points to one")
    begin = entry.offset + _LOCAL.size + local[9] + local[10]
    checksum = plain_bytes = 0
    packed_pieces = _read_packed(file, begin, entry.packed_bytes)
    for plain in packed_pieces if entry.method == _STORED else _inflate(packed_pieces, begin):
        plain_bytes += len(plain)
        if plain_bytes > entry.plain_bytes:
            break
        checksum = zlib.crc32(plain, checksum)
        yield plain
    if plain_bytes != entry.plain_bytes or checksum != entry.checksum:
        raise ZipFault(
            f"the member at byte {entry.offset} does not decompress to the size or checksum in its directory"
        )


def _read_packed(file: BinaryIO, begin: int, size_bytes: int) -> Iterator[bytes]:
    end = begin + size_bytes
    while begin < end:
        piece = _read_exactly(file, begin, min(end - begin, _INPUT_BYTES))
        begin += len(piece)
        yield piece


def _inflate(packed: Iterator[bytes], begin: int) -> Iterator[bytes]:
    decoder = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        for piece in packed:
            remaining = piece
            while remaining and not decoder.eof:
                plain = decoder.decompress(remaining, _PIECE_BYTES)
                remaining = decoder.unconsumed_tail
                if plain:
                    yield plain
        while not decoder.eof and (plain := decoder.decompress(b"", _PIECE_BYTES)):
            yield plain
    except zlib.error as error:
        raise ZipFault(f"the member at byte {begin} is damaged ({error})") from None
    if not decoder.eof:
        raise ZipFault(f"the member at byte {begin} is truncated")
