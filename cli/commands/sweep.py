"""Run a scenario with every combination of several settings, and compare the settings."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from etloop.cli.arguments.comparison import add_comparison_settings
from etloop.cli.arguments.inputs import add_json, add_strict
from etloop.cli.arguments.processes import add_output, add_overcommit, add_processes
from etloop.cli.arguments.values import parse_pair, parse_whole
from etloop.cli.result import CommandResult
from etloop.results.schema.run_output import Output
from etloop.runtime.module_loading import quick_loading

EXAMPLE: Final = (
    "  etloop sweep examples/congestion_control/sweep.yaml --twin --out study/\n"
    "  etloop sweep sweep.yaml --rig rig.yaml --out study/ --resume\n"
    "\n"
    "exit codes: 0 all runs complete and no verdict worse than pass, 20 one inconclusive, 30 one failed, "
    "50 one broke off, 65 files, rig or lab cannot be used, 130 Ctrl-C"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the sweep, where it runs, and the settings of the comparison."""
    add_json(parser)
    parser.add_argument("sweep", type=Path, metavar="SWEEP", help="sweep.yaml (docs/experiments.md)")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="directory of the results (required without --dry-run)"
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--twin", action="store_true", help="run in virtual time on the modelled switches of the topology"
    )
    where.add_argument("--lab", action="store_true", help="run through soft switches, started for the sweep")
    where.add_argument("--rig", type=Path, metavar="FILE", help="run on this rig with its agents")
    parser.add_argument("--resume", action="store_true", help="continue a sweep that ended early")
    parser.add_argument(
        "--repeats", type=parse_whole, metavar="N", help="runs per point, instead of the file's value"
    )
    add_processes(parser, "with --twin: ")
    parser.add_argument(
        "--slurm",
        type=parse_whole,
        metavar="N",
        help="with --twin: make the runs in jobs of Slurm, at most N at a time; DIR is on a file system of all nodes",
    )
    parser.add_argument(
        "--slurm-option",
        type=parse_pair,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="option of sbatch for these jobs, such as partition=short or time=30 (repeatable)",
    )
    help_text = "with --twin: files of every run: figures only; tables, too; or everything (default)"
    add_output(parser, Output.EVERYTHING, help_text)
    shards = parser.add_mutually_exclusive_group()
    shards.add_argument(
        "--shard",
        nargs="?",
        const="",
        metavar="I/N",
        help="with --twin: make only every Nth point, for an array of jobs that share --out; N alone takes I from Slurm, "
        "Kubernetes or LSF",
    )
    shards.add_argument(
        "--collect",
        nargs="*",
        type=Path,
        metavar="DIR",
        help="with --twin: evaluate the runs of all shards in --out, and of other directories",
    )
    parser.add_argument(
        "--level",
        choices=("packet", "flow"),
        help="with --twin, of serving workloads: level of the model, as of etloop twin (default packet)",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="plan and list all points without running them"
    )
    parser.add_argument(
        "--no-ideal",
        action="store_true",
        help="do not compute the ideal network's times for every run",
    )
    add_overcommit(parser)
    parser.add_argument(
        "--allow-plugins",
        action="store_true",
        help="with --lab: the agents compile and run congestion control plugins of scenarios",
    )
    add_strict(parser)
    add_comparison_settings(parser)


def run(parsed: argparse.Namespace) -> CommandResult:
    """Run a sweep, or list its points. Raise as `run_sweep` does."""
    with quick_loading():
        from etloop.cli.sweep_runs import run_sweep
        from etloop.controller.run.prepare import InputFile

    return run_sweep(InputFile(parsed.sweep), parsed)
