"""Connection matrix and topology for `htsim_uec` (ultraethernet/uet-htsim 40ccb05): UET's NSCC and RCCC over fat trees.

Every message is a flow; a trigger starts those that wait for others. `htsim_uec` reads `recv_done_trigger` and never
fires it, so that the end of a flow is its last acknowledgement. Decides the counterparts of switch and transport settings,
and refuses those without one. Format: htsim/sim/datacenter/{connection_matrix,fat_tree_topology,main_uec}.cpp.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from etloop.contract.base.errors import PlanError, Problem
from etloop.contract.model.topology import SwitchSettings, Topology
from etloop.contract.model.transport import EntropyChoice, TransportSettings
from etloop.contract.model.transport_kinds import TransportKind
from etloop.controller.export.bundle import OUTPUT_FILE, ExportFiles
from etloop.controller.export.fat_tree import FatTree, fat_tree
from etloop.controller.export.graph import MessageGraph, NodeKind

CONNECTIONS_FILE: Final = "connections.cm"
TOPOLOGY_FILE: Final = "fabric.topo"
_MOST_BYTES: Final = (1 << 31) - 1
"""htsim reads a flow's size with stoi."""
_HEADER_BYTES: Final = 64
"""Headers of a packet in htsim, whatever its size."""
_END_US: Final = 10_000_000
_TWO: Final = 2
_BALANCING: Final = {
    EntropyChoice.ROTATION: "bitmap",
    EntropyChoice.OBLIVIOUS: "oblivious",
    EntropyChoice.RECYCLED: "reps",
    EntropyChoice.PENALTIES: "bitmap",
}
_ALGORITHMS: Final = {"nscc": "nscc", "dctcp": "dctcp", "none": "constant"}


class _Event(NamedTuple):
    """The arrival of a message, or the acknowledgement of its last packet."""

    message: int
    acknowledged: bool


class _Start(NamedTuple):
    """When a flow begins: after all events or, without any, at a time."""

    events: frozenset[_Event]
    start_ns: int


def export_htsim(
    graph: MessageGraph, host_of_rank: tuple[int, ...], topology: Topology, transport: TransportSettings
) -> ExportFiles:
    """Return the files for `htsim_uec`. `host_of_rank` are attachments. Raises `PlanError` as `fat_tree`, and for settings,
    messages and waits that it does not have.
    """
    tree = fat_tree(topology)
    options, approximated = _options(topology, transport, tree)
    place = {host: node for node, host in enumerate(tree.hosts)}
    nodes = tuple(place[host] for host in host_of_rank)
    connections, waits = _connections(graph, nodes, len(tree.hosts))
    files = {CONNECTIONS_FILE: connections, TOPOLOGY_FILE: _topology_text(tree).encode()}
    command = f"htsim_uec -tm {CONNECTIONS_FILE} -topo {TOPOLOGY_FILE} {' '.join(options)} > {OUTPUT_FILE}"
    return ExportFiles(files, command, (*approximated, *waits))


def _options(
    topology: Topology, transport: TransportSettings, tree: FatTree
) -> tuple[list[str], tuple[str, ...]]:
    """Return the options of the command, and the features that they only approximate."""
    _refuse_transport(transport)
    switch, multipath = _alike(topology, transport), transport.multipath
    queue = switch.queues[switch.class_to_queue[switch.dscp_to_class[transport.dscp]]]
    packet_bytes = transport.path_mtu_bytes + _HEADER_BYTES
    shared_bytes = switch.buffer_bytes - switch.set_aside_bytes
    alpha = 2.0**queue.alpha_log2
    queue_bytes = queue.reserved_bytes + shared_bytes * alpha / (1 + alpha)
    packets = max(round(queue_bytes / packet_bytes), 1)
    credit = multipath.uet.credit
    options = ["-receiver_cc_only"] if credit.alone else ["-sender_cc_only"]
    if not credit.alone:
        options += ["-sender_cc_algo", _ALGORITHMS[transport.congestion.algorithm]]
    options += ["-linkspeed", str(tree.tiers[0].rate_bps // 1_000_000), "-mtu", str(packet_bytes)]
    options += ["-q", str(packets), "-enable_accurate_base_rtt", "-end", str(_END_US)]
    options += ["-paths", str(multipath.entropy_values), "-load_balancing_algo", _BALANCING[multipath.choice]]
    options += ["-sack_threshold", str(multipath.sack_bytes)]
    if queue.marking is not None:
        low, high = queue.marking.kmin_bytes / packet_bytes, queue.marking.kmax_bytes / packet_bytes
        options += ["-ecn", str(min(round(low), packets)), str(min(round(high), packets))]
    else:
        options += ["-ecn", str(packets), str(packets)]
    options += (
        ["-disable_trim"]
        if switch.trimming is None
        else ["-trimsize", str(max(switch.trimming.frame_bytes, 64))]
    )
    approximated = (
        f"queues: -q {packets} packets for every port, the most that one queue of this buffer may hold alone",
        f"headers: {_HEADER_BYTES} bytes with every packet of {transport.path_mtu_bytes} bytes of payload",
        "timeout_floor: htsim derives its RTO from the queues",
        f"balancing: {_BALANCING[multipath.choice]} for choice {multipath.choice.name.lower()}",
    )
    return options, approximated


def _refuse_transport(transport: TransportSettings) -> None:
    if transport.kind is TransportKind.ROCE:
        problem = "htsim_uec has no RoCEv2 with a rate per queue pair"
        raise PlanError(Problem("transport: kind", problem, "write kind: uet or kind: mrc"))
    algorithm, credit = transport.congestion.algorithm, transport.multipath.uet.credit
    if credit.granted and not credit.alone:
        problem = "htsim_uec runs NSCC or RCCC, this transport both"
        raise PlanError(Problem("transport: uet: credit", problem, "leave out credit, or write cc: rccc"))
    if not credit.alone and algorithm not in _ALGORITHMS:
        problem = f"htsim_uec has no {algorithm}"
        raise PlanError(
            Problem("transport: cc: algorithm", problem, f"one of {', '.join(_ALGORITHMS)}, rccc")
        )


def _alike(topology: Topology, transport: TransportSettings) -> SwitchSettings:
    """Return the settings of all switches. Raises `PlanError` if they differ or have no counterpart."""
    first = topology.switches[0]
    keys = ("dscp_to_class", "class_to_queue", "queues", "trimming", "pfc", "groups", "balancing")
    problems = []
    for switch in topology.switches[1:]:
        differing = [key for key in keys if getattr(switch, key) != getattr(first, key)]
        if differing:
            problem = f"{switch.name} and {first.name} differ in {', '.join(differing)}; htsim has one setting for all"
            problems.append(Problem("topology", problem, "give all switches the same settings"))
    traffic_class = first.dscp_to_class[transport.dscp]
    if first.pfc and first.groups[first.class_to_group[traffic_class]].lossless:
        problem = "PFC pauses the transport's class; htsim_uec drops or trims"
        problems.append(Problem("topology", problem, "write preset: lossy"))
    if first.balancing.reorders:
        problem = f"balancing {first.balancing.name.lower()}; htsim_uec lets hosts choose the path"
        problems.append(Problem("topology", problem, "write balancing: ecmp"))
    problems += [
        Problem("topology", f"{feature}, which htsim does not have here", f"leave out {key}")
        for key, feature, is_there in (
            ("outages", "links go down", bool(topology.outages)),
            (
                "port_settings",
                "ports of a switch differ",
                any(switch.port_rules for switch in topology.switches),
            ),
            ("faults", "switches lose packets", any(switch.faults for switch in topology.switches)),
            ("srv6", "switches forward by segments", topology.segments is not None),
        )
        if is_there
    ]
    if problems:
        raise PlanError(*problems[:20])
    return first


def _topology_text(tree: FatTree) -> str:
    """Return the topology; a single switch becomes a leaf whose one spine no packet reaches."""
    nodes = len(tree.hosts)
    lines = [f"Nodes {nodes}", f"Tiers {max(len(tree.tiers), _TWO)}", f"Podsize {tree.pod_hosts}"]
    for number, tier in enumerate(tree.tiers):
        radix_up = tier.radix_up or (1 if len(tree.tiers) == 1 else 0)
        lines += ["", f"Tier {number}"]
        if radix_up:
            if tier.radix_down % radix_up:
                problem = f"tier {number} has {tier.radix_down} links down and {radix_up} up, no whole ratio"
                raise PlanError(Problem("topology", problem, "htsim oversubscribes by whole numbers"))
            rate_up = tree.tiers[number + 1].rate_bps if len(tree.tiers) > 1 else tier.rate_bps
            if rate_up != tier.rate_bps:
                problem = f"tier {number} has links of other rates up than down"
                raise PlanError(
                    Problem("topology", problem, "htsim needs one rate for all links of a fat tree")
                )
            lines.append(f"Oversubscribed {tier.radix_down // radix_up}")
        lines += [f"Downlink_speed_Gbps {_gbps(tier.rate_bps)}", f"Radix_Down {tier.radix_down}"]
        lines += [f"Radix_Up {radix_up}"] if radix_up else []
        lines += [f"Downlink_Latency_ns {tier.delay_ns}", f"Switch_Latency_ns {tree.switch_latency_ns}"]
        lines += [f"Bundle {tier.bundle}"] if number else []
    if len(tree.tiers) == 1:
        tier = tree.tiers[0]
        lines += ["", "Tier 1", f"Downlink_speed_Gbps {_gbps(tier.rate_bps)}", "Radix_Down 1"]
        lines += [f"Downlink_Latency_ns {tier.delay_ns}", f"Switch_Latency_ns {tree.switch_latency_ns}"]
    return "\n".join(lines) + "\n"


def _gbps(rate_bps: int) -> int:
    if rate_bps % 1_000_000_000:
        problem = f"a link has {rate_bps} bit/s; htsim reads whole Gbit/s"
        raise PlanError(Problem("topology", problem, "write whole Gbps"))
    return rate_bps // 1_000_000_000


class _Triggers(NamedTuple):
    """Triggers that start the flows that wait for others."""

    of_set: dict[frozenset[_Event], int]
    """Trigger of each set of events that flows wait for."""
    of_message: dict[int, int]
    """Trigger that the end of a flow fires."""
    left_out: int
    """Waits for an acknowledgement that have no trigger."""


def _triggers(graph: MessageGraph, starts: list[_Start]) -> _Triggers:
    """Give each set of events a trigger. Raises `PlanError` for an arrival that two sets wait for.

    A flow of `htsim_uec` fires one trigger, when its last packet is acknowledged. That of a message which another rank waits for
    is its arrival's; its own rank then waits for the other events of the set.
    """
    sets = list(dict.fromkeys(start.events for start in starts if start.events))
    of_message: dict[int, int] = {}
    left_out = 0
    for number, events in enumerate(sets, 1):
        for event in sorted(events):
            if not event.acknowledged and of_message.setdefault(event.message, number) != number:
                raise _two_triggers(graph, event)
    for number, events in enumerate(sets, 1):
        for event in sorted(events):
            if event.acknowledged and of_message.setdefault(event.message, number) != number:
                left_out += 1
    unfired = set(range(1, len(sets) + 1)) - set(of_message.values())
    if unfired:
        raise _two_triggers(graph, min(sets[min(unfired) - 1]))
    return _Triggers({events: number for number, events in enumerate(sets, 1)}, of_message, left_out)


def _connections(graph: MessageGraph, nodes: tuple[int, ...], hosts: int) -> tuple[bytes, tuple[str, ...]]:
    """Return the connection matrix, and the waits that its triggers only approximate."""
    starts = flow_starts(graph)
    triggers = _triggers(graph, starts)
    lines = [f"Nodes {hosts}", f"Connections {len(graph.messages)}", f"Triggers {len(triggers.of_set)}"]
    for number, (message, start) in enumerate(zip(graph.messages, starts, strict=True)):
        if not 0 < message.payload_bytes <= _MOST_BYTES:
            problem = f"a message of {message.payload_bytes} bytes; htsim reads 1 to {_MOST_BYTES}"
            raise PlanError(Problem("export", problem, "scale the job, or leave out barriers"))
        when = f"trigger {triggers.of_set[start.events]}" if start.events else f"start {_us(start.start_ns)}"
        line = f"{nodes[message.source]}->{nodes[message.target]} id {number + 1} {when} size {message.payload_bytes}"
        if (trigger := triggers.of_message.get(number)) is not None:
            line += f" send_done_trigger {trigger}"
        lines.append(line)
    counts = Counter(triggers.of_message.values())
    lines += [
        f"trigger id {number} " + ("oneshot" if counts[number] == 1 else f"barrier count {counts[number]}")
        for number in triggers.of_set.values()
    ]
    approximated = ["arrivals: a message has arrived when its last packet is acknowledged"] if counts else []
    if triggers.left_out:
        approximated.append(
            f"acknowledgements: {triggers.left_out} waits for a rank's own messages are those for the messages that it receives"
        )
    return ("\n".join(lines) + "\n").encode(), tuple(approximated)


def _us(start_ns: int) -> int:
    if start_ns % 1000:
        problem = f"a message begins at {start_ns} ns; htsim reads whole microseconds"
        raise PlanError(Problem("export", problem, "begin messages at whole microseconds"))
    return start_ns // 1000


def _two_triggers(graph: MessageGraph, event: _Event) -> PlanError:
    message = graph.messages[event.message]
    event_name = "acknowledgement" if event.acknowledged else "arrival"
    problem = (
        f"messages wait for different sets with the {event_name} of one message of rank {message.source} to {message.target}; "
        "a flow of htsim fires one trigger"
    )
    return PlanError(
        Problem("export", problem, "pin an algorithm whose steps are a chain, such as ring or direct")
    )


def flow_starts(graph: MessageGraph) -> list[_Start]:
    """Return the start of every message. Raises `PlanError` for a compute time between messages."""
    starts = [_Start(frozenset(), 0)] * len(graph.messages)
    for rank, nodes in enumerate(graph.ranks):
        ends: list[_Start] = []
        for node in nodes:
            begin = _begin(tuple(ends[awaited] for awaited in node.after), rank)
            if node.kind is NodeKind.SEND:
                starts[node.message] = begin
                ends.append(_Start(frozenset((_Event(node.message, acknowledged=True),)), 0))
            elif node.kind is NodeKind.RECV:
                ends.append(_Start(frozenset((_Event(node.message, acknowledged=False),)), 0))
            elif node.duration_ns and begin.events:
                problem = f"rank {rank} computes {node.duration_ns} ns between messages; htsim has no compute"
                raise PlanError(Problem("export", problem, "write scale: {compute: 0} in the scenario"))
            else:
                ends.append(_Start(begin.events, begin.start_ns + node.duration_ns))
    return starts


def _begin(awaited: tuple[_Start, ...], rank: int) -> _Start:
    events = frozenset().union(*(start.events for start in awaited))
    start_ns = max((start.start_ns for start in awaited), default=0)
    if events and start_ns:
        problem = (
            f"rank {rank} computes {start_ns} ns next to messages that it waits for; htsim has no compute"
        )
        raise PlanError(Problem("export", problem, "write scale: {compute: 0} in the scenario"))
    return _Start(events, start_ns)
