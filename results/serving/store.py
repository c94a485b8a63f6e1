"""The directory of a serving run: requests.parquet, decode_steps.parquet, serving.json, report.html and its inputs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from etloop.results.schema.serving import REQUEST_COLUMNS, STEP_COLUMNS, Columns
from etloop.results.serving.page import serving_page
from etloop.results.serving.run import ServingRun

REQUESTS_FILE: Final = "requests.parquet"
STEPS_FILE: Final = "decode_steps.parquet"
FIGURES_FILE: Final = "serving.json"
PAGE_FILE: Final = "report.html"
FORMAT: Final = 1
"""Version of serving.json."""


def write_serving(directory: Path, run: ServingRun, inputs: Mapping[str, str | bytes]) -> None:
    """Write a run into a new or empty directory; `inputs` are its input files by name. Raises `OSError`."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in inputs.items():
        (directory / name).write_bytes(text.encode() if isinstance(text, str) else text)
    pq.write_table(columns_table(run.records.requests, REQUEST_COLUMNS), directory / REQUESTS_FILE)
    pq.write_table(columns_table(run.records.steps, STEP_COLUMNS), directory / STEPS_FILE)
    (directory / FIGURES_FILE).write_text(json.dumps(serving_values(run), indent=1) + "\n")
    (directory / PAGE_FILE).write_text(serving_page(run))


def serving_values(run: ServingRun) -> dict[str, Any]:
    """Return the content of serving.json."""
    verdict = None if run.verdict is None else asdict(run.verdict)
    return {
        "format": FORMAT,
        "level": run.level,
        "failure": run.failure,
        "verdict": verdict,
        **asdict(run.figures),
    }


def columns_table(columns: Columns, meanings: Mapping[str, str]) -> Any:
    """Return columns as an Arrow table with their meanings as field metadata."""
    arrays = [pa.array(columns[name]) for name in meanings]
    fields = [
        pa.field(name, pa.string() if array.type == pa.null() else array.type, metadata={"meaning": meaning})
        for (name, meaning), array in zip(meanings.items(), arrays, strict=True)
    ]
    return pa.Table.from_arrays(
        [array.cast(field.type) for array, field in zip(arrays, fields, strict=True)],
        schema=pa.schema(fields),
    )
