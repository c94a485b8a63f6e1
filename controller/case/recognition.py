"""Whether what a command line names is a case. Loads nothing, for every command line is asked."""

from __future__ import annotations

from pathlib import Path


def is_case(path: Path) -> bool:
    """Whether a path is to be taken for a case and not for a scenario."""
    if path.is_dir() or path.suffix.lower() == ".zip":
        return True
    try:
        with path.open("rb") as file:
            return file.read(4) == b"PK\3\4"
    except OSError:
        return False
