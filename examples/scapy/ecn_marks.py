"""Send RoCEv2 packets that Scapy builds from two ports to a third through the switch of a lab, and check what arrives.

    etloop lab up topology.yaml
    python ecn_marks.py

See docs/scapy.md. The script starts itself in the agents' namespaces, as `send ADDRESS` and as `receive`.
"""

from __future__ import annotations

import subprocess
import sys

from scapy.arch import get_if_addr
from scapy.config import conf
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from scapy.sendrecv import sniff

from etloop.scapy_layers import BTH, RETH, icrc_ok

PACKETS = 100
"""From each sender."""
DSCP, ECT_0, CE = 26, 0b10, 0b11
RECEIVER, SENDERS = "b", ("a", "c")


def start(agent: str, *words: str) -> subprocess.Popen[str]:
    """Start a part of this script in the namespace of an agent of the lab."""
    command = ["etloop", "lab", "exec", agent, "--", sys.executable, __file__, *words]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def send(address: str) -> None:
    """Send WRITEs to an address when a line comes, faster than the link."""
    network = IP(src=get_if_addr("p0"), dst=address, tos=DSCP << 2 | ECT_0, flags="DF", id=0)
    write = BTH(opcode="RC_RDMA_WRITE_ONLY", dqpn=0x11) / RETH(va=0x1000, rkey=7, dma_bytes=1021)
    packet = Ether(dst="ff:ff:ff:ff:ff:ff") / network / UDP(chksum=0) / write / Raw(b"\xa5" * 1021)
    frames = []
    for psn in range(PACKETS):
        packet[BTH].psn = psn
        frames.append(bytes(packet))
    port = conf.L2socket(iface="p0")
    print("ready", flush=True)
    sys.stdin.readline()
    for frame in frames:
        port.send(frame)


def receive() -> None:
    """Print the address of this port, and then what arrived."""
    conf.bufsize = 4 << 20  # Scapy takes a millisecond for a packet.
    packets = sniff(
        iface="p0",
        lfilter=lambda packet: BTH in packet,
        count=len(SENDERS) * PACKETS,
        timeout=20,
        started_callback=lambda: print(get_if_addr("p0"), flush=True),
    )
    marked = [packet for packet in packets if packet[IP].tos & CE == CE]
    right = sum(map(icrc_ok, packets))
    print(f"{len(packets)} packets arrived, {right} with the right ICRC")
    print(f"{len(marked)} have an ECN mark, from {len({packet[IP].src for packet in marked})} senders")
    if right < len(SENDERS) * PACKETS:
        sys.exit("packets are missing, or their ICRC is wrong")


def main() -> None:
    """Run the parts in a lab that is up."""
    receiver = start(RECEIVER, "receive")
    assert receiver.stdout is not None
    address = receiver.stdout.readline().strip()
    senders = [start(agent, "send", address) for agent in SENDERS]
    for sender in senders:
        assert sender.stdout is not None
        sender.stdout.readline()
    for sender in senders:
        assert sender.stdin is not None
        print(file=sender.stdin, flush=True)
    print(receiver.communicate()[0], end="")
    sys.exit(receiver.returncode)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["send", address]:
            send(address)
        case ["receive"]:
            receive()
        case _:
            main()
