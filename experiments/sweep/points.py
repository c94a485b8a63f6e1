"""Points of a sweep: the settings of each, the texts of its files, and the order of all runs. Pure.

Decides how points are named and which file a key path changes. Callers read the files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import QuantityError
from etloop.contract.base.yaml_tree import Change, changed_text
from etloop.controller.run.prepare import InputFile, read_device_file
from etloop.experiments.sweep.file import LabWish, Order, Sweep
from etloop.lab.plan import plan_lab, rig_text

if TYPE_CHECKING:
    import random

FILES: Final = ("scenario", "rig", "topology")
MADE_RIG: Final = "rig-of-its-lab.yaml"
"""Name, in messages, of a rig derived from a topology."""
_RIGS_KEPT: Final = 16


@dataclass(frozen=True, slots=True, eq=False)
class Point:
    """One combination of settings."""

    name: str
    """p000, p001, ...: also the name of its directory."""
    labels: tuple[tuple[str, str], ...]
    """Pairs of axis and setting."""
    changes: tuple[Change, ...]
    plan: str = ""
    """Digest of its plan (`index.point_record`); "" before it is planned, and for the trials of a search."""

    @property
    def words(self) -> str:
        """Return the settings as text."""
        return ", ".join(f"{axis}={label}" for axis, label in self.labels)


@dataclass(frozen=True, slots=True)
class PointFiles:
    """The texts of a point's files, each with the directory that its paths are relative to."""

    scenario: InputFile
    rig: InputFile
    topology: InputFile | None

    @property
    def digest(self) -> str:
        """Return a digest that distinguishes points whose files differ."""
        digest = hashlib.sha256()
        for file in (self.scenario, self.rig, self.topology):
            digest.update(b"\0" if file is None else (file.content or b"") + b"\0")
        return digest.hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Turn:
    """One planned run."""

    point: int
    repeat: int


def points(sweep: Sweep) -> tuple[Point, ...]:
    """Return all points, the last axis varying fastest."""
    all_points = []
    for number, settings in enumerate(product(*(axis.settings for axis in sweep.axes))):
        labels = tuple((axis.name, setting.label) for axis, setting in zip(sweep.axes, settings, strict=True))
        changes = (*sweep.common, *(change for setting in settings for change in setting.changes))
        all_points.append(Point(f"p{number:03d}", labels, changes))
    return tuple(all_points)


def turns(order: Order, count: int, repeats: int, rng: random.Random) -> tuple[Turn, ...]:
    """Return all runs in their order; `rng` shuffles each repeat."""
    if order is Order.LISTED:
        return tuple(Turn(point, number) for point in range(count) for number in range(repeats))
    shuffled = []
    for number in range(repeats):
        order_of_repeat = list(range(count))
        rng.shuffle(order_of_repeat)
        shuffled += [Turn(point, number) for point in order_of_repeat]
    return tuple(shuffled)


def run_name(number: int) -> str:
    """Return the name of the directory of a repeat's run."""
    return f"r{number:03d}"


def point_files(sweep: Sweep, point: Point, read: Callable[[Path], bytes], *, lab: bool) -> PointFiles:
    """Return the files of a point. With `lab`, or without any rig, the rig is derived from its topology for a lab.

    Raises `ConfigError`, which names the point.
    """
    try:
        return _files(sweep, point, read, lab=lab)
    except QuantityError as error:
        place = f"{sweep.source}: point {point.name} ({point.words})"
        raise ConfigError(Problem(place, error.what, error.remedy)) from None
    except ConfigError as error:
        raise ConfigError(*(at_point(point, problem) for problem in error.problems)) from None


def at_point(point: Point, problem: Problem) -> Problem:
    """Return a problem with the point added to its place."""
    return Problem(f"point {point.name} ({point.words}): {problem.where}", problem.what, problem.remedy)


def _files(sweep: Sweep, point: Point, read: Callable[[Path], bytes], *, lab: bool) -> PointFiles:
    paths: dict[str, Path | None] = {
        "scenario": sweep.scenario,
        "rig": None if lab else sweep.rig,
        "topology": sweep.topology,
    }
    changes: dict[str, list[Change]] = {name: [] for name in FILES}
    for change in point.changes:
        if len(change.path) == 1 and change.path[0] in FILES:
            paths[change.path[0]] = Path(str(change.value.value))
        elif change.path[0] in {"rig", "topology"}:
            changes[change.path[0]].append(Change(change.path[1:], change.value))
        else:
            changes["scenario"].append(change)
    files = {name: _file(path, changes[name], read) for name, path in paths.items() if path is not None}
    topology = files.get("topology")
    if topology is None and changes["topology"]:
        problem = "changes the topology, but the sweep names none"
        raise ConfigError(Problem(sweep.source, problem, "write topology: FILE"))
    if "rig" not in files:
        files["rig"] = _made_rig(sweep, topology, changes["rig"])
    return PointFiles(files["scenario"], files["rig"], topology)


def _file(path: Path, changes: list[Change], read: Callable[[Path], bytes]) -> InputFile:
    content = read(path)
    return InputFile(path, changed_text(content, str(path), changes).encode() if changes else content)


def _made_rig(sweep: Sweep, topology: InputFile | None, changes: list[Change]) -> InputFile:
    if topology is None or topology.content is None:
        remedy = "write rig: FILE, give --rig FILE, or write topology: FILE to use the rig of its lab"
        raise ConfigError(Problem(sweep.source, "the sweep has no rig", remedy))
    source = str(topology.path)
    text = lab_rig(sweep.lab, topology.content, source).encode()
    path = topology.path.with_name(MADE_RIG)
    return InputFile(path, changed_text(text, str(path), changes).encode() if changes else text)


# Cached because most points of a sweep have the same topology.
@lru_cache(maxsize=_RIGS_KEPT)
def lab_rig(wish: LabWish, topology: bytes, source: str) -> str:
    """Return the rig of a lab of this topology. Raises `ConfigError` or `PlanError` if no lab can be made."""
    plan = plan_lab(
        read_device_file(InputFile(Path(source), topology)).topology,
        mtu_bytes=wish.mtu_bytes,
        addresses=wish.addresses,
        bind=wish.bind,
    )
    return rig_text(plan, backend=wish.backend)
