"""`timeline` of a scenario: links of the device that go down and come up while the job runs.

Decides the keys. Links are ports of a topology's switches; `link_timeline` changes them in a lab, and the twin in virtual
time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from etloop.contract.base.errors import PlanError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.setting import required_setting
from etloop.contract.base.settings_reader import read_settings
from etloop.contract.base.units import NS_PER_S, QuantityError, format_duration, parse_duration_ns
from etloop.contract.base.value_form import pattern_form, with_form
from etloop.contract.base.value_parsers import one_of, with_bounds
from etloop.contract.base.yaml_reader import Section
from etloop.contract.model.topology import SwitchEnd, Topology

MOST_EVENTS: Final = 1000
LATEST_NS: Final = 24 * 3600 * NS_PER_S
_MEANING: Final = "Links of the device that go down and come up while the job runs, in labs and the twin."
ENDED: Final = "the run had ended"
_PORT: Final = "[A-Za-z0-9._-]{1,64}/[A-Za-z0-9._-]{1,64}"
_STATES: Final = {"down": False, "up": True}


@with_form(pattern_form("SWITCH/PORT", _PORT))
def _port(text: str) -> str:
    if not re.fullmatch(_PORT, text):
        raise QuantityError(
            f'"{text[:64]}" is not a port of a switch', "write switch and port, such as leaf0/3"
        )
    return text


@dataclass(frozen=True, slots=True)
class TimelineEvent:
    """A change of the state of one link."""

    at_ns: int = required_setting(
        "at",
        with_bounds(parse_duration_ns, 0, LATEST_NS, format_duration),
        0,
        "write when, such as 2s after the start",
    )
    """Time since the start of the run."""
    link: str = required_setting("link", _port, "s/0", "name a port of a switch, such as leaf0/3")
    """A port of a switch; the other end of its link goes with it."""
    up: bool = required_setting("state", one_of(_STATES), False, "write down or up")
    """New state of the link."""
    where: str = ""
    """File, line and key, for messages."""


def read_timeline(top: Section) -> tuple[TimelineEvent, ...]:
    """Read the events, sorted by time. Mistakes are added to the file of `top`."""
    remedy = "write events such as - {at: 2s, link: leaf0/3, state: down}"
    entries: list[tuple[TimelineEvent, Section]] = []
    for section in top.up_to(MOST_EVENTS, "timeline", "events", remedy, _MEANING):
        entries.append((read_settings(TimelineEvent, section, where=section.where("link")), section))
        section.close()
    entries.sort(key=lambda pair: pair[0].at_ns)
    is_up: dict[str, bool] = {}
    for event, section in entries:
        if is_up.get(event.link, True) == event.up:
            problem = f"{event.link} is already {'up' if event.up else 'down'} at that time"
            section.mistake("state", problem, "alternate down and up")
        is_up[event.link] = event.up
    return tuple(event for event, _ in entries)


def ends_of(events: Sequence[TimelineEvent], topology: Topology) -> tuple[SwitchEnd, ...]:
    """Return the switch port of each event. Raises `PlanError` with every one that the topology does not have."""
    end_by_name = {
        f"{switch.name}/{port.name}": SwitchEnd(number, index)
        for number, switch in enumerate(topology.switches)
        for index, port in enumerate(switch.ports)
    }
    end_of_rig_port = {
        attachment.rig_port: topology.port_name(attachment.end) for attachment in topology.attachments
    }
    refuse_unknown(events, tuple(end_by_name), end_of_rig_port)
    return tuple(end_by_name[event.link] for event in events)


def refuse_unknown(
    events: Sequence[TimelineEvent], ports: Sequence[str], attached: Mapping[str, str]
) -> None:
    """Raise `PlanError` with every event whose link is not one of `ports`.

    `attached` has by port of the rig the switch port that it is connected to, for the remedy.
    """
    problems = [
        Problem(
            event.where or "timeline",
            f'no switch has the port "{event.link}"',
            f"write {attached[event.link]}, which it is on"
            if event.link in attached
            else _offer(event.link, ports),
        )
        for event in events
        if event.link not in ports
    ]
    if problems:
        raise PlanError(*problems)


def _offer(link: str, ports: Sequence[str]) -> str:
    switch = link.partition("/")[0]
    switch_ports = [port for port in ports if port.partition("/")[0] == switch]
    if switch_ports:
        return f"{switch} has {', '.join(switch_ports[:12])}"
    switches = list(dict.fromkeys(port.partition("/")[0] for port in ports))
    return f"the switches are {', '.join(switches[:12])}"
