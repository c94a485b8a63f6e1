"""`etloop completion`: what a shell completes commands and options by, made from the command line itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import shtab
from etloop.cli.parser import whole_parser
from etloop.cli.result import CommandResult

if TYPE_CHECKING:
    import argparse


def carried_out(parsed: argparse.Namespace) -> CommandResult:
    """Print the completion of a shell."""
    return CommandResult(shtab.complete(whole_parser(), shell=parsed.shell))
