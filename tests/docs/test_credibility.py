"""The credibility page: its tables are those of the stored outputs of other simulators and of the twin as it is now."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Final

import pytest

from etloop.controller.export.bundle import Simulator
from tests.measure import astra_sim
from tests.measure.simulators import (
    KINDS,
    OUTPUTS,
    PAGE,
    RECORD,
    REVISION,
    export_case,
    prepare_case,
    twin_times,
)
from tests.support.docs.records import marked
from tests.support.simulator_cases import CASES, ROCE, SWITCH_CASES, SimulatorCase

SMALL_HOSTS: Final = 16
STORED: Final = json.loads(OUTPUTS.read_text())
CHOSEN: Final = [case for case in CASES if case.hosts <= SMALL_HOSTS or os.environ.get("ETLOOP_FULL")]
of_each_case = pytest.mark.parametrize("case", CHOSEN, ids=lambda case: case.name)


def row_of(case: SimulatorCase) -> list[str]:
    (line,) = [line for line in PAGE.read_text().splitlines() if line.startswith(f"| {case.name} |")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_page_has_every_case_and_names_the_revision() -> None:
    assert STORED["revision"] == REVISION
    assert set(STORED["cases"]) == {case.name for case in CASES}
    for case in CASES:
        cells = row_of(case)
        last_us, errors = STORED["cases"][case.name]["last"], [float(cell.split()[0]) for cell in cells[4:6]]
        assert cells[1] == f"{last_us:.1f}"
        fails = [
            kind.upper() for kind, error in zip(KINDS, errors, strict=True) if abs(error) > 100 * case.budget
        ]
        assert cells[7] == (f"fails: {', '.join(fails)}" if fails else "ok")


def test_rows_over_budget_are_explained() -> None:
    text = PAGE.read_text()
    (table,) = [shown for name, shown in marked(text) if name == RECORD.stem]
    explained = text.partition(table)[2]
    for case in CASES:
        if row_of(case)[7] != "ok":
            assert re.search(re.escape(case.name), explained), f"explain {case.name}"


@of_each_case
def test_twin_and_export_are_as_the_page_says(case: SimulatorCase, tmp_path: Path) -> None:
    cells = row_of(case)
    for cell, kind in zip(cells[2:4], KINDS, strict=True):
        prepared = prepare_case(case, tmp_path, kind)
        found = twin_times(prepared)["last"]
        assert f"{found:.1f}" == cell, "run python -m tests.measure.simulators --write"
        if kind == "uet":
            about = export_case(prepared, tmp_path)
            assert about.command == STORED["cases"][case.name]["command"]


ASTRA: Final = json.loads(astra_sim.OUTPUTS.read_text())
SHORT: Final = ("one flow", "permutation 16 at one switch, 100G")


@pytest.mark.parametrize(
    "case",
    [case for case in SWITCH_CASES if case.name.startswith(SHORT) or os.environ.get("ETLOOP_FULL")],
    ids=lambda case: case.name,
)
def test_astra_sim_and_the_twin_are_as_the_page_says(case: SimulatorCase, tmp_path: Path) -> None:
    stored = ASTRA["cases"][case.name]
    assert astra_sim.row_of(case, stored["last"]) == row_of(case), (
        "run python -m tests.measure.astra_sim --write"
    )
    about = export_case(prepare_case(case, tmp_path, ROCE), tmp_path, Simulator.ASTRA_SIM)
    assert about.command == stored["command"]


def test_page_has_every_case_of_astra_sim() -> None:
    assert ASTRA["revision"] == astra_sim.REVISION
    assert list(ASTRA["cases"]) == [case.name for case in SWITCH_CASES]
    assert all(row_of(case)[-1] == "ok" for case in SWITCH_CASES)
