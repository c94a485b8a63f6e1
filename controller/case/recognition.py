"""Recognition of cases on a command line. Imports almost nothing, because every command line uses it."""

from __future__ import annotations

from pathlib import Path


def is_case(path: Path) -> bool:
    """Return whether a path is a case and not a scenario.

    The scenario of a run directory is taken as its case as long as it is unchanged: its relative paths do not resolve in the
    run directory, but the files they name are in the case.
    """
    if path.is_dir() or path.suffix.lower() == ".zip":
        return True
    try:
        with path.open("rb") as file:
            if file.read(4) == b"PK\3\4":
                return True
    except OSError:
        return False
    if not lies_in_run_directory(path):
        return False
    from etloop.controller.case.unpack import is_as_the_run_read_it

    return is_as_the_run_read_it(path)


def lies_in_run_directory(path: Path) -> bool:
    """Return whether a settings file is in the directory of a run that has a case."""
    return (path.parent / "case.zip").is_file()
