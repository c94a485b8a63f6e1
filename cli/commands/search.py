"""Search the best combination of several settings in virtual time, and confirm it by repeats."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from etloop.cli.arguments.inputs import add_json, add_strict
from etloop.cli.arguments.processes import add_output, add_overcommit, add_processes
from etloop.cli.arguments.values import parse_whole
from etloop.cli.result import CommandResult
from etloop.results.schema.run_output import Output
from etloop.runtime.module_loading import quick_loading

EXAMPLE: Final = (
    "  etloop search sweep.yaml --out study/\n"
    "  etloop search sweep.yaml --out study/ --resume --trials 400\n"
    "  etloop search sweep.yaml --out study/ --rig rig.yaml      repeat the best trials on hardware\n"
    "\n"
    "exit codes: 0 repeats confirm the best trial, 20 they do not, 30 no trial meets the conditions, "
    "65 files, rig or lab cannot be used, 130 Ctrl-C"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the sweep to search in, the extent of the search, and where the best trials are repeated."""
    add_json(parser)
    parser.add_argument(
        "sweep", type=Path, metavar="SWEEP", help="sweep.yaml with optimize (docs/experiments.md)"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", required=True, help="directory of the results")
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--lab", action="store_true", help="repeat the best trials through soft switches, not in virtual time"
    )
    where.add_argument("--rig", type=Path, metavar="FILE", help="repeat them on this rig with its agents")
    where.add_argument("--no-confirm", action="store_true", help="do not repeat the best trials")
    parser.add_argument("--resume", action="store_true", help="continue a search; trials that exist are kept")
    parser.add_argument(
        "--trials", type=parse_whole, metavar="N", help="number of trials, instead of the file's value"
    )
    parser.add_argument(
        "--repeats",
        type=parse_whole,
        metavar="N",
        help="runs of each of the best, instead of the file's value",
    )
    add_processes(parser)
    help_text = "files of every trial: figures only (default); tables, too; or everything"
    add_output(parser, Output.FIGURES, help_text)
    add_overcommit(parser)
    add_strict(parser)


def run(parsed: argparse.Namespace) -> CommandResult:
    """Search, and repeat the best. Raise as `run_search` does."""
    with quick_loading():
        from etloop.cli.search_runs import run_search
        from etloop.controller.run.prepare import InputFile

    return run_search(InputFile(parsed.sweep), parsed)
