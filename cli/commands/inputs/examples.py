"""`etloop examples`: lists the examples of the wheel or copies them to where they can be changed. Replaces no file."""

from __future__ import annotations

import difflib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etloop.cli.result import CommandResult, to_json
from etloop.contract.base.errors import ConfigError, Problem

if TYPE_CHECKING:
    import argparse

WHAT: Final = {
    "bmwg": "the IETF's benchmarks of AI fabrics, small and whole (sweeps)",
    "cc_plugin": "a congestion control of one's own, in C++ and in Python",
    "collective": "scenario and rig for etloop collective",
    "congestion_control": "two algorithms at several thresholds of marking (sweep)",
    "containerlab": "switches of a network OS in containers, between four agents",
    "flows": "single transfers by size, and their slowdowns",
    "interference": "two jobs on one switch, alone and together",
    "laptop": "a rack of one machine, broker included",
    "loopback": "two agents on one machine without a switch",
    "notebooks": "plots of queue and rate, and a sweep, in Jupyter",
    "rack": "controller, users and broker of a rack",
    "slurm": "agents on the nodes that Slurm allocates",
    "two_hosts": "two hosts and a switch between them",
}
"""Example -> summary; a test compares the names with the folder."""
FOLDER: Final = Path(__file__).parents[3] / "examples"
_MADE_BY_RUNS: Final = shutil.ignore_patterns("job", "__pycache__", ".ipynb_checkpoints")


def carried_out(parsed: argparse.Namespace) -> CommandResult:
    """List the examples, or copy the named ones. Raise `ConfigError` for an unknown example or an existing destination."""
    names = tuple(WHAT) if parsed.all else tuple(dict.fromkeys(parsed.names))
    for name in names:
        if name not in WHAT:
            close_names = difflib.get_close_matches(name, WHAT, n=1)
            remedy = f"did you mean {close_names[0]}?" if close_names else f"choose from {', '.join(WHAT)}"
            raise ConfigError(Problem("etloop examples", f"{name[:64]!r} is not an example", remedy))
    if not names:
        return CommandResult(to_json(WHAT) if parsed.json else _listed())
    existing = [str(parsed.to / name) for name in names if (parsed.to / name).exists()]
    if existing:
        problem = f"{', '.join(existing)} is there already, and nothing was copied"
        raise ConfigError(Problem("etloop examples", problem, "name another directory with --to"))
    try:
        for name in names:
            shutil.copytree(FOLDER / name, parsed.to / name, ignore=_MADE_BY_RUNS)
    except OSError as error:
        problem = f"cannot be copied to: {error.strerror or error}"
        raise ConfigError(
            Problem(str(parsed.to), problem, "name a directory that can be written with --to")
        ) from None
    copied = [str(parsed.to / name) for name in names]
    return CommandResult(to_json(copied) if parsed.json else "".join(f"{place}\n" for place in copied))


def _listed() -> str:
    width = max(map(len, WHAT))
    lines = [f"{name.ljust(width)}  {summary}" for name, summary in WHAT.items()]
    return "\n".join((*lines, "", "etloop examples NAME copies one into examples/NAME (--to DIR)")) + "\n"
