"""Captures, faults and pauses of a scenario -> what each port that carries ranks is asked to do.

Refuses what no port of the run could carry out; what may be written at all is decided by `inputs.scenario`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etloop.contract.base.errors import PlanError, Problem
from etloop.contract.model.assignment import PortBackend
from etloop.contract.model.transport import (
    CaptureSettings,
    DeliveryOrder,
    FaultAction,
    FaultRule,
    PauseRule,
    TransportKind,
    TrimSettings,
)
from etloop.traffic.collectives.core.table import Handshake

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etloop.controller.inputs.scenario.capture import Capture
    from etloop.controller.inputs.scenario.pauses import PortPause
    from etloop.controller.inputs.scenario.transport import Transport
    from etloop.controller.plan.places.placement import Placement
    from etloop.controller.plan.places.port_transports import PortTransports
    from etloop.traffic.collectives.core.table import Schedule

_FRAMING: Final = (PortBackend.PACKET, PortBackend.XDP)


def captures_of(capture: Capture, placement: Placement) -> dict[str, CaptureSettings]:
    """What every agent with ranks is asked to keep. Raises `PlanError` for ports that carry no rank of this run."""
    if not capture.wanted:
        return {}
    places = [(place.agent, place.port.name) for place in placement.ports if place.is_used]
    refuse_unused_ports("transport.capture.ports", capture.ports, placement)
    wanted = [place for place in places if not capture.ports or "/".join(place) in capture.ports]
    return {
        agent: CaptureSettings(
            tuple(port for owner, port in wanted if owner == agent), capture.snap_bytes, capture.file_bytes
        )
        for agent in dict.fromkeys(agent for agent, _ in wanted)
    }


def refuse_unused_ports(where: str, names: tuple[str, ...], placement: Placement) -> None:
    """Raises `PlanError` with every name of a port that no rank of the run uses: what is asked of it would not happen."""
    used = [f"{place.agent}/{place.port.name}" for place in placement.ports if place.is_used]
    strange = [name for name in names if name not in used]
    if strange:
        remedy = (
            f"name ports that ranks are placed on: {', '.join(used[:8])}{', ...' if len(used) > 8 else ''}"
        )
        raise PlanError(*(Problem(where, f"no rank uses port {name}", remedy) for name in strange))


def fault_notes(rules: tuple[FaultRule, ...], placement: Placement) -> tuple[str, ...]:
    """What to say of rules that some ports cannot carry out, and of wrong ICRCs that some cannot see."""

    def of(backend: PortBackend) -> str:
        return ", ".join(place.label for place in placement.ports if place.port.backend is backend)

    notes = []
    cards, kernels = of(PortBackend.VERBS), of(PortBackend.UDP)
    if rules and cards:
        notes.append(
            f"transport.faults: network cards do the transport of verbs ports, and nothing wrong on purpose: {cards}"
        )
    if kernels and any(rule.action is FaultAction.CORRUPT_ICRC for rule in rules):
        notes.append(
            f"corrupt_icrc among transport.faults: udp ports cannot check ICRCs and take such packets for good: {kernels}"
        )
    return tuple(notes)


def trimming_notes(trimming: TrimSettings, placement: Placement) -> tuple[str, ...]:
    """What to say of ports that never see a packet that a switch cut down."""
    if not trimming.dscps:
        return ()
    kept_from = {
        PortBackend.UDP: "in a run the kernel drops datagrams that are cut before a udp port sees them",
        PortBackend.VERBS: "in a run a network card drops packets that are cut before software sees them",
    }
    notes = []
    for backend, why in kept_from.items():
        labels = ", ".join(place.label for place in placement.ports if place.port.backend is backend)
        if labels:
            notes.append(f"transport.trimming: {why}; backend: packet or xdp sees them: {labels}")
    return tuple(notes)


def multipath_notes(spoken: PortTransports, placement: Placement) -> tuple[str, ...]:
    """What to say of transports whose packets choose their paths, of ports that cannot carry them, and of who has which."""
    notes = [
        note for transport, ports in spoken.with_ports(placement) for note in _path_notes(transport, ports)
    ]
    if spoken.are_several:
        each = (
            f"{', '.join(jobs)} {transport.kind_name} with {transport.congestion.algorithm}"
            for transport, jobs in zip(spoken.transports, spoken.jobs, strict=True)
        )
        notes.append(f"transports of jobs, each on ports of its own: {'; '.join(each)}")
    return tuple(notes)


def _path_notes(transport: Transport, placement: Placement) -> tuple[str, ...]:
    if not transport.sprays:
        return ()
    paths = transport.multipath
    in_order = paths.uet.order is DeliveryOrder.SENT
    drawn = (
        "one path, in order (ROD)"
        if in_order
        else f"{paths.entropy_values} entropy values, {paths.choice.name.lower()}"
    )
    kind = f"transport.kind {transport.kind_name}"
    notes = [
        f"{kind}: {transport.kind_name.upper()} in place of RoCEv2; packets of a queue pair take {drawn}"
    ]
    unable = {PortBackend.UDP, PortBackend.VERBS}
    labels = ", ".join(place.label for place in placement.ports if place.port.backend in unable)
    if labels:
        notes.append(
            f"{kind}: the twin carries it everywhere; in a run only ports with backend: packet or xdp do, and "
            f"these are none: {labels}"
        )
    return tuple(notes)


def queue_notes(placement: Placement) -> tuple[str, ...]:
    """What to say of ports that several threads carry."""
    shared: list[str] = []
    divided: list[str] = []
    for place in placement.ports:
        if place.ranks and place.port.most_threads > 1:
            by_address = place.port.backend is PortBackend.UDP and len(place.ranks) >= place.port.queues
            (divided if by_address else shared).append(f"{place.label} {place.port.queues}")
    notes = []
    if shared:
        notes.append(
            f"queues: threads that the queue pairs of every rank are dealt over: {', '.join(shared)}"
        )
    if divided:
        notes.append(f"queues: threads that have some of the addresses each: {', '.join(divided)}")
    return tuple(notes)


def refuse_one_sided(transport: Transport, schedules: Sequence[Schedule]) -> None:
    """Raise `PlanError` where a transport of writes alone would need more: an algorithm that ends with atomics."""
    names = dict.fromkeys(
        schedule.algorithm for schedule in schedules if schedule.handshake is Handshake.ONE_SIDED
    )
    if not transport.sprays or not names:
        return
    what = f"{transport.kind_name.upper()} has {transport.operations} alone, and {', '.join(names)} closes its messages by atomics"
    raise PlanError(Problem("transport.kind", what, "choose another algorithm, or kind: rocev2"))


def pauses_of(pauses: tuple[PortPause, ...], placement: Placement) -> dict[str, tuple[PauseRule, ...]]:
    """Rules by "agent/port". Raises `PlanError` with every rule that no port could carry out."""
    refuse_unused_ports("transport.faults", tuple(pause.port for pause in pauses if pause.port), placement)
    framing = [
        f"{place.agent}/{place.port.name}"
        for place in placement.ports
        if place.is_used and place.port.backend in _FRAMING
    ]
    cards = [place.label for place in placement.ports if place.planes > 1]
    if pauses and cards:
        what = f"pause frames are not sent by ports that are planes of a card: {', '.join(cards[:8])}"
        raise PlanError(Problem("transport.faults", what, "remove the pauses, or card: from the rig's ports"))
    idle = [pause for pause in pauses if not framing or (pause.port and pause.port not in framing)]
    if idle:
        remedy = "write backend: packet or xdp in the rig; kernel sockets send no pause frames"
        raise PlanError(
            *(
                Problem("transport.faults", f"port {pause.port or '(any)'} cannot send pause frames", remedy)
                for pause in idle
            )
        )
    return {
        name: tuple(pause.rule for pause in pauses if pause.port in ("", name)) for name in framing if pauses
    }


def refuse_shared_contexts(transport: Transport, placement: Placement) -> None:
    """Raise `PlanError` where queues of a port would share an address and the transport has no queue pairs to deal them."""
    if transport.kind is not TransportKind.UET:
        return
    shared = [place.label for place in placement.ports if place.ranks and place.port.queues > 1]
    if shared:
        what = f"the contexts of UET are no queue pairs that queues could deal among themselves: {', '.join(shared[:8])}"
        raise PlanError(Problem("transport.kind", what, "write queues: 1 for these ports in the rig"))
