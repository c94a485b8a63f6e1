"""What an agent's host can do, as the agent says it when it joins: what a rack shows, and what jobs are held against.

All of it is knowledge, none of it an order. 0, "" and empty tuples mean that the host does not tell.
"""

from __future__ import annotations

import ipaddress
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.transport import TransportKind

MOST_INTERFACES: Final = 256
MOST_ADDRESSES: Final = 4096
"""Together on one host; see `Capabilities.complete`."""
PACKET_OVERHEAD_BYTES: Final = 64
"""Of an IPv4 RoCEv2 packet beside its payload, counted into the interface's MTU: IPv4 20, UDP 8, BTH 12, RETH 16,
immediate 4, ICRC 4 (RDMA WRITE with immediate)."""
IPV6_MORE_BYTES: Final = 20
"""That an IPv6 header is longer."""
_MORE_BYTES: Final = {TransportKind.ROCE: 0, TransportKind.MRC: 4, TransportKind.UET: 20}
"""Than RoCEv2's: METH 4; PDS 12 and SES 44 in place of BTH, RETH, immediate and ICRC."""
_CREDIT_TARGET_BYTES: Final = 4
OUTER_HEADER_BYTES: Final = 40
"""Of the IPv6 header by which SRv6 leads a packet (RFC 8986, 5.1, without a routing header)."""


def packet_overhead_bytes(kind: TransportKind, *, asks_for_credit: bool, ipv6: bool) -> int:
    """Return what the longest packet of data has beside its payload, counted into the MTU."""
    more = _MORE_BYTES[kind] + (_CREDIT_TARGET_BYTES if asks_for_credit else 0)
    return PACKET_OVERHEAD_BYTES + more + (IPV6_MORE_BYTES if ipv6 else 0)


@dataclass(frozen=True, slots=True)
class Interface:
    """A network interface."""

    name: str
    addresses: tuple[str, ...]
    """IPv4 and IPv6, without a prefix length."""
    link_bps: int
    mtu_bytes: int
    driver: str
    """Kernel driver; "" for devices made of software."""
    up: bool


@dataclass(frozen=True, slots=True)
class RoceDevice:
    """An RDMA device that takes RoCEv2 packets off its interface, so that sockets there never see UDP port 4791."""

    name: str
    interface: str
    driver: str
    bus_address: str
    """Such as "0000:3b:00.0"; "" for devices made of software."""
    state: str = ""
    """Of its port, such as "ACTIVE" or "DOWN"."""
    addresses: int = 0
    """RoCEv2 entries of its GID table."""
    firmware: str = ""

    @property
    def lack(self) -> str:
        """What it lacks to carry traffic, as far as is known; "" for nothing."""
        if self.state not in {"", "ACTIVE"}:
            return f"its port is {self.state}"
        return "" if self.addresses else "its interface has no address, so that it has no RoCEv2 GID"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """A host, as one of its agents finds it."""

    cores: int = 0
    """That the agent may use."""
    core_ids: tuple[int, ...] = ()
    """Their numbers; those that the agent was given for its threads, if it was given some."""
    cores_named: bool = False
    """Whether it was."""
    quota_millicores: int = 0
    """How much of them its control group may use, in thousandths of a core; 0: all."""
    machine: str = ""
    """The boot of the kernel: the same in all namespaces and containers of a machine, and nowhere else."""
    interfaces: tuple[Interface, ...] = ()
    local_networks: tuple[str, ...] = ()
    """Blocks whose every address is local without being on an interface, such as "127.0.0.0/8"."""
    complete: bool = False
    """Whether every address of the host is among these; one that is not there may exist otherwise."""
    backends: tuple[str, ...] = ()
    """What can carry packets here, by the names of the rig file: "udp", "packet", "xdp", "verbs"."""
    roce_devices: tuple[RoceDevice, ...] = ()
    clock_source: str = ""
    ptp_clocks: tuple[str, ...] = ()
    """Clocks that PTP could steer, as "ptp0 mlx5_ptp"."""
    governor: str = ""
    """How the processors choose their frequency; "" where they do not."""
    privileges: tuple[str, ...] = ()
    """Effective Linux capabilities of the agent that matter to it, such as "CAP_NET_RAW"."""
    receive_buffer_bytes: int = 0
    """Largest socket buffer."""
    open_files: int = 0
    udp_segmentation: bool = False
    udp_coalescing: bool = False

    def interface_of(self, address: str) -> Interface | None:
        """The interface that has an address."""
        return next((each for each in self.interfaces if address in each.addresses), None)

    def has_address(self, address: str) -> bool:
        """Whether an address can be bound here, as far as is known: with incomplete knowledge it is taken to be there."""
        if not self.complete or self.interface_of(address) is not None:
            return True
        wanted = ipaddress.ip_address(address)
        networks = map(ipaddress.ip_network, self.local_networks)
        return any(wanted in network for network in networks if network.version == wanted.version)


UNKNOWN: Final = Capabilities()
"""Of an agent that does not say."""
