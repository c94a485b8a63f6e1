"""Reads the files named on a command line. A shell around the file system; the callers parse the contents."""

from __future__ import annotations

from pathlib import Path

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.yaml_reader import LARGEST_FILE_BYTES


def read_file(path: Path) -> bytes:
    """Read a configuration file, up to one byte more than its size limit. Raises `ConfigError` if it cannot be read."""
    try:
        with path.open("rb") as file:
            # One byte more than allowed, so that the parser can detect and report an oversized file.
            return file.read(LARGEST_FILE_BYTES + 1)
    except OSError as error:
        problem = f"cannot be read: {error.strerror or error}"
        raise ConfigError(Problem(str(path), problem, "check the name and the permissions")) from None
