"""The parser of `etloop`: every command by name, and the options that a command's module declares.

The list of commands needs none of their modules; the options of a command come from its module in `cli/options`, which is
loaded when the command is named.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from etloop.runtime.version import add_version

if TYPE_CHECKING:
    from etloop.cli.result import CommandResult

_DESCRIPTION: Final = """\
Puts a switch or a NIC under the network load of a real AI job, without a GPU.

A controller (this command) plans a job from Chakra execution traces and partitions it over agents
(etloop-agent), which replay it as RoCEv2 through the device under test."""
_EPILOG: Final = """\
first steps:
  etloop demo                                   a whole run on this machine
  etloop synth job/                             a synthetic job as .et files
  etloop lint job/                              is the trace sound?
  etloop inspect job/                           what is in it?
  etloop plan scenario.yaml --rig rig.yaml      what would be sent, from where to where
  etloop run scenario.yaml --rig rig.yaml --out run1/
  etloop bundle run1/                           all of it in one file, for others to repeat

exit codes: 0 pass, 2 usage, 20 inconclusive, 30 a condition failed or a regression, 50 the run broke,
  65 bad input or a rig that is not ready"""

COMMANDS: Final[Mapping[str, str]] = {
    "demo": "a whole run on this machine, through a switch of software where there can be one",
    "synth": "write a synthetic training job as Chakra .et files",
    "lint": "check a trace: everything that is wrong or worth knowing",
    "inspect": "tell what a job is: parallelism, bytes by kind and pair, its time on an ideal network",
    "plan": "tell what a run would send, from where to where, without sending it",
    "run": "run a scenario on a rig and leave the results in a directory",
    "bundle": "pack a run and all that it was made of into one file, which run, twin and plan take",
    "report": "print the results table of a run again, or judge it again",
    "twin": "what a scenario should take on a device as a topology describes it, in virtual time",
    "compare": "hold runs against others: regression, improvement, no difference, or inconclusive",
    "sweep": "run a scenario many times with values changed, and hold the settings against each other",
    "collective": "measure collectives size by size, in the form of nccl-tests",
    "capture": "print a port's capture, one line a packet",
    "dut": "devices under test: profiles, what in one cannot be, counters, fabrics",
    "nic": "network cards under test: find out what one does, and compare two",
    "bench": "measure the engine beside the bare kernel path of this machine",
    "lab": "run switches of software, between namespaces of this host with agents in them or between interfaces",
    "controller": "serve a rack: take jobs, queue them, run them on the ports they are given, keep what they leave",
    "submit": "submit a job to a rack, wait for it, cancel it, or list jobs",
    "rack": "drain ports, hold, reorder and requeue jobs, pause the queue, or show how a rack stands",
    "racks": "show jobs, ports and states of several racks, or serve one page of them",
    "jobs": "list a rack's jobs from its state directory, whether its controller runs or not",
    "schema": "print the JSON Schema of a file format, for editors",
    "examples": "list what ETLoop brings to begin with, or copy it here",
    "completion": "print what a shell completes commands and options by",
    "keys": "make, list, allow and revoke the keys of the control connection",
}
"""Name -> summary, in the order of the help. `cli/options` has a module of each name, at its top or in one of its rooms."""
_ROOMS: Final = {
    "rack": frozenset(("controller", "submit", "rack", "racks", "jobs")),
    "inputs": frozenset(("schema", "examples", "completion")),
}


@dataclass(frozen=True, slots=True)
class Command:
    """Declaration of a command: the `COMMAND` of a module of `cli/options`."""

    example: str
    """One or a few calls, one per line."""
    add_arguments: Callable[[argparse.ArgumentParser], None]
    carried_out_by: str
    """`MODULE:FUNCTION` below `cli/commands`, loaded when the command runs. The function gets the parsed arguments, of which
    `arguments` is the whole command line, and returns a `CommandResult`."""
    offers_json: bool = True
    """Whether it has --json; otherwise `parsed.json` is false unless its own arguments set it."""


def make_parser(words: Sequence[str] = ()) -> argparse.ArgumentParser:
    """Return a parser for the command line `words`.

    It has the options of the command that `words` name or, if they name none, all commands with their summaries.
    `parsed.command` of its result runs the command.
    """
    parser = argparse.ArgumentParser(
        prog="etloop",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_version(parser)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    command_name = next((word for word in words if not word.startswith("-")), None)
    if command_name is not None and command_name not in COMMANDS:
        import difflib

        close_names = difflib.get_close_matches(command_name, COMMANDS, n=1)
        hint = f"did you mean {close_names[0]}? " if close_names else ""
        parser.error(f"{command_name[:64]!r} is not a command; {hint}(choose from {', '.join(COMMANDS)})")
    if command_name is None:
        for name, summary in COMMANDS.items():
            commands.add_parser(name, help=summary)
        return parser
    _add_command(commands, command_name)
    return parser


def whole_parser() -> argparse.ArgumentParser:
    """Return a parser of all commands with all their options, from which pages and completions are generated."""
    parser = argparse.ArgumentParser(prog="etloop", description=_DESCRIPTION, epilog=_EPILOG)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name in COMMANDS:
        _add_command(commands, name)
    return parser


def _add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser], named: str) -> None:
    command = declaration(named)
    summary = COMMANDS[named]
    command_parser = commands.add_parser(
        named,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog=f"example:\n{command.example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if command.offers_json:
        command_parser.add_argument("--json", action="store_true", help="answer in JSON, for programs")
    command_parser.set_defaults(command=partial(_carry_out, command.carried_out_by), json=False)
    command.add_arguments(command_parser)


def declaration(name: str) -> Command:
    """Load and return the declaration of a command."""
    room = next((f"{room}." for room, names in _ROOMS.items() if name in names), "")
    command: Command = importlib.import_module(f"etloop.cli.options.{room}{name}").COMMAND
    return command


def _carry_out(where: str, parsed: argparse.Namespace) -> CommandResult:
    from etloop.runtime.module_loading import quick_loading

    module, name = where.split(":")
    with quick_loading():
        command = importlib.import_module(f"etloop.cli.commands.{module}")
    result: CommandResult = getattr(command, name)(parsed)
    return result


def add_scenario_and_rig(parser: argparse.ArgumentParser, *, without_rig: str = "") -> None:
    """Add the arguments for scenario and rig, or for the case that holds both.

    `without_rig`: help text of what replaces a missing rig; "": a rig is required.
    """
    from pathlib import Path

    class TakeScenario(argparse.Action):
        """Takes a scenario, or a case, with which no rig is required."""

        def __call__(
            self, _: argparse.ArgumentParser, parsed: argparse.Namespace, path: object, *__: object
        ) -> None:
            from etloop.controller.case.recognition import is_case

            assert isinstance(path, Path)
            parsed.scenario, parsed.is_case = path, is_case(path)
            rig.required = not parsed.is_case and not without_rig

    help_text = "scenario.yaml, or a case: CASE.zip of etloop bundle, the directory that it was unpacked into, or a RUN_DIR"
    parser.add_argument("scenario", type=Path, metavar="SCENARIO", action=TakeScenario, help=help_text)
    help_text = "rig.yaml; of a case: instead of the one inside" + (
        f"; without: {without_rig}" if without_rig else ""
    )
    rig = parser.add_argument("--rig", type=Path, required=not without_rig, metavar="FILE", help=help_text)
    help_text = "of a case: where traces are that are not inside; they must be the same by content"
    parser.add_argument("--traces", type=Path, metavar="DIR", help=help_text)


def add_strict(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Add --strict, which makes contradictions errors."""
    help_text = "refuse what the profile of the device contradicts, instead of warning (etloop dut check tells it, too)"
    parser.add_argument("--strict", action="store_true", help=help_text)
