"""Forges answers on a cable, from a genuine one that it has seen, as a host of that network which can listen there.

    python -m tests.support.rack.forger NEAR NAMESPACE FAR TRANSPORT COUNT BEGIN

From the time at which the file BEGIN exists it waits for an acknowledgement of a TRANSPORT (`rocev2`, `mrc`, `uet`) that
arrives at the interface NEAR: what comes before belongs to the probes, of which a run counts nothing. Then it sends COUNT
packets of each kind from FAR, in a network namespace, to the queue pair that got it: an acknowledgement of what was not sent
yet, a request to send again, an error that ends queue pairs, a congestion notification where the transport has one, and a
copy of the acknowledgement. For root.
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from scapy.contrib.roce import AETH, BTH, cnp
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Packet

from etloop.scapy_layers import MRC, NETH, SETH, UETAck, UETNack

_EVERY_PROTOCOL: Final = 3
_CLONE_NEWNET: Final = 0x4000_0000
"""setns(2)"""
_UDP_PORT_AT: Final = 36
"""Of the destination port, in a frame without VLAN over IPv4."""
UDP_PORTS: Final = {"rocev2": 4791, "mrc": 4971, "uet": 4793}
_ACKNOWLEDGE: Final = 0x11
_MRC_NACK: Final = 0xDD
_POSITIVE: Final = range(0x20)
"""Syndromes of acknowledgements that are no NAK."""
_NAK_SEQUENCE: Final = 0x60
_NAK_REMOTE_OPERATIONAL: Final = 0x63
_UNEXPECTED_EVENT: Final = 0x19
_CLOSING_IN_ERROR: Final = 0x11
_TRIMMED: Final = 0x01
_FAR_PSNS: Final = 100_000
_PATIENCE_S: Final = 60.0


def is_acknowledgement(packet: Packet) -> bool:
    """Return whether a packet is an acknowledgement of one of the three transports, and no NAK."""
    if BTH in packet:
        return AETH in packet and packet[BTH].opcode == _ACKNOWLEDGE and packet[AETH].syndrome in _POSITIVE
    return SETH in packet or UETAck in packet


def forged_answers(packet: Packet) -> list[Packet]:
    """Return one forged packet of each kind, made from an acknowledgement."""
    network = Ether(src=packet.src, dst=packet.dst) / IP(src=packet[IP].src, dst=packet[IP].dst)
    network /= UDP(sport=packet[UDP].sport, dport=packet[UDP].dport)
    if BTH in packet:
        return _of_rocev2(packet[BTH], network)
    return _of_mrc(packet[MRC], network) if MRC in packet else _of_uet(packet[UETAck], network)


def _of_rocev2(ack: Packet, network: Packet) -> list[Packet]:
    def answer(psns_later: int, syndrome: int) -> Packet:
        psn = ack.psn + psns_later & 0xFF_FFFF
        return network / BTH(dqpn=ack.dqpn, psn=psn) / AETH(syndrome=syndrome, msn=ack[AETH].msn)

    return [
        answer(_FAR_PSNS, ack[AETH].syndrome),
        answer(1, _NAK_SEQUENCE),
        answer(1, _NAK_REMOTE_OPERATIONAL),
        network / cnp(ack.dqpn),
        answer(0, ack[AETH].syndrome),
    ]


def _of_mrc(ack: Packet, network: Packet) -> list[Packet]:
    seth = ack[SETH]

    def nack(reason: int) -> Packet:
        ends = {"spdcid": seth.spdcid, "dpdcid": seth.dpdcid, "entropy": seth.entropy}
        head = MRC(opcode=_MRC_NACK, dest_qpn=ack.dest_qpn)
        return network / head / NETH(reason=reason, nack_psn=seth.cack_psn + 1 & 0xFF_FFFF, **ends)

    future = _copy_of(ack)
    future[SETH].cack_psn = seth.cack_psn + _FAR_PSNS & 0xFF_FFFF
    return [
        network / future,
        nack(_TRIMMED),
        nack(_UNEXPECTED_EVENT),
        network / MRC(dest_qpn=ack.dest_qpn) / AETH(syndrome=_NAK_REMOTE_OPERATIONAL),
        network / _copy_of(ack),
    ]


def _copy_of(ack: Packet) -> Packet:
    copy = ack.copy()
    copy.icrc = None  # computed anew
    return copy


def _of_uet(ack: Packet, network: Packet) -> list[Packet]:
    def nack(code: int) -> Packet:
        ends = {"spdcid": ack.spdcid, "dpdcid": ack.dpdcid}
        return network / UETNack(nack_code=code, psn=ack.cack_psn + 1 & 0xFFFF_FFFF, **ends)

    future = ack.copy()
    future.cack_psn = ack.cack_psn + _FAR_PSNS & 0xFFFF_FFFF
    return [network / future, nack(_TRIMMED), nack(_CLOSING_IN_ERROR), network / ack.copy()]


def _wire(device: str) -> socket.socket:
    wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_EVERY_PROTOCOL))
    wire.bind((device, _EVERY_PROTOCOL))
    wire.settimeout(_PATIENCE_S)
    return wire


def _enter(namespace: str) -> None:
    """Move this process to a network namespace; sockets that are open stay where they are. Raises `OSError`."""
    with Path("/run/netns", namespace).open() as file:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(file.fileno(), _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def main() -> None:
    """Print `listening` and `sent` on stderr at these times."""
    near, namespace, far, transport, count, begin = sys.argv[1:]
    udp_port = UDP_PORTS[transport].to_bytes(2, "big")
    with ExitStack() as stack:
        # Packet sockets that send past the queueing discipline are seen by none at their own interface.
        listening = stack.enter_context(_wire(near))
        _enter(namespace)
        sending = stack.enter_context(_wire(far))
        print("listening", file=sys.stderr, flush=True)
        while True:
            frame, (_, _, kind, *_) = listening.recvfrom(65_536)
            of_transport = frame[_UDP_PORT_AT : _UDP_PORT_AT + 2] == udp_port
            if kind == socket.PACKET_OUTGOING or not of_transport or not Path(begin).exists():
                continue
            if is_acknowledgement(packet := Ether(frame)):
                break
        for forged in map(bytes, forged_answers(packet)):
            for _ in range(int(count)):
                sending.send(forged)
    print("sent", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
