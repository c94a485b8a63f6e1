"""`etloop completion`: prints the shell completion of commands and options, generated from the command line's parser."""

from __future__ import annotations

from typing import TYPE_CHECKING

import shtab

from etloop.cli.parser import whole_parser
from etloop.cli.result import CommandResult

if TYPE_CHECKING:
    import argparse


def carried_out(parsed: argparse.Namespace) -> CommandResult:
    """Return the completion script of a shell."""
    return CommandResult(shtab.complete(whole_parser(), shell=parsed.shell))
