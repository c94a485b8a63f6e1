"""Keeps a submitted scenario from reading files outside the rack's scenario root. A shell: it reads the disk.

There are two checks, so that no key can be forgotten. Before anything is read, every `Path` of the scenario, found by
traversing all of its fields and not from a list of keys, must lie below the root with links followed; each of the two
places of a HOST+KINETO pair counts. While the trace is read, every file that is opened and every directory that is
listed, by whatever module, is checked again: targets of links inside a trace, and places that only reading finds.

The second check resolves names an instant before the kernel does. A user who can change the scenario root while a job
is read can win that race; the controller trusts everyone with write access to the root (docs/security.md).
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import threading
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from etloop.contract.base.errors import ConfigError, Problem
from etloop.workload.readers.json_job import PAIR_MARK

if TYPE_CHECKING:
    from etloop.controller.inputs.scenario.scenario import Scenario

OUTSIDE: Final = "lies outside the rack's scenario root"
REMEDY: Final = "copy it below the root and name it relative to that"
_KEYS: Final = {
    "scenario.jobs.source.trace": "workload.trace",
    "scenario.jobs.source.groups": "workload.groups",
    "scenario.jobs.source.kernels": "workload.kernels",
    "scenario.jobs.source.load.source": "workload.flows.file",
    "scenario.jobs.source.load.source.sizes": "workload.flows.sizes",
    "scenario.jobs.source.load.file": "workload: file",
    "scenario.jobs.collectives.files.path": "collectives: schedule",
    "scenario.twin": "twin",
    "scenario.collectives.files.path": "collectives: schedule",
}
"""Fields whose key in the file has another name; for messages only."""
_LOOKS: Final = frozenset({"open", "os.listdir", "os.scandir"})
_ROOMS: Final = (
    "cli contract controller counters dut_profiles experiments lab results runtime traffic workload".split()
)
"""ETLoop's packages from which a run imports while it reads a scenario."""
_confined = threading.local()
_installed = threading.Lock()


def confine(scenario: Scenario, *roots: Path) -> None:
    """Raise `ConfigError` with every path of the scenario that leaves all of `roots`, links followed."""
    # A key at the top of the file may apply to several jobs: report it once.
    problems = dict.fromkeys(
        Problem(key_of(key), OUTSIDE, REMEDY)
        for key, path in paths_of(scenario)
        if not all(any(within(place, root) for root in roots) for place in _places(path))
    )
    if problems:
        raise ConfigError(*problems)


def key_of(field: str) -> str:
    """Return the key in the file of a field that `paths_of` yielded."""
    return _KEYS.get(field, field)


def paths_of(value: Any, name: str = "scenario") -> Iterator[tuple[str, Path]]:
    """Yield every `Path` in a value of frozen dataclasses, tuples and mappings, with the name of its field."""
    if isinstance(value, Path):
        yield name, value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from paths_of(getattr(value, field.name), f"{name}.{field.name}")
    elif isinstance(value, dict):
        for key, entry in value.items():
            yield from paths_of(key, name)
            yield from paths_of(entry, f"{name}.{key}")
    elif isinstance(value, (tuple, list, set, frozenset)):
        for entry in value:
            yield from paths_of(entry, name)


def within(path: Path, root: Path) -> bool:
    """Return whether `path` is `root` or below it after following every link."""
    try:
        real, real_root = path.resolve(), root.resolve()
    except (OSError, RuntimeError, ValueError):
        # A loop of links, a name that is too long, or a NUL in it: not a path below the root.
        return False
    return real == real_root or real_root in real.parents


def _places(path: Path) -> Iterator[Path]:
    """Yield a path, and both parts at every mark that may join the two places of one job."""
    yield path
    text = str(path)
    at = text.find(PAIR_MARK)
    while at > 0:
        first, second = Path(text[:at]), Path(text[at + 1 :])
        yield first
        # The reader uses the second part as a path if it exists, else relative to the first one's folder.
        yield first.parent / second
        if second.is_absolute() or second.exists():
            yield second
        at = text.find(PAIR_MARK, at + 1)


@contextlib.contextmanager
def confine_files(*allowed: Path) -> Iterator[None]:
    """Restrict this thread for the block: it opens and lists only files below `allowed`, or files that Python needs.

    Pipes and devices below `allowed` are refused, too. Raises `ConfigError` where a file is opened. Other threads are not
    affected.
    """
    if _installed.acquire(blocking=False):
        # Never released: audit hooks stay for the life of the process.
        sys.addaudithook(_look)
    _confined.allowed = tuple(root.resolve() for root in allowed)
    _confined.roots = (*_confined.allowed, *_python_places())
    try:
        yield
    finally:
        _confined.roots = None


def _look(event: str, arguments: tuple[Any, ...]) -> None:
    roots = getattr(_confined, "roots", None) if event in _LOOKS else None
    if roots is None or not arguments or not isinstance(arguments[0], (str, bytes, os.PathLike)):
        return
    # The check itself opens files: do not check those.
    _confined.roots = None
    try:
        path = Path(os.fsdecode(arguments[0]))
        if not any(within(path, root) for root in roots):
            raise ConfigError(Problem(f"a file of the scenario: {path}", OUTSIDE, REMEDY))
        is_given = any(within(path, root) for root in _confined.allowed)
        if is_given and (path.is_fifo() or path.is_char_device() or path.is_block_device()):
            # Opening a pipe may block for ever, and reading a device may never end.
            raise ConfigError(Problem(f"a file of the scenario: {path}", "is not a regular file", "name one"))
    finally:
        _confined.roots = roots


def _python_places() -> tuple[Path, ...]:
    """Return the directories from which modules are imported."""
    own_packages = [Path(place) for room in _ROOMS for place in import_module(f"etloop.{room}").__path__]
    installed = [Path(place) for place in sys.path if place.endswith("-packages")]
    places = [Path(sys.prefix), Path(sys.base_prefix), Path(os.devnull), *own_packages, *installed]
    return tuple(place.resolve() for place in places)
