"""What of transports and switches the flow level models, and what it refuses by name. Pure.

Every value of the settings that decide where packets go, and when, stands in a table here: a new one has to be classified
(tests/traffic/flows/test_flow_limits.py). docs/flow_level.md has the same table with reasons.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

import numpy as np
from etloop.contract.base.errors import PlanError, Problem
from etloop.contract.model.assignment import Assignment
from etloop.contract.model.topology import FIVE_TUPLE, LoadBalancing, SwitchSettings, Topology
from etloop.contract.model.transport import DeliveryOrder, EntropyChoice, TransportKind, TransportSettings
from etloop.traffic.flow_walk import Fabric, Parts
from etloop.traffic.topology.routes import Routes
from numpy.typing import NDArray

_LIKE: Final = 1.001
"""So much may links differ that are alike."""
REMEDY: Final = "say --level packet"

MODELLED: Final = ""
"""Of a setting that the flow level models; any other text says why it does not."""

BALANCING: Final[dict[LoadBalancing, str]] = {
    LoadBalancing.ECMP: MODELLED,
    LoadBalancing.SPRAY: MODELLED,
    LoadBalancing.FLOWLET: "balancing: flowlet draws a way at every gap between packets",
    LoadBalancing.ADAPTIVE: MODELLED,
    LoadBalancing.ADAPTIVE_FLOWLET: "balancing: adaptive_flowlet chooses a way at every gap between packets",
    LoadBalancing.STRUCTURED: MODELLED,
}
"""Where a switch has several ways."""

KINDS: Final[dict[TransportKind, str]] = {
    TransportKind.ROCE: MODELLED,
    TransportKind.MRC: MODELLED,
    TransportKind.UET: MODELLED,
}

ENTROPY: Final[dict[EntropyChoice, str]] = {
    EntropyChoice.ROTATION: MODELLED,
    EntropyChoice.OBLIVIOUS: MODELLED,
    EntropyChoice.RECYCLED: "entropy: recycled steers by marks away from slower ways",
    EntropyChoice.PENALTIES: "entropy: penalties steers by marks away from slower ways",
}
"""Where packets that choose their paths meet links of different rates."""

CONTROL: Final[dict[str, str]] = {
    "none": "without congestion control the slowest way does not hold the others back",
    "dcqcn": "cc: dcqcn does not hold all ways to the slowest",
    "timely": "cc: timely does not hold all ways to the slowest",
    "hpcc": "cc: hpcc does not hold all ways to the slowest",
    "rccc": "credits alone do not hold all ways to the slowest",
    "dctcp": MODELLED,
    "swift": "cc: swift cuts its window for the delay of one way, and takes longer than the slowest link",
    "nscc": MODELLED,
}
"""The same, by what controls them: a window that follows marks sends by all ways what the slowest one carries."""

DELIVERY: Final[dict[DeliveryOrder, str]] = {DeliveryOrder.ANY: MODELLED, DeliveryOrder.SENT: MODELLED}


def refuse(assignment: Assignment, topology: Topology, table: Routes) -> None:
    """Raise `PlanError` with everything of a plan and a topology that the flow level does not model."""
    problems = [
        *_of_transports(assignment),
        *_of_ports(assignment),
        *_of_queues(assignment, topology),
        *(
            problem
            for number, switch in enumerate(topology.switches)
            for problem in _of_switch(switch, table, number)
        ),
        *_of_order(assignment, topology, table),
    ]
    if problems:
        raise PlanError(*problems)


def groups_of(table: Routes, number: int) -> tuple[tuple[int, ...], ...]:
    """Return the sets of several ports among which a switch chooses."""
    return tuple(sorted({ports for ports in set(table[number]) if len(ports) > 1}))


def _problem(where: str, what: str) -> Problem:
    return Problem(where, f"{what}, which the flow level does not know", REMEDY)


def _of_transports(assignment: Assignment) -> Iterator[Problem]:
    for transport in used_transports(assignment):
        tables = (KINDS[transport.kind], DELIVERY[transport.multipath.uet.order])
        for why in tables:
            if why:
                yield _problem("flow level", why)
        if transport.faults:
            yield _problem("flow level", "transport.faults change packets")
        credit = transport.multipath.uet.credit
        if credit.granted and credit.share_per_million != 1_000_000:
            yield _problem("flow level", "receivers grant another part of their link than all of it")


def used_transports(assignment: Assignment) -> tuple[TransportSettings, ...]:
    """Return the transports that ports with ranks speak."""
    numbers = sorted({assignment.ports[rank.port].transport for rank in assignment.ranks})
    return tuple(assignment.transports[number] for number in numbers)


def _of_ports(assignment: Assignment) -> Iterator[Problem]:
    if any(port.planes > 1 for port in assignment.ports):
        yield _problem("flow level", "a card has several planes, over which a queue pair sends")
    if any(port.segments is not None for port in assignment.ports):
        yield _problem("flow level", "srv6: micro segments lead packets")


def _of_queues(assignment: Assignment, topology: Topology) -> Iterator[Problem]:
    """Links are shared fairly among flows, and schedulers share them among queues first."""
    classes = {
        transport.traffic_class if rank.traffic_class < 0 else rank.traffic_class
        for rank in assignment.ranks
        for transport in (assignment.transports[assignment.ports[rank.port].transport],)
    }
    dscps = sorted({traffic_class >> 2 for traffic_class in classes})
    for switch in topology.switches:
        queues = sorted({switch.class_to_queue[switch.dscp_to_class[dscp]] for dscp in dscps})
        if len(queues) > 1:
            what = f"data of DSCPs {_listed(dscps)} are in queues {_listed(queues)}, which a scheduler serves"
            yield _problem(f"switch {switch.name}", what)
            return


def _of_switch(switch: SwitchSettings, table: Routes, number: int) -> Iterator[Problem]:
    where = f"switch {switch.name}"
    if switch.faults:
        yield _problem(where, "its faults lose or spoil packets")
    if not groups_of(table, number):
        return
    if why := BALANCING[switch.balancing]:
        yield _problem(where, why)
    if switch.balancing is LoadBalancing.ECMP and set(switch.hash_fields) != set(FIVE_TUPLE):
        yield _problem(where, "hash: is not of the five-tuple")
    if switch.balancing is LoadBalancing.ADAPTIVE and _overlaps(table, number):
        yield _problem(where, "balancing: adaptive over sets of ports that overlap in part")


def _overlaps(table: Routes, number: int) -> bool:
    """Whether a port of a set of several leads elsewhere by another set: what balances one unbalances the other."""
    sets = {ports for ports in set(table[number]) if ports}
    count = Counter(port for ports in sets for port in ports)
    return any(count[port] > 1 for ports in sets if len(ports) > 1 for port in ports)


def _of_order(assignment: Assignment, topology: Topology, table: Routes) -> Iterator[Problem]:
    """What comes in another order than it was sent is sent again, unless its receiver takes any order."""
    in_order = any(not takes_any_order(transport) for transport in used_transports(assignment))
    for number, switch in enumerate(topology.switches):
        if in_order and groups_of(table, number) and switch.balancing.reorders:
            what = f"balancing: {switch.balancing.name.lower()} reorders packets that are taken in their order alone"
            yield _problem(f"switch {switch.name}", what)
            return


def takes_any_order(transport: TransportSettings) -> bool:
    """Whether receivers keep packets that came ahead of others."""
    if transport.kind is TransportKind.ROCE:
        return transport.recovery.accept_out_of_order
    return transport.multipath.uet.order is DeliveryOrder.ANY


def refuse_adaptive(fabric: Fabric, parts: Parts) -> None:
    """Raise `PlanError` where flows meet unlike links behind a switch that balances by load.

    It fills its own ports; what is slower behind one of them it learns by pauses alone, if at all.
    """
    adaptive = np.array([one.balancing is LoadBalancing.ADAPTIVE for one in fabric.topology.switches])
    if not adaptive.any():
        return
    switch = np.searchsorted(fabric.first_link, parts.link, side="right") - 1
    steered = np.zeros(len(parts.elapsed_ns), np.bool_)
    steered[parts.flow[(parts.share < 1) & adaptive[switch]]] = True
    if slowest := unlike_link(fabric, parts, steered):
        raise PlanError(_problem(f"link {slowest}", "it is slower than others behind balancing: adaptive"))


def refuse_unlike(assignment: Assignment, slowest: str, *, sprayed: bool) -> None:
    """Raise `PlanError` if packets that take all of several ways make something of it that link `slowest` is slower.

    `sprayed`: switches spread packets, also those of RoCEv2.
    """
    whys = set()
    for transport in used_transports(assignment):
        if transport.kind is TransportKind.ROCE:
            # Beyond `reorder_packets` a late packet counts as lost.
            whys.add("RoCEv2's sprayed packets fall far behind each other" if sprayed else MODELLED)
            continue
        multipath, congestion = transport.multipath, transport.congestion
        if multipath.uet.order is DeliveryOrder.ANY:
            algorithm = "rccc" if multipath.uet.credit.alone else congestion.algorithm
            control = "a plugin controls congestion" if congestion.plugin_name else CONTROL[algorithm]
            whys |= {ENTROPY[multipath.choice], control}
    problems = [
        _problem(f"link {slowest}", f"it is slower than others, and {why}")
        for why in sorted(whys - {MODELLED})
    ]
    if problems:
        raise PlanError(*problems)


def unlike_link(fabric: Fabric, parts: Parts, of_flows: NDArray[np.bool_]) -> str:
    """Return the slowest link, for its part, where one of some flows is split over unlike links; "" if there is none."""
    rows = np.flatnonzero((parts.share < 1) & of_flows[parts.flow])
    if not len(rows):
        return ""
    density = parts.share[rows] / fabric.link_bps[parts.link[rows]]
    _, stage = np.unique(parts.flow[rows] * (parts.depth.max() + 1) + parts.depth[rows], return_inverse=True)
    stage = stage.reshape(-1)
    most, least = np.zeros(stage.max() + 1), np.full(stage.max() + 1, np.inf)
    np.maximum.at(most, stage, density)
    np.minimum.at(least, stage, density)
    uneven = np.flatnonzero(most > _LIKE * least)
    if not len(uneven):
        return ""
    among = np.flatnonzero(stage == uneven[0])
    return fabric.names[int(parts.link[rows[among[np.argmax(density[among])]]])]


def _listed(numbers: list[int]) -> str:
    return " and ".join(map(str, numbers))
