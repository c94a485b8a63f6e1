"""Read text files that a user names."""

from __future__ import annotations

from pathlib import Path

from etloop.contract.base.errors import ConfigError, Problem


def read_text(path: Path) -> str:
    """Return the text of a file. Raises `ConfigError` if it cannot be read."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            Problem(str(path), f"cannot be read: {error}", "check the name and the file")
        ) from None
