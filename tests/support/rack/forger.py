"""Forges answers of RoCEv2 on a wire, from a genuine one that it has seen. `python -m tests.support.rack.forger DEV COUNT`

It waits for the first acknowledgement that leaves by the interface, as a host of that network which can listen there. Then
it sends COUNT packets of each kind to the queue pair that gets it: an acknowledgement of what was not sent yet, a NAK of
a sequence error, a fatal NAK, a congestion notification, and a copy of the acknowledgement. For root.
"""

from __future__ import annotations

import socket
import struct
import sys
from typing import Final

_EVERY_PROTOCOL: Final = 3
_IP_AT: Final = 14
_UDP_AT: Final = _IP_AT + 20
_BTH_AT: Final = _UDP_AT + 8
_AETH_AT: Final = _BTH_AT + 12
_ROCE_PORT: Final = 4791
_ACKNOWLEDGE: Final = 0x11
_CNP: Final = 0x81
_NAK_SEQUENCE: Final = 0x60
_NAK_REMOTE_OPERATIONAL: Final = 0x63
_FAR_PSNS: Final = 100_000
_PATIENCE_S: Final = 60.0


def is_acknowledgement(frame: bytes) -> bool:
    """Return whether a frame is an acknowledgement (no NAK) of RoCEv2 over IPv4."""
    if len(frame) < _AETH_AT + 8 or frame[12:14] != b"\x08\x00" or frame[_IP_AT + 9] != socket.IPPROTO_UDP:
        return False
    (port,) = struct.unpack_from("!H", frame, _UDP_AT + 2)
    return port == _ROCE_PORT and frame[_BTH_AT] == _ACKNOWLEDGE and frame[_AETH_AT] >> 5 == 0


def forged(frame: bytes) -> dict[str, bytes]:
    """Return one forged frame of each kind, made from an acknowledgement. The ICRC stays: `udp` ports cannot check it."""
    (psn,) = struct.unpack_from("!I", frame, _BTH_AT + 8)

    def answer(psns_later: int, syndrome: int) -> bytes:
        later = psn & 0xFF00_0000 | (psn + psns_later) & 0x00FF_FFFF
        (aeth,) = struct.unpack_from("!I", frame, _AETH_AT)
        aeth = syndrome << 24 | aeth & 0x00FF_FFFF
        return frame[: _BTH_AT + 8] + struct.pack("!II", later, aeth) + frame[_AETH_AT + 4 :]

    cnp = frame[:_BTH_AT] + bytes([_CNP]) + frame[_BTH_AT + 1 : _AETH_AT] + bytes(16) + frame[-4:]
    kinds = {
        "future acknowledgement": answer(_FAR_PSNS, frame[_AETH_AT]),
        "sequence NAK": answer(1, _NAK_SEQUENCE),
        "fatal NAK": answer(1, _NAK_REMOTE_OPERATIONAL),
        "CNP": cnp,
        "copy": frame,
    }
    return {kind: _with_lengths(content) for kind, content in kinds.items()}


def _with_lengths(frame: bytes) -> bytes:
    """Return a frame with lengths of IP and UDP as it has them, IP checksum, and no UDP checksum."""
    content = bytearray(frame)
    struct.pack_into("!H", content, _IP_AT + 2, len(frame) - _IP_AT)
    struct.pack_into("!HH", content, _UDP_AT + 4, len(frame) - _UDP_AT, 0)
    struct.pack_into("!H", content, _IP_AT + 10, 0)
    total = sum(struct.unpack_from("!10H", content, _IP_AT))
    total = (total & 0xFFFF) + (total >> 16)
    struct.pack_into("!H", content, _IP_AT + 10, ~(total + (total >> 16)) & 0xFFFF)
    return bytes(content)


def main() -> None:
    """Print `listening` and `sent` on stderr at these times."""
    device, count = sys.argv[1], int(sys.argv[2])
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_EVERY_PROTOCOL)) as wire:
        wire.bind((device, _EVERY_PROTOCOL))
        wire.settimeout(_PATIENCE_S)
        print("listening", file=sys.stderr, flush=True)
        while True:
            frame, (_, _, kind, *_) = wire.recvfrom(65_536)
            if kind == socket.PACKET_OUTGOING and is_acknowledgement(frame):
                break
        for content in forged(frame).values():
            for _ in range(count):
                wire.send(content)
    print("sent", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
