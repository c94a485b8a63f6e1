"""A topology while it is made of the keys of a file: switches, links and attachments in the order of the file.

This module decides how ports of switches are numbered and named.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from etloop.contract.base.yaml_reader import Section
from etloop.contract.model.topology import Attachment, SwitchEnd, SwitchLink, SwitchPort
from etloop.traffic.topology.switch_keys import SwitchKeys


@dataclass(slots=True)
class Draft:
    """A topology under construction: a switch is decided once all its ports are known."""

    names: list[str] = field(default_factory=list)
    keys: list[SwitchKeys] = field(default_factory=list)
    places: list[Section] = field(default_factory=list)
    """Sections of the keys, for mistakes."""
    ports: list[list[SwitchPort]] = field(default_factory=list)
    known_as: list[dict[str, int]] = field(default_factory=list)
    """Per switch: port numbers by port name and by the name of the rig's port on it."""
    links: list[SwitchLink] = field(default_factory=list)
    attachments: list[Attachment] = field(default_factory=list)

    def add_switch(self, name: str, keys: SwitchKeys, place: Section) -> int:
        """Add a switch without ports; return its number."""
        self.names.append(name)
        self.keys.append(keys)
        self.places.append(place)
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
