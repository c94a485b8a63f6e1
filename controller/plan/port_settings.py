"""Captures, faults and pauses of a scenario -> the settings of each port that carries ranks, and notes on ports.

Refuses requests that no port of the run can carry out; syntax is checked by `inputs.scenario`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etloop.contract.base.errors import PlanError, Problem
from etloop.contract.model.assignment import PortBackend
from etloop.contract.model.fault_rules import FaultAction, FaultRule, PauseRule
from etloop.contract.model.transport import ArbitrationSettings, CaptureSettings, DeliveryOrder, TrimSettings
from etloop.contract.model.transport_kinds import TransportKind
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
    """Return the capture settings of every agent with ranks. Raises `PlanError` for named ports that no rank uses."""
    if not capture.wanted:
        return {}
    used_ports = [(place.agent, place.port.name) for place in placement.ports if place.is_used]
    refuse_unused_ports("transport.capture.ports", capture.ports, placement)
    captured_ports = [place for place in used_ports if not capture.ports or "/".join(place) in capture.ports]
    return {
        agent: CaptureSettings(
            tuple(port for owner, port in captured_ports if owner == agent),
            capture.snap_bytes,
            capture.file_bytes,
        )
        for agent in dict.fromkeys(agent for agent, _ in captured_ports)
    }


def refuse_unused_ports(where: str, names: tuple[str, ...], placement: Placement) -> None:
    """Raise `PlanError` with every name in `names` of a port that no rank of the run uses.

    A capture or pause requested there would not happen. `where` is the key that the error names.
    """
    used_ports = [f"{place.agent}/{place.port.name}" for place in placement.ports if place.is_used]
    unknown_ports = [name for name in names if name not in used_ports]
    if unknown_ports:
        remedy = f"use ports with ranks: {', '.join(used_ports[:8])}{', ...' if len(used_ports) > 8 else ''}"
        raise PlanError(*(Problem(where, f"no rank uses port {name}", remedy) for name in unknown_ports))


def fault_notes(rules: tuple[FaultRule, ...], placement: Placement) -> tuple[str, ...]:
    """Return notes on ports that cannot carry out fault rules, or cannot detect wrong ICRCs."""

    def labels_with(backend: PortBackend) -> str:
        return ", ".join(place.label for place in placement.ports if place.port.backend is backend)

    notes = []
    verbs_ports, udp_ports = labels_with(PortBackend.VERBS), labels_with(PortBackend.UDP)
    if rules and verbs_ports:
        notes.append(
            f"transport.faults: verbs ports use the NIC's transport, which cannot inject faults: {verbs_ports}"
        )
    if udp_ports and any(rule.action is FaultAction.CORRUPT_ICRC for rule in rules):
        notes.append(
            f"corrupt_icrc among transport.faults: udp ports cannot check ICRCs and accept such packets: {udp_ports}"
        )
    return tuple(notes)


def arbitration_notes(arbitration: ArbitrationSettings, placement: Placement) -> tuple[str, ...]:
    """Return a note on ports that arbitrate by themselves, if the scenario states an arbitration."""
    labels = ", ".join(place.label for place in placement.ports if place.port.backend is PortBackend.VERBS)
    if not labels or arbitration == ArbitrationSettings():
        return ()
    return (f"transport.arbitration: network cards of verbs ports arbitrate by themselves: {labels}",)


def trimming_notes(trimming: TrimSettings, placement: Placement) -> tuple[str, ...]:
    """Return notes on ports whose kernel or NIC drops trimmed packets before software can see them."""
    if not trimming.dscps:
        return ()
    reason_by_backend = {
        PortBackend.UDP: "in a run the kernel drops datagrams that are cut before a udp port sees them",
        PortBackend.VERBS: "in a run a network card drops packets that are cut before software sees them",
    }
    notes = []
    for backend, reason in reason_by_backend.items():
        labels = ", ".join(place.label for place in placement.ports if place.port.backend is backend)
        if labels:
            notes.append(f"transport.trimming: {reason}; backend: packet or xdp sees them: {labels}")
    return tuple(notes)


def multipath_notes(spoken: PortTransports, placement: Placement) -> tuple[str, ...]:
    """Return notes on spraying transports and on ports that cannot carry them.

    With several transports, also the note on which job uses which.
    """
    notes = [
        note for transport, ports in spoken.with_ports(placement) for note in _spray_notes(transport, ports)
    ]
    if spoken.are_several:
        descriptions = (
            f"{', '.join(jobs)} {transport.kind_name} with {transport.congestion.algorithm}"
            for transport, jobs in zip(spoken.transports, spoken.jobs, strict=True)
        )
        notes.append(f"transports of jobs, each on ports of its own: {'; '.join(descriptions)}")
    return tuple(notes)


def _spray_notes(transport: Transport, placement: Placement) -> tuple[str, ...]:
    if not transport.sprays:
        return ()
    multipath = transport.multipath
    in_order = multipath.uet.order is DeliveryOrder.SENT
    path_choice = (
        "one path, in order (ROD)"
        if in_order
        else f"{multipath.entropy_values} entropy values, {multipath.choice.name.lower()}"
    )
    kind = f"transport.kind {transport.kind_name}"
    notes = [
        f"{kind}: {transport.kind_name.upper()} in place of RoCEv2; packets of a queue pair take {path_choice}"
    ]
    unable_backends = {PortBackend.UDP, PortBackend.VERBS}
    labels = ", ".join(place.label for place in placement.ports if place.port.backend in unable_backends)
    if labels:
        notes.append(
            f"{kind}: the twin carries it everywhere; in a run only ports with backend: packet or xdp do, and "
            f"these are none: {labels}"
        )
    return tuple(notes)


def queue_notes(placement: Placement) -> tuple[str, ...]:
    """Return notes on ports with several threads: whether queue pairs or addresses are divided among them."""
    by_queue_pair: list[str] = []
    by_address: list[str] = []
    for place in placement.ports:
        if place.ranks and place.port.most_threads > 1:
            addresses_suffice = (
                place.port.backend is PortBackend.UDP and len(place.ranks) >= place.port.queues
            )
            (by_address if addresses_suffice else by_queue_pair).append(f"{place.label} {place.port.queues}")
    notes = []
    if by_queue_pair:
        notes.append(f"queues: threads that share the queue pairs of every rank: {', '.join(by_queue_pair)}")
    if by_address:
        notes.append(f"queues: threads that share the addresses: {', '.join(by_address)}")
    return tuple(notes)


def refuse_one_sided(transport: Transport, schedules: Sequence[Schedule]) -> None:
    """Raise `PlanError` if a transport that only has writes is used with an algorithm that ends its messages with atomics."""
    names = dict.fromkeys(
        schedule.algorithm for schedule in schedules if schedule.handshake is Handshake.ONE_SIDED
    )
    if not transport.sprays or not names:
        return
    kind = transport.kind_name.upper()
    text = (
        f"{kind} supports only {transport.operations}, but {', '.join(names)} ends its messages with atomics"
    )
    raise PlanError(Problem("transport.kind", text, "choose another algorithm, or kind: rocev2"))


def pauses_of(pauses: tuple[PortPause, ...], placement: Placement) -> dict[str, tuple[PauseRule, ...]]:
    """Return the pause rules of each port that can send them, by "agent/port". Raises `PlanError` with every rule that no
    port can carry out."""
    refuse_unused_ports("transport.faults", tuple(pause.port for pause in pauses if pause.port), placement)
    capable_ports = [
        f"{place.agent}/{place.port.name}"
        for place in placement.ports
        if place.is_used and place.port.backend in _FRAMING
    ]
    plane_labels = [place.label for place in placement.ports if place.planes > 1]
    if pauses and plane_labels:
        problem = (
            f"pause frames are not sent by ports that are planes of a card: {', '.join(plane_labels[:8])}"
        )
        raise PlanError(
            Problem("transport.faults", problem, "remove the pauses, or card: from the rig's ports")
        )
    idle_pauses = [
        pause for pause in pauses if not capable_ports or (pause.port and pause.port not in capable_ports)
    ]
    if idle_pauses:
        remedy = "write backend: packet or xdp in the rig; kernel sockets send no pause frames"
        raise PlanError(
            *(
                Problem("transport.faults", f"port {pause.port or '(any)'} cannot send pause frames", remedy)
                for pause in idle_pauses
            )
        )
    return {
        name: tuple(pause.rule for pause in pauses if pause.port in ("", name))
        for name in capable_ports
        if pauses
    }


def refuse_shared_contexts(transport: Transport, placement: Placement) -> None:
    """Raise `PlanError` if a UET port has several queues: they share an address, and UET has no queue pairs to divide."""
    if transport.kind is not TransportKind.UET:
        return
    port_labels = [place.label for place in placement.ports if place.ranks and place.port.queues > 1]
    if port_labels:
        problem = f"UET contexts cannot be divided among several queues: {', '.join(port_labels[:8])}"
        raise PlanError(Problem("transport.kind", problem, "write queues: 1 for these ports in the rig"))
