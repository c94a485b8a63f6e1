"""LLDP neighbours of a switch: `lldpctl -f json`, `json0` or `xml`, and the table of `show lldp table`.

Decides the name of the other port: its id, or its description where the id is a MAC address. A device that routes is a switch.
Source: lldpd/lldpd src/client; sonic-net/sonic-utilities scripts/lldpshow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.protocol.serialization import Unreadable, parse_json
from etloop.dut_profiles.sonic.config_db import LARGEST_CONFIG_BYTES, MOST_VALUES
from etloop.dut_profiles.sonic.neighbours import Neighbour, NeighbourKind
from etloop.dut_profiles.sonic.xml_tree import Element, parse_xml

ORIGIN: Final = "LLDP"
_MANAGEMENT: Final = re.compile(r"(eth|mgmt|Management|lo|docker)")
_MAC: Final = re.compile(r"([0-9a-fA-F]{2}[:-]){5}[0-9a-fA-F]{2}")
_REMEDY: Final = "give the output of lldpctl -f json, of lldpctl -f xml, or of show lldp table"


def parse_lldp(written: bytes, source: str) -> tuple[Neighbour, ...]:
    """Return the neighbours at ports of data; those of management ports are left out. Raise `ConfigError` for other files."""
    start = written.lstrip()[:1]
    if len(written) > LARGEST_CONFIG_BYTES:
        raise ConfigError(Problem(source, f"has more than {LARGEST_CONFIG_BYTES} bytes", _REMEDY))
    if start == b"<":
        neighbours = tuple(_of_xml(parse_xml(written, source)))
    elif start in (b"{", b"["):
        neighbours = tuple(_of_json(written, source))
    else:
        neighbours = tuple(_of_table(written, source))
    if not neighbours:
        raise ConfigError(Problem(source, "names no LLDP neighbour", _REMEDY))
    return tuple(neighbour for neighbour in neighbours if not _MANAGEMENT.match(neighbour.local_port))


def _neighbour(
    local_port: str, device: str, port: str, description: str, *, routes: bool | None
) -> Neighbour:
    kind = NeighbourKind.UNKNOWN if routes is None else NeighbourKind.SWITCH if routes else NeighbourKind.HOST
    named = description if description and _MAC.fullmatch(port) and len(description) < 64 else port
    return Neighbour(local_port, device, named, kind, ORIGIN)


def _of_xml(root: Element) -> Iterator[Neighbour]:
    for interface in root.all("interface"):
        chassis, port = interface.child("chassis"), interface.child("port")
        if chassis is None or port is None:
            continue
        abilities = {
            child.attributes.get("type", ""): child.attributes.get("enabled") == "on"
            for child in chassis.children
            if child.name == "capability"
        }
        yield _neighbour(
            interface.attributes.get("name", ""),
            chassis.text_of("name") or chassis.text_of("id"),
            port.text_of("id"),
            port.text_of("descr"),
            routes=abilities.get("Router", False) if abilities else None,
        )


def _of_json(written: bytes, source: str) -> Iterator[Neighbour]:
    try:
        content = parse_json(written, MOST_VALUES)
    except Unreadable as error:
        raise ConfigError(Problem(source, f"is not JSON: {error}", _REMEDY)) from None
    for dump in _objects(_get(content, "lldp")):
        for interface in _objects(dump.get("interface")):
            # json names an interface by its key, json0 by its name.
            named = [(str(interface["name"]), interface)] if "name" in interface else list(interface.items())
            for local_port, details in named:
                for inner in _objects(details):
                    yield from _of_interface(local_port, inner)


def _of_interface(local_port: str, details: dict[str, Any]) -> Iterator[Neighbour]:
    for chassis in _objects(details.get("chassis")):
        inner, name = chassis, _value(chassis.get("name"))
        if not name and len(chassis) == 1 and isinstance(next(iter(chassis.values())), dict):
            name, inner = next(iter(chassis.items()))
            if name == "id":
                name, inner = "", chassis
        abilities = {
            str(ability.get("type")): ability.get("enabled") in (True, "on")
            for ability in _objects(inner.get("capability"))
        }
        port = next(_objects(details.get("port")), {})
        yield _neighbour(
            local_port,
            name or _value(inner.get("id")),
            _value(port.get("id")),
            _value(port.get("descr")),
            routes=abilities.get("Router", False) if abilities else None,
        )


def _get(content: object, key: str) -> object:
    return content.get(key) if isinstance(content, dict) else content


def _objects(value: object) -> Iterator[dict[str, Any]]:
    """Yield an object, or the objects of a list."""
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, dict):
            yield item


def _value(value: object) -> str:
    """Return a text that may be wrapped in a list and in an object with `value`."""
    while isinstance(value, list) and value:
        value = value[0]
    if isinstance(value, dict):
        value = value.get("value")
    return value if isinstance(value, str) else ""


def _of_table(written: bytes, source: str) -> Iterator[Neighbour]:
    """Read a table whose columns are as wide as the dashes below their titles."""
    try:
        lines = written.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ConfigError(Problem(source, f"byte {error.start} is not UTF-8", _REMEDY)) from None
    titles = next(
        (number for number, line in enumerate(lines) if line.lstrip().startswith("LocalPort")), None
    )
    if titles is None or titles + 1 >= len(lines):
        raise ConfigError(Problem(source, "is neither JSON nor XML nor a table of LLDP neighbours", _REMEDY))
    columns = [match.span() for match in re.finditer("-+", lines[titles + 1])]
    names = [lines[titles][start : end + 2].strip() for start, end in columns]
    for line in lines[titles + 2 :]:
        if not line.strip() or line.startswith(("-", "Total")):
            continue
        cells = dict(zip(names, (line[start:end].strip() for start, end in columns), strict=True))
        abilities = cells.get("Capability", "")
        yield _neighbour(
            cells.get("LocalPort", ""),
            cells.get("RemoteDevice", ""),
            cells.get("RemotePortID", ""),
            cells.get("RemotePortDescr", ""),
            routes="R" in abilities if abilities else None,
        )
