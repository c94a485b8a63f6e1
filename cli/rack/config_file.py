"""Read the configuration file of a rack, for `etloop controller` and `etloop jobs`. A shell."""

from __future__ import annotations

from pathlib import Path

from etloop.contract.base.errors import ConfigError, Problem
from etloop.controller.rack.config import RackConfig, parse_rack_config


def read_rack_config(path: Path, *, embedded_broker: bool = False) -> RackConfig:
    """Return the configuration. Raise `ConfigError` if the file cannot be read or is invalid."""
    try:
        text = path.read_bytes()
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
        raise ConfigError(Problem(str(path), problem, "check the name and the permissions")) from None
    return parse_rack_config(text, str(path), path.parent, embedded_broker=embedded_broker)
