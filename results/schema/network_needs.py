"""What a job's transport needs from the network, and the paths of its connections: facts that the plan knows and that a
diagnosis reads. Stored in kpis.json, so that a run can be diagnosed again from its directory.
"""

from __future__ import annotations

from etloop.contract.base.late_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Needs:
    """What the job's transport needs from the network, and the classes that it uses."""

    algorithm: str = ""
    """Congestion control, such as "dcqcn"; "" if none."""
    reacts_to_marks: bool = False
    """Whether it slows down only if packets are marked."""
    needs_lossless: bool = False
    """Whether a dropped packet costs a retransmission of all that follow (go-back-N)."""
    keeps_order: bool = True
    """Whether the network is to keep the order of a flow's packets."""
    sprays: bool = False
    """Whether packets of one flow are spread over paths (MRC, UET)."""
    data_dscp: int = -1
    cnp_dscp: int = -1
    """-1: the transport sends no congestion notifications."""
    trims: bool = False
    """Whether the receiver answers trimmed packets."""
    path_mtu_bytes: int = 4096
    """Payload of a packet."""


@dataclass(frozen=True, slots=True)
class FlowWays:
    """Egress ports that the packets of each connection cross, by the hash of the switches."""

    ports: tuple[str, ...]
    """Names of ports of the device."""
    ways: tuple[tuple[int, ...], ...]
    """Distinct ways, each as indices into `ports`, in the order of the way; all ports of a connection that is spread."""
    way_of_connection: tuple[int, ...]
    """By row of `PlanTables.connections`: index into `ways`; -1: it does not cross the device, or its way is not known."""
