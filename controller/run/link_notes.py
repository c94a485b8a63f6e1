"""Notes on links that were down while a twin ran: the times of each change, how routing reacted, and the packets lost. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from etloop.contract.base.units import format_duration
from etloop.contract.model.topology import FOREVER_NS, SwitchEnd, Topology
from etloop.traffic.topology.routes import islands
from etloop.traffic.twin import LinkNews, LinkStep, dropped_without_route

if TYPE_CHECKING:
    from etloop.traffic.twin import TwinOutcome

_MOST_LINKS: Final = 8
_MOST_STEPS: Final = 12
_MOST_SWITCHES: Final = 8
_MOST_PORTS: Final = 4
_WORDS: Final = {
    LinkNews.DOWN: "down",
    LinkNews.NOTICED: "noticed",
    LinkNews.ROUTED_AROUND: "routed around",
    LinkNews.UP: "up",
    LinkNews.USED_AGAIN: "used again",
}


def link_notes(topology: Topology, outcome: TwinOutcome) -> tuple[str, ...]:
    """Return a note for each link that was down, and notes on lost packets and ports cut off; () if all links stayed up.

    Times are since the start of the job.
    """
    steps: dict[SwitchEnd, list[LinkStep]] = {}
    for step in outcome.link_steps:
        steps.setdefault(step.end, []).append(step)
    if not steps:
        return ()
    notes = [_link_history(topology, end, steps[end]) for end in list(steps)[:_MOST_LINKS]]
    if len(steps) > _MOST_LINKS:
        notes.append(f"{len(steps) - _MOST_LINKS} more links were down for a time")
    lost_packets = sum(int(ports["link_dropped_packets"].sum()) for ports in outcome.switch_ports)
    if lost_packets:
        notes.append(f"{lost_packets} packets were lost at links that were down (link_dropped_packets)")
    if drop_note := dropped_without_route(topology, outcome.switch_ports, _MOST_SWITCHES):
        notes.append(drop_note)
    return (*notes, *_cut_off_ports(topology, outcome.link_steps))


def _link_history(topology: Topology, end: SwitchEnd, steps: Sequence[LinkStep]) -> str:
    changes = [f"{_WORDS[step.news]} at {format_duration(step.at_ns)}" for step in steps[:_MOST_STEPS]]
    if len(steps) > _MOST_STEPS:
        changes.append(f"and {len(steps) - _MOST_STEPS} more changes")
    return f"link {topology.port_name(end)}: {', '.join(changes)}{_pending_reaction(topology, end, steps)}"


def _pending_reaction(topology: Topology, end: SwitchEnd, steps: Sequence[LinkStep]) -> str:
    """Return the routing changes for a link that were pending at the end of the job; "" without any."""
    news = [step.news for step in steps]
    route_changes = [change for change in news if change in {LinkNews.ROUTED_AROUND, LinkNews.USED_AGAIN}]
    is_routed_around = route_changes[-1:] == [LinkNews.ROUTED_AROUND]
    if news[-1] is LinkNews.UP and is_routed_around:
        return "; the job ended before it was used again"
    if news[-1] not in {LinkNews.DOWN, LinkNews.NOTICED} or is_routed_around:
        return ""
    if all(end not in (link.a, link.b) for link in topology.links):
        return "; a port of the rig has no other way"
    if topology.routing.convergence_ns == FOREVER_NS:
        return "; only its own switches take other ways (routing.convergence: never)"
    convergence = format_duration(topology.routing.convergence_ns)
    return f"; the job ended before other switches routed around it (routing.convergence: {convergence})"


def _cut_off_ports(topology: Topology, steps: Sequence[LinkStep]) -> tuple[str, ...]:
    """Return a note on ports of the rig that the links up at the end do not connect to the rest; () if there are none."""
    ends_down: set[SwitchEnd] = set()
    for step in steps:
        if step.news in {LinkNews.DOWN, LinkNews.UP}:
            (ends_down.add if step.news is LinkNews.DOWN else ends_down.discard)(step.end)
    # A step names a link by its first end.
    links_up = tuple(link for link in topology.links if link.a not in ends_down)
    components = islands(replace(topology, links=links_up))
    if len(components) == len(islands(topology)):
        return ()
    names = [topology.attachments[number].rig_port for number in min(components, key=len)]
    more = f" and {len(names) - _MOST_PORTS} more" if len(names) > _MOST_PORTS else ""
    return (
        f"no route: over the links that were up in the end nothing leads to {', '.join(names[:_MOST_PORTS])}{more}",
    )
