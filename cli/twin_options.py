"""The command line of `twin`: its arguments, and what they ask for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from etloop.cli.values import quantity, whole
from etloop.contract.base.units import parse_duration_ns
from etloop.traffic.twin import SAMPLE_INTERVAL_NS, TwinSettings

if TYPE_CHECKING:
    import argparse

    from etloop.cli.result import CommandResult

SUMMARY: Final = "what a scenario should take on a device as a topology describes it, in virtual time"
EXAMPLE: Final = (
    "  etloop twin scenario.yaml --rig rig.yaml --topology topology.yaml\n"
    "  etloop twin scenario.yaml --rig rig.yaml --topology topology.yaml --seed 7 --out twin1/\n"
    "  etloop twin scenario.yaml --rig rig.yaml --topology topology.yaml --level flow     a job too large for packets"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """All but scenario and rig."""
    parser.add_argument(
        "--topology",
        type=Path,
        metavar="FILE",
        help="the switches (docs/device.md), if scenario and rig do not name them",
    )
    parser.add_argument(
        "--level",
        choices=("packet", "flow"),
        default="packet",
        help="flow: without packets, for jobs too large for them: times only, marks and drops unknown (docs/flow_level.md)",
    )
    parser.add_argument("--out", type=Path, metavar="RUN_DIR", help="keep the results in this new directory")
    parser.add_argument(
        "--seed", type=whole, metavar="N", help="seed of the switches instead of those in the topology"
    )
    parser.add_argument(
        "--sample",
        type=quantity(parse_duration_ns),
        default=SAMPLE_INTERVAL_NS,
        metavar="TIME",
        help="how often queues are written down, with --out (default 10us, longer for long jobs)",
    )
    parser.add_argument(
        "--limit",
        type=quantity(parse_duration_ns),
        default=TwinSettings().limit_ns,
        metavar="TIME",
        help="virtual time after which the job is given up (default 1h)",
    )


def command(parsed: argparse.Namespace) -> CommandResult:
    """Runs the command. Raises as `twin_command`."""
    from etloop.cli.stderr import print_status
    from etloop.controller.run.twin import TwinRequest, twin_command

    settings = TwinSettings(
        seed=parsed.seed,
        limit_ns=parsed.limit,
        sample_interval_ns=parsed.sample if parsed.out is not None else 0,
    )

    request = TwinRequest(
        parsed.scenario,
        parsed.rig,
        parsed.topology,
        parsed.out,
        settings,
        parsed.json,
        by_flows=parsed.level == "flow",
    )
    return twin_command(request, print_status=print_status)
