"""Whether what a command line names is a case. Loads next to nothing, for every command line is asked."""

from __future__ import annotations

from pathlib import Path


def is_case(path: Path) -> bool:
    """Whether a path is to be taken for a case and not for a scenario.

    The scenario of a run directory is its case as long as nobody changed it: what it names lies where the run was made, and
    in the case.
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
    from etloop.controller.case.opening import is_as_the_run_read_it

    return is_as_the_run_read_it(path)


def lies_in_run_directory(path: Path) -> bool:
    """Whether a file of settings lies beside the case of a run."""
    return (path.parent / "case.zip").is_file()
