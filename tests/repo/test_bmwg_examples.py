"""The sweeps of both BMWG examples: each can be laid out, the page names each, and the ring of 3.4 locks up."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from etloop.cli.main import main
from etloop.contract.base.errors import ExitCode
from etloop.controller.inputs.files import read_file
from etloop.controller.run.prepare import RunInputs, prepare
from etloop.experiments.sweep.file import parse_sweep
from etloop.experiments.sweep.points import point_files, points
from tests.support.places import ROOT

EXAMPLES = ROOT / "examples" / "bmwg"
FOLDERS = (EXAMPLES, ROOT / "examples" / "bmwg_inference")
SWEEPS = sorted(path for folder in FOLDERS for path in folder.glob("*/*.sweep.yaml"))


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: "/".join(path.parts[-3:]))
def test_the_ends_of_every_grid_can_be_laid_out(path: Path) -> None:
    """The first point, and of what fits a lab the last one too; the largest of a full grid takes long."""
    sweep = parse_sweep(read_file(path), str(path), path.parent)
    every = points(sweep)
    for point in {every[0], every[-1]} if path.parent.name == "small" else {every[0]}:
        files = point_files(sweep, point, read_file, lab=False)
        assert prepare(RunInputs(files.scenario, files.rig, files.topology)).plan.assignments


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_page_names_every_sweep(folder: Path) -> None:
    page = (folder / "README.md").read_text(encoding="utf-8")
    stems = {path.name.removesuffix(".sweep.yaml") for path in SWEEPS if path.is_relative_to(folder)}
    assert stems
    assert {stem for stem in stems if f"`{stem}`" not in page} == set()


def test_a_ring_locks_up_and_a_watchdog_frees_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    words = ["sweep", str(EXAMPLES / "small" / "3.4-deadlock.sweep.yaml"), "--twin", "--no-ideal"]
    assert main([*words, "--out", str(out)]) == ExitCode.RUN_ERROR, "without a watchdog a queue pair gives up"
    assert "no acknowledgement after the last retry" in capsys.readouterr().err

    def ring(name: str, column: str) -> list[int]:
        """Of the queues of RoCE on the links from one switch to the next round the ring."""
        rows = pq.read_table(out / "points" / name / "r000" / "switches.parquet").to_pylist()
        ahead = {f"s{number}": f"s{(number + 1) % 5}/" for number in range(5)}
        return [
            row[column] for row in rows if row["cos"] == 3 and row["peer"].startswith(ahead[row["switch"]])
        ]

    assert len(ring("p000", "queue_paused_ns")) == 5
    assert min(ring("p000", "queue_paused_ns")) > 4_000_000_000, "all of them, until the end"
    assert sum(ring("p000", "queue_watchdog_storms")) == 0
    assert sum(ring("p001", "queue_watchdog_storms")) > 0
    assert max(ring("p001", "queue_paused_ns")) < 1_500_000_000


def test_incast_from_everybody_is_paused_and_nothing_is_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What 3.2 is there to show, on its table: pauses where all send, none where two do, and no loss."""
    out = tmp_path / "out"
    words = ["sweep", str(EXAMPLES / "small" / "3.2-pfc.sweep.yaml"), "--twin", "--no-ideal"]
    assert main([*words, "--out", str(out)]) == ExitCode.PASS
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if " p00" in line]
    pauses = [int(row[row.index("frames") - 1]) for row in rows]
    assert pauses[0] == 0
    assert pauses[-1] > 100
    for name in ("p000", "p001", "p002"):
        lanes = pq.read_table(out / "points" / name / "r000" / "switches.parquet")
        assert sum(lanes.column("queue_dropped_packets").to_pylist()) == 0
