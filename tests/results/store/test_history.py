"""A history keeps what a run recorded of its device, also after the run directory is removed."""

from __future__ import annotations

import json
import shutil
import sqlite3
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from etloop.contract.base.errors import ConfigError
from etloop.results.measure.summary import measure
from etloop.results.schema.summary import VIRTUAL_TIME, Summary
from etloop.results.schema.typed_json import RunDirError, to_json
from etloop.results.store.history import HISTORY_FILE, read_history, record_run, record_runs
from tests.support.runs.records_by_hand import (
    aborted_by_hand,
    connection_rows_by_hand,
    outcome_by_hand,
    tables_by_hand,
)
from tests.support.runs.signing import sign_again

RIG = (
    "dut: {{profile: switch-{0}.yaml}}\nagents: [{{name: a, ports: [{{name: p0, addresses: 10.0.0.{1}}}]}}]\n"
)


@cache
def summary() -> Summary:
    return measure(outcome_by_hand(), tables_by_hand(), connection_rows_by_hand()).summary


def write(run_dir: Path, version: str = "", *, made: Summary | None = None, scenario: str = "a: 1\n") -> Path:
    """Write the files of a run that a history reads; the rig names another profile and address for each version."""
    run_dir.mkdir(parents=True)
    made = made or summary()
    (run_dir / "summary.json").write_text(to_json(made))
    (run_dir / "scenario.yaml").write_text(scenario)
    (run_dir / "rig.yaml").write_text(RIG.format(version, len(version)))
    if version:
        identity = f"identity: {{basis: measured, vendor: Acme, model: S1, software: '{version}'}}"
        (run_dir / "profile.yaml").write_text(identity)
    sign_again(run_dir)
    return run_dir


def test_runs_of_one_job_over_versions_are_one_history(tmp_path: Path) -> None:
    late = replace(summary(), started_at="2026-02-01T00:00:00+01:00")
    write(tmp_path / "b" / "r0", "4.5")
    write(tmp_path / "a" / "r0", "4.6-rc1", made=late)
    write(tmp_path / "c", scenario="a: 2\n")
    history = tmp_path / HISTORY_FILE
    assert record_runs(tmp_path, history) == ()
    rows = read_history(history)
    same = [row for row in rows if row.run.device]
    assert [(row.run.place, row.run.at, row.run.version) for row in same] == [
        ("b/r0", "2026-01-02T03:04:05Z", "4.5"),
        ("a/r0", "2026-01-31T23:00:00Z", "4.6-rc1"),
    ]
    assert len({row.series for row in same}) == 1
    assert len({row.series for row in rows}) == 2
    assert any(name.startswith("busbw all_reduce") for name in same[0].figures)
    assert all(row.unusable == "" for row in rows)


def test_removed_runs_stay_and_changed_ones_are_read_again(tmp_path: Path) -> None:
    history = tmp_path / HISTORY_FILE
    record_run(write(tmp_path / "r0", "1"), tmp_path, history)
    record_run(write(tmp_path / "r1", "1"), tmp_path, history)
    shutil.rmtree(tmp_path / "r0")
    shutil.rmtree(tmp_path / "r1")
    write(tmp_path / "r1", "22", made=replace(summary(), started_at="2026-02-01T00:00:00+00:00"))
    assert record_runs(tmp_path, history) == ()
    assert [(row.run.place, row.run.version) for row in read_history(history)] == [("r0", "1"), ("r1", "22")]


def test_a_twin_without_a_profile_has_its_topology_as_version(tmp_path: Path) -> None:
    run_dir = write(tmp_path / "r0", made=replace(summary(), started_at=VIRTUAL_TIME))
    (run_dir / "topology.yaml").write_text("single: {}\n")
    sign_again(run_dir)
    record_runs(tmp_path, tmp_path / HISTORY_FILE)
    (row,) = read_history(tmp_path / HISTORY_FILE)
    assert row.run.version.startswith("topology ")


def test_damaged_and_broken_off_runs_are_named(tmp_path: Path) -> None:
    broken = measure(aborted_by_hand(), tables_by_hand(), connection_rows_by_hand()).summary
    write(tmp_path / "r0", made=broken)
    (write(tmp_path / "r1") / "summary.json").write_text("{}")
    (problem,) = record_runs(tmp_path, tmp_path / HISTORY_FILE)
    assert problem.startswith("r1: ")
    (row,) = read_history(tmp_path / HISTORY_FILE)
    assert row.unusable.startswith("it ended early")


def test_what_is_no_history_is_refused_and_unchanged(tmp_path: Path) -> None:
    foreign = tmp_path / "jobs.sqlite"
    with sqlite3.connect(foreign) as connection:
        connection.execute("CREATE TABLE job (number INTEGER)")
    before = foreign.read_bytes()
    with pytest.raises(ConfigError, match="is not a history"):
        record_runs(tmp_path, foreign)
    assert foreign.read_bytes() == before
    (tmp_path / "text").write_text(json.dumps({}) * 600)
    with pytest.raises(ConfigError, match="cannot be used"):
        read_history(tmp_path / "text")


def test_a_single_run_is_no_directory_of_runs(tmp_path: Path) -> None:
    write(tmp_path / "r0")
    with pytest.raises(RunDirError, match="is a single run"):
        record_runs(tmp_path / "r0", tmp_path / HISTORY_FILE)
