"""Find the commands of `etloop` and build their parser.

Every module below `cli/commands` is the command of its file's name:

* the first line of its docstring says what the command does,
* `EXAMPLE` shows one or a few calls, one per line,
* `add_arguments(parser)` declares the arguments,
* `run(parsed)` carries the command out and returns a `CommandResult`; `parsed.arguments` is the whole command line.

`run` imports what it needs, so that `--help` loads nothing else. The list of commands reads only the first line of each file.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, cast

from etloop.cli import commands
from etloop.runtime.version import add_version

if TYPE_CHECKING:
    from etloop.cli.result import CommandResult

_DESCRIPTION: Final = """\
Puts a switch or a NIC under the network load of a real AI job, without a GPU.

A controller (this command) plans a job from Chakra execution traces and partitions it over agents
(etloop-agent), which replay it as RoCEv2 through the device under test."""
_EPILOG: Final = """\
first steps:
  etloop demo                                   a complete run on this machine
  etloop synth job/                             write a synthetic job as .et files
  etloop lint job/                              check the trace
  etloop inspect job/                           show parallelism, collectives and traffic matrix
  etloop plan scenario.yaml --rig rig.yaml      show the flows of a run, without sending any
  etloop run scenario.yaml --rig rig.yaml --out run1/
  etloop bundle run1/                           pack the run and its inputs into one file

exit codes: 0 pass, 2 usage, 20 inconclusive, 30 a condition failed or a regression, 50 the run broke off,
  65 invalid input or a rig that is not ready"""


class CommandFile(NamedTuple):
    """The module of a command."""

    module: str
    """Import name."""
    path: str

    def read_summary(self) -> str:
        """Return the first line of the module's docstring as a summary: without its period, the first letter in lower case."""
        with open(self.path, encoding="utf-8") as file:  # noqa: PTH123 - importing pathlib takes longer than all of this
            return summary_of(file.readline().strip().removeprefix('"""').removesuffix('"""'))


class CommandModule(Protocol):
    """The interface of a module of `cli/commands`."""

    EXAMPLE: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments of the command."""

    def run(self, parsed: argparse.Namespace) -> CommandResult:
        """Carry the command out."""


def summary_of(docstring: str) -> str:
    """Return the summary of a command from the docstring of its module."""
    line = docstring.partition("\n")[0].removesuffix(".")
    return line[:1].lower() + line[1:]


def find_commands() -> dict[str, CommandFile]:
    """Return the module of every command by the command's name, sorted by name."""
    files: dict[str, CommandFile] = {}
    folders = [(commands.__name__, path) for path in commands.__path__]
    for package, folder in folders:
        for entry in os.scandir(folder):
            name, _, ending = entry.name.partition(".")
            if ending == "py" and name != "__init__":
                files[name] = CommandFile(f"{package}.{name}", entry.path)
            elif not ending and name != "__pycache__":
                folders.append((f"{package}.{name}", entry.path))
    return dict(sorted(files.items()))


def make_parser(words: Sequence[str] = ()) -> argparse.ArgumentParser:
    """Return a parser for the command line `words`.

    It has the arguments of the command that `words` name or, if they name none, all commands with their summaries.
    `parsed.command` of its result carries the command out.
    """
    parser = argparse.ArgumentParser(
        prog="etloop",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_version(parser)
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    files = find_commands()
    name = next((word for word in words if not word.startswith("-")), None)
    if name is None:
        for command_name, file in files.items():
            subparsers.add_parser(command_name, help=file.read_summary())
    elif name in files:
        _add_command(subparsers, name, files[name])
    else:
        import difflib

        close_names = difflib.get_close_matches(name, files, n=1)
        hint = f"did you mean {close_names[0]}? " if close_names else ""
        parser.error(f"{name[:64]!r} is not a command; {hint}(choose from {', '.join(files)})")
    return parser


def make_complete_parser() -> argparse.ArgumentParser:
    """Return a parser with all arguments of all commands, for the shell completions."""
    parser = argparse.ArgumentParser(prog="etloop", description=_DESCRIPTION, epilog=_EPILOG)
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name, file in find_commands().items():
        _add_command(subparsers, name, file)
    return parser


def _add_command(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser], name: str, file: CommandFile
) -> None:
    module = load_command(file)
    summary = summary_of(module.__doc__ or "")
    parser = subparsers.add_parser(
        name,
        help=summary,
        description=f"{summary[:1].upper()}{summary[1:]}.",
        epilog=f"example:\n{module.EXAMPLE}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(command=module.run, json=False)
    module.add_arguments(parser)


def load_command(file: CommandFile) -> CommandModule:
    """Import and return the module of a command."""
    import importlib

    return cast("CommandModule", importlib.import_module(file.module))
