"""Print the shell completion script for commands and options."""

from __future__ import annotations

import argparse
from typing import Final

from etloop.cli.result import CommandResult

EXAMPLE: Final = (
    "  etloop completion bash > ~/.local/share/bash-completion/completions/etloop\n"
    "  etloop completion zsh > ~/.zfunc/_etloop        # a directory of fpath\n"
    "  etloop completion fish > ~/.config/fish/completions/etloop.fish"
)
SHELLS: Final = ("bash", "zsh", "fish")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the shell."""
    parser.add_argument("shell", choices=SHELLS, help="shell to print the script for")


def run(parsed: argparse.Namespace) -> CommandResult:
    """Return the completion script of a shell, generated from the parser of all commands."""
    import shtab

    from etloop.cli.parser import make_complete_parser

    return CommandResult(shtab.complete(make_complete_parser(), shell=parsed.shell))
