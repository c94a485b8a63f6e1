"""One side of a comparison: a run, or repeats of one. Finds and reads their directories; what they show is for `contrast`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from etloop.contract.base.errors import Problem
from etloop.results.compare.samples import RunSamples, read_samples
from etloop.results.schema.typed_json import RunDirError
from etloop.results.store.run_dir import SUMMARY_FILE

MOST_RUNS: Final = 1000
SWEEP_FILE: Final = "sweep.json"


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """The runs of one side that can be used, at least one."""

    name: str
    path: str
    runs: tuple[RunSamples, ...]
    left_out: tuple[str, ...]
    """Runs that cannot be used, each with why."""
    repeats: tuple[str, ...] = ()
    """Of each run, what it has in common with one run of the other side: the name of its directory."""


def read_side(path: Path, warm_up: int, name: str = "") -> Side:
    """The run of a run directory, or all runs of a directory of them.

    Raises `RunDirError` if there is none that can be used.
    """
    samples, left_out, repeats = [], [], []
    for run_dir in run_directories(path):
        found = read_samples(run_dir, warm_up)
        if found.broken:
            left_out.append(f"{run_dir.name}: {found.broken}")
        else:
            samples.append(found)
            repeats.append(run_dir.name)
    if not samples:
        what = f"none of its {len(left_out)} runs can be used: {left_out[0]}"
        raise RunDirError(Problem(str(path), what, "name a run that ended by itself"))
    return Side(name or str(path), str(path), tuple(samples), tuple(left_out), tuple(repeats))


def paired_runs(a: Side, b: Side) -> tuple[Side, Side] | None:
    """Both with the runs of the repeats that both have, in their order; None if these are fewer than two."""
    common = sorted(set(a.repeats) & set(b.repeats))
    if len(common) < 2:
        return None
    return _of_pairs(a, common), _of_pairs(b, common)


def _of_pairs(side: Side, repeats: list[str]) -> Side:
    by_name = dict(zip(side.repeats, side.runs, strict=True))
    return replace(side, runs=tuple(by_name[name] for name in repeats), repeats=tuple(repeats))


def are_points_of_one_sweep(a: Path, b: Path) -> bool:
    """Whether two directories are points of the same sweep, whose runs are paired by their repeat."""
    parents = a.resolve().parent, b.resolve().parent
    return parents[0] == parents[1] and (parents[0].parent / SWEEP_FILE).is_file()


def run_directories(path: Path) -> tuple[Path, ...]:
    """`path` itself if it is a run directory, else those in it, by name. Raises `RunDirError` where there is none."""
    if (path / SUMMARY_FILE).is_file():
        return (path,)
    try:
        inside = sorted(
            one for one in path.iterdir() if one.name[0] != "." and (one / SUMMARY_FILE).is_file()
        )
    except OSError as error:
        what = f"cannot be looked into: {error.strerror or error}"
        raise RunDirError(Problem(str(path), what, "name a run directory, or a directory of runs")) from None
    if not inside:
        remedy = "name what --out of `etloop run` named, or a directory of such"
        if (path / SWEEP_FILE).is_file():
            remedy = f"it is a sweep; name two of its points, such as {path}/points/p000"
        raise RunDirError(Problem(str(path), "holds no run", remedy))
    if len(inside) > MOST_RUNS:
        what = f"holds {len(inside)} runs"
        raise RunDirError(Problem(str(path), what, f"compare at most {MOST_RUNS} of a side"))
    return tuple(inside)
