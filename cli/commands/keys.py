"""Make, list, allow and revoke keys of the control connection."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from etloop.cli.arguments.inputs import add_json
from etloop.cli.result import CommandResult, to_json

EXAMPLE: Final = "  etloop keys make controller a b --dir keys\n  etloop keys allow a b --dir keys"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the action and its keys."""
    add_json(parser)
    parser.add_argument("action", choices=("make", "allow", "revoke", "list"), help="action")
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="names of agents or of the controller; allow also accepts .key files of other hosts",
    )
    parser.add_argument(
        "--dir",
        type=Path,
        default=Path("keys"),
        metavar="DIR",
        help="key directory (default keys/); the allow-list is DIR/allowed",
    )
    parser.add_argument("--keep", action="store_true", help="make: keep existing pairs")


def run(parsed: argparse.Namespace) -> CommandResult:
    """Change or list the keys of a directory. Raise `ConfigError` with all problems before any change."""
    from dataclasses import asdict

    from etloop.cli.key_directory import allow, key_rows, key_table, make_pairs, revoke
    from etloop.contract.base.errors import ConfigError, Problem

    directory: Path = parsed.dir
    names: list[str] = parsed.names
    if (parsed.action == "list") == bool(names):
        remedy = "leave the names out" if names else "give one or more names"
        raise ConfigError(Problem(f"etloop keys {parsed.action}", f"got {len(names)} names", remedy))
    messages: tuple[str, ...] = ()
    if parsed.action == "make":
        messages = make_pairs(directory, names, keep=parsed.keep)
    elif parsed.action == "allow":
        messages = allow(directory, names)
    elif parsed.action == "revoke":
        messages = revoke(directory, names)
    rows = key_rows(directory)
    if parsed.json:
        return CommandResult(to_json({"done": list(messages), "keys": [asdict(row) for row in rows]}))
    text = "".join(f"{line}\n" for line in messages) if messages else key_table(rows, directory)
    return CommandResult(text)
