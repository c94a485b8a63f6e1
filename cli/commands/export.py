"""Write the job and its fabric as inputs of htsim, LogGOPSim or ASTRA-sim."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from etloop.cli.arguments.inputs import add_json, add_scenario_and_rig
from etloop.cli.result import CommandResult, to_json
from etloop.runtime.module_loading import quick_loading

EXAMPLE: Final = (
    "  etloop export scenario.yaml --topology topology.yaml --to htsim --out incast.htsim\n"
    "  etloop twin scenario.yaml --topology topology.yaml --out twin1\n"
    "  cd incast.htsim && htsim_uec ... > output.txt      the command is in export.json\n"
    "  etloop compare twin1 incast.htsim"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add scenario and rig, the switches, and the simulator."""
    add_json(parser)
    add_scenario_and_rig(parser, without_rig="a port for each attachment of --topology")
    parser.add_argument(
        "--topology",
        type=Path,
        metavar="FILE",
        help="topology of the switches, if scenario and rig name none",
    )
    parser.add_argument(
        "--device",
        default="",
        metavar="PROFILE",
        help="device profile of all switches for which the topology names none",
    )
    parser.add_argument(
        "--to",
        required=True,
        choices=("htsim", "goal", "astra-sim"),
        help="simulator that reads the files (docs/credibility.md)",
    )
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="new directory for the files")


def run(parsed: argparse.Namespace) -> CommandResult:
    """Write the export. Raise an `InputError` for mistakes of the files and for features that the simulator lacks."""
    with quick_loading():
        from dataclasses import asdict

        from etloop.cli.case_files import open_inputs
        from etloop.cli.text.simulators import render_manifest
        from etloop.controller.export.bundle import Simulator
        from etloop.controller.export.export import export_plan
        from etloop.controller.plan.run_numbers import PLAN_ID
        from etloop.controller.run.out_directory import refuse_used_directory
        from etloop.controller.run.prepare import PrepareOptions, prepare
        from etloop.controller.run.twin import described_device
        from etloop.results.store.run_dir import write_files

    refuse_used_directory(parsed.out)
    with open_inputs(parsed, None, PLAN_ID) as inputs:
        prepared = inputs.label_case(
            prepare(inputs.files, PrepareOptions(device=parsed.device, keeps_case=False))
        )
        about, files = export_plan(prepared.plan, described_device(prepared).topology, Simulator(parsed.to))
    write_files(parsed.out, files)
    text = to_json(asdict(about)) if parsed.json else render_manifest(about, str(parsed.out))
    return CommandResult(text)
