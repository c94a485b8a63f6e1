"""Typical switches, derived from their ports alone: the defaults of topology files.

Decides every default of a switch, each with its reason and arithmetic. Real switches differ; a file may override each.

* `lossless`: DSCP 26 (RoCE) in a lossless class 3 with PFC and WRED-ECN, DSCP 48 (CNP) strictly first, all else lossy.
* `lossy`: the same without PFC: RoCE is marked, and dropped when the buffer is full.
"""

from __future__ import annotations

from typing import Final

from etloop.contract.model.topology import (
    DSCPS,
    PRIORITIES,
    LoadBalancing,
    Marking,
    PriorityGroup,
    SwitchPort,
    SwitchQueue,
    SwitchSettings,
)

ROCE_DSCP: Final = 26
ROCE_CLASS: Final = 3
CNP_DSCP: Final = 48
CNP_CLASS: Final = 6
LATENCY_NS: Final = 600
"""Latency of a data centre ASIC from port to port, without queueing."""
MARK_AT_BPS: Final = 25_000_000_000
KMIN_BYTES: Final = 100_000
"""At 25 Gb/s, in proportion to the rate (alibaba-edu/High-Precision-Congestion-Control:simulation/run.py)."""
KMAX_BYTES: Final = 400_000
PMAX_PER_MILLION: Final = 200_000
LEAST_KMIN_BYTES: Final = 32_768
"""A queue below about eight packets of 4 KiB does not indicate congestion, however slow the port."""
LEAST_KMAX_BYTES: Final = 131_072
LARGEST_FRAME_BYTES: Final = 9_216 + 42
"""A jumbo frame with Ethernet header, tag and check sequence, preamble and gap."""
PAUSE_FRAME_BYTES: Final = 64 + 20
PAUSE_RESPONSE_NS: Final = 2_100
"""Longest time a sender takes to stop after a pause frame; above 394 quanta at 100 Gb/s and 905 at 400 Gb/s."""
BUFFER_NS: Final = 26_000
"""The pool of a Tomahawk 5, 165,660,324 B, holds what arrives at 51.2 Tb/s in this time (sonic-net/sonic-buildimage)."""
LEAST_SHARED_BYTES: Final = 4 << 20
RESERVED_BYTES: Final = 4_096
RESUME_OFFSET_BYTES: Final = 18_432
"""Two jumbo frames: with less, a resumed sender is paused again by its next packet, and pause frames fill the links."""
PAUSE_QUANTA: Final = 65_535
FLOWLET_GAP_NS: Final = 50_000
LOSSLESS_ALPHA_LOG2: Final = 0
LOSSY_ALPHA_LOG2: Final = 1
SEED: Final = 1


def preset(name: str, ports: tuple[SwitchPort, ...], *, lossless: bool) -> SwitchSettings:
    """Return a switch with these ports (at least one) and the defaults of this module."""
    roce = lossless_group(ports) if lossless else PriorityGroup(reserved_bytes=RESERVED_BYTES)
    other = PriorityGroup(reserved_bytes=RESERVED_BYTES, alpha_log2=LOSSY_ALPHA_LOG2)
    # Groups 0 and 6 take traffic other than RoCE, and control traffic; the other groups stay empty and reserve no buffer.
    empty_group = PriorityGroup()
    groups = tuple(
        roce if group == ROCE_CLASS else other if group in (0, CNP_CLASS) else empty_group
        for group in range(PRIORITIES)
    )
    queues = tuple(
        SwitchQueue(
            strict=queue == CNP_CLASS,
            alpha_log2=LOSSY_ALPHA_LOG2,
            marking=marking(ports) if queue == ROCE_CLASS else None,
        )
        for queue in range(PRIORITIES)
    )
    identity = tuple(range(PRIORITIES))
    dedicated_bytes = len(ports) * sum(group.reserved_bytes + group.headroom_bytes for group in groups)
    classes = {ROCE_DSCP: ROCE_CLASS, CNP_DSCP: CNP_CLASS}
    return SwitchSettings(
        name=name,
        ports=ports,
        buffer_bytes=dedicated_bytes + shared_bytes(ports),
        dscp_to_class=tuple(classes.get(dscp, 0) for dscp in range(DSCPS)),
        class_to_queue=identity,
        class_to_group=identity,
        group_to_priority=identity,
        priority_to_queue=identity,
        groups=groups,
        queues=queues,
        pfc=lossless,
        pause_quanta=PAUSE_QUANTA,
        watchdog=None,
        latency_ns=LATENCY_NS,
        balancing=LoadBalancing.ECMP,
        flowlet_gap_ns=FLOWLET_GAP_NS,
        trimming=None,
        seed=SEED,
    )


def lossless_group(ports: tuple[SwitchPort, ...]) -> PriorityGroup:
    """Return a group that is paused rather than dropped, with the headroom that the most demanding of the ports needs."""
    return PriorityGroup(
        lossless=True,
        reserved_bytes=RESERVED_BYTES,
        alpha_log2=LOSSLESS_ALPHA_LOG2,
        headroom_bytes=max(_headroom_bytes(port) for port in ports),
        resume_offset_bytes=RESUME_OFFSET_BYTES,
    )


def marking(ports: tuple[SwitchPort, ...]) -> Marking:
    """Return thresholds for the slowest of the ports, where a queue lasts longest; all ports use them."""
    slowest_bps = min(port.rate_bps for port in ports)
    return Marking(
        kmin_bytes=max(KMIN_BYTES * slowest_bps // MARK_AT_BPS, LEAST_KMIN_BYTES),
        kmax_bytes=max(KMAX_BYTES * slowest_bps // MARK_AT_BPS, LEAST_KMAX_BYTES),
        pmax_per_million=PMAX_PER_MILLION,
    )


def shared_bytes(ports: tuple[SwitchPort, ...]) -> int:
    """Return the size of the shared part of the buffer."""
    return max(sum(port.rate_bps for port in ports) * BUFFER_NS // 8_000_000_000, LEAST_SHARED_BYTES)


def _headroom_bytes(port: SwitchPort) -> int:
    """Return the bytes that still arrive after a port decides to pause its sender (IEEE 802.1Qbb; arithmetic in
    docs/device.md).

    The pause frame waits for one frame on its egress. Then arrive the bytes in flight on the link in both directions,
    the bytes sent until the sender reacts, the frame it has begun, and the bytes that the switch has received but not yet queued.
    """
    on_the_way_ns = 2 * port.delay_ns + PAUSE_RESPONSE_NS + LATENCY_NS
    return -(-port.rate_bps * on_the_way_ns // 8_000_000_000) + 2 * LARGEST_FRAME_BYTES + PAUSE_FRAME_BYTES
