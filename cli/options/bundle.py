"""The command line of `etloop bundle`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from etloop.cli.parser import Command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add which run, where to, and what of its traces."""
    parser.add_argument("run_dir", type=Path, metavar="RUN_DIR", help="what --out of the run named")
    what = "new file (default: the directory's name with .etloop.zip, here)"
    parser.add_argument("-o", "--out", type=Path, metavar="CASE.zip", help=what)
    traces = parser.add_mutually_exclusive_group()
    what = "without the traces: their digests only, by which etloop run CASE.zip --traces DIR knows them"
    traces.add_argument("--no-traces", action="store_true", help=what)
    what = "look for traces here before where the run read them"
    traces.add_argument("--traces", type=Path, metavar="DIR", help=what)


COMMAND: Final = Command(
    "  etloop bundle run1/\n"
    "  etloop bundle run1/ -o case.etloop.zip --no-traces\n"
    "  and elsewhere: etloop run case.etloop.zip --out again/     or etloop twin, if it was one",
    add_arguments,
    "report:bundle_command",
)
