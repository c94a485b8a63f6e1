"""Keeps a submitted scenario's hands off all files but those below the rack's scenario root. A shell: it looks at the disk.

Two nets, so that no key can be forgotten. Before anything is read, every `Path` of the scenario, found by looking through
all of its fields and not from a list of keys, must lie below the root with links followed; the two places of a
HOST+KINETO pair each count. While the trace is read, every file that is opened and every directory that is listed, by
whatever module, is looked at once more: what a link inside a trace leads to, and places that only reading finds.

The second net looks at names an instant before the kernel does. Who may change the scenario root while a job is read can
win that race; write access to the root is the controller's trust (docs/security.md).
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
    "scenario.jobs.collectives.files.path": "collectives: schedule",
    "scenario.twin": "twin",
    "scenario.collectives.files.path": "collectives: schedule",
}
"""Fields whose key in the file has another name; for messages only."""
_LOOKS: Final = frozenset({"open", "os.listdir", "os.scandir"})
_ROOMS: Final = (
    "cli contract controller counters dut_profiles experiments lab results runtime traffic workload".split()
)
"""Packages of ours that a run imports from while it reads a scenario."""
_confined = threading.local()
_installed = threading.Lock()


def confine(scenario: Scenario, *roots: Path) -> None:
    """Raises `ConfigError` with every path of the scenario that leaves all of `roots`, links followed."""
    # What stands at the top of the file may stand for several jobs.
    problems = dict.fromkeys(
        Problem(key_of(key), OUTSIDE, REMEDY)
        for key, path in paths_of(scenario)
        if not all(any(within(place, root) for root in roots) for place in _places(path))
    )
    if problems:
        raise ConfigError(*problems)


def key_of(field: str) -> str:
    """Return what the file calls a field that `paths_of` gave."""
    return _KEYS.get(field, field)


def paths_of(value: Any, name: str = "scenario") -> Iterator[tuple[str, Path]]:
    """Every `Path` in a value of frozen dataclasses, tuples and mappings, with the field it stands in."""
    if isinstance(value, Path):
        yield name, value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from paths_of(getattr(value, field.name), f"{name}.{field.name}")
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from paths_of(key, name)
            yield from paths_of(each, f"{name}.{key}")
    elif isinstance(value, (tuple, list, set, frozenset)):
        for each in value:
            yield from paths_of(each, name)


def within(path: Path, root: Path) -> bool:
    """Whether `path` is `root` or below it when every link on the way is followed."""
    try:
        real, real_root = path.resolve(), root.resolve()
    except (OSError, RuntimeError, ValueError):
        # A circle of links, a name that is too long, a NUL in it: nothing that can be below the root.
        return False
    return real == real_root or real_root in real.parents


def _places(path: Path) -> Iterator[Path]:
    """A path itself, and both halves at every mark that may join the two places of one job."""
    yield path
    text = str(path)
    at = text.find(PAIR_MARK)
    while at > 0:
        first, second = Path(text[:at]), Path(text[at + 1 :])
        yield first
        # Reading takes the second as it stands where it is there, else beside the first.
        yield first.parent / second
        if second.is_absolute() or second.exists():
            yield second
        at = text.find(PAIR_MARK, at + 1)


@contextlib.contextmanager
def confined(*given: Path) -> Iterator[None]:
    """While it is open, this thread opens and lists nothing but what lies below `given`, or what Python itself needs, and
    waits for no pipe.

    Raises `ConfigError` from the place that tries. Other threads are not touched.
    """
    if _installed.acquire(blocking=False):
        # Never released: audit hooks stay for the life of the process.
        sys.addaudithook(_look)
    _confined.given = tuple(root.resolve() for root in given)
    _confined.roots = (*_confined.given, *_python_places())
    try:
        yield
    finally:
        _confined.roots = None


def _look(event: str, arguments: tuple[Any, ...]) -> None:
    roots = getattr(_confined, "roots", None) if event in _LOOKS else None
    if roots is None or not arguments or not isinstance(arguments[0], (str, bytes, os.PathLike)):
        return
    # Looking must not be looked at.
    _confined.roots = None
    try:
        path = Path(os.fsdecode(arguments[0]))
        if not any(within(path, root) for root in roots):
            raise ConfigError(Problem(f"a file of the scenario: {path}", OUTSIDE, REMEDY))
        is_given = any(within(path, root) for root in _confined.given)
        if is_given and (path.is_fifo() or path.is_char_device() or path.is_block_device()):
            # Opening one may wait for ever, and reading one never end.
            raise ConfigError(Problem(f"a file of the scenario: {path}", "is no regular file", "name one"))
    finally:
        _confined.roots = roots


def _python_places() -> tuple[Path, ...]:
    """Where modules are imported from."""
    ours = [Path(place) for room in _ROOMS for place in import_module(f"etloop.{room}").__path__]
    installed = [Path(place) for place in sys.path if place.endswith("-packages")]
    places = [Path(sys.prefix), Path(sys.base_prefix), Path(os.devnull), *ours, *installed]
    return tuple(place.resolve() for place in places)
