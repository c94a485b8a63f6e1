"""Reads a run, an export and the output of its simulator for `etloop compare`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Final

import numpy as np

from etloop.cli.result import CommandResult, to_json
from etloop.cli.text.simulators import render_simulator_comparison
from etloop.contract.base.errors import ConfigError, Problem
from etloop.controller.export.bundle import (
    EXPORT_SCHEMA,
    MANIFEST_FILE,
    MESSAGES_FILE,
    OUTPUT_FILE,
    Manifest,
)
from etloop.controller.export.comparison import RunOps, compare_times, parse_messages
from etloop.controller.export.outputs import read_output
from etloop.results.schema.typed_json import from_json
from etloop.results.store.run_dir import read_table_of

MOST_BYTES: Final = 1 << 28
"""Largest file of an export that is read."""


def compare_with_output(run_dir: Path, export_dir: Path, *, as_json: bool) -> CommandResult:
    """Return a run next to the simulator's output in the directory of an export.

    Raises `ConfigError` or `RunDirError` if one of them cannot be read, or they are of different jobs.
    """
    about = from_json(Manifest, _read(export_dir / MANIFEST_FILE), MANIFEST_FILE, EXPORT_SCHEMA)
    messages = parse_messages(_read(export_dir / MESSAGES_FILE))
    times = read_output(_read(export_dir / OUTPUT_FILE), about)
    table = read_table_of(run_dir, "ops")
    columns = (
        table[name].to_numpy().astype(np.int64) for name in ("iteration", "rank", "op", "completed_ns")
    )
    comparison = compare_times(RunOps(*columns), messages, times, about)
    if not as_json:
        return CommandResult(render_simulator_comparison(comparison))
    values = asdict(comparison)
    values["figures"] = [{**asdict(figure), "ratio": figure.ratio} for figure in comparison.figures]
    return CommandResult(to_json(values))


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > MOST_BYTES:
            problem = f"has more than {MOST_BYTES} bytes"
            raise ConfigError(Problem(str(path), problem, "is it the file of the export?"))
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        remedy = f"run the command of {MANIFEST_FILE} there, which writes {OUTPUT_FILE}"
        raise ConfigError(Problem(str(path), f"cannot be read: {error}", remedy)) from None
