"""Jobs and topologies written out by hand for tests of the twin: senders, receivers, and the switch between them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from etloop.contract.model.congestion import CongestionSettings
from etloop.contract.model.switch_presets import preset
from etloop.contract.model.topology import (
    Attachment,
    SwitchEnd,
    SwitchLink,
    SwitchPort,
    SwitchSettings,
    Topology,
)
from etloop.contract.model.transport import CnpSettings
from etloop.traffic.twin import TwinOutcome, TwinSettings, twin
from tests.support.traffic.assignments_by_hand import TRANSPORT, HandOp, assignment

if TYPE_CHECKING:
    from etloop.contract.model.assignment import Assignment
    from etloop.contract.model.transport import TransportSettings

GBPS: Final = 1_000_000_000
RATE_BPS: Final = 100 * GBPS
DELAY_NS: Final = 500
ROCE: Final = 3
"""Queue, priority group and PFC priority of DSCP 26 in the presets."""
FRAME_BYTES: Final = 4096 + 16 + 46
"""Of a full packet within a message, with its check sequence."""
LINE_BYTES: Final = FRAME_BYTES + 20
UNCONTROLLED: Final = replace(
    TRANSPORT,
    window_packets=256,
    timeout_ns=50_000_000,
    congestion=CongestionSettings(algorithm="none"),
    cnp=CnpSettings(send=False),
)
"""Nothing but the window and the network hold a sender back."""


def star(ports: int, rate_bps: int = RATE_BPS, *, lossless: bool = True) -> Topology:
    """One switch with the ports r/p0, r/p1 ... of the rig."""
    switch = preset("switch", (SwitchPort("", rate_bps, DELAY_NS),) * ports, lossless=lossless)
    switch = replace(
        switch, ports=tuple(replace(port, name=str(number)) for number, port in enumerate(switch.ports))
    )
    return Topology(
        (switch,), (), tuple(Attachment(f"r/p{number}", SwitchEnd(0, number)) for number in range(ports))
    )


def changed(topology: Topology, **settings: object) -> Topology:
    """The topology with every switch changed alike."""
    switches = tuple(replace(switch, **settings) for switch in topology.switches)  # type: ignore[arg-type]
    return replace(topology, switches=switches)


def two_tiers(leaves: int, hosts: int, spines: int, uplink_bps: int = RATE_BPS) -> Topology:
    """`leaves` switches with `hosts` ports of the rig each, joined by `spines`."""
    host_ports = tuple(SwitchPort(str(number), RATE_BPS, DELAY_NS) for number in range(hosts))
    up_ports = tuple(SwitchPort(f"up{number}", uplink_bps, DELAY_NS) for number in range(spines))
    down_ports = tuple(SwitchPort(str(number), uplink_bps, DELAY_NS) for number in range(leaves))
    switches: list[SwitchSettings] = [
        replace(preset(f"leaf{leaf}", (*host_ports, *up_ports), lossless=True), seed=leaf + 1)
        for leaf in range(leaves)
    ]
    switches += [
        replace(preset(f"spine{spine}", down_ports, lossless=True), seed=100 + spine)
        for spine in range(spines)
    ]
    return Topology(
        tuple(switches),
        tuple(
            SwitchLink(SwitchEnd(leaf, hosts + spine), SwitchEnd(leaves + spine, leaf))
            for leaf in range(leaves)
            for spine in range(spines)
        ),
        tuple(
            Attachment(f"r/p{leaf * hosts + host}", SwitchEnd(leaf, host))
            for leaf in range(leaves)
            for host in range(hosts)
        ),
    )


def incast(
    senders: int,
    each_bytes: int,
    transport: TransportSettings = UNCONTROLLED,
    qps_each: int = 1,
    link_bps: int = RATE_BPS,
) -> Assignment:
    """Ranks 0 ... n-1 send one message to rank n, all at once."""
    sends = tuple((HandOp("send", each_bytes, peer=senders, sequence=0),) for _ in range(senders))
    receives = tuple(HandOp("recv", each_bytes, peer=rank, sequence=0) for rank in range(senders))
    return assignment((*sends, receives), transport=transport, qps_each=qps_each, link_bps=link_bps)


def pairs(
    flows: tuple[tuple[int, int], ...],
    each_bytes: int,
    transport: TransportSettings = UNCONTROLLED,
    qps_each: int = 1,
) -> Assignment:
    """Every (source, destination) is one message of its own rank's program; ranks are those up to the highest."""
    size = max(max(pair) for pair in flows) + 1
    programs = tuple(
        tuple(
            [HandOp("send", each_bytes, peer=dst, sequence=0) for src, dst in flows if src == rank]
            + [HandOp("recv", each_bytes, peer=src, sequence=0) for src, dst in flows if dst == rank]
        )
        for rank in range(size)
    )
    return assignment(programs, qps_each=qps_each, transport=transport)


def through(job: Assignment, topology: Topology, settings: TwinSettings | None = None) -> TwinOutcome:
    """The job in the twin; rank i is on r/p<i>."""
    settings = settings or TwinSettings(limit_ns=10 * GBPS)
    return twin(job, tuple(f"r/p{index}" for index in range(len(job.ports))), topology, settings)


def dropped(outcome: TwinOutcome) -> int:
    """Packets that switches had no room for."""
    return sum(
        int(ports["queues"]["dropped_packets"].sum() + ports["groups"]["dropped_packets"].sum())
        for ports in outcome.switch_ports
    )


def paused(outcome: TwinOutcome) -> int:
    """Pause frames that switches sent, those that ended pauses among them."""
    return sum(int(ports["pfc_tx"].sum()) for ports in outcome.switch_ports)


def marked(outcome: TwinOutcome) -> int:
    """Packets that switches marked."""
    return sum(int(ports["queues"]["ecn_marked_packets"].sum()) for ports in outcome.switch_ports)
