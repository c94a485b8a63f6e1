"""One point of an exploration as files and a command of ETLoop, and its figures. Pure, and without CloudAI.

A point in the twin, in a lab or on a rig is a sweep of one point, whose settings ETLoop checks and keeps; a point on a rack is
a scenario with the settings in place.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

POINT_FILE = "point.yaml"
RESULT_FILE = "result.json"
ERRORS_FILE = "stderr.txt"
STUDY = "study"
ITERATION_NS = "jct_avg_ns"
"""The figure without a name: mean time of an iteration."""


class PointError(ValueError):
    """Settings that no point can have."""


def settings_of(tree: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield key paths and values of nested tables: CloudAI splits names at dots, so that paths are tables."""
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from settings_of(value, (*path, name))
        else:
            yield ".".join((*path, name)), value


def sweep_text(scenario: Path, topology: Path | None, settings: Mapping[str, Any], repeats: int) -> str:
    """Return a sweep of one point. Raises `PointError` without a setting."""
    axes = {path: [value] for path, value in settings_of(settings)}
    if not axes:
        raise PointError(
            "cmd_args.set is empty; name at least one setting, such as set.transport.cc.algorithm"
        )
    sweep: dict[str, Any] = {"scenario": str(scenario), "repeats": repeats, "axes": axes}
    if topology is not None:
        sweep["topology"] = str(topology)
    return yaml.safe_dump(sweep, sort_keys=False)


def scenario_text(scenario: str, settings: Mapping[str, Any]) -> str:
    """Return a scenario for a rack, whose switches are real. Raises `PointError` for a setting of topology or rig."""
    tree = yaml.safe_load(scenario)
    for path, value in settings_of(settings):
        *parents, last = path.split(".")
        if path.split(".")[0] in {"topology", "rig"}:
            raise PointError(f"cmd_args.set.{path}: a rack has its own {path.split('.')[0]}; remove it")
        place = tree
        for name in parents:
            place = place.setdefault(name, {})
        place[last] = value
    return yaml.safe_dump(tree, sort_keys=False)


def command(etloop: str, where: str, rig: str, arguments: str, directory: Path) -> str:
    """Return the shell command of a point: exit code of ETLoop, JSON in `RESULT_FILE`. Raises `PointError`."""
    modes = {
        "twin": ["--twin", "--jobs", "1", "--output", "figures"],
        "lab": ["--lab"],
        "rig": ["--rig", rig],
    }
    if where == "rack":
        words = [etloop, "submit", POINT_FILE, "--wait", "--json"]
    elif where in modes:
        if where == "rig" and not rig:
            raise PointError("cmd_args.rig is missing; name the rig file")
        words = [etloop, "sweep", POINT_FILE, "--out", STUDY, *modes[where], "--json"]
    else:
        raise PointError(f'cmd_args.where is "{where}"; write twin, lab, rig or rack')
    line = " ".join([*map(shlex.quote, words), arguments]).strip()
    return f"cd {shlex.quote(str(directory))} && {line} > {RESULT_FILE} 2> {ERRORS_FILE}"


def figure(result: str, name: str) -> float | None:
    """Return a figure of a result: the mean over the repeats of a sweep's point, or that of a rack's job; None without it."""
    try:
        read = json.loads(result)
    except json.JSONDecodeError:
        return None
    if "results" in read:
        figures = {figure["name"]: figure["mean"] for point in read["results"] for figure in point["figures"]}
        return figures.get(name)
    job = (read.get("summary") or {}).get("job", {})
    return job.get("iteration_jct_avg_ns" if name == ITERATION_NS else name)
