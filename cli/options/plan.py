"""The command line of `etloop plan`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from etloop.cli.parser import Command, add_scenario_and_rig

if TYPE_CHECKING:
    from etloop.cli.result import CommandResult


def run(parsed: argparse.Namespace) -> CommandResult:
    """Lay the job out. Raises an `InputError` with the mistakes of all files."""
    from etloop.cli.commands.run import plan_command
    from etloop.cli.progress import reading_bar

    with reading_bar() as bar:
        return plan_command(parsed.scenario, parsed.rig, as_json=parsed.json, progress=bar)


COMMAND: Final = Command(
    "  etloop plan examples/loopback/scenario.yaml --rig examples/loopback/rig.yaml",
    add_scenario_and_rig,
    run,
)
