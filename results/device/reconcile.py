"""Holds what agents counted at their ports against what the device counted at the other end of the cable. Pure.

Both count everything that is on the cable for RoCEv2 (data, acknowledgements, grants, probes, congestion notifications), and
the background of plain UDP. The device also counts what others send (ARP, neighbour discovery, LLDP, its own protocols), which
is why a tolerance is the profile's. Decides what is compared, and when a difference cannot be told.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.results.schema.device import Agreement, Direction, ReconciledPort

ETHERNET_BYTES: Final = 14 + 4
"""Header and check sequence (IEEE 802.3)."""
UDP_BYTES: Final = 8
IP_BYTES: Final = {4: 20, 6: 40}
FCS_BYTES: Final = 4
TAG_BYTES: Final = 4
"""Of a VLAN (IEEE 802.1Q)."""


@dataclass(frozen=True, slots=True)
class PlainDatagrams:
    """Background of plain UDP at one port. Kernel sockets count it, and not the port; it never has the job's VLAN tag."""

    tx_datagrams: int = 0
    tx_bytes: int = 0
    """Of UDP payload."""
    rx_datagrams: int = 0
    rx_bytes: int = 0
    unknown: str = ""
    """Why it is not known how many frames it was; "" if it is."""


@dataclass(frozen=True, slots=True)
class AgentPort:
    """What one agent counted at one port."""

    port: str
    """AGENT/PORT."""
    tx_datagrams: int
    tx_bytes: int
    """Of UDP payload."""
    rx_datagrams: int
    rx_bytes: int
    own_lost_datagrams: int
    """Come to the host and lost in our receive buffers; their bytes are not known."""
    ip_version: int
    """Of all its packets; 0 where it has both."""
    counts_packets: bool
    """False of network cards that send by themselves: there the agent sees messages only."""
    damaged_datagrams: int = 0
    """Come to the host with a wrong checksum and dropped before the agent saw them; their bytes are not known."""
    tx_padding_bytes: int = 0
    """What frames below the least length are filled up with on the cable. A host's own interface counts them without."""
    rx_padding_bytes: int = 0
    added_bytes: int | None = 0
    """Of the VLAN tag and the outer IPv6 header on all its packets, both ways; None where it is not known which have a tag."""
    plain: PlainDatagrams = PlainDatagrams()
    """What it sent and got beside them."""


@dataclass(frozen=True, slots=True)
class DevicePort:
    """How much one port of the device moved in the run; None: it does not tell, or not for the whole run."""

    source: str
    name: str
    peer: str
    """AGENT/PORT at the other end."""
    rx_frames: int | None
    tx_frames: int | None
    rx_bytes: int | None
    tx_bytes: int | None
    with_fcs: bool
    """Whether bytes include the check sequence."""
    is_ours: bool = False
    """It is the rig's own interface that was read: what it sends goes to the device."""


def reconcile(
    agents: Sequence[AgentPort], devices: Sequence[DevicePort], tolerance_per_million: int
) -> tuple[ReconciledPort, ...]:
    """Two rows for every port of the device that leads to the rig, in the order of `devices`."""
    by_port = {one.port: one for one in agents}
    return tuple(
        _one(by_port.get(device.peer), device, direction, tolerance_per_million)
        for device in devices
        for direction in Direction
    )


def _one(
    agent: AgentPort | None, device: DevicePort, direction: Direction, tolerance_per_million: int
) -> ReconciledPort:
    into = (direction is Direction.TO_DEVICE) != device.is_ours
    frames, octets = (device.rx_frames, device.rx_bytes) if into else (device.tx_frames, device.tx_bytes)
    ours, our_bytes, why = _counted_by_agent(agent, device, direction)
    difference = None if ours is None or frames is None else frames - ours
    more_bytes = None if our_bytes is None or octets is None else octets - our_bytes
    share = _share(difference, ours, more_bytes, our_bytes)
    if frames is None and not why:
        why = "the device's counter was not read before and after the run"
    if difference is None:
        agreement = Agreement.UNKNOWN
    elif difference == 0 and not more_bytes:
        agreement = Agreement.EXACT
    else:
        within = share is not None and share * 1_000_000 <= tolerance_per_million
        agreement = Agreement.WITHIN if within else Agreement.BEYOND
    return ReconciledPort(
        device.peer, device.source, device.name, direction, ours, frames, difference, our_bytes, octets,
        more_bytes, share, agreement, why,
    )  # fmt: skip


def _counted_by_agent(
    agent: AgentPort | None, device: DevicePort, direction: Direction
) -> tuple[int | None, int | None, str]:
    """Frames, bytes, and why one of them is not known."""
    if agent is None:
        return None, None, "the agent of that port sent no counters"
    if not agent.counts_packets:
        return (
            None,
            None,
            "its network card counts packets, the agent only messages: read the card (reader linux)",
        )
    plain = agent.plain
    if plain.unknown:
        return None, None, plain.unknown
    if direction is Direction.TO_DEVICE:
        tagged, payload, lost, damaged = agent.tx_datagrams, agent.tx_bytes, 0, 0
        padding = agent.tx_padding_bytes
        datagrams, payload = tagged + plain.tx_datagrams, payload + plain.tx_bytes
    else:
        tagged, payload, padding = agent.rx_datagrams, agent.rx_bytes, agent.rx_padding_bytes
        lost, damaged = agent.own_lost_datagrams, agent.damaged_datagrams
        datagrams, payload = tagged + plain.rx_datagrams, payload + plain.rx_bytes
    if lost or damaged:
        reasons = ((lost, "were lost in our own receive buffers"), (damaged, "came with a wrong checksum"))
        reasons_text = " and ".join(f"{count} {what}" for count, what in reasons if count)
        return datagrams + lost + damaged, None, f"of them {reasons_text}, so their bytes are not known"
    if agent.ip_version not in IP_BYTES:
        return datagrams, None, "the port has IPv4 and IPv6 addresses, so bytes of frames are not known"
    if agent.added_bytes is None:
        return datagrams, None, "an interface may put VLAN tags on, so bytes of frames are not known"
    fcs = 0 if device.with_fcs else FCS_BYTES
    headers = ETHERNET_BYTES - fcs + IP_BYTES[agent.ip_version] + UDP_BYTES
    filled_up = 0 if device.is_ours else padding
    return datagrams, payload + datagrams * headers + tagged * agent.added_bytes + filled_up, ""


def _share(
    difference: int | None, ours: int | None, more_bytes: int | None, our_bytes: int | None
) -> float | None:
    shares = [
        abs(more) / whole if whole else (0.0 if more == 0 else 1.0)
        for more, whole in ((difference, ours), (more_bytes, our_bytes))
        if more is not None and whole is not None
    ]
    return max(shares, default=None)
