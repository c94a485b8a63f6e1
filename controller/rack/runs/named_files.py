"""Which files of a submitted scenario are not there: its submitter hears of it before the job waits. A shell: the disk.

What is in them only the run's process finds out, and a file may be gone by then: it looks again. Nothing is opened here; names
are listed in the folder of a prefix alone.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.printable import printable
from etloop.controller.rack.exchange.trace_names import PREFIX
from etloop.controller.rack.runs.confinement import confine, key_of, paths_of
from etloop.workload.readers.json_job import PAIR_MARK

if TYPE_CHECKING:
    from etloop.controller.inputs.scenario.scenario import Scenario

_MOST_NAMES: Final = 100_000
"""Of a folder; in a larger one every prefix counts as there."""
_TRACE: Final = "workload.trace"


def named_file_problems(scenario: Scenario, root: Path) -> tuple[Problem, ...]:
    """Return every path of a scenario that leaves `root`, or where these all stay below it, that has nothing at its end."""
    try:
        confine(scenario, root)
    except ConfigError as error:
        return error.problems
    found: dict[Problem, None] = {}
    for field, path in paths_of(scenario):
        key = key_of(field)
        if path.name.startswith(PREFIX) or _is_there(path, root, is_trace=key == _TRACE):
            continue
        shown = printable(os.path.relpath(path, root))
        upload = ", or submit with --upload" if key == _TRACE else ""
        what = f'nothing called "{shown}" is below the rack\'s scenario root'
        found[Problem(key, what, f"copy it there{upload}")] = None
    return tuple(found)


def _is_there(path: Path, root: Path, *, is_trace: bool) -> bool:
    with contextlib.suppress(OSError, ValueError):
        if path.exists():
            return True
        if not is_trace:
            return False
        first, mark, _ = str(path).partition(PAIR_MARK)
        if mark and Path(first) != path and _is_there(Path(first), root, is_trace=True):
            return True
        # A place inside an archive, or what the names of its files begin with.
        inside = any(parent.is_file() for parent in path.parents if root in parent.parents)
        return inside or _is_prefix(path)
    return False


def _is_prefix(path: Path) -> bool:
    if not path.parent.is_dir():
        return False
    with os.scandir(path.parent) as entries:
        names = [entry.name for entry in itertools.islice(entries, _MOST_NAMES)]
    return len(names) == _MOST_NAMES or any(name.startswith(f"{path.name}.") for name in names)
