"""The notebooks of examples/ run from their first cell to the last, and what they plot has lines with points."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.support.places import ROOT

NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
PLOT = "application/vnd.plotly.v1+json"
TIMEOUT_S = 120


def points_of(plot: dict[str, Any]) -> list[int]:
    """How many points each line of a plot has."""
    return [len(one["x"]["bdata"]) if isinstance(one["x"], dict) else len(one["x"]) for one in plot["data"]]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_its_plots_have_data(path: Path, tmp_path: Path) -> None:
    notebook = nbformat.reads(path.read_text(), as_version=4)  # type: ignore[no-untyped-call]
    assert not any(cell.get("outputs") for cell in notebook.cells), "kept without output: it would age"
    NotebookClient(notebook, timeout=TIMEOUT_S, resources={"metadata": {"path": str(tmp_path)}}).execute()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    wanted = [cell for cell in code if ".plot(" in cell.source]
    assert wanted
    for cell in wanted:
        plots = [output.data[PLOT] for output in cell.outputs if PLOT in output.get("data", {})]
        assert plots, f"no plot came of {cell.source!r}"
        assert all(min(points_of(plot), default=0) >= 1 and sum(points_of(plot)) > 4 for plot in plots), (
            cell.source
        )
        for plot in plots:
            axes = [value for name, value in plot["layout"].items() if name.startswith("xaxis")]
            assert any(axis.get("title", {}).get("text") for axis in axes), (
                f"no axis has a title: {cell.source!r}"
            )


def test_there_are_notebooks() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["queue_and_rate", "sweep"]
