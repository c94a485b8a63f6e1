"""Compares the agents' counts at their ports with the device's counts at the other end of the cable. Pure.

Both count all RoCEv2 packets on the cable (data, ACKs, clear-to-send messages, probes, CNPs) and the background of plain
UDP. The device also counts packets from other senders (ARP, neighbour discovery, LLDP, its own protocols), which is why
the profile has a tolerance. Decides what is compared, and when a difference cannot be computed.
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
"""A VLAN tag (IEEE 802.1Q)."""


@dataclass(frozen=True, slots=True)
class PlainDatagrams:
    """Background of plain UDP at one port. Kernel sockets count it, not the port; it never has the job's VLAN tag."""

    tx_datagrams: int = 0
    tx_bytes: int = 0
    """UDP payload."""
    rx_datagrams: int = 0
    rx_bytes: int = 0
    unknown: str = ""
    """Why the number of frames is not known; "" if it is."""


@dataclass(frozen=True, slots=True)
class AgentPort:
    """Counts of one agent at one port."""

    port: str
    """AGENT/PORT."""
    tx_datagrams: int
    tx_bytes: int
    """UDP payload."""
    rx_datagrams: int
    rx_bytes: int
    own_lost_datagrams: int
    """Datagrams that reached the host and were lost in our receive buffers; their bytes are not known."""
    ip_version: int
    """IP version of all its packets; 0 if it has both."""
    counts_packets: bool
    """False for NICs that send by themselves: there the agent sees only messages."""
    damaged_datagrams: int = 0
    """Datagrams that reached the host with a wrong checksum and were dropped before the agent saw them; their bytes are
    not known."""
    tx_padding_bytes: int = 0
    """Padding of frames below the minimum length on the cable. A host's own interface counts frames without it."""
    rx_padding_bytes: int = 0
    added_bytes: int | None = 0
    """Bytes of the VLAN tag and the outer IPv6 header on each of its packets, both ways; None if not known for all packets."""
    plain: PlainDatagrams = PlainDatagrams()
    """Background of plain UDP at the port, in addition to these counts."""


@dataclass(frozen=True, slots=True)
class DevicePort:
    """Counts of one port of the device over the run; None if it does not report them, or not for the whole run."""

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
    """The rig's own interface was read: its tx goes to the device."""


def reconcile(
    agents: Sequence[AgentPort], devices: Sequence[DevicePort], tolerance_per_million: int
) -> tuple[ReconciledPort, ...]:
    """Return two rows (one a direction) for every device port connected to the rig, in the order of `devices`."""
    by_port = {agent.port: agent for agent in agents}
    return tuple(
        _reconcile(by_port.get(device.peer), device, direction, tolerance_per_million)
        for device in devices
        for direction in Direction
    )


def _reconcile(
    agent: AgentPort | None, device: DevicePort, direction: Direction, tolerance_per_million: int
) -> ReconciledPort:
    """Return the comparison of one direction of a cable."""
    is_device_rx = (direction is Direction.TO_DEVICE) != device.is_ours
    frames, octets = (
        (device.rx_frames, device.rx_bytes) if is_device_rx else (device.tx_frames, device.tx_bytes)
    )
    agent_frames, agent_bytes, why = _agent_counts(agent, device, direction)
    difference = None if agent_frames is None or frames is None else frames - agent_frames
    more_bytes = None if agent_bytes is None or octets is None else octets - agent_bytes
    share = _share(difference, agent_frames, more_bytes, agent_bytes)
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
        device.peer, device.source, device.name, direction, agent_frames, frames, difference, agent_bytes, octets,
        more_bytes, share, agreement, why,
    )  # fmt: skip


def _agent_counts(
    agent: AgentPort | None, device: DevicePort, direction: Direction
) -> tuple[int | None, int | None, str]:
    """Return the agent's frames and bytes in one direction, None if not known, and why one of them is not known."""
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
        reasons_text = " and ".join(f"{count} {reason}" for count, reason in reasons if count)
        return datagrams + lost + damaged, None, f"of them {reasons_text}, so their bytes are not known"
    if agent.ip_version not in IP_BYTES:
        return datagrams, None, "the port has IPv4 and IPv6 addresses, so bytes of frames are not known"
    if agent.added_bytes is None:
        return datagrams, None, "an interface may put VLAN tags on, so bytes of frames are not known"
    fcs = 0 if device.with_fcs else FCS_BYTES
    headers = ETHERNET_BYTES - fcs + IP_BYTES[agent.ip_version] + UDP_BYTES
    padding_on_cable = 0 if device.is_ours else padding
    return datagrams, payload + datagrams * headers + tagged * agent.added_bytes + padding_on_cable, ""


def _share(
    difference: int | None, agent_count: int | None, more_bytes: int | None, agent_bytes: int | None
) -> float | None:
    """Return the largest difference relative to the agent's count, without sign; None if none can be computed."""
    shares = [
        abs(more) / reference if reference else (0.0 if more == 0 else 1.0)
        for more, reference in ((difference, agent_count), (more_bytes, agent_bytes))
        if more is not None and reference is not None
    ]
    return max(shares, default=None)
