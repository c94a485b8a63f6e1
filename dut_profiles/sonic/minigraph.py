"""minigraph.xml -> the neighbours of a switch: DeviceInterfaceLinks between devices, with the types of the devices.

Decides which links count: those of interfaces; links to management and consoles, and inside of a chassis, are only counted.
Source: sonic-net/sonic-buildimage src/sonic-config-engine/minigraph.py.
"""

from __future__ import annotations

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.dut_profiles.sonic.neighbours import Neighbour, NeighbourKind, kind_of_type
from etloop.dut_profiles.sonic.xml_tree import Element, parse_xml

ORIGIN = "minigraph.xml"


@dataclass(frozen=True, slots=True)
class Minigraph:
    """Links of a minigraph: ends as device and port."""

    links: tuple[tuple[tuple[str, str], tuple[str, str]], ...]
    kinds: tuple[tuple[str, NeighbourKind], ...]
    left_out: int
    """Links that do not join interfaces of two devices."""

    @property
    def devices(self) -> tuple[str, ...]:
        """Return all devices that a link names."""
        return tuple(dict.fromkeys(device for link in self.links for device, _ in link))

    def neighbours_of(self, device: str) -> tuple[Neighbour, ...]:
        """Return the neighbours of one device."""
        kinds = dict(self.kinds)
        return tuple(
            Neighbour(near[1], far[0], far[1], kinds.get(far[0], NeighbourKind.UNKNOWN), ORIGIN)
            for link in self.links
            for near, far in (link, link[::-1])
            if near[0] == device
        )


def parse_minigraph(written: bytes, source: str) -> Minigraph:
    """Return the links of a minigraph; `source` names it in messages. Raise `ConfigError` for other files."""
    root = parse_xml(written, source)
    if root.name != "DeviceMiniGraph":
        problem = f"its root is {root.name[:64]}, not DeviceMiniGraph"
        raise ConfigError(Problem(source, problem, "give minigraph.xml"))
    links = []
    left_out = 0
    for element in root.all("DeviceLinkBase"):
        ends = _ends(element)
        if ends is None:
            left_out += 1
        else:
            links.append(ends)
    kinds = {
        device.text_of("Hostname"): kind_of_type(
            device.attributes.get("type") or device.text_of("ElementType")
        )
        for device in root.all("Device")
    }
    return Minigraph(tuple(links), tuple(kinds.items()), left_out)


def _ends(element: Element) -> tuple[tuple[str, str], tuple[str, str]] | None:
    kind = element.text_of("ElementType") or element.attributes.get("type", "")
    start, end = (
        (element.text_of(f"{end}Device"), element.text_of(f"{end}Port")) for end in ("Start", "End")
    )
    is_inside = element.text_of("ChassisInternal").lower() == "true"
    if kind != "DeviceInterfaceLink" or is_inside or not (start[0] and end[0]) or start[0] == end[0]:
        return None
    return start, end
