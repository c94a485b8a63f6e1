"""How every command of `etloop` is declared: the same help, example and --json."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from etloop.cli.result import CommandResult

Commands = argparse._SubParsersAction  # noqa: SLF001 - argparse has no public name for it


def add_command(
    commands: Commands[argparse.ArgumentParser],
    name: str,
    summary: str,
    example: str,
    command: Callable[[argparse.Namespace], CommandResult],
    *,
    offers_json: bool = True,
) -> argparse.ArgumentParser:
    """A command with its help, an example, and --json if it answers in JSON; `command` carries it out."""
    parser = commands.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog=f"example:\n{example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if offers_json:
        parser.add_argument("--json", action="store_true", help="answer in JSON, for programs")
    parser.set_defaults(command=command, json=False)
    return parser
