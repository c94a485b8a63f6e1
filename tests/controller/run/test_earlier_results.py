"""A run never writes into the directory of an earlier one, and what cannot be removed is reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from etloop.contract.base.errors import NoRoom
from etloop.controller.run.kept_run import tidy_ended
from etloop.controller.run.out_directory import move_earlier_away


def test_earlier_results_are_moved_away(tmp_path: Path) -> None:
    directory = tmp_path / "job"
    assert move_earlier_away(directory) is None
    for number in (1, 2):
        directory.mkdir()
        assert move_earlier_away(directory) is None, "an empty directory is no run"
        (directory / "summary.json").write_text(str(number))
        assert move_earlier_away(directory) == tmp_path / f"job.{number}"
        assert not directory.exists()
        assert (tmp_path / f"job.{number}" / "summary.json").read_text() == str(number)


def test_a_directory_that_cannot_be_moved_stops_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> Path:
        raise OSError(5, "Input/output error")

    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "summary.json").write_text("{}")
    monkeypatch.setattr(Path, "rename", broken)
    with pytest.raises(NoRoom, match="files of an earlier run and cannot be moved away: Input/output error"):
        move_earlier_away(tmp_path / "job")


def test_what_an_ended_run_needs_no_more_is_removed_or_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "job"
    directory.mkdir()
    (directory / ".ops.parquet.1.partial").write_text("")
    tidy_ended(directory)
    assert not directory.exists()
    tidy_ended(directory)
    directory.mkdir()
    (directory / "summary.json").write_text("{}")
    (directory / ".kpis.json.1.partial").write_text("")

    def broken(path: Path, missing_ok: bool = False) -> None:
        raise OSError(5, "Input/output error", str(path), missing_ok)

    monkeypatch.setattr(Path, "unlink", broken)
    with pytest.raises(OSError, match="Input/output error"):
        tidy_ended(directory)
    monkeypatch.undo()
    tidy_ended(directory)
    assert [path.name for path in directory.iterdir()] == ["summary.json"]
