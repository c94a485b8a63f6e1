"""What the process of a door tells its controller: one datagram each, a kind and words. Pure."""

from __future__ import annotations

from typing import Final

ASKING: Final = "asking"
"""SEEN ADDRESS: a peer has sent the last command of its handshake; the controller, which sees it come from SEEN, decides."""
ANSWERED: Final = "answered"
"""SEEN: that was decided, or has ended."""
STRANGERS: Final = "strangers"
"""COUNT of connections that ended before their handshake began."""
FULL: Final = "full"
"""COUNT of members that found no place."""
BROKE: Final = "broke"
"""Why the process ends."""
LONGEST_BYTES: Final = 4096


def report_of(kind: str, *words: object) -> bytes:
    """Return the datagram."""
    return " ".join((kind, *map(str, words))).encode()[:LONGEST_BYTES]


def parse_report(datagram: bytes) -> tuple[str, str]:
    """Return the kind and the rest of a datagram."""
    kind, _, rest = datagram.decode(errors="replace").partition(" ")
    return kind, rest
