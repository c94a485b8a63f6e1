"""Profile a NIC by experiments, and compare profiles."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from etloop.cli.arguments.inputs import add_json
from etloop.cli.arguments.values import parse_host_port
from etloop.cli.result import CommandResult
from etloop.runtime.module_loading import quick_loading

EXAMPLE: Final = (
    "  etloop nic profile --simulated 7 --out card/\n"
    "  etloop nic profile --peer 10.0.0.2:7430 --out card/ --beside connectx-7\n"
    "  etloop nic compare card/ other/"
)
_PROFILE: Final = "directory of etloop nic profile, or its nic.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions, each with its own options."""
    actions = parser.add_subparsers(title="actions", dest="action", metavar="ACTION", required=True)
    profile = actions.add_parser("profile", help="measure the behaviour of a NIC, experiment by experiment")
    profile.add_argument(
        "--peer",
        type=parse_host_port,
        metavar="HOST:PORT",
        help="address of the etloop-agent nic-peer that drives the NIC under test",
    )
    profile.add_argument("--rig", type=Path, metavar="FILE", help="rig.yaml with the port of --nic")
    profile.add_argument(
        "--nic",
        metavar="AGENT/PORT",
        help="instead of --peer: nic-peer runs at the first address of this rig port, on its default TCP port",
    )
    profile.add_argument(
        "--interface",
        metavar="NAME",
        help="interface of this host on the link to the NIC (default: by the route to it)",
    )
    profile.add_argument(
        "--simulated",
        metavar="FILE",
        help="profile a simulated NIC in virtual time: card.yaml, or a seed that draws its behaviour",
    )
    profile.add_argument(
        "--seed",
        type=int,
        default=1,
        metavar="N",
        help="seed of the variation of a simulated NIC (default 1)",
    )
    profile.add_argument(
        "--only", action="append", metavar="EXPERIMENT", help="run only this experiment (repeatable)"
    )
    profile.add_argument(
        "--most-pairs", type=int, default=256, metavar="N",
        help="most queue pairs of the experiment queue_pairs, 1 to 10000 (default 256)",
    )  # fmt: skip
    profile.add_argument(
        "--out", type=Path, required=True, metavar="DIR",
        help="directory for results and captures; experiments with results there are not repeated",
    )  # fmt: skip
    show = actions.add_parser("show", help="print a profile")
    show.add_argument("profile", type=Path, metavar="PROFILE", help=_PROFILE)
    compare = actions.add_parser("compare", help="compare two profiles; exit code 30 if they differ")
    compare.add_argument("a", type=Path, metavar="A", help=_PROFILE)
    compare.add_argument("b", type=Path, metavar="B", help="profile to compare with A")
    _add_display(profile)
    _add_display(show)
    for action in (profile, show, compare):
        add_json(action)


def _add_display(action: argparse.ArgumentParser) -> None:
    """Add comparisons, conditions and methods to the output of a profile."""
    action.add_argument(
        "--beside",
        action="append",
        metavar="DEVICE",
        help="compare with a device profile (etloop dut list, or a file) or with a measured NIC profile (its directory); "
        "repeatable",
    )
    action.add_argument(
        "--conditions",
        type=Path,
        metavar="FILE",
        help="evaluate the conditions of a YAML file (verdict: checks:); exit code 30 if one fails, 20 if one is inconclusive",
    )
    action.add_argument(
        "--methods",
        action="store_true",
        help="also print how each figure was measured, and its reference",
    )


def run(parsed: argparse.Namespace) -> CommandResult:
    """Carry out one action. Raise `ConfigError` for arguments and files that cannot be used."""
    with quick_loading():
        from etloop.cli.nic_profile import measure_profile, read_conditions, show_comparison, show_profile
        from etloop.experiments.nic.page import PAGE_FILE
        from etloop.experiments.nic.run import read_profile

    match parsed.action:
        case "profile":
            if parsed.conditions is not None:
                read_conditions(parsed.conditions)
            return show_profile(measure_profile(parsed), parsed, parsed.out / PAGE_FILE)
        case "show":
            place: Path = parsed.profile
            page = (place if place.is_dir() else place.parent) / PAGE_FILE
            return show_profile(read_profile(place), parsed, page)
        case _:
            return show_comparison(parsed)
