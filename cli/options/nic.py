"""The command line of `etloop nic`: profile, show, compare."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from etloop.cli.parser import Command
from etloop.cli.values import address_and_port

_PROFILE: Final = "directory of etloop nic profile, or its nic.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions, each with its own options."""
    actions = parser.add_subparsers(title="actions", dest="action", metavar="ACTION", required=True)
    profile = actions.add_parser("profile", help="find out what a card does, experiment by experiment")
    profile.add_argument(
        "--peer",
        type=address_and_port,
        metavar="HOST:PORT",
        help="where etloop-agent nic-peer drives the card under test",
    )
    profile.add_argument("--rig", type=Path, metavar="FILE", help="the rig that --nic is a port of")
    profile.add_argument(
        "--nic",
        metavar="AGENT/PORT",
        help="instead of --peer: nic-peer runs at this port's first address, on its usual port",
    )
    profile.add_argument(
        "--interface",
        metavar="NAME",
        help="of this host, on the link to the card; found by the route if left out",
    )
    profile.add_argument(
        "--simulated",
        metavar="FILE",
        help="a modelled card in virtual time: card.yaml, or a number that draws one",
    )
    profile.add_argument(
        "--seed", type=int, default=1, metavar="N", help="draws how a modelled card varies (default 1)"
    )
    profile.add_argument(
        "--only", action="append", metavar="EXPERIMENT", help="this experiment; may be given again"
    )
    profile.add_argument(
        "--most-pairs", type=int, default=256, metavar="N",
        help="queue pairs of the experiment queue_pairs, 1 to 10000 (default 256)",
    )  # fmt: skip
    profile.add_argument(
        "--out", type=Path, required=True, metavar="DIR",
        help="results and captures; experiments that are there already are not carried out again",
    )  # fmt: skip
    show = actions.add_parser("show", help="print a profile again")
    show.add_argument("profile", type=Path, metavar="PROFILE", help=_PROFILE)
    compare = actions.add_parser(
        "compare", help="two profiles next to each other; exit code 30 where they differ"
    )
    compare.add_argument("a", type=Path, metavar="A", help=_PROFILE)
    compare.add_argument("b", type=Path, metavar="B", help="the other")
    _add_display(profile)
    _add_display(show)
    for action in (profile, show, compare):
        action.add_argument("--json", action="store_true", help="answer in JSON, for programs")


def _add_display(action: argparse.ArgumentParser) -> None:
    """Add what is shown beside the figures."""
    action.add_argument(
        "--beside",
        action="append",
        metavar="DEVICE",
        help="also what this profile of a device states (etloop dut list, or a file), or what a card measured before"
        " does (its directory); may be given again",
    )
    action.add_argument(
        "--conditions",
        type=Path,
        metavar="FILE",
        help="judge by the conditions of a YAML file (verdict: checks:); exit code 30 where one fails, 20 where one is open",
    )
    action.add_argument(
        "--methods",
        action="store_true",
        help="also how each figure was found, and what it is compared with",
    )


COMMAND: Final = Command(
    "  etloop nic profile --simulated 7 --out card/\n"
    "  etloop nic profile --peer 10.0.0.2:7430 --out card/ --beside connectx-7\n"
    "  etloop nic compare card/ other/",
    add_arguments,
    "nics.nic:nic_command",
    offers_json=False,
)
