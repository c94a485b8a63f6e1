"""Imported switches and their neighbours -> a topology file, with rate and delay of every link.

Decides which neighbours are switches of the topology and which are ports of a rig. A port of a rig is called HOST/PORT, after
the neighbour. Delay is the cable's: 5 ns per metre.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import format_duration, format_rate
from etloop.dut_profiles.rules.buffers import CABLE_NS_PER_METRE
from etloop.dut_profiles.sonic.buffer_tables import Fragment
from etloop.dut_profiles.sonic.config_db import ConfigDb
from etloop.dut_profiles.sonic.neighbours import Neighbour, NeighbourKind
from etloop.dut_profiles.sonic.port_tables import Port
from etloop.dut_profiles.sonic.switch_tables import plain_name

_UNNAMED_PORT: Final = "p0"


@dataclass(frozen=True, slots=True)
class ImportedSwitch:
    """A switch of the topology; its profile can be modelled if `device` is not empty."""

    name: str
    hostname: str
    device: str
    """File name of its profile, relative to the topology."""
    db: ConfigDb
    ports: tuple[Port, ...]
    untrimmed_queues: tuple[int, ...]
    port_settings: tuple[tuple[tuple[str, ...], Fragment], ...]
    """Ports that differ from the profile's device, with their keys of `port_settings`."""
    neighbours: Mapping[str, Neighbour]
    """By name of the port."""

    def port(self, name_or_alias: str) -> Port | None:
        """Return the port of a name or alias."""
        return next((port for port in self.ports if name_or_alias in (port.name, port.alias)), None)


def topology_document(switches: tuple[ImportedSwitch, ...]) -> dict[str, list[Fragment]]:
    """Return the topology of imported switches: all switches, the links between them, and the ports of a rig on them."""
    return _Draft(switches).document()


class _Draft:
    """Collects links and attachments. Every port of an imported switch is used once."""

    def __init__(self, switches: tuple[ImportedSwitch, ...]) -> None:
        self._switches = switches
        self._by_name = {switch.hostname: switch for switch in switches} | {
            switch.name: switch for switch in switches
        }
        self._taken: set[tuple[str, str]] = set()
        self._rig_ports: set[str] = set()
        self._links: list[Fragment] = []
        self._foreign_links: list[Fragment] = []
        self._foreign_attachments: list[Fragment] = []
        self._attachments: list[Fragment] = []
        self._foreign: dict[str, str] = {}

    def document(self) -> dict[str, list[Fragment]]:
        """Return the topology file."""
        for switch in self._switches:
            for name, neighbour in switch.neighbours.items():
                port = switch.port(name)
                if port is not None and (switch.name, name) not in self._taken:
                    self._add(switch, port, neighbour)
        if not self._attachments:
            # Nothing sends or receives behind switches that are not imported: each of their links is an endpoint instead.
            self._attachments, self._foreign_links, self._foreign = self._foreign_attachments, [], {}
        if not self._attachments:
            self._attach_all()
        used = {str(end["to"]) for end in self._attachments} | {
            str(link[end]) for link in self._links + self._foreign_links for end in ("from", "to")
        }
        switches = [_switch_entry(switch, used) for switch in self._switches]
        switches += [Fragment(name=name) for name in self._foreign.values()]
        return {
            "switches": switches,
            "links": self._links + self._foreign_links,
            "attach": self._attachments,
        }

    def _add(self, switch: ImportedSwitch, port: Port, neighbour: Neighbour) -> None:
        self._taken.add((switch.name, port.name))
        if port.speed_bps is None:
            switch.db.remark(f"PORT|{port.name}", "has no speed: its link is not in the topology")
            return
        other = self._by_name.get(neighbour.device)
        if other is not None:
            self._join(switch, port, other, neighbour)
            return
        end = f"{switch.name}/{port.name}"
        label = self._rig_port(switch, port, neighbour)
        if neighbour.kind is not NeighbourKind.SWITCH:
            self._attachments.append({"port": label, "to": end, **_link(port.speed_bps, port.cable_metres)})
            return
        name = self._foreign.setdefault(neighbour.device, self._foreign_name(neighbour.device))
        link = _link(port.speed_bps, port.cable_metres)
        self._foreign_links.append({"from": end, "to": name, **link})
        self._foreign_attachments.append({"port": label, "to": end, **link})

    def _foreign_name(self, device: str) -> str:
        name = plain_name(device) or "switch"
        names = {switch.name for switch in self._switches} | set(self._foreign.values())
        return next(
            text
            for text in (name, *(f"{name[:56]}-{n}" for n in range(2, len(names) + 3)))
            if text not in names
        )

    def _rig_port(self, switch: ImportedSwitch, port: Port, neighbour: Neighbour) -> str:
        host = plain_name(neighbour.device) or f"host-{port.name}"
        label = f"{host}/{plain_name(neighbour.port) or _UNNAMED_PORT}"
        if label in self._rig_ports:
            label = f"{host}/{plain_name(f'{switch.name}-{port.name}')}"
        self._rig_ports.add(label)
        return label

    def _join(self, switch: ImportedSwitch, port: Port, other: ImportedSwitch, neighbour: Neighbour) -> None:
        far = other.port(neighbour.port)
        place = f"{neighbour.origin}: {port.name}"
        if other is switch or far is None or (other.name, far.name) in self._taken:
            reason = "is not a port" if far is None else "has another link"
            reason = "is the switch itself" if other is switch else reason
            switch.db.remark(
                place, f"{other.name}/{neighbour.port[:64]} {reason}: the link is not in the topology"
            )
            return
        self._taken.add((other.name, far.name))
        back = other.neighbours.get(far.name)
        if back is not None and self._by_name.get(back.device) is not switch:
            switch.db.remark(
                place, f"{other.name}/{far.name} names {back.device[:64]} as its neighbour instead"
            )
        if far.speed_bps is not None and far.speed_bps != port.speed_bps:
            switch.db.remark(place, f"{other.name}/{far.name} has another speed; the lower one is used")
        rates_bps = [end.speed_bps for end in (port, far) if end.speed_bps is not None]
        metres = [end.cable_metres for end in (port, far) if end.cable_metres is not None]
        if len(set(metres)) > 1:
            switch.db.remark(
                place, f"{other.name}/{far.name} states another cable length; the longer one is used"
            )
        link = _link(min(rates_bps), max(metres, default=None))
        self._links.append({"from": f"{switch.name}/{port.name}", "to": f"{other.name}/{far.name}", **link})

    def _attach_all(self) -> None:
        """Attach a port of a rig to every port that is up, of switches without neighbours."""
        for switch in self._switches:
            usable = [port for port in switch.ports if port.speed_bps is not None]
            for port in [port for port in usable if port.is_up] or usable:
                if (switch.name, port.name) not in self._taken:
                    label = f"{switch.name}-{port.name}"[:64] + f"/{_UNNAMED_PORT}"
                    link = _link(port.speed_bps or 0, port.cable_metres)
                    self._attachments.append({"port": label, "to": f"{switch.name}/{port.name}", **link})
            switch.db.remark(
                "DEVICE_NEIGHBOR", "no host is known: the topology attaches a port of a rig to every port"
            )


def _switch_entry(switch: ImportedSwitch, used: Collection[str]) -> Fragment:
    """Return the switch of the topology. `used`: its ports that have a link, as SWITCH/PORT; others cannot be named."""
    queues = {number: {"trim": False} for number in switch.untrimmed_queues}
    if not switch.device:
        return {"name": switch.name}
    port_settings = [
        {"ports": ports, **settings}
        for names, settings in switch.port_settings
        if (ports := [name for name in names if f"{switch.name}/{name}" in used])
    ]
    overrides: dict[str, object] = {"queues": queues, "port_settings": port_settings}
    return {
        "name": switch.name,
        "device": switch.device,
        **{key: value for key, value in overrides.items() if value},
    }


def _link(rate_bps: int, cable_metres: int | None) -> Fragment:
    delay: Fragment = (
        {} if cable_metres is None else {"delay": format_duration(cable_metres * CABLE_NS_PER_METRE)}
    )
    return {"rate": format_rate(rate_bps), **delay}
