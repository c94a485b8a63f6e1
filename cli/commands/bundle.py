"""Pack a run and its inputs into one file, which run, twin and plan accept."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from etloop.cli.arguments.inputs import add_json
from etloop.cli.result import CommandResult, to_json

EXAMPLE: Final = (
    "  etloop bundle run1/\n"
    "  etloop bundle run1/ -o case.etloop.zip --no-traces\n"
    "  and elsewhere: etloop run case.etloop.zip --out again/     or etloop twin, if it was a twin"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the run, the output file and the treatment of traces."""
    add_json(parser)
    parser.add_argument("run_dir", type=Path, metavar="RUN_DIR", help="run directory (--out of the run)")
    help_text = "new file (default: the directory's name with .etloop.zip, in the working directory)"
    parser.add_argument("-o", "--out", type=Path, metavar="CASE.zip", help=help_text)
    traces = parser.add_mutually_exclusive_group()
    help_text = "store only the digests of the traces; etloop run CASE.zip --traces DIR checks them"
    traces.add_argument("--no-traces", action="store_true", help=help_text)
    help_text = "look for the traces here before looking where the run read them"
    traces.add_argument("--traces", type=Path, metavar="DIR", help=help_text)


def run(parsed: argparse.Namespace) -> CommandResult:
    """Pack a run and list the contents. Raise as `bundle`."""
    from dataclasses import asdict

    from etloop.cli.text.case import case_lines
    from etloop.controller.case.bundling import ENDING, bundle

    out = parsed.out
    if out is None:
        out = Path(f"{parsed.run_dir.resolve().name}{ENDING}")
    packed = bundle(parsed.run_dir, out, parsed.traces, has_traces=not parsed.no_traces)
    if parsed.json:
        return CommandResult(
            to_json({"path": packed.path, "bytes": packed.packed_bytes, "case": asdict(packed.case)})
        )
    return CommandResult("".join(f"{line}\n" for line in case_lines(packed)))
