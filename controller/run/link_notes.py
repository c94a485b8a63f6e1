"""What became of links while a twin ran, in sentences: when they were down, who knew, and what was lost meanwhile. Pure."""

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
    """Return a note for each link that was down, and what was lost; none where all links were up. Times are the job's."""
    steps: dict[SwitchEnd, list[LinkStep]] = {}
    for step in outcome.link_steps:
        steps.setdefault(step.end, []).append(step)
    if not steps:
        return ()
    notes = [_history(topology, end, steps[end]) for end in list(steps)[:_MOST_LINKS]]
    if len(steps) > _MOST_LINKS:
        notes.append(f"{len(steps) - _MOST_LINKS} more links were down for a time")
    lost = sum(int(ports["link_dropped_packets"].sum()) for ports in outcome.switch_ports)
    if lost:
        notes.append(f"{lost} packets were lost at links that were down (link_dropped_packets)")
    if dropped := dropped_without_route(topology, outcome.switch_ports, _MOST_SWITCHES):
        notes.append(dropped)
    return (*notes, *_apart(topology, outcome.link_steps))


def _history(topology: Topology, end: SwitchEnd, steps: Sequence[LinkStep]) -> str:
    said = [f"{_WORDS[step.news]} at {format_duration(step.at_ns)}" for step in steps[:_MOST_STEPS]]
    if len(steps) > _MOST_STEPS:
        said.append(f"and {len(steps) - _MOST_STEPS} more changes")
    return f"link {topology.port_name(end)}: {', '.join(said)}{_unsettled(topology, end, steps)}"


def _unsettled(topology: Topology, end: SwitchEnd, steps: Sequence[LinkStep]) -> str:
    """What was still to be done about a link in the end."""
    news = [step.news for step in steps]
    settled = [one for one in news if one in {LinkNews.ROUTED_AROUND, LinkNews.USED_AGAIN}]
    around = settled[-1:] == [LinkNews.ROUTED_AROUND]
    if news[-1] is LinkNews.UP and around:
        return "; the job ended before it was used again"
    if news[-1] not in {LinkNews.DOWN, LinkNews.NOTICED} or around:
        return ""
    if all(end not in (link.a, link.b) for link in topology.links):
        return "; a port of the rig has no other way"
    if topology.routing.convergence_ns == FOREVER_NS:
        return "; only its own switches take other ways (routing.convergence: never)"
    convergence = format_duration(topology.routing.convergence_ns)
    return f"; the job ended before other switches routed around it (routing.convergence: {convergence})"


def _apart(topology: Topology, steps: Sequence[LinkStep]) -> tuple[str, ...]:
    """Ports of the rig to which nothing led over the links that were up in the end."""
    down: set[SwitchEnd] = set()
    for step in steps:
        if step.news in {LinkNews.DOWN, LinkNews.UP}:
            (down.add if step.news is LinkNews.DOWN else down.discard)(step.end)
    # The twin names a link by its first end.
    links = tuple(link for link in topology.links if link.a not in down)
    left = islands(replace(topology, links=links))
    if len(left) == len(islands(topology)):
        return ()
    names = [topology.attachments[number].rig_port for number in min(left, key=len)]
    more = f" and {len(names) - _MOST_PORTS} more" if len(names) > _MOST_PORTS else ""
    return (
        f"no route: over the links that were up in the end nothing leads to {', '.join(names[:_MOST_PORTS])}{more}",
    )
