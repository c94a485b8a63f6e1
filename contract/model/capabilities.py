"""Declares what an agent's host can do, as the agent reports it when it joins: a rack shows it, and jobs are checked
against it.

It describes the host and orders nothing. 0, "" and empty tuples mean that the host does not report a value.
"""

from __future__ import annotations

import ipaddress
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.transport_kinds import TransportKind

MOST_INTERFACES: Final = 256
MOST_ADDRESSES: Final = 4096
"""Most addresses of one host; see `Capabilities.complete`."""
PACKET_OVERHEAD_BYTES: Final = 64
"""Headers of an IPv4 RoCEv2 packet, counted into the interface's MTU: IPv4 20, UDP 8, BTH 12, RETH 16,
immediate 4, ICRC 4 (RDMA WRITE with immediate)."""
IPV6_MORE_BYTES: Final = 20
"""Difference of an IPv6 and an IPv4 header."""
_MORE_BYTES: Final = {TransportKind.ROCE: 0, TransportKind.MRC: 4, TransportKind.UET: 20}
"""Header bytes more than RoCEv2's: METH 4; PDS 12 and SES 44 in place of BTH, RETH, immediate and ICRC."""
_CREDIT_TARGET_BYTES: Final = 4
OUTER_HEADER_BYTES: Final = 40
"""Outer IPv6 header of an SRv6 packet (RFC 8986, 5.1, without a routing header)."""


def packet_overhead_bytes(kind: TransportKind, *, asks_for_credit: bool, ipv6: bool) -> int:
    """Return the header bytes of the longest data packet, counted into the MTU."""
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
    """State of its port, such as "ACTIVE" or "DOWN"."""
    addresses: int = 0
    """RoCEv2 entries of its GID table."""
    firmware: str = ""

    @property
    def lack(self) -> str:
        """Return what the device lacks to carry traffic, as far as known; "" if it lacks nothing."""
        if self.state not in {"", "ACTIVE"}:
            return f"its port is {self.state}"
        return "" if self.addresses else "its interface has no address, so that it has no RoCEv2 GID"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Capabilities of a host, as one of its agents reads them."""

    cores: int = 0
    """Number of cores that the agent may use."""
    core_ids: tuple[int, ...] = ()
    """Numbers of the cores; if cores were reserved for the agent's threads, only those."""
    cores_named: bool = False
    """True if cores were reserved for the agent's threads."""
    quota_millicores: int = 0
    """CPU quota of its control group, in thousandths of a core; 0: no quota."""
    machine: str = ""
    """Boot identifier of the kernel: equal in all namespaces and containers of a machine, and different on other machines."""
    interfaces: tuple[Interface, ...] = ()
    local_networks: tuple[str, ...] = ()
    """Networks of which every address is local without being on an interface, such as "127.0.0.0/8"."""
    complete: bool = False
    """True if these are all addresses of the host; otherwise it may have more."""
    backends: tuple[str, ...] = ()
    """Port backends usable here, by their names in the rig file: "udp", "packet", "xdp", "verbs"."""
    roce_devices: tuple[RoceDevice, ...] = ()
    clock_source: str = ""
    ptp_clocks: tuple[str, ...] = ()
    """Clocks that PTP could steer, as "ptp0 mlx5_ptp"."""
    governor: str = ""
    """CPU frequency governor; "" without frequency scaling."""
    privileges: tuple[str, ...] = ()
    """Effective Linux capabilities of the agent that matter to it, such as "CAP_NET_RAW"."""
    receive_buffer_bytes: int = 0
    """Largest socket buffer."""
    open_files: int = 0
    udp_segmentation: bool = False
    udp_coalescing: bool = False

    def interface_of(self, address: str) -> Interface | None:
        """Return the interface that has an address; None if there is none."""
        return next((interface for interface in self.interfaces if address in interface.addresses), None)

    def has_address(self, address: str) -> bool:
        """Return whether an address can be bound here; True also if the known addresses are not complete."""
        if not self.complete or self.interface_of(address) is not None:
            return True
        ip = ipaddress.ip_address(address)
        networks = map(ipaddress.ip_network, self.local_networks)
        return any(ip in network for network in networks if network.version == ip.version)


UNKNOWN: Final = Capabilities()
"""Capabilities of an agent that reports none."""
