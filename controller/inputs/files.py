"""Reads the files that a command line names. A shell: the file system; what they mean is decided by who reads them."""

from __future__ import annotations

from pathlib import Path

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.yaml_reader import LARGEST_FILE_BYTES


def read_file(path: Path) -> bytes:
    """A configuration file as far as it may be read. Raises `ConfigError` where it cannot be."""
    try:
        with path.open("rb") as file:
            # One byte more than is allowed, so that the reader can say that it is too much.
            return file.read(LARGEST_FILE_BYTES + 1)
    except OSError as error:
        what = f"cannot be read: {error.strerror or error}"
        raise ConfigError(Problem(str(path), what, "check the name and that it may be read")) from None
