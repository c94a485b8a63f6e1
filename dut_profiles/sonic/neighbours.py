"""Neighbours of a switch from CONFIG_DB: DEVICE_NEIGHBOR, and the kinds of devices that DEVICE_NEIGHBOR_METADATA states.

Decides which neighbours are switches. `lldp` and `minigraph` read the same from other files.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

from etloop.contract.base.late_dataclass import dataclass
from etloop.dut_profiles.sonic.config_db import ConfigDb
from etloop.dut_profiles.sonic.port_tables import Port


class NeighbourKind(StrEnum):
    """Kind of the device at the other end of a link."""

    SWITCH = "switch"
    HOST = "host"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Neighbour:
    """The other end of the link at one port of a switch."""

    local_port: str
    """Name or alias of the port of the switch itself."""
    device: str
    port: str
    """Port of the other device, in its own words; "" if unknown."""
    kind: NeighbourKind = NeighbourKind.UNKNOWN
    origin: str = "DEVICE_NEIGHBOR"


def kind_of_type(text: str) -> NeighbourKind:
    """Return the kind of a device by its type in SONiC's metadata, such as LeafRouter or Server."""
    folded = text.lower()
    if "server" in folded or "host" in folded:
        return NeighbourKind.HOST
    if any(word in folded for word in ("router", "switch", "tor", "leaf", "spine", "fabric")):
        return NeighbourKind.SWITCH
    return NeighbourKind.UNKNOWN


def configured_neighbours(db: ConfigDb) -> tuple[Neighbour, ...]:
    """Return the neighbours that DEVICE_NEIGHBOR states, keyed by port, or by device as before 2018."""
    kinds = {
        name: kind_of_type(row.text("type") or "")
        for name, row in db.rows("DEVICE_NEIGHBOR_METADATA").items()
    }
    neighbours = []
    for key, row in db.rows("DEVICE_NEIGHBOR").items():
        local_port = row.text("local_port")
        device = row.text("name") or (key if local_port else None)
        if device is None:
            row.remark("name", "is missing: the neighbour is unknown")
            continue
        kind = kinds.get(device, NeighbourKind.UNKNOWN)
        if local_port is not None and kind is NeighbourKind.UNKNOWN:
            kind = kind_of_type(row.text("type") or "")
        neighbours.append(Neighbour(local_port or key, device, row.text("port") or "", kind))
    return tuple(neighbours)


def by_local_port(
    db: ConfigDb, ports: tuple[Port, ...], neighbours: tuple[Neighbour, ...]
) -> dict[str, Neighbour]:
    """Return one neighbour per port of the switch, ports by name; those that come later replace earlier ones.

    A neighbour at a port that the switch lacks, and two origins that contradict each other, are remarked.
    """
    names = {port.name: port.name for port in ports} | {port.alias: port.name for port in ports if port.alias}
    chosen: dict[str, Neighbour] = {}
    for neighbour in neighbours:
        port = names.get(neighbour.local_port)
        if port is None:
            db.remark(neighbour.origin, f'"{neighbour.local_port[:64]}" is not a port of PORT')
            continue
        earlier = chosen.get(port)
        if earlier is not None and earlier.device != neighbour.device:
            text = f"{port} leads to {earlier.device[:64]} by {earlier.origin}, to {neighbour.device[:64]} by {neighbour.origin}"
            db.remark(neighbour.origin, f"{text}; the latter is used")
        is_known = earlier is not None and earlier.device == neighbour.device
        kind = (
            earlier.kind
            if earlier and is_known and neighbour.kind is NeighbourKind.UNKNOWN
            else neighbour.kind
        )
        chosen[port] = replace(neighbour, local_port=port, kind=kind)
    return chosen
