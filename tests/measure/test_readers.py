"""The bench of the readers measures the same work on both sides, and judges by the figures it prints."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from etloop.workload.readers.et_writer import write_trace
from etloop.workload.synthetic.spec import SyntheticSpec
from etloop.workload.synthetic.training_step import synthesize
from tests.measure.readers import (
    COLUMNS,
    JobFigures,
    Readers,
    bars,
    compare_readers,
    figures_of,
    main,
    measure_job,
    read_with_ours,
    read_with_protobuf,
)

JOB = JobFigures(8, 100, 5_000_000, 0.1, 0.2, 0.3, 0.4, 2, 40_000_000, 41_000_000, 42_000_000)


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("traces")
    job = synthesize(SyntheticSpec(layers_per_stage=1, micro_batches=1))
    write_trace(directory, job.ranks, job.groups)
    return directory


def test_both_readers_see_every_node(traces: Path) -> None:
    raw = (traces / "w.0.et").read_bytes()
    assert read_with_protobuf(raw) == read_with_ours(raw) > 0
    readers = compare_readers([traces / "w.0.et", traces / "w.1.et"], turns=1)
    assert (readers.files, readers.nodes) == (2, 2 * read_with_ours(raw))
    assert readers.ratio > 0


def test_a_job_is_measured_from_files_to_programs(traces: Path) -> None:
    figures = measure_job(traces)
    assert (figures.ranks, figures.programs) == (8, 2)
    assert figures.trace_bytes == sum(path.stat().st_size for path in traces.glob("*.et"))
    assert figures.start_peak_bytes <= figures.read_peak_bytes <= figures.peak_bytes


def test_the_limit_is_ten_times_the_bytes_or_fifteen_seconds() -> None:
    assert JOB.limit_s == 15.0
    assert replace(JOB, bytes_twice_s=2.0).limit_s == 20.0
    assert JOB.total_s == pytest.approx(0.9)


def test_figures_are_compared_with_their_bars() -> None:
    readers = Readers(4, 1000, 100_000.0, 2_500_000.0)
    rows = [dict(zip(COLUMNS, values, strict=True)) for values in figures_of(readers, JOB)]
    assert bars(rows) == [
        ("25.0 times as fast as protobuf, bar 20", True),
        ("0.90 s to read, lint and plan, bar 15.0 s", True),
    ]


def test_the_command_runs(traces: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(traces), "--files", "1", "--turns", "1"]) == 0
    assert "ratio of the rates" in capsys.readouterr().out
