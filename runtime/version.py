"""Reads the installed version of ETLoop, and adds the option that prints it."""

from __future__ import annotations

import argparse
from typing import Final

DISTRIBUTIONS: Final = ("etloop", "etloop-agent")
"""ETLoop as a whole, and its part for a host with an agent alone."""
UNKNOWN: Final = "unknown"


def installed_version() -> str:
    """Return the version in the installed package's metadata, `UNKNOWN` if the package is not installed."""
    # Here, because it takes longer to load than all else that a short command needs.
    from importlib.metadata import PackageNotFoundError, version

    for distribution in DISTRIBUTIONS:
        try:
            return version(distribution)
        except PackageNotFoundError:
            continue
    return UNKNOWN


class PrintVersion(argparse.Action):
    """Prints the version of a command and exits; argparse's own action needs the version when the parser is built."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        """See `argparse.Action`."""
        print(f"{parser.prog} {installed_version()}")
        parser.exit()


def add_version(parser: argparse.ArgumentParser) -> None:
    """Add the option `--version` to a command."""
    parser.add_argument("--version", action=PrintVersion, nargs=0, help="print the installed version")
