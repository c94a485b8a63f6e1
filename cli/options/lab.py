"""The command line of `etloop lab`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etloop.cli.parser import Command
from etloop.cli.values import quantity, whole
from etloop.contract.base.units import parse_bytes, parse_duration_ns
from etloop.lab.plan import DEFAULT_ADDRESSES, DEFAULT_BIND, DEFAULT_MTU_BYTES

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - argparse has no public name for it

_NAME: Final = "lab"
DEFAULT_GNMI_BIND: Final = "127.0.0.1:9339"
_BACKENDS: Final = ("udp", "packet", "xdp")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions, each with its own options."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    up = actions.add_parser("up", help="make a lab of a topology file")
    up.add_argument("--rig-out", type=Path, metavar="FILE", help="also write a rig file for its agents")
    up.add_argument("--agents", action="store_true", help="also start an agent in every namespace")
    up.add_argument(
        "--allow-plugins",
        action="store_true",
        help="with --agents: they compile and run congestion controls that scenarios bring",
    )
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


def _add_attach(actions: Subparsers) -> argparse.ArgumentParser:
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


COMMAND: Final = Command(
    "  etloop lab up topology.yaml --rig-out rig.yaml --agents\n"
    "  etloop run scenario.yaml --rig rig.yaml --out run1/\n"
    "  etloop lab status\n"
    "  etloop lab exec a -- ping -c 3 198.18.2.1\n"
    "  etloop lab down\n"
    "  etloop lab attach topology.yaml --port a/p0=eth1 --port b/p0=eth2     a switch between two network cards",
    add_arguments,
    "lab:lab_command",
    offers_json=False,
)
