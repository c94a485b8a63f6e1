"""The command line of `etloop plan`."""

from __future__ import annotations

from typing import Final

from etloop.cli.parser import Command, add_scenario_and_rig

COMMAND: Final = Command(
    "  etloop plan examples/loopback/scenario.yaml --rig examples/loopback/rig.yaml",
    add_scenario_and_rig,
    "run:plan_command",
)
