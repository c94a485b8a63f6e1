"""A sweep from Python: the runs of `etloop sweep`, and its points as a table."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from etloop.cli.parser import make_parser
from etloop.cli.sweep_runs import run_sweep as run_points
from etloop.experiments.sweep.points import run_name
from etloop.input_files import input_file
from etloop.results.schema.sweep import SWEEP_SCHEMA, SweepRecord
from etloop.results.schema.typed_json import from_json
from etloop.results.store.run_dir import read_index

if TYPE_CHECKING:
    from etloop.input_files import FileOrValues

INDEX: Final = "sweep.json"


def run_sweep(sweep: FileOrValues, out_dir: str | os.PathLike[str], where: str) -> Any:
    """See `etloop.run_sweep`."""
    directory = Path(out_dir)
    place = [f"--{where}"] if where in {"twin", "lab"} else ["--rig", where]
    file = input_file(sweep, "sweep.yaml")
    words = ("sweep", file.source, "--out", str(directory), *place)
    parsed: Namespace = make_parser(words).parse_args(words)
    run_points(file, parsed)
    index = directory / INDEX
    return points_table(from_json(SweepRecord, read_index(index), str(index), SWEEP_SCHEMA), directory)


def points_table(record: SweepRecord, directory: Path) -> Any:
    """Return a row for each point: its name, its settings by axis, runs that count, the directory of the first one, and
    the mean of every figure over them.
    """
    by_name = {result.name: result for result in record.results}
    rows: list[Mapping[str, Any]] = []
    for point in record.points:
        result = by_name.get(point.name)
        figures = {} if result is None else {figure.name: figure.mean for figure in result.figures}
        rows.append(
            {"point": point.name}
            | dict(point.labels)
            | {"runs": 0 if result is None else result.runs}
            | {"first_run": str(directory / "points" / point.name / run_name(0))}
            | figures
        )
    names = dict.fromkeys(name for row in rows for name in row)
    return pa.table({name: pa.array([row.get(name) for row in rows]) for name in names})
