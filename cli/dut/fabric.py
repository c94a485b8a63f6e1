"""Show the fabric of an InfraGraph description, and convert it into a rig and a mapping of ranks (`etloop dut fabric`)."""

from __future__ import annotations

import argparse
import ipaddress
from dataclasses import asdict
from pathlib import Path
from typing import Final

import yaml

from etloop.cli.result import CommandResult, to_json
from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.units import QuantityError, format_rate, parse_name
from etloop.controller.inputs.fabric import Attachment, Fabric
from etloop.controller.inputs.files import read_file
from etloop.controller.inputs.infragraph import read_infragraph
from etloop.dut_profiles.reading.catalogue import find_profile

FIRST_ADDRESS: Final = ipaddress.IPv4Address("198.18.0.1")
"""Address in the block reserved for benchmarks of network devices (RFC 2544, RFC 6890)."""
MOST_SHOWN: Final = 16


def show_fabric(parsed: argparse.Namespace) -> CommandResult:
    """Return the fabric of an InfraGraph description; with --out, also write rig.yaml and mapping.yaml into that directory.

    Raise `ConfigError` for descriptions that cannot be used.
    """
    description, annotations = parsed.description, parsed.annotations
    fabric = read_infragraph(
        read_file(description),
        str(description),
        None if annotations is None else read_file(annotations),
        str(annotations or ""),
    )
    paths = () if parsed.out is None else _write(fabric, str(description), parsed.out)
    if parsed.json:
        return CommandResult(to_json({**asdict(fabric), "written": paths}))
    return CommandResult(_fabric_text(fabric) + "".join(f"written: {path}\n" for path in paths))


def _fabric_text(fabric: Fabric) -> str:
    hosts = dict.fromkeys(attachment.host for attachment in fabric.attachments)
    counts = (
        f"hosts {len(hosts)}, NICs {len(fabric.attachments)}, ranks {len(fabric.rank_locations)}, "
        f"switches {len(fabric.switches)}, links between switches {len(fabric.trunks)}"
    )
    lines = [f"{fabric.name}: {counts}"]
    lines += [
        f"  {switch.name}: {switch.ports} ports connected{f', profile {switch.profile}' if switch.profile else ''}"
        for switch in fabric.switches[:MOST_SHOWN]
    ]
    ports = {attachment.nic: attachment for attachment in fabric.attachments}
    for location in fabric.rank_locations[:MOST_SHOWN]:
        port = ports[location.nic]
        rate = format_rate(port.link_bps) if port.link_bps else "an unknown rate"
        lines.append(
            f"  rank {location.rank}: {location.xpu} by {location.nic} to {port.switch_port} at {rate}"
        )
    if len(fabric.rank_locations) > MOST_SHOWN:
        lines.append(f"  and {len(fabric.rank_locations) - MOST_SHOWN} more ranks (all with --json)")
    return "\n".join([*lines, *(f"  note: {note}" for note in fabric.notes)]) + "\n"


def rig_of(fabric: Fabric, source: str) -> dict[str, object]:
    """Return the rig of a fabric: an agent per host, a port per NIC that some rank uses.

    Raise `ConfigError` with all values that a rig needs and the description lacks.
    """
    problems: list[Problem] = []
    ranks_of: dict[str, int] = {}
    for location in fabric.rank_locations:
        ranks_of[location.nic] = ranks_of.get(location.nic, 0) + 1
    used_attachments = [attachment for attachment in fabric.attachments if attachment.nic in ranks_of]
    annotated = [attachment for attachment in used_attachments if attachment.address]
    if annotated and len(annotated) < len(used_attachments):
        unannotated = next(attachment for attachment in used_attachments if not attachment.address)
        problems.append(
            Problem(source, f"{unannotated.nic} has no ipaddress, others have", "annotate all NICs or none")
        )
    agents: dict[str, list[dict[str, object]]] = {}
    next_address = FIRST_ADDRESS
    for attachment in used_attachments:
        ranks = ranks_of[attachment.nic]
        _check_port(attachment, ranks, source, problems)
        addresses = attachment.address
        if not annotated:
            last_address = next_address + ranks - 1
            addresses = f"{next_address}" if ranks == 1 else f"{next_address}-{last_address}"
            next_address = last_address + 1
        agents.setdefault(attachment.host, []).append(
            {
                "name": _port_name(attachment),
                "addresses": addresses,
                "link": format_rate(attachment.link_bps or 0),
            }
        )
    profiles = {switch.profile for switch in fabric.switches if switch.profile}
    for profile in sorted(profiles):
        try:
            find_profile(profile)
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(*problems)
    rig: dict[str, object] = {"agents": [{"name": host, "ports": ports} for host, ports in agents.items()]}
    # A rig has one device; a fabric with several profiles has no single one to name.
    return rig | ({"dut": {"profile": profiles.pop()}} if len(profiles) == 1 else {})


def _check_port(attachment: Attachment, ranks: int, source: str, problems: list[Problem]) -> None:
    if attachment.link_bps is None:
        problem = f"the link of {attachment.nic} has no bandwidth in bits or bytes per second"
        problems.append(Problem(source, problem, "give it physical.bandwidth.gigabits_per_second"))
    for name in (attachment.host, _port_name(attachment)):
        try:
            parse_name(name)
        except QuantityError as error:
            problems.append(Problem(source, f"{error.what} of an agent or port", error.remedy))
    if not attachment.address:
        return
    try:
        ipaddress.ip_address(attachment.address)
    except ValueError:
        problem = f'the ipaddress of {attachment.nic}, "{attachment.address[:64]}", is not an address'
        problems.append(Problem(source, problem, "write an IPv4 or IPv6 address"))
    if ranks > 1:
        problem = f"{ranks} ranks use {attachment.nic}, which has one address"
        problems.append(
            Problem(source, problem, "each rank needs one: leave ipaddress out and give ranges in rig.yaml")
        )


def mapping_of(fabric: Fabric) -> dict[str, object]:
    """Return the `mapping:` of a scenario that puts every rank where the fabric has it."""
    ports = {attachment.nic: _port_name(attachment) for attachment in fabric.attachments}
    per_host: dict[str, int] = {}
    for location in fabric.rank_locations:
        per_host[location.host] = per_host.get(location.host, 0) + 1
    hosts_of_ranks = [location.host for location in fabric.rank_locations]
    is_in_blocks = len(set(per_host.values())) == 1 and all(
        len(set(hosts_of_ranks[start : start + per_host[hosts_of_ranks[0]]])) == 1
        for start in range(0, len(hosts_of_ranks), per_host[hosts_of_ranks[0]])
    )
    explicit = {location.rank: f"{location.host}/{ports[location.nic]}" for location in fabric.rank_locations}
    # Ranks of one host bypass the device only if they are numbered consecutively.
    return {
        "placement": "explicit",
        "ranks_per_host": per_host[hosts_of_ranks[0]] if is_in_blocks else 1,
        "explicit": explicit,
    }


def _port_name(attachment: Attachment) -> str:
    """Return the port's name: `nic.0` of `server.0.nic.0`."""
    return attachment.nic.removeprefix(f"{attachment.host}.")


def _write(fabric: Fabric, source: str, out_dir: Path) -> tuple[str, ...]:
    files = {"rig.yaml": rig_of(fabric, source), "mapping.yaml": {"mapping": mapping_of(fabric)}}
    head = f"# Made by `etloop dut fabric` of {source!r}.\n"
    try:
        out_dir.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            with (out_dir / name).open("x") as file:
                file.write(head + yaml.safe_dump(content, sort_keys=False))
    except OSError as error:
        problem = f"cannot be written: {error.strerror or error}"
        raise ConfigError(Problem(str(out_dir), problem, "name a directory without these files")) from None
    return tuple(str(out_dir / name) for name in files)
