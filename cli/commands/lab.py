"""Run soft switches between namespaces of this host, with agents in them, or between interfaces."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etloop.cli.arguments.inputs import add_json, add_strict
from etloop.cli.arguments.values import parse_duration, parse_size, parse_whole
from etloop.cli.result import CommandResult, to_json
from etloop.lab.plan import DEFAULT_ADDRESSES, DEFAULT_BIND, DEFAULT_MTU_BYTES

if TYPE_CHECKING:
    from etloop.contract.protocol.lab import LabStatus

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - argparse has no public name for it

EXAMPLE: Final = (
    "  etloop lab up topology.yaml --rig-out rig.yaml --agents\n"
    "  etloop run scenario.yaml --rig rig.yaml --out run1/\n"
    "  etloop lab status\n"
    "  etloop lab exec a -- ping -c 3 198.18.2.1\n"
    "  etloop lab down\n"
    "  etloop lab attach topology.yaml --port a/p0=eth1 --port b/p0=eth2     a switch between two NICs"
)
_NAME: Final = "lab"
DEFAULT_GNMI_BIND: Final = "127.0.0.1:9339"
_BACKENDS: Final = ("udp", "packet", "xdp")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions, each with its own options."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    up = actions.add_parser("up", help="start a lab with the switches of a topology")
    up.add_argument("--rig-out", type=Path, metavar="FILE", help="write a rig file for the lab's agents")
    up.add_argument("--agents", action="store_true", help="start an agent in every namespace")
    up.add_argument(
        "--allow-plugins",
        action="store_true",
        help="with --agents: the agents compile and run congestion control plugins of scenarios",
    )
    up.add_argument(
        "--backend", choices=_BACKENDS, default="udp", help="port backend in the rig file (default udp)"
    )
    up.add_argument(
        "--bind",
        default=DEFAULT_BIND,
        metavar="ENDPOINT",
        help=f"listen address of the controller in the rig file (default {DEFAULT_BIND})",
    )
    up.add_argument(
        "--gnmi",
        default="",
        metavar="ADDRESS:PORT",
        help="serve the switch counters by gNMI, without TLS, on a loopback address",
    )
    attach = _add_attach(actions)
    plug = actions.add_parser(
        "plug", help="connect an agent's ports in this network namespace to the switch of etloop lab attach"
    )
    _add_network(plug)
    plug.add_argument("agent", metavar="AGENT", help="name of the agent in the topology file")
    plug.add_argument(
        "--into", type=parse_whole, required=True, metavar="PID", help="process id of etloop lab attach"
    )
    for action in (up, attach):
        _add_network(action)
        _add_capacity_options(action)
        add_strict(action)
    status = actions.add_parser("status", help="show the lab and its switch counters")
    gnmi = actions.add_parser("gnmi", help="serve the switch counters by gNMI")
    _add_gnmi_arguments(gnmi)
    execute = actions.add_parser("exec", help="run a command in an agent's namespace")
    execute.add_argument("agent", metavar="AGENT", help="agent whose namespace is used")
    execute.add_argument(
        "words", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="command with its arguments"
    )
    link = actions.add_parser("link", help="set a switch link down or up")
    link.add_argument("port", metavar="SWITCH/PORT", help="port of a switch")
    link.add_argument("state", choices=("down", "up"), help="new state")
    down = actions.add_parser("down", help="stop the lab and remove its namespaces")
    for action in (up, attach, status, execute, link, down):
        action.add_argument("--name", default=_NAME, help=f"name of the lab (default {_NAME})")
    for action in (up, attach, plug, status, execute, link, down):
        add_json(action)


def _add_gnmi_arguments(gnmi: argparse.ArgumentParser) -> None:
    gnmi.add_argument(
        "--bind",
        default=DEFAULT_GNMI_BIND,
        metavar="ADDRESS:PORT",
        help=f"listen address (default {DEFAULT_GNMI_BIND})",
    )
    gnmi.add_argument(
        "--tls-cert", type=Path, metavar="FILE", help="server certificate (PEM); default: no TLS"
    )
    gnmi.add_argument("--tls-key", type=Path, metavar="FILE", help="private key of --tls-cert (PEM)")
    gnmi.add_argument(
        "--client-ca",
        type=Path,
        metavar="FILE",
        help="CA certificate (PEM): accept only clients with a certificate signed by it",
    )
    gnmi.add_argument(
        "--credentials",
        type=Path,
        metavar="FILE",
        help="file with the user and password that clients must send",
    )
    gnmi.add_argument(
        "--insecure", action="store_true", help="allow addresses that other machines can reach without TLS"
    )
    gnmi.add_argument("--name", default=_NAME, help=f"name of the lab (default {_NAME})")


def _add_attach(actions: Subparsers) -> argparse.ArgumentParser:
    attach = actions.add_parser(
        "attach",
        help="run only the switch, between interfaces of this network namespace, until Ctrl-C or SIGTERM",
    )
    attach.add_argument(
        "--port",
        action="append",
        default=[],
        metavar="AGENT/PORT=INTERFACE",
        help="interface of a topology port; repeat for each port (default: veth pairs of etloop lab plug)",
    )
    attach.add_argument(
        "--wait",
        type=parse_duration,
        default=0,
        metavar="TIME",
        help="how long to wait for missing interfaces (default 0s)",
    )
    return attach


def _add_network(command: argparse.ArgumentParser) -> None:
    """Add the topology, and the options that change the lab made from it."""
    command.add_argument("topology", type=Path, metavar="TOPOLOGY", help="topology.yaml")
    command.add_argument(
        "--addresses",
        type=parse_whole,
        default=DEFAULT_ADDRESSES,
        metavar="N",
        help=f"addresses of a port for which the topology has none, one per rank (default {DEFAULT_ADDRESSES})",
    )
    command.add_argument(
        "--mtu",
        type=parse_size,
        default=DEFAULT_MTU_BYTES,
        metavar="SIZE",
        help=f"MTU of the interfaces (default {DEFAULT_MTU_BYTES}B)",
    )


def _add_capacity_options(command: argparse.ArgumentParser) -> None:
    capacity_options = command.add_mutually_exclusive_group()
    capacity_options.add_argument(
        "--allow-overcommit", action="store_true", help="start even if this host cannot sustain the rates"
    )
    capacity_options.add_argument(
        "--unmeasured", action="store_true", help="do not measure which rates this host sustains"
    )


def run(parsed: argparse.Namespace) -> CommandResult:
    """Carry out one action. Raise `InputError` if it fails."""
    from etloop.contract.base.errors import ConfigError, Problem
    from etloop.lab.client import lab_down, lab_exec, lab_status, set_link

    if parsed.action == "plug":
        return _plug(parsed)
    _check_name(parsed.name)
    match parsed.action:
        case "up":
            return _up(parsed)
        case "attach":
            return _attach(parsed)
        case "status":
            return _show_status(lab_status(parsed.name), as_json=parsed.json)
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
            text = "stopped" if was_up else "was killed before; its logs are removed"
            return CommandResult(
                to_json({"was_up": was_up}) if parsed.json else f"lab {parsed.name}: {text}\n"
            )


def _up(parsed: argparse.Namespace) -> CommandResult:
    import os

    from etloop.contract.base.errors import ConfigError, Problem
    from etloop.dut_profiles.described_switch import topology_notes
    from etloop.dut_profiles.device_topology import parse_modelled_topology
    from etloop.lab.client import lab_up, refuse_taken_names
    from etloop.lab.plan import plan_lab, rig_text
    from etloop.lab.profile import map_deviations
    from etloop.lab.request import LabOrder

    if parsed.allow_plugins and not parsed.agents:
        remedy = "add --agents, or start agents yourself with etloop-agent run --allow-plugins"
        raise ConfigError(Problem("--allow-plugins", "needs agents of the lab", remedy))
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
    notes = topology_notes(topology, order.source, strict=parsed.strict)
    if order.agents:
        refuse_taken_names(plan)
    status = lab_up(order)
    if parsed.rig_out is not None:
        relative_topology = os.path.relpath(parsed.topology, parsed.rig_out.parent)
        _write(
            parsed.rig_out,
            rig_text(plan, backend=order.backend, topology=relative_topology, lab=order.name),
            parsed.name,
        )
        notes += map_deviations(topology)
    return _show_status(status, notes, as_json=parsed.json)


def _loopback_gnmi(text: str) -> str:
    from etloop.contract.base.errors import ConfigError, Problem
    from etloop.lab.gnmi import bind_of, is_loopback

    if text and not is_loopback(bind := bind_of(text, "--gnmi")):
        remedy = "give one of 127.0.0.0/8, or run etloop lab gnmi, which has TLS"
        raise ConfigError(Problem("--gnmi", f"{bind} is reachable from other machines", remedy))
    return str(bind) if text else ""


def _attach(parsed: argparse.Namespace) -> CommandResult:
    import sys

    from etloop.contract.base.clock import NS_PER_S
    from etloop.contract.protocol.codec import plain
    from etloop.contract.protocol.typed_form import FILE_RULES
    from etloop.dut_profiles.described_switch import topology_notes
    from etloop.dut_profiles.device_topology import parse_modelled_topology
    from etloop.lab.attach import last_words, serve_attached
    from etloop.lab.request import LabOrder
    from etloop.lab.status import status_text
    from etloop.runtime.stop_signals import terminate_as_interrupt

    order = LabOrder(
        name=parsed.name,
        topology=_read_text(parsed.topology),
        source=str(parsed.topology),
        mtu_bytes=parsed.mtu,
        addresses=parsed.addresses,
        measure=not parsed.unmeasured,
        allow_overcommit=parsed.allow_overcommit,
    )

    topology = parse_modelled_topology(order.topology.encode(), order.source, parsed.topology.parent)
    for note in topology_notes(topology, order.source, strict=parsed.strict):
        print(f"warning: {note}", file=sys.stderr, flush=True)

    def render(status: LabStatus) -> str:
        return to_json(plain(status, FILE_RULES)) if parsed.json else status_text(status)

    def report(status: LabStatus) -> None:
        print(render(status), flush=True)

    # Also covers the wait for interfaces: the first process of a container ignores signals that it does not handle.
    with terminate_as_interrupt():
        return CommandResult(
            *last_words(serve_attached(order, tuple(parsed.port), parsed.wait / NS_PER_S, report), render)
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
    from etloop.contract.base.errors import ConfigError, Problem
    from etloop.controller.inputs.files import read_file

    try:
        return read_file(path).decode()
    except UnicodeDecodeError:
        problem = "cannot be read: it is not UTF-8 text"
        raise ConfigError(Problem(str(path), problem, "name a topology file")) from None


def _write(path: Path, text: str, lab: str) -> None:
    from etloop.contract.base.errors import ConfigError, Problem
    from etloop.lab.client import lab_down

    try:
        path.write_text(text)
    except OSError as error:
        lab_down(lab)
        problem = f"cannot be written: {error.strerror}; the lab is stopped again"
        raise ConfigError(Problem(str(path), problem, "name another file with --rig-out")) from None


def _show_status(status: LabStatus, notes: tuple[str, ...] | None = None, *, as_json: bool) -> CommandResult:
    from etloop.contract.protocol.codec import plain
    from etloop.contract.protocol.typed_form import FILE_RULES
    from etloop.lab.status import status_text

    if as_json:
        notes_row = {} if notes is None else {"notes": notes}
        return CommandResult(to_json(plain(status, FILE_RULES) | notes_row))
    return CommandResult(status_text(status) + "".join(f"note: {note}\n" for note in notes or ()))


def _check_name(name: str) -> None:
    from etloop.contract.base.errors import ConfigError, Problem
    from etloop.contract.base.units import QuantityError, parse_name

    try:
        parse_name(name)
    except QuantityError as error:
        raise ConfigError(Problem("--name", error.what, error.remedy)) from None
