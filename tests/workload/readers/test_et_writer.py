"""Traces that are written: whole files, one job to a directory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from etloop.contract.base.errors import TraceError
from etloop.workload.readers.et_writer import write_trace
from etloop.workload.readers.files import read_trace
from tests.workload.readers.test_trace_files import NODES


def test_a_job_is_not_written_over_another(tmp_path: Path) -> None:
    write_trace(tmp_path, [NODES])
    with pytest.raises(TraceError) as raised:
        write_trace(tmp_path, [NODES, NODES])
    assert str(raised.value) == (
        f"{tmp_path}: has trace files already: w.0.et; choose an empty directory, or remove the files"
    )


def test_a_job_that_is_there_in_part_is_kept_and_completed(tmp_path: Path) -> None:
    """As after a process that was killed while it wrote, and whatever remains of its last file is no trace."""
    write_trace(tmp_path, [NODES], prefix="job")
    first = (tmp_path / "job.0.et").stat()
    (tmp_path / ".job.1.et.unfinished").write_bytes(b"half")
    for _ in range(2):
        write_trace(tmp_path, [NODES, NODES], {"1": (0, 1)}, prefix="job", keep=True)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["job.0.et", "job.1.et", "job.json"]
        assert (tmp_path / "job.0.et").stat().st_size == first.st_size
    assert read_trace(tmp_path / "job").groups == {"1": (0, 1)}


def test_nothing_of_another_job_is_kept(tmp_path: Path) -> None:
    write_trace(tmp_path, [NODES, NODES])
    with pytest.raises(TraceError) as raised:
        write_trace(tmp_path, [NODES], keep=True)
    assert str(raised.value) == (
        f"{tmp_path}: has trace files already: w.1.et; choose an empty directory, or remove the files"
    )
    with pytest.raises(TraceError) as raised:
        write_trace(tmp_path, [NODES, NODES[:1]], keep=True)
    assert str(raised.value) == (
        f"{tmp_path}/w.1.et: is a trace of another job, or of another version's synth; "
        "choose an empty directory, or remove it"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["w.0.et", "w.1.et"]


def test_written_groups_keep_the_order_of_their_members(tmp_path: Path) -> None:
    write_trace(tmp_path, [NODES] * 3, {"1": (2, 0, 1)}, prefix="job")
    assert json.loads((tmp_path / "job.json").read_text()) == {"1": [2, 0, 1]}
    assert read_trace(tmp_path / "job").groups == {"1": (2, 0, 1)}
