"""Command lines -> a page with every command, its options and their meanings, and the page of exit codes. Pure."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping
from textwrap import fill
from typing import Final

from etloop.agent.cli import make_parser as make_agent_parser
from etloop.cli.main import BROKEN_PIPE, STOPPED_BY_SIGINT
from etloop.cli.parser import find_commands, make_parser
from etloop.contract.base.errors import ExitCode
from tools.reference.pages import WRITTEN_BY

EXIT_CODES: Final[Mapping[int, str]] = {
    ExitCode.PASS: "the command did what it was asked for; of a run: every condition holds",
    ExitCode.USAGE: "the command line is wrong; the command did not begin",
    ExitCode.INCONCLUSIVE: "a condition could not be evaluated: a value is absent, or the emulator was the limit",
    ExitCode.VERDICT_FAILED: "a condition does not hold, or a comparison found a regression",
    ExitCode.RUN_ERROR: "the run began and ended early; what was measured until then is kept",
    ExitCode.PREPARATION_FAILED: "bad input, or a rig that is not ready; no load was sent, and every problem is listed",
    STOPPED_BY_SIGINT: "stopped by Ctrl-C",
    BROKEN_PIPE: "whoever read standard output went away",
}


def commands_page() -> str:
    """Return the page of all commands."""
    parts = [
        "# Commands\n",
        WRITTEN_BY,
        "Every command has `--help` with an example. Exit codes: [exit-codes.md](exit-codes.md).\n",
    ]
    for name in find_commands():
        parser = make_parser((name,))
        for _, command_parser in below(parser):
            parts += _parts(command_parser)
    for _, command_parser in below(make_agent_parser()):
        parts += _parts(command_parser)
    return "\n".join(parts)


def exit_codes_page() -> str:
    """Return the page of exit codes."""
    rows = "".join(f"| {int(code)} | {meaning} |\n" for code, meaning in EXIT_CODES.items())
    head = (
        "Both commands end with one of these, which stay as they are. `lab exec` ends with the code of the program "
        "that it ran."
    )
    return "\n".join(
        ["# Exit codes\n", WRITTEN_BY, fill(head, 100) + "\n", "| code | meaning |\n|---|---|\n" + rows]
    )


def arguments_of(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Return the arguments of a parser, its commands included."""
    return parser._actions  # noqa: SLF001 - argparse offers no other way to its own declarations


def below(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield the commands of a parser by name."""
    for action in arguments_of(parser):
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            yield from action.choices.items()


def _parts(parser: argparse.ArgumentParser) -> list[str]:
    positional = [
        _cell(name_of(action))
        for action in arguments_of(parser)
        if not action.option_strings and not is_hidden(action)
    ]
    usage = " ".join([parser.prog, "[OPTIONS]", *positional])
    description = " ".join((parser.description or "").split())
    rows = "".join(_rows(parser))
    table = ["| argument | default | meaning |\n|---|---|---|\n" + rows] if rows else []
    parts = [
        f"## {parser.prog}\n",
        *([fill(description, 100, break_on_hyphens=False) + "\n"] if description else []),
    ]
    if not any(below(parser)):
        parts.append(fill(f"`{usage}`", 100, break_on_hyphens=False, break_long_words=False) + "\n")
    parts += table
    for _, command_parser in below(parser):
        parts += _parts(command_parser)
    return parts


def _rows(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in arguments_of(parser):
        if is_hidden(action):
            continue
        default = action.default
        has_default = default not in (None, False, argparse.SUPPRESS, []) and not isinstance(
            default, bool | tuple
        )
        meaning = expand(action, parser.prog)
        if action.required and action.option_strings:
            meaning = f"{meaning} (required)" if meaning else "required"
        yield f"| `{_cell(name_of(action))}` | {f'`{_cell(str(default))}`' if has_default else ''} | {_cell(meaning)} |\n"


def is_hidden(action: argparse.Action) -> bool:
    """Return whether an argument has no line of its own: --help, commands, and arguments for programs only."""
    hidden_types = (argparse._HelpAction, argparse._SubParsersAction)  # noqa: SLF001
    return isinstance(action, hidden_types) or action.help == argparse.SUPPRESS


def name_of(action: argparse.Action) -> str:
    """Return an argument as it is written on the command line, with the placeholder of its value."""
    value = action.metavar or (action.dest.upper() if action.choices is None else "")
    if action.choices is not None and not action.metavar:
        value = "|".join(str(choice) for choice in action.choices)
    words = " ".join(value) if isinstance(value, tuple) else str(value)
    if not action.option_strings:
        return words
    names = ", ".join(action.option_strings)
    return names if action.nargs == 0 else f"{names} {words}"


def expand(action: argparse.Action, prog: str) -> str:
    """Return the meaning of an argument, with the values that its text names filled in."""
    values = {"default": action.default, "prog": prog, "type": "", "choices": action.choices}
    return " ".join(((action.help or "") % values).split())


def _cell(text: str) -> str:
    return re.sub(r"(?<!\\)\|", r"\\|", text)
