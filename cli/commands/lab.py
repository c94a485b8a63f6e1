"""`etloop lab`: switches of software between namespaces of this host, or between interfaces. Arguments in, answers out."""

from __future__ import annotations

import argparse
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etloop.cli.parser import Commands
from etloop.cli.result import CommandResult, to_json
from etloop.cli.values import quantity, whole
from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.errors import ConfigError, ExitCode, Problem
from etloop.contract.base.units import QuantityError, parse_bytes, parse_duration_ns, parse_name
from etloop.controller.inputs.files import read_file
from etloop.lab.plan import DEFAULT_ADDRESSES, DEFAULT_BIND, DEFAULT_MTU_BYTES
from etloop.lab.request import LabOrder

if TYPE_CHECKING:
    from etloop.lab.status import Values

SUMMARY: Final = (
    "run switches of software, between namespaces of this host with agents in them or between interfaces"
)
EXAMPLE: Final = """\
  etloop lab up topology.yaml --rig-out rig.yaml --agents
  etloop run scenario.yaml --rig rig.yaml --out run1/
  etloop lab status
  etloop lab exec a -- ping -c 3 198.18.2.1
  etloop lab down
  etloop lab attach topology.yaml --port a/p0=eth1 --port b/p0=eth2     a switch between two network cards"""
_NAME: Final = "lab"
DEFAULT_GNMI_BIND: Final = "127.0.0.1:9339"
_BACKENDS: Final = ("udp", "packet", "xdp")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What stands after `etloop lab`."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    up = actions.add_parser("up", help="make a lab of a topology file")
    up.add_argument("--rig-out", type=Path, metavar="FILE", help="also write a rig file for its agents")
    up.add_argument("--agents", action="store_true", help="also start an agent in every namespace")
    up.add_argument("--backend", choices=_BACKENDS, default="udp", help="of the rig's ports (default udp)")
    up.add_argument(
        "--bind",
        default=DEFAULT_BIND,
        metavar="ENDPOINT",
        help=f"where the controller will listen (default {DEFAULT_BIND})",
    )
    up.add_argument(
        "--gnmi",
        default="",
        metavar="ADDRESS:PORT",
        help="also serve the switches' counters by gNMI, in clear text on a loopback address",
    )
    attach = _add_attach(actions)
    plug = actions.add_parser("plug", help="give this network namespace an agent's ports on such a switch")
    _add_network(plug)
    plug.add_argument("agent", metavar="AGENT", help="whose ports, as the topology file names it")
    plug.add_argument(
        "--into", type=whole, required=True, metavar="PID", help="the process of etloop lab attach"
    )
    for one in (up, attach):
        _add_network(one)
        _add_capacity_options(one)
    status = actions.add_parser("status", help="what it is and what its switches counted")
    gnmi = actions.add_parser("gnmi", help="serve the counters of its switches by gNMI")
    _add_gnmi_arguments(gnmi)
    run = actions.add_parser("exec", help="run a command in an agent's namespace")
    run.add_argument("agent", metavar="AGENT")
    run.add_argument("words", nargs=argparse.REMAINDER, metavar="-- COMMAND")
    link = actions.add_parser("link", help="take a switch's link down, or up again")
    link.add_argument("port", metavar="SWITCH/PORT")
    link.add_argument("state", choices=("down", "up"))
    down = actions.add_parser("down", help="end it; nothing of it is left")
    for one in (up, attach, status, run, link, down):
        one.add_argument("--name", default=_NAME, help=f"of the lab (default {_NAME})")
    for one in (up, attach, plug, status, run, link, down):
        one.add_argument("--json", action="store_true", help="answer in JSON, for programs")


def _add_gnmi_arguments(gnmi: argparse.ArgumentParser) -> None:
    gnmi.add_argument(
        "--bind", default=DEFAULT_GNMI_BIND, metavar="ADDRESS:PORT", help=f"default {DEFAULT_GNMI_BIND}"
    )
    gnmi.add_argument("--tls-cert", type=Path, metavar="FILE", help="PEM; without it, clear text")
    gnmi.add_argument("--tls-key", type=Path, metavar="FILE", help="PEM, belongs to it")
    gnmi.add_argument("--client-ca", type=Path, metavar="FILE", help="PEM: only clients it signed get in")
    gnmi.add_argument(
        "--credentials", type=Path, metavar="FILE", help="user and password that clients must give"
    )
    gnmi.add_argument(
        "--insecure", action="store_true", help="speak clear text on addresses that other machines reach"
    )
    gnmi.add_argument("--name", default=_NAME, help=f"of the lab (default {_NAME})")


def _add_attach(actions: Commands[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    attach = actions.add_parser(
        "attach", help="run the switch alone, between interfaces of this network namespace, until told to end"
    )
    attach.add_argument(
        "--port",
        action="append",
        default=[],
        metavar="AGENT/PORT=INTERFACE",
        help="the interface of a port of the topology, for each (default: cables that etloop lab plug brings)",
    )
    attach.add_argument(
        "--wait",
        type=quantity(parse_duration_ns),
        default=0,
        metavar="TIME",
        help="for interfaces that are still to come (default 0s)",
    )
    return attach


def _add_network(command: argparse.ArgumentParser) -> None:
    """What the same topology file needs beside it to become the same lab."""
    command.add_argument("topology", type=Path, metavar="TOPOLOGY", help="topology.yaml")
    command.add_argument(
        "--addresses",
        type=whole,
        default=DEFAULT_ADDRESSES,
        metavar="N",
        help=f"of a port to which the file gives none: one a rank (default {DEFAULT_ADDRESSES})",
    )
    command.add_argument(
        "--mtu",
        type=quantity(parse_bytes),
        default=DEFAULT_MTU_BYTES,
        metavar="SIZE",
        help=f"default {DEFAULT_MTU_BYTES}B",
    )


def _add_capacity_options(command: argparse.ArgumentParser) -> None:
    capacity_options = command.add_mutually_exclusive_group()
    capacity_options.add_argument(
        "--allow-overcommit", action="store_true", help="come up at rates that this host does not hold"
    )
    capacity_options.add_argument(
        "--unmeasured", action="store_true", help="do not measure what this host holds"
    )


def lab_command(parsed: argparse.Namespace) -> CommandResult:
    """Does one action. Raises `InputError` where it cannot."""
    # Here, because only a lab needs them: sockets, processes, netlink.
    from etloop.lab.client import lab_ask, lab_down, lab_exec

    if parsed.action == "plug":
        return _plug(parsed)
    _checked_name(parsed.name)
    match parsed.action:
        case "up":
            return _up(parsed)
        case "attach":
            return _attach(parsed)
        case "status":
            return _shown(lab_ask(parsed.name, {"ask": "status"}), as_json=parsed.json)
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
            lab_ask(parsed.name, {"ask": "link", "port": parsed.port, "up": parsed.state == "up"})
            return CommandResult(to_json({}) if parsed.json else f"link {parsed.port} is {parsed.state}\n")
        case _:
            was_up = lab_down(parsed.name)
            text = "taken down" if was_up else "was killed before; removed its logs, nothing else was left"
            return CommandResult(
                to_json({"was_up": was_up}) if parsed.json else f"lab {parsed.name}: {text}\n"
            )


def _up(parsed: argparse.Namespace) -> CommandResult:
    from etloop.lab.client import lab_up
    from etloop.lab.plan import plan_lab, rig_text
    from etloop.lab.profile import map_deviations
    from etloop.traffic.topology.topology_file import parse_topology

    text = _text_of(parsed.topology)
    order = LabOrder(
        name=parsed.name,
        topology=text,
        source=str(parsed.topology),
        mtu_bytes=parsed.mtu,
        addresses=parsed.addresses,
        bind=parsed.bind,
        backend=parsed.backend,
        agents=parsed.agents,
        measure=not parsed.unmeasured,
        allow_overcommit=parsed.allow_overcommit,
        gnmi=_local_gnmi(parsed.gnmi),
    )
    topology = parse_topology(text.encode(), order.source)
    plan = plan_lab(topology, mtu_bytes=order.mtu_bytes, addresses=order.addresses, bind=order.bind)
    status = lab_up(order)
    if parsed.rig_out is not None:
        beside = os.path.relpath(parsed.topology, parsed.rig_out.parent)
        _write(
            parsed.rig_out,
            rig_text(plan, backend=order.backend, topology=beside, lab=order.name),
            parsed.name,
        )
        status |= {"notes": map_deviations(topology)}
    return _shown(status, as_json=parsed.json)


def _local_gnmi(text: str) -> str:
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
        topology=_text_of(parsed.topology),
        source=str(parsed.topology),
        mtu_bytes=parsed.mtu,
        addresses=parsed.addresses,
        measure=not parsed.unmeasured,
        allow_overcommit=parsed.allow_overcommit,
    )
    # While it waits for interfaces; the first process of a container ends by no signal that it does not handle.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    shown = to_json if parsed.json else status_text

    def report(status: Values) -> None:
        print(shown(status), flush=True)

    return CommandResult(
        *last_words(serve_attached(order, tuple(parsed.port), parsed.wait / NS_PER_S, report), shown)
    )


def _plug(parsed: argparse.Namespace) -> CommandResult:
    from etloop.lab.plan import plan_lab
    from etloop.lab.plug import plug
    from etloop.lab.wiring import agent_named
    from etloop.traffic.topology.topology_file import parse_topology

    topology = parse_topology(_text_of(parsed.topology).encode(), str(parsed.topology))
    plan = plan_lab(topology, mtu_bytes=parsed.mtu, addresses=parsed.addresses)
    plugged = plug(plan, agent_named(plan, parsed.agent), parsed.into)
    return CommandResult(to_json({"ports": plugged}) if parsed.json else "\n".join(plugged) + "\n")


def _text_of(path: Path) -> str:
    try:
        return read_file(path).decode()
    except UnicodeDecodeError:
        what = "cannot be read: it is not UTF-8 text"
        raise ConfigError(Problem(str(path), what, "name a topology file")) from None


def _write(path: Path, text: str, lab: str) -> None:
    from etloop.lab.client import lab_down

    try:
        path.write_text(text)
    except OSError as error:
        lab_down(lab)
        what = f"cannot be written: {error.strerror}; the lab is down again"
        raise ConfigError(Problem(str(path), what, "name another file with --rig-out")) from None


def _shown(status: Values, *, as_json: bool) -> CommandResult:
    from etloop.lab.status import status_text

    notes = "".join(f"note: {note}\n" for note in status.get("notes", ()))
    return CommandResult(to_json(status) if as_json else status_text(status) + notes, ExitCode.PASS)


def _checked_name(name: str) -> None:
    try:
        parse_name(name)
    except QuantityError as error:
        raise ConfigError(Problem("--name", error.what, error.remedy)) from None
