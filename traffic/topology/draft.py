"""A topology while it is read: switches, links and attachments in the order in which a file names them.

This module decides how ports of switches are numbered and named, and the ranges of a link's rate and delay.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from etloop.contract.base.units import (
    NS_PER_S,
    format_duration,
    format_rate,
    parse_duration_ns,
    parse_rate_bps,
)
from etloop.contract.base.value_parsers import bounded
from etloop.contract.base.yaml_reader import Section
from etloop.contract.model.topology import Attachment, SwitchEnd, SwitchLink, SwitchPort

DEFAULT_DELAY_NS: Final = 100
"""Delay of twenty metres of cable."""
LINK_RATE: Final = bounded(parse_rate_bps, 1_000_000, 3_200_000_000_000, format_rate)
LINK_DELAY: Final = bounded(parse_duration_ns, 0, NS_PER_S // 10, format_duration)


@dataclass(slots=True)
class Draft:
    """A topology under construction: a switch is described once all its ports are known."""

    names: list[str] = field(default_factory=list)
    sections: list[Section] = field(default_factory=list)
    ports: list[list[SwitchPort]] = field(default_factory=list)
    known_as: list[dict[str, int]] = field(default_factory=list)
    """Per switch: port numbers by port name and by the name of the rig's port on it."""
    links: list[SwitchLink] = field(default_factory=list)
    attachments: list[Attachment] = field(default_factory=list)
    one_by_one: bool = False
    """Whether every switch has its own section with a name."""

    def add_switch(self, name: str, section: Section) -> int:
        """Add a switch without ports; return its number."""
        self.names.append(name)
        self.sections.append(section)
        self.ports.append([])
        self.known_as.append({})
        return len(self.names) - 1

    def add_port(self, switch: int, name: str, rate_bps: int, delay_ns: int) -> SwitchEnd:
        """Add a port to a switch, named after its number if `name` is empty."""
        port = len(self.ports[switch])
        self.ports[switch].append(SwitchPort(name or str(port), rate_bps, delay_ns))
        self.known_as[switch][name or str(port)] = port
        return SwitchEnd(switch, port)

    def link(self, a: int, b: int, rate_bps: int, delay_ns: int) -> None:
        """Link two switches by a new port on each."""
        ends = [self.add_port(switch, "", rate_bps, delay_ns) for switch in (a, b)]
        self.links.append(SwitchLink(ends[0], ends[1]))

    def attach(
        self, switch: int, rig_port: str, rate_bps: int, delay_ns: int, rail: int | None = None
    ) -> None:
        """Attach a port of the rig to a new port of a switch."""
        end = self.add_port(switch, "", rate_bps, delay_ns)
        self.known_as[switch].setdefault(rig_port, end.port)
        self.attachments.append(Attachment(rig_port, end, rail=rail))


def link_of(section: Section, rate: str, delay: str) -> tuple[int, int]:
    """Read rate (bits per second) and delay (ns) of a link; the rate is required."""
    remedy = 'write the speed of the link, such as "100Gbps"'
    return section.required(rate, LINK_RATE, 1, remedy), section.optional(delay, LINK_DELAY, DEFAULT_DELAY_NS)
