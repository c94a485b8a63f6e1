"""Measures the highest rate that this host's soft switch forwards: two namespaces, a switch without a rate limit, a flood.

Decides only how to measure; `plan` decides how much of it a lab may use.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import Final

from etloop.contract.base.clock import NS_PER_MS, NS_PER_S
from etloop.contract.model.switch_presets import preset
from etloop.contract.model.topology import Attachment, SwitchEnd, SwitchPort, Topology
from etloop.lab.namespaces import inside
from etloop.lab.plan import Capacity, LabPlan, plan_lab
from etloop.lab.setup import LabPlace, lab_place
from etloop.lab.wiring import cables
from etloop.traffic import _native
from etloop.traffic.soft_switch import SoftLimits, SoftSnapshot, SoftSwitch

FLOOD_NS: Final = 300 * NS_PER_MS
UNLIMITED_BPS: Final = 3_200_000_000_000
UDP_PORT: Final = 4791
HEADER_BYTES: Final = 28
"""IPv4 and UDP."""


def open_in(place: LabPlace, topology: Topology, plan: LabPlan) -> SoftSwitch:
    """Return the running switch of a lab, opened in its namespace. Raise RuntimeError if it cannot be opened."""
    limits = SoftLimits(mtu_bytes=plan.mtu_bytes)
    return inside(place.switch, partial(SoftSwitch, topology, cables(plan).ports, limits))


def measure_capacity(mtu_bytes: int, flood_ns: int = FLOOD_NS) -> Capacity:
    """Measure a switch without a rate limit by a flood of `flood_ns`. Raise `RigError` if namespaces are not allowed."""
    topology = flat_topology(2, UNLIMITED_BPS)
    plan = plan_lab(topology, mtu_bytes=mtu_bytes, addresses=1)
    with lab_place(plan) as place:
        switch = open_in(place, topology, plan)
        try:
            before, after = flood(place, plan, switch, flood_ns)
        finally:
            switch.stop()
    frames = int(after.ports["tx_frames"][1] - before.ports["tx_frames"][1])
    return Capacity(frames * NS_PER_S // max(after.at_ns - before.at_ns, 1), mtu_bytes)


def flat_topology(ports: int, rate_bps: int) -> Topology:
    """Return a topology of one lossy switch with `ports` agents of one port each."""
    switch_ports = tuple(SwitchPort(str(number), rate_bps, 0) for number in range(ports))
    switch = preset("s0", switch_ports, lossless=False)
    attachments = tuple(Attachment(f"h{number}/p0", SwitchEnd(0, number)) for number in range(ports))
    return Topology((switch,), (), attachments)


def flood(
    place: LabPlace, plan: LabPlan, switch: SoftSwitch, flood_ns: int
) -> tuple[SoftSnapshot, SoftSnapshot]:
    """Send from the first port to the second as fast as the kernel allows; return the switch's counters before and after."""
    sender, receiver = plan.ports[0], plan.ports[1]
    agents = [agent.name for agent in plan.agents]
    listening = threading.Thread(
        target=_listen, args=(place.agents[agents[1]], receiver.addresses[0], flood_ns), daemon=True
    )
    listening.start()
    before = switch.snapshot()
    payload_bytes = plan.mtu_bytes - HEADER_BYTES
    datagrams_per_send = max(1, 65_000 // payload_bytes)
    send = partial(
        _native.blast_send,
        sender.addresses[0],
        receiver.addresses[0],
        UDP_PORT,
        flood_ns,
        payload_bytes,
        datagrams_per_send,
    )
    inside(place.agents[agents[0]], send)
    after = switch.snapshot()
    listening.join()
    return before, after


def _listen(namespace: int, address: str, flood_ns: int) -> None:
    """Receive the flood. An error is ignored: the counters show if no packet arrived."""
    try:
        inside(namespace, partial(_native.blast_receive, address, UDP_PORT, flood_ns))
    except RuntimeError:
        return
