"""Datagrams that the door's process sends to its controller: a kind and arguments. Pure."""

from __future__ import annotations

from typing import Final

ASKING: Final = "asking"
"""SEEN ADDRESS: a peer has sent its last handshake command; the controller, which sees it come from SEEN, decides."""
ANSWERED: Final = "answered"
"""SEEN: that decision was made, or the connection has ended."""
STRANGERS: Final = "strangers"
"""COUNT of connections that ended before their handshake began."""
FULL: Final = "full"
"""COUNT of members refused because all places were taken."""
BROKE: Final = "broke"
"""Why the process ends."""
LONGEST_BYTES: Final = 4096


def report_of(kind: str, *words: object) -> bytes:
    """Return the datagram of a report, cut at `LONGEST_BYTES`."""
    return " ".join((kind, *map(str, words))).encode()[:LONGEST_BYTES]


def parse_report(datagram: bytes) -> tuple[str, str]:
    """Return the kind and the arguments of a datagram."""
    kind, _, rest = datagram.decode(errors="replace").partition(" ")
    return kind, rest
