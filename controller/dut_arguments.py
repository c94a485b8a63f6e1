"""The command line of `etloop dut`: list, show, check, fabric."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from controller.commands_dut import answer_check, answer_list, answer_show
from controller.commands_fabric import answer_fabric

if TYPE_CHECKING:
    import argparse

    from controller.commands_trace import Answer

SUMMARY: Final = "devices under test: list and show profiles, find what in one cannot be; read fabrics"
EXAMPLE: Final = (
    "  etloop dut show sonic-tomahawk5\n"
    "  etloop dut check sonic-tomahawk5 --scenario scenario.yaml --rig rig.yaml"
)
_PROFILE: Final = "name of a shipped profile, or a file that ends in .yaml"


def add_dut(parser: argparse.ArgumentParser) -> None:
    """The words after `dut`."""
    actions = parser.add_subparsers(title="actions", dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="the shipped profiles")
    show = actions.add_parser("show", help="all that a profile states, with sources")
    show.add_argument("profile", metavar="PROFILE", help=_PROFILE)
    check = actions.add_parser(
        "check", help="what contradicts itself in a profile, or what a job or a rig contradicts in it"
    )
    check.add_argument(
        "profile", nargs="?", metavar="PROFILE", help=f"{_PROFILE} (default: the one that the rig names)"
    )
    check.add_argument("--scenario", type=Path, metavar="FILE", help="scenario.yaml")
    check.add_argument("--rig", type=Path, metavar="FILE", help="rig.yaml")
    fabric = actions.add_parser(
        "fabric", help="what an InfraGraph description says: hosts, switches, ranks; as rig and mapping"
    )
    fabric.add_argument("description", type=Path, metavar="FILE", help="infrastructure, YAML or JSON")
    fabric.add_argument(
        "--annotations", type=Path, metavar="FILE", help="ranks, addresses, profiles of nodes"
    )
    fabric.add_argument("--out", type=Path, metavar="DIR", help="write rig.yaml and mapping.yaml there")
    for action in (listing, show, check, fabric):
        action.add_argument("--json", action="store_true", help="answer in JSON, for programs")


def answer_dut(parsed: argparse.Namespace) -> Answer:
    """Carries out what the command line says. Raises `ConfigError` for files that cannot be read."""
    if parsed.action == "list":
        return answer_list(as_json=parsed.json)
    if parsed.action == "show":
        return answer_show(parsed.profile, as_json=parsed.json)
    if parsed.action == "fabric":
        return answer_fabric(parsed.description, parsed.annotations, parsed.out, as_json=parsed.json)
    return answer_check(parsed.profile, parsed.scenario, parsed.rig, as_json=parsed.json)
