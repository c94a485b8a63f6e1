"""The command `etloop`: parse the command line, run the command, print its answer, turn errors into exit codes.

A command's answer goes to standard output, its messages to standard error. Errors that a user can cause end with their message
and the code of their class (contract/base/errors.py); a traceback is always a defect of ETLoop.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from etloop.cli.parser import make_parser
from etloop.runtime.module_loading import leave_out_pandas

if TYPE_CHECKING:
    import argparse

    from etloop.cli.result import CommandResult

STOPPED_BY_SIGINT: Final = 130
"""Exit code that shells report for a command that Ctrl-C ended."""
BROKEN_PIPE: Final = 141
"""Exit code that shells report for a command whose reader closed the pipe."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, that of the command line if none is given; return its exit code."""
    if arguments is None:
        leave_out_pandas()
    words = tuple(sys.argv[1:] if arguments is None else arguments)
    parsed = make_parser(words).parse_args(words)
    parsed.arguments = words
    # Imported here, because --help ends above.
    from etloop.contract.base.errors import EtloopError

    try:
        result = _run_command(parsed)
        sys.stdout.write(result.text)
        sys.stdout.flush()
    except EtloopError as error:
        if parsed.json:
            from etloop.cli.result import error_as_json

            sys.stdout.write(error_as_json(error))
        sys.stderr.writelines(f"etloop: {line}\n" for line in str(error).splitlines())
        return int(error.exit_code)
    except KeyboardInterrupt:
        sys.stderr.write("\netloop: stopped by Ctrl-C\n")
        return STOPPED_BY_SIGINT
    except BrokenPipeError:
        # The interpreter flushes standard output once more at exit; discard that.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    return int(result.exit_code)


def _run_command(parsed: argparse.Namespace) -> CommandResult:
    """Run a command. Raise an error that names the extra to install if a package that the command needs is missing."""
    try:
        result: CommandResult = parsed.command(parsed)
    except ModuleNotFoundError as error:
        from etloop.runtime.installed_packages import missing_package

        missing = missing_package(error, f"etloop {next(iter(parsed.arguments), '')}".strip())
        if missing is None:
            raise
        raise missing from None
    return result


if __name__ == "__main__":
    sys.exit(main())
