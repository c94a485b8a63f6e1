"""Inputs of the time of one transfer in a network without other traffic: the ways of each pair of ranks, and the framing.

The values are kept with the figures of a run (kpis.json), so that the completion time of a lone transfer can be worked out
again from the run directory. `traffic.lone_ways` derives them from a plan; `results.kpis.lone_flow` turns them into times.
"""

from __future__ import annotations

from enum import StrEnum

from etloop.contract.base.late_dataclass import dataclass


class LatencySource(StrEnum):
    """Where the latency of a way comes from."""

    TOPOLOGY = "topology"
    """Links and switches of a topology."""
    STATED = "stated"
    """`verdict.base_latency` of the scenario, the same for every pair."""
    PROBED = "probed"
    """Round trips of every pair before the load."""
    UNKNOWN = "unknown"
    """Neither a topology nor a latency is given, and no pair was probed."""


@dataclass(frozen=True, slots=True)
class LoneWay:
    """One way through the network, hop by hop from the sender's link to the receiver's."""

    link_bps: tuple[int, ...]
    """Rate of each link: what one packet is sent at."""
    shared_bps: tuple[int, ...]
    """Rate that the packets of one transfer share at each hop: more than the link's rate where they take several links."""
    latency_ns: int
    """Propagation and switches, without the time that packets are sent for; 0 where the latency is not stated."""


@dataclass(frozen=True, slots=True)
class Framing:
    """Packets of a message on the line."""

    packet_bytes: int
    """Most payload of a packet."""
    around_bytes: int
    """Headers, checksums, preamble and gap of every packet."""
    first_bytes: int
    """More of them in the first packet of a message."""
    last_bytes: int
    """More of them in the last."""
    word_bytes: int
    """Payload is padded to a multiple of this."""
    parts: int
    """Parts that a message is cut into, each with packets of its own."""


@dataclass(frozen=True, slots=True)
class LoneNetwork:
    """The network as a lone transfer finds it."""

    latency: LatencySource
    described_by: str
    """The topology's file; "" without one."""
    framings: tuple[Framing, ...]
    way_sets: tuple[tuple[LoneWay, ...], ...]
    """Alternatives; a transfer alone takes the quickest."""
    src_rank: tuple[int, ...]
    """By pair of ranks with a connection through the device."""
    dst_rank: tuple[int, ...]
    way_set: tuple[int, ...]
    framing: tuple[int, ...]
    latency_ns: tuple[int, ...] = ()
    """By pair, in place of that of its ways: one way, without the time that packets are sent for; -1: not known. Empty where
    the ways have their own."""
