"""`etloop lab`: soft switches between namespaces of this host, or between interfaces. Arguments in, answers out."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from etloop.cli.result import CommandResult, to_json
from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.units import QuantityError, parse_name
from etloop.contract.protocol.codec import plain
from etloop.contract.protocol.lab import LabStatus
from etloop.contract.protocol.typed_form import FILE_RULES
from etloop.controller.inputs.files import read_file
from etloop.lab.client import lab_down, lab_exec, lab_status, set_link
from etloop.lab.request import LabOrder
from etloop.runtime.stop_signals import terminate_as_interrupt


def lab_command(parsed: argparse.Namespace) -> CommandResult:
    """Carry out one action. Raise `InputError` if it fails."""
    if parsed.action == "plug":
        return _plug(parsed)
    _check_name(parsed.name)
    match parsed.action:
        case "up":
            return _up(parsed)
        case "attach":
            return _attach(parsed)
        case "status":
            return _shown(lab_status(parsed.name), as_json=parsed.json)
        case "gnmi":
            from etloop.lab.gnmi import order_of, serve

            serve(order_of(parsed))
            return CommandResult("")
        case "exec":
            command = parsed.words[1:] if parsed.words[:1] == ["--"] else parsed.words
            if not command:
                raise ConfigError(
                    Problem("lab exec", "no command is given", "write it after --, such as -- ip address")
                )
            return CommandResult("", lab_exec(parsed.name, parsed.agent, command))
        case "link":
            set_link(parsed.name, parsed.port, up=parsed.state == "up")
            return CommandResult(to_json({}) if parsed.json else f"link {parsed.port} is {parsed.state}\n")
        case _:
            was_up = lab_down(parsed.name)
            text = "taken down" if was_up else "was killed before; removed its logs, nothing else was left"
            return CommandResult(
                to_json({"was_up": was_up}) if parsed.json else f"lab {parsed.name}: {text}\n"
            )


def _up(parsed: argparse.Namespace) -> CommandResult:
    from etloop.dut_profiles.device_topology import parse_modelled_topology
    from etloop.lab.client import lab_up, refuse_taken_names
    from etloop.lab.plan import plan_lab, rig_text
    from etloop.lab.profile import map_deviations

    if parsed.allow_plugins and not parsed.agents:
        remedy = "add --agents, or start your own with etloop-agent run --allow-plugins"
        raise ConfigError(Problem("--allow-plugins", "is for the lab's own agents, which has none", remedy))
    text = _read_text(parsed.topology)
    order = LabOrder(
        name=parsed.name,
        topology=text,
        source=str(parsed.topology),
        mtu_bytes=parsed.mtu,
        addresses=parsed.addresses,
        bind=parsed.bind,
        backend=parsed.backend,
        agents=parsed.agents,
        allow_plugins=parsed.allow_plugins,
        measure=not parsed.unmeasured,
        allow_overcommit=parsed.allow_overcommit,
        gnmi=_loopback_gnmi(parsed.gnmi),
    )
    topology = parse_modelled_topology(text.encode(), order.source, parsed.topology.parent)
    plan = plan_lab(topology, mtu_bytes=order.mtu_bytes, addresses=order.addresses, bind=order.bind)
    if order.agents:
        refuse_taken_names(plan)
    status = lab_up(order)
    notes: tuple[str, ...] | None = None
    if parsed.rig_out is not None:
        relative_topology = os.path.relpath(parsed.topology, parsed.rig_out.parent)
        _write(
            parsed.rig_out,
            rig_text(plan, backend=order.backend, topology=relative_topology, lab=order.name),
            parsed.name,
        )
        notes = map_deviations(topology)
    return _shown(status, notes, as_json=parsed.json)


def _loopback_gnmi(text: str) -> str:
    from etloop.lab.gnmi import bind_of, is_loopback

    if text and not is_loopback(bind := bind_of(text, "--gnmi")):
        remedy = "give one of 127.0.0.0/8, or run etloop lab gnmi, which has TLS"
        raise ConfigError(Problem("--gnmi", f"{bind} is reachable from other machines", remedy))
    return str(bind) if text else ""


def _attach(parsed: argparse.Namespace) -> CommandResult:
    from etloop.lab.attach import last_words, serve_attached
    from etloop.lab.status import status_text

    order = LabOrder(
        name=parsed.name,
        topology=_read_text(parsed.topology),
        source=str(parsed.topology),
        mtu_bytes=parsed.mtu,
        addresses=parsed.addresses,
        measure=not parsed.unmeasured,
        allow_overcommit=parsed.allow_overcommit,
    )

    def shown(status: LabStatus) -> str:
        return to_json(plain(status, FILE_RULES)) if parsed.json else status_text(status)

    def report(status: LabStatus) -> None:
        print(shown(status), flush=True)

    # Also covers the wait for interfaces: the first process of a container ignores signals that it does not handle.
    with terminate_as_interrupt():
        return CommandResult(
            *last_words(serve_attached(order, tuple(parsed.port), parsed.wait / NS_PER_S, report), shown)
        )


def _plug(parsed: argparse.Namespace) -> CommandResult:
    from etloop.dut_profiles.device_topology import parse_modelled_topology
    from etloop.lab.plan import plan_lab
    from etloop.lab.plug import plug
    from etloop.lab.wiring import agent_named

    topology = parse_modelled_topology(
        _read_text(parsed.topology).encode(), str(parsed.topology), parsed.topology.parent
    )
    plan = plan_lab(topology, mtu_bytes=parsed.mtu, addresses=parsed.addresses)
    port_texts = plug(plan, agent_named(plan, parsed.agent), parsed.into)
    return CommandResult(to_json({"ports": port_texts}) if parsed.json else "\n".join(port_texts) + "\n")


def _read_text(path: Path) -> str:
    try:
        return read_file(path).decode()
    except UnicodeDecodeError:
        problem = "cannot be read: it is not UTF-8 text"
        raise ConfigError(Problem(str(path), problem, "name a topology file")) from None


def _write(path: Path, text: str, lab: str) -> None:
    from etloop.lab.client import lab_down

    try:
        path.write_text(text)
    except OSError as error:
        lab_down(lab)
        problem = f"cannot be written: {error.strerror}; the lab is down again"
        raise ConfigError(Problem(str(path), problem, "name another file with --rig-out")) from None


def _shown(status: LabStatus, notes: tuple[str, ...] | None = None, *, as_json: bool) -> CommandResult:
    from etloop.lab.status import status_text

    if as_json:
        notes_row = {} if notes is None else {"notes": notes}
        return CommandResult(to_json(plain(status, FILE_RULES) | notes_row))
    return CommandResult(status_text(status) + "".join(f"note: {note}\n" for note in notes or ()))


def _check_name(name: str) -> None:
    try:
        parse_name(name)
    except QuantityError as error:
        raise ConfigError(Problem("--name", error.what, error.remedy)) from None
