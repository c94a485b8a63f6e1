"""A rig for a twin from a topology alone: every attachment becomes a port of an agent.

Decides the addresses of ports for which the topology gives none. They are used only in virtual time; a rig with real agents
states its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from etloop.contract.base.errors import PlanError, Problem
from etloop.contract.base.units import format_rate
from etloop.contract.model.topology import Attachment, Topology
from etloop.controller.run.prepare import InputFile, read_device_file

PORT_ADDRESSES: Final = 32
"""Number of addresses of a port without addresses in the topology, one for each rank on it."""
NO_KEYS: Final[Mapping[str, str]] = {}
_FRAMING: Final = {"backend": "packet", "interface": "eth0"}
MOST_PORTS: Final = 1 << 16
"""Most ports; each gets a /24 of 10.0.0.0/8."""


def derived_rig(topology: InputFile, device: str = "", *, sends_pauses: bool = False) -> InputFile:
    """Return a rig file with a port for each attachment of a topology file; `sends_pauses`: ports that can.

    Raises an `InputError` for an invalid topology.
    """
    device_topology = read_device_file(topology, device).topology
    content = rig_text(device_topology, _FRAMING if sends_pauses else {}).encode()
    return InputFile(Path(topology.path).with_name("rig.yaml"), content, f"rig made of {topology.source}")


def rig_text(topology: Topology, port_keys: Mapping[str, str] = NO_KEYS) -> str:
    """Return the YAML text of a rig for a topology, with `port_keys` at every port.

    Raises `PlanError` for too many attachments.
    """
    if len(topology.attachments) > MOST_PORTS:
        problem = f"{len(topology.attachments)} attachments, for which no rig can be made"
        raise PlanError(Problem("topology", problem, f"at most {MOST_PORTS}; write the rig yourself"))
    ports: dict[str, list[str]] = {}
    for number, attachment in enumerate(topology.attachments):
        agent, _, port = attachment.rig_port.partition("/")
        keys = {
            "name": port,
            "addresses": _addresses(number, attachment, six=topology.segments is not None),
            "link": format_rate(topology.port_of(attachment.end).rate_bps),
        }
        rail = {} if attachment.rail is None else {"rail": attachment.rail}
        ports.setdefault(agent, []).append(f"      - {json.dumps({**keys, **rail, **port_keys})}")
    lines = ["# One port for each attachment of the topology.", "agents:"]
    for agent, rows in ports.items():
        lines += [f"  - name: {json.dumps(agent)}", "    ports:", *rows]
    return "\n".join(lines) + "\n"


def first_address(number: int, attachment: Attachment) -> str:
    """Return the first address of an attachment, IPv4 if the topology states none."""
    return _addresses(number, attachment, six=False)[0].partition("-")[0]


def _addresses(number: int, attachment: Attachment, *, six: bool) -> list[str]:
    """Return the addresses of a port; IPv6 ones (`six`) if switches forward by SRv6 segments."""
    if attachment.addresses:
        return list(attachment.addresses)
    if six:
        return [f"fd00:{number:x}::1-fd00:{number:x}::{PORT_ADDRESSES:x}"]
    network = f"10.{number >> 8}.{number & 255}"
    return [f"{network}.1-{network}.{PORT_ADDRESSES}"]
