"""What a file that is no Chakra trace looks like by its first bytes, so that a message can name it. Pure."""

from __future__ import annotations

from typing import Final

HEAD_BYTES: Final = 512
"""How much of a file `foreign_look` wants to see."""

_MAGICS: Final = (
    (b"PK\x03\x04", "a zip archive"),
    (b"\x7fELF", "a program"),
    (b"SQLite format 3", "an SQLite database"),
    (b"BZh", "a bzip2 stream, which is not read; use gzip or zstd"),
    (b"\xfd7zXZ", "an xz stream, which is not read; use gzip or zstd"),
    (b"\x04\x22\x4d\x18", "an lz4 stream, which is not read; use gzip or zstd"),
    (b"PAR1", "a Parquet file"),
    (b"\x89PNG", "an image"),
    *((bytes((0x80, version)), "a Python pickle") for version in range(2, 6)),
)
# First tags that a GlobalMetadata or a Node can have: version or id, attributes or name, type.
_FIRST_TAGS: Final = (0x0A, 0x08, 0x12, 0x18)
_SHOWN_TEXT: Final = 24


def foreign_look(head: bytes) -> str | None:
    """What a file that begins with `head` looks like; None if it may well be a trace."""
    for magic, meaning in _MAGICS:
        if head.startswith(magic):
            return f"begins like {meaning}"
    if head[257:262] == b"ustar":
        return "begins like a tar archive"
    if head and not head.strip(b"\0"):
        return "begins with zeros, as a file that was never written"
    text = head.decode("utf-8", errors="ignore")
    printable = sum(c.isprintable() or c in "\t\r\n" for c in text)
    if text and len(text) >= 0.9 * len(head) and printable == len(text):
        opening = text.lstrip()[:_SHOWN_TEXT].split("\n")[0]
        kind = "JSON text" if opening[:1] in ("{", "[") else "text"
        return f'begins like {kind}: "{opening}"'
    first = next((i for i, byte in enumerate(head[:5]) if byte < 0x80), None)
    if first is not None and head[first + 1 : first + 2] and head[first + 1] in _FIRST_TAGS:
        return None
    return f"begins with the bytes {head[:8].hex(' ')}"
