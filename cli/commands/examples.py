"""List the examples that ETLoop ships, or copy them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from etloop.cli.arguments.inputs import add_json
from etloop.cli.result import CommandResult, to_json

EXAMPLE: Final = "  etloop examples\n  etloop examples flows laptop --to try/"
SUMMARIES: Final = {
    "bmwg": "the IETF's benchmarks of AI fabrics, small and full size (sweeps)",
    "bmwg_inference": "the IETF's benchmarks of inference fabrics, small and full size (sweeps)",
    "cc_plugin": "a congestion control plugin, in C++ and in Python",
    "cloudai": "ETLoop as a workload of CloudAI, which explores its settings",
    "collective": "scenario and rig for etloop collective",
    "congestion_control": "two algorithms at several ECN marking thresholds (sweep)",
    "containerlab": "network OS switches in containers, between four agents",
    "flows": "single flows by size, and their slowdowns",
    "interference": "two jobs on one switch, alone and together",
    "laptop": "a rack on one machine, including the broker",
    "loopback": "two agents on one machine without a switch",
    "notebooks": "plots of queue and rate, and a sweep, in Jupyter",
    "otg": "a client of etloop otg serve, without packages",
    "rack": "controller, users and broker of a rack",
    "record": "training scripts for etloop record: DDP, FSDP and tensor parallelism, experts and pipeline",
    "scapy": "RoCEv2 packets from Scapy through the switch of a lab",
    "slurm": "agents on the nodes that Slurm allocates",
    "sonic": "sonic-mgmt's RoCEv2 tests and plans, over the switch of a lab",
    "twin_client": "a simulator of serving that asks the twin when its transfers end",
    "two_hosts": "two hosts and a switch between them",
}
"""Example -> summary; a test compares the names with the folder."""
FOLDER: Final = Path(__file__).parents[2] / "examples"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the examples to copy and the destination."""
    add_json(parser)
    parser.add_argument("names", nargs="*", metavar="NAME", help="example to copy; default: list them all")
    parser.add_argument("--all", action="store_true", help="copy all examples")
    help_text = "directory to copy into, created if it does not exist; each example is a directory in it"
    parser.add_argument(
        "--to", type=Path, default=Path("examples"), metavar="DIR", help=f"{help_text} (default examples)"
    )


def run(parsed: argparse.Namespace) -> CommandResult:
    """List the examples, or copy the named ones.

    Raise `ConfigError` for an unknown example, or if a destination exists: no file is replaced.
    """
    import difflib
    import shutil

    from etloop.contract.base.errors import ConfigError, Problem

    names = tuple(SUMMARIES) if parsed.all else tuple(dict.fromkeys(parsed.names))
    for name in names:
        if name not in SUMMARIES:
            close_names = difflib.get_close_matches(name, SUMMARIES, n=1)
            remedy = (
                f"did you mean {close_names[0]}?" if close_names else f"choose from {', '.join(SUMMARIES)}"
            )
            raise ConfigError(Problem("etloop examples", f"{name[:64]!r} is not an example", remedy))
    if not names:
        return CommandResult(to_json(SUMMARIES) if parsed.json else _list_text())
    existing = [str(parsed.to / name) for name in names if (parsed.to / name).exists()]
    if existing:
        problem = f"{', '.join(existing)} exists already, so no example was copied"
        raise ConfigError(Problem("etloop examples", problem, "name another directory with --to"))
    run_files = shutil.ignore_patterns("job", "__pycache__", ".ipynb_checkpoints")
    try:
        for name in names:
            shutil.copytree(FOLDER / name, parsed.to / name, ignore=run_files)
    except OSError as error:
        problem = f"cannot be copied to: {error.strerror or error}"
        raise ConfigError(
            Problem(str(parsed.to), problem, "name a directory that can be written with --to")
        ) from None
    copies = [str(parsed.to / name) for name in names]
    return CommandResult(to_json(copies) if parsed.json else "".join(f"{place}\n" for place in copies))


def _list_text() -> str:
    width = max(map(len, SUMMARIES))
    lines = [f"{name.ljust(width)}  {summary}" for name, summary in SUMMARIES.items()]
    return "\n".join((*lines, "", "etloop examples NAME copies one into examples/NAME (--to DIR)")) + "\n"
