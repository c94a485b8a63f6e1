"""Arguments of several commands: scenario and rig, --strict, --json, --verbose."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add --json."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_verbose(parser: argparse.ArgumentParser) -> None:
    """Add -v, which prints the whole table of a run above its five lines."""
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="print all figures above the five lines of the result"
    )


def add_scenario_and_rig(
    parser: argparse.ArgumentParser, *, without_rig: str = "", needs_scenario: bool = True
) -> None:
    """Add the arguments for scenario and rig, or for the case that holds both.

    `without_rig`: help text about runs without a rig; "": a rig is required. `needs_scenario`: False if the command checks
    itself whether there is one.
    """

    class ScenarioOrCase(argparse.Action):
        """Stores a scenario or a case; a case makes --rig optional."""

        def __call__(
            self, _: argparse.ArgumentParser, parsed: argparse.Namespace, path: object, *__: object
        ) -> None:
            from etloop.controller.case.recognition import is_case

            if path is None and not needs_scenario:
                return
            assert isinstance(path, Path)
            parsed.scenario, parsed.is_case = path, is_case(path)
            rig.required = not parsed.is_case and not without_rig

    help_text = "scenario.yaml, or a case: CASE.zip of etloop bundle, its unpacked directory, or a RUN_DIR"
    parser.add_argument(
        "scenario",
        type=Path,
        metavar="SCENARIO",
        action=ScenarioOrCase,
        nargs=None if needs_scenario else "?",
        help=help_text,
    )
    help_text = "rig.yaml; with a case: replaces the rig inside" + (
        f"; default: {without_rig}" if without_rig else ""
    )
    rig = parser.add_argument("--rig", type=Path, required=not without_rig, metavar="FILE", help=help_text)
    help_text = "directory with the traces that the case references but does not contain (checked by SHA-256)"
    parser.add_argument("--traces", type=Path, metavar="DIR", help=help_text)


def add_strict(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Add --strict, which makes contradictions with the device or the topology, and omitted communication, errors."""
    help_text = (
        "reject settings that contradict the device profile or the topology's switches (see etloop dut check), and "
        "traces with communication that cannot be replayed, instead of warning"
    )
    parser.add_argument("--strict", action="store_true", help=help_text)
