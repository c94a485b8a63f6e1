"""Finds files of a submitted scenario that do not exist, so that a submitter learns it at once. A shell: the disk.

Only the run's process reads the files, and checks again, since a file may be gone by then. This module opens no file; the
only directory listed is that of a trace prefix.
"""

from __future__ import annotations

import errno
import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.printable import printable
from etloop.controller.rack.runs.confinement import confine, key_of, paths_of
from etloop.controller.rack.transfers.trace_names import PREFIX
from etloop.workload.readers.json_job import PAIR_MARK

if TYPE_CHECKING:
    from etloop.controller.inputs.scenario.scenario import Scenario

_MOST_NAMES: Final = 100_000
"""Most names of a directory that are read; in a larger one every prefix counts as existing."""
_TRACE: Final = "workload.trace"


def named_file_problems(scenario: Scenario, root: Path) -> tuple[Problem, ...]:
    """Return every path of a scenario that leaves `root`, or, if none does, every path that does not exist."""
    try:
        confine(scenario, root)
    except ConfigError as error:
        return error.problems
    problems: dict[Problem, None] = {}
    for field, path in paths_of(scenario):
        key = key_of(field)
        if path.name.startswith(PREFIX):
            continue
        shown_path = printable(os.path.relpath(path, root))
        problem = f'no file "{shown_path}" below the rack\'s scenario root'
        remedy = "copy it there" + (", or submit with --upload" if key == _TRACE else "")
        try:
            if _is_there(path, root, is_trace=key == _TRACE):
                continue
        except OSError as error:
            problem = f'"{shown_path}" cannot be looked up: {error.strerror or error}'
            remedy = "submit again once the controller's host can read it"
        problems[Problem(key, problem, remedy)] = None
    return tuple(problems)


def _is_there(path: Path, root: Path, *, is_trace: bool) -> bool:
    """Return whether a file, an archive or the prefix of a trace exists. Raises `OSError` if that cannot be looked up."""
    try:
        if path.exists():
            return True
        if not is_trace:
            return False
        first, mark, _ = str(path).partition(PAIR_MARK)
        if mark and Path(first) != path and _is_there(Path(first), root, is_trace=True):
            return True
        # A path inside an archive, or a prefix of file names.
        is_inside_archive = any(parent.is_file() for parent in path.parents if root in parent.parents)
        return is_inside_archive or _is_prefix(path)
    except ValueError:  # a NUL in it
        return False
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        return False


def _is_prefix(path: Path) -> bool:
    if not path.parent.is_dir():
        return False
    with os.scandir(path.parent) as entries:
        names = [entry.name for entry in itertools.islice(entries, _MOST_NAMES)]
    return len(names) == _MOST_NAMES or any(name.startswith(f"{path.name}.") for name in names)
