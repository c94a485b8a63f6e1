"""Settings of transports and switches that the flow level models, and those it rejects by name. Pure.

Every value of the settings that affect routes or timing of packets is in a table here, so a new value has to be
classified (tests/traffic/flows/test_flow_limits.py). docs/flow_level.md lists them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from etloop.contract.base.errors import PlanError, Problem
from etloop.contract.model.assignment import Assignment
from etloop.contract.model.topology import FIVE_TUPLE, LoadBalancing, SwitchSettings, Topology
from etloop.contract.model.transport import DeliveryOrder, EntropyChoice, TransportSettings
from etloop.contract.model.transport_kinds import TransportKind
from etloop.traffic.flow_walk import Fabric, Parts
from etloop.traffic.topology.routes import Routes

_LIKE: Final = 1.001
"""Links whose densities differ by no more than this factor count as equal."""
REMEDY: Final = "use --level packet"

MODELLED: Final = ""
"""Marks a setting that the flow level models; any other text gives the reason why it does not."""

BALANCING: Final[dict[LoadBalancing, str]] = {
    LoadBalancing.ECMP: MODELLED,
    LoadBalancing.SPRAY: MODELLED,
    LoadBalancing.FLOWLET: "balancing: flowlet draws a way at every gap between packets",
    LoadBalancing.ADAPTIVE: MODELLED,
    LoadBalancing.ADAPTIVE_FLOWLET: "balancing: adaptive_flowlet chooses a way at every gap between packets",
    LoadBalancing.STRUCTURED: MODELLED,
}
"""Load balancing of a switch that has several ways."""

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
"""Choice of entropy values by transports that spray, if the links of their paths have different rates."""

CONTROL: Final[dict[str, str]] = {
    "none": "without congestion control the slowest path does not limit the others",
    "dcqcn": "cc: dcqcn does not hold all ways to the slowest",
    "timely": "cc: timely does not hold all ways to the slowest",
    "hpcc": "cc: hpcc does not hold all ways to the slowest",
    "rccc": "credits alone do not hold all ways to the slowest",
    "dctcp": MODELLED,
    "swift": "cc: swift cuts its window for the delay of one way, and takes longer than the slowest link",
    "nscc": MODELLED,
}
"""Congestion control on links of different rates. A window that follows marks sends on all ways what the slowest carries."""

DELIVERY: Final[dict[DeliveryOrder, str]] = {DeliveryOrder.ANY: MODELLED, DeliveryOrder.SENT: MODELLED}


def refuse(assignment: Assignment, topology: Topology, table: Routes) -> None:
    """Raise `PlanError` listing everything in a plan and a topology that the flow level does not model."""
    problems = [
        *_of_transports(assignment),
        *_of_ports(assignment),
        *_of_queues(assignment, topology),
        *(
            transport_problem
            for number, switch in enumerate(topology.switches)
            for transport_problem in _of_switch(switch, table, number)
        ),
        *_of_order(assignment, topology, table),
    ]
    if problems:
        raise PlanError(*problems)


def refuse_switches(topology: Topology, table: Routes) -> None:
    """Raise `PlanError` listing the settings of switches that the flow level does not model, whatever the transport."""
    problems = [
        problem
        for number, switch in enumerate(topology.switches)
        for problem in _of_switch(switch, table, number)
    ]
    if problems:
        raise PlanError(*problems)


def groups_of(table: Routes, number: int) -> tuple[tuple[int, ...], ...]:
    """Return the sets of two or more ports among which a switch chooses, ascending."""
    return tuple(sorted({ports for ports in set(table[number]) if len(ports) > 1}))


def _problem(where: str, setting: str) -> Problem:
    """Build the problem of a setting that the flow level does not model."""
    return Problem(where, f"{setting}, which the flow level does not model", REMEDY)


def _of_transports(assignment: Assignment) -> Iterator[Problem]:
    """Yield the problems of the transports in use: kinds, delivery orders, faults and partial credit."""
    for transport in used_transports(assignment):
        tables = (KINDS[transport.kind], DELIVERY[transport.multipath.uet.order])
        for why in tables:
            if why:
                yield _problem("flow level", why)
        if transport.faults:
            yield _problem("flow level", "transport.faults change packets")
        if transport.congestion.pacing.limit_bps:
            yield _problem("flow level", "transport.pacing.limit bounds queue pairs")
        credit = transport.multipath.uet.credit
        if credit.granted and credit.share_per_million != 1_000_000:
            yield _problem("flow level", "receivers grant less or more than their link rate")


def used_transports(assignment: Assignment) -> tuple[TransportSettings, ...]:
    """Return the transports of the ports that have ranks."""
    numbers = sorted({assignment.ports[rank.port].transport for rank in assignment.ranks})
    return tuple(assignment.transports[number] for number in numbers)


def _of_ports(assignment: Assignment) -> Iterator[Problem]:
    """Yield the problems of the ports: multi-plane NICs and SRv6 segments."""
    if any(port.planes > 1 for port in assignment.ports):
        yield _problem("flow level", "queue pairs send over several planes of a card")
    if any(port.segments is not None for port in assignment.ports):
        yield _problem("flow level", "srv6: micro segments route packets")


def _of_queues(assignment: Assignment, topology: Topology) -> Iterator[Problem]:
    """Yield a problem if data uses several queues of a switch: fair shares are by flow, schedulers serve by queue."""
    classes = {
        transport.traffic_class if rank.traffic_class < 0 else rank.traffic_class
        for rank in assignment.ranks
        for transport in (assignment.transports[assignment.ports[rank.port].transport],)
    }
    dscps = sorted({traffic_class >> 2 for traffic_class in classes})
    for switch in topology.switches:
        queues = sorted({switch.class_to_queue[switch.dscp_to_class[dscp]] for dscp in dscps})
        if len(queues) > 1:
            problem = (
                f"data of DSCPs {_join_numbers(dscps)} are in queues {_join_numbers(queues)}, "
                f"between which a scheduler divides the link"
            )
            yield _problem(f"switch {switch.name}", problem)
            return


def _of_switch(switch: SwitchSettings, table: Routes, number: int) -> Iterator[Problem]:
    """Yield the problems of a switch: faults, balancing and hash fields."""
    where = f"switch {switch.name}"
    if switch.faults:
        yield _problem(where, "its faults drop or corrupt packets")
    if not groups_of(table, number):
        return
    if why := BALANCING[switch.balancing]:
        yield _problem(where, why)
    if switch.balancing is LoadBalancing.ECMP and set(switch.hash_fields) != set(FIVE_TUPLE):
        yield _problem(where, "hash: does not use the five-tuple")
    if switch.balancing is LoadBalancing.ADAPTIVE and _overlaps(table, number):
        yield _problem(where, "balancing: adaptive over sets of ports that overlap in part")


def _overlaps(table: Routes, number: int) -> bool:
    """Return whether two different port sets share a port: balancing within one set then unbalances the other."""
    sets = {ports for ports in set(table[number]) if ports}
    count = Counter(port for ports in sets for port in ports)
    return any(count[port] > 1 for ports in sets if len(ports) > 1 for port in ports)


def _of_order(assignment: Assignment, topology: Topology, table: Routes) -> Iterator[Problem]:
    """Yield a problem if a switch reorders packets of a transport that accepts them in order only."""
    in_order = any(not takes_any_order(transport) for transport in used_transports(assignment))
    for number, switch in enumerate(topology.switches):
        if in_order and groups_of(table, number) and switch.balancing.reorders:
            problem = f"balancing: {switch.balancing.name.lower()} reorders packets, but the transport accepts them in order only"
            yield _problem(f"switch {switch.name}", problem)
            return


def takes_any_order(transport: TransportSettings) -> bool:
    """Return whether receivers keep packets that arrive out of order."""
    if transport.kind is TransportKind.ROCE:
        return transport.recovery.accept_out_of_order
    return transport.multipath.uet.order is DeliveryOrder.ANY


def refuse_adaptive(fabric: Fabric, parts: Parts) -> None:
    """Raise `PlanError` if a flow meets unequal links behind a switch that balances adaptively.

    Adaptive balancing sees the queues of the switch's own ports; a slower link further on shows there only through
    pauses.
    """
    adaptive = np.array(
        [settings.balancing is LoadBalancing.ADAPTIVE for settings in fabric.topology.switches]
    )
    if not adaptive.any():
        return
    switch = np.searchsorted(fabric.first_link, parts.link, side="right") - 1
    steered = np.zeros(len(parts.elapsed_ns), np.bool_)
    steered[parts.flow[(parts.share < 1) & adaptive[switch]]] = True
    if slowest := unlike_link(fabric, parts, steered):
        raise PlanError(_problem(f"link {slowest}", "it is slower than others behind balancing: adaptive"))


def refuse_unlike(assignment: Assignment, slowest: str, *, sprayed: bool) -> None:
    """Raise `PlanError` if the effect of the slower link `slowest` on sprayed packets is not modelled.

    `sprayed`: switches spread packets, those of RoCEv2 included.
    """
    reasons = set()
    for transport in used_transports(assignment):
        if transport.kind is TransportKind.ROCE:
            # A packet that is late by more than `reorder_packets` counts as lost.
            reasons.add("RoCEv2's sprayed packets fall far behind each other" if sprayed else MODELLED)
            continue
        multipath, congestion = transport.multipath, transport.congestion
        if multipath.uet.order is DeliveryOrder.ANY:
            algorithm = "rccc" if multipath.uet.credit.alone else congestion.algorithm
            control = "a plugin controls congestion" if congestion.plugin_name else CONTROL[algorithm]
            reasons |= {ENTROPY[multipath.choice], control}
    problems = [
        _problem(f"link {slowest}", f"it is slower than others, and {reason}")
        for reason in sorted(reasons - {MODELLED})
    ]
    if problems:
        raise PlanError(*problems)


def unlike_link(fabric: Fabric, parts: Parts, of_flows: NDArray[np.bool_]) -> str:
    """Return the name of the link that is slowest for its share, if a flow of `of_flows` is split over unequal links.

    Returns "" if no flow is. `of_flows` has one bool per flow.
    """
    rows = np.flatnonzero((parts.share < 1) & of_flows[parts.flow])
    if not len(rows):
        return ""
    density = parts.share[rows] / fabric.link_bps[parts.link[rows]]
    _, stage = np.unique(parts.flow[rows] * (parts.depth.max() + 1) + parts.depth[rows], return_inverse=True)
    stage = stage.reshape(-1)
    most, least = np.zeros(stage.max() + 1), np.full(stage.max() + 1, np.inf)
    np.maximum.at(most, stage, density)
    np.minimum.at(least, stage, density)
    uneven_stages = np.flatnonzero(most > _LIKE * least)
    if not len(uneven_stages):
        return ""
    stage_rows = np.flatnonzero(stage == uneven_stages[0])
    return fabric.names[int(parts.link[rows[stage_rows[np.argmax(density[stage_rows])]]])]


def _join_numbers(numbers: list[int]) -> str:
    """Join numbers with "and" for a message."""
    return " and ".join(map(str, numbers))
