"""The rack's commands of `etloop`: `controller` serves a rack until it is told to end."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from contract.errors import ConfigError, Problem
from controller.commands_trace import Answer
from controller.rack.config import parse_rack_config

if TYPE_CHECKING:
    import argparse


def add_config(parser: argparse.ArgumentParser) -> None:
    """The arguments of `etloop controller`."""
    parser.add_argument(
        "--config", type=Path, required=True, metavar="FILE", help="controller.yaml: rig, directories, limits"
    )


def answer_controller(parsed: argparse.Namespace) -> Answer:
    """Serves the rack. Raises `ConfigError` before it listens, if what the file says cannot be used."""
    from controller.rack.log import RackLog
    from controller.rack.opening import serve

    path: Path = parsed.config
    try:
        text = path.read_bytes()
    except OSError as error:
        what = f"cannot be read: {error.strerror}"
        raise ConfigError(Problem(str(path), what, "check the name and that it may be read")) from None
    config = parse_rack_config(text, str(path), path.parent)
    return Answer("", serve(config, RackLog(config.log_format)))
