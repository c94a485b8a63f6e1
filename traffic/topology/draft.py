"""A topology while it is made of the keys of a file: switches, links and attachments in the order of the file.

This module decides how ports of switches are numbered and named.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from etloop.contract.base.yaml_reader import Section
from etloop.contract.model.topology import Attachment, SwitchEnd, SwitchLink, SwitchPort
from etloop.traffic.topology.switch_keys import SwitchKeys

_NUMBER_AT_END: Final = re.compile(r"(.*?)([0-9]{1,9})")


@dataclass(slots=True)
class Draft:
    """A topology under construction: a switch is decided once all its ports are known."""

    planes: int = 1
    plane: int = 0
    """Plane that is added to; see `in_planes`."""

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
        self.names.append(f"plane{self.plane}.{name}" if self.planes > 1 else name)
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
        """Attach a port of the rig to a new port of a switch. A plane is a rail of its own."""
        if self.planes > 1:
            rail = (rail or 0) * self.planes + self.plane
        end = self.add_port(switch, "", rate_bps, delay_ns)
        own_port = port_of_plane(rig_port, self.plane)
        self.known_as[switch].setdefault(own_port, end.port)
        self.attachments.append(Attachment(own_port, end, rail=rail))

    def in_planes(self, planes: int) -> Iterator[None]:
        """Yield once for each plane, with the draft adding to it: switches are named plane0.leaf0 and so on."""
        for plane in range(planes):
            self.planes, self.plane = planes, plane
            yield
        self.planes, self.plane = 1, 0


def port_of_plane(rig_port: str, plane: int) -> str:
    """Return the port of a plane for a port of plane 0: its number is higher by `plane`. Unchanged if it has no number."""
    match = _NUMBER_AT_END.fullmatch(rig_port)
    return rig_port if match is None else f"{match[1]}{int(match[2]) + plane}"


def has_number(rig_port: str) -> bool:
    """Return whether the name of a port ends in a number."""
    return _NUMBER_AT_END.fullmatch(rig_port) is not None
