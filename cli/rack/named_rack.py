"""Selects the rack of a command: by the broker on its command line, or from `racks.yaml`. A shell: files, the environment."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.units import parse_at, parse_name
from etloop.controller.rack.client.client import RackClient
from etloop.controller.racks.filters import parse_labels
from etloop.controller.racks.racks_file import VARIABLE, RackPlace, chosen_racks, racks_path, read_racks
from etloop.runtime.broker_connection import broker_settings

if TYPE_CHECKING:
    import argparse

DEFAULT_BROKER: Final = "127.0.0.1:1883"
DEFAULT_RACK: Final = "rack"


def use_named_rack(parsed: argparse.Namespace) -> None:
    """Set broker, account and files from `racks.yaml` if the command line names one of its racks. Raise `ConfigError`.

    A broker on the command line takes precedence. Without one, --rack names a rack of the file, if there is such a file.
    """
    if parsed.broker:
        if parsed.racks:
            problem = "and --racks both name a rack"
            raise ConfigError(Problem("--broker", problem, "give one or the other"))
        return
    if parsed.racks and not parsed.rack:
        raise ConfigError(Problem("--racks", "has several racks", "add --rack NAME"))
    path = racks_path(parsed.racks, os.environ)
    is_file_named = parsed.racks is not None or bool(os.environ.get(VARIABLE))
    if parsed.rack and (is_file_named or path.is_file()):
        place = chosen_racks(read_racks(path), (parsed.rack,), {}, str(path))[0]
        for option, value in (
            ("--username", parsed.username),
            ("--password-file", parsed.password_file),
            ("--ca", parsed.ca),
        ):
            if value:
                problem = f"is set in {path} for rack {place.name}"
                raise ConfigError(Problem(option, problem, "leave it out, or name the rack by --broker"))
        use_place(parsed, place, parsed.token_file)


def use_place(parsed: argparse.Namespace, place: RackPlace, token_file: Path | None) -> None:
    """Set the command line's options to those of a rack; `token_file` is from the command line itself and precedes the rack's
    own."""
    parsed.broker, parsed.rack = place.broker, place.rack
    parsed.username, parsed.password_file, parsed.ca = place.username, place.password_file, place.ca
    parsed.token_file = token_file or place.token_file


def rack_client(parsed: argparse.Namespace) -> RackClient:
    """Return a client of the rack that the options of `cli.arguments.rack` name. Raise `ConfigError`."""
    settings = broker_settings(
        parsed.broker or DEFAULT_BROKER,
        username=parsed.username,
        password_file=parsed.password_file,
        ca=parsed.ca,
    )
    return RackClient(settings, parse_at("rack", parse_name, parsed.rack or DEFAULT_RACK))


def chosen_places(parsed: argparse.Namespace, names: Sequence[str]) -> tuple[RackPlace, ...]:
    """Return the racks that a command line names. Raise `ConfigError`."""
    path = racks_path(parsed.racks, os.environ)
    return chosen_racks(read_racks(path), names, parse_labels("--rack-label", parsed.rack_label), str(path))
