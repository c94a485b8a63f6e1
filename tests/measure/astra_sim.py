"""Runs cases of `tests.support.simulator_cases` in ASTRA-sim's analytical network with contention and in the twin, side by side.

    python -m tests.measure.astra_sim --binary PATH/AstraSim_Analytical_Congestion_Aware [--store] [--only TEXT]
    python -m tests.measure.astra_sim --write

`--store` writes the completion times of ASTRA-sim to `OUTPUTS`; `--write` computes the twin's side anew and writes the record
and the table of docs/credibility.md.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from etloop.controller.export.bundle import Simulator
from tests.measure.simulators import prepare_case, simulator_times, twin_times, write_record
from tests.support.places import ROOT
from tests.support.simulator_cases import ROCE, SWITCH_CASES, SimulatorCase

OUTPUTS: Final = ROOT / "tests/support/astra_sim_outputs.json"
RECORD: Final = ROOT / "tests/measure/outcomes/astra_sim.json"
KINDS: Final = {"uet": "UET", "untrimmed": "no trimming", ROCE: "RoCEv2"}
"""Columns of the twin by transport; the analytical network has none, and runs each case once."""
COLUMNS: Final = [
    *("case", "ASTRA-sim", *KINDS.values()),
    *(f"error {name}" for name in KINDS.values()),
    *("budget", ""),
]
REVISION: Final = "astra-sim/astra-sim 518bd51"


def twin_time_us(case: SimulatorCase, directory: Path, kind: str) -> float:
    """Return the last completion of a case in the twin."""
    if kind == "untrimmed":
        case, kind = case.untrimmed(), "uet"
    return twin_times(prepare_case(case, directory, kind))["last"]


def row_of(case: SimulatorCase, theirs_us: float) -> list[str]:
    """Compute the twin's side of a case; return its row."""
    with tempfile.TemporaryDirectory() as place:
        ours_us = {kind: twin_time_us(case, Path(place), kind) for kind in KINDS}
    errors = {kind: ours_us[kind] / theirs_us - 1 for kind in KINDS}
    fails = [KINDS[kind] for kind in KINDS if abs(errors[kind]) > case.budget]
    cells = [f"{ours_us[kind]:.1f}" for kind in KINDS]
    cells += [f"{100 * errors[kind]:+.1f} %" for kind in KINDS]
    verdict = f"fails: {', '.join(fails)}" if fails else "ok"
    return [case.name, f"{theirs_us:.1f}", *cells, f"{100 * case.budget:.0f} %", verdict]


def run_case(case: SimulatorCase, binary: Path) -> dict[str, Any]:
    """Run a case in ASTRA-sim; return its times and the command."""
    with tempfile.TemporaryDirectory() as place:
        times, command = simulator_times(case, Path(place), binary, Simulator.ASTRA_SIM, ROCE)
    return {**times, "command": command}


def write_page(stored: Mapping[str, Any]) -> None:
    """Write the record and the table of the page."""
    source = f"{REVISION}, outputs in {OUTPUTS.relative_to(ROOT)}"
    rows = [row_of(case, stored[case.name]["last"]) for case in SWITCH_CASES]
    write_record(RECORD, "astra_sim", source, COLUMNS, rows)


def main() -> None:
    """Print a row for each case, and store the outputs or write the page if asked."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", type=Path)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--store", action="store_true")
    parser.add_argument("--only", default="")
    parsed = parser.parse_args()
    kept = json.loads(OUTPUTS.read_text())["cases"] if OUTPUTS.exists() else {}
    if parsed.write:
        write_page(kept)
        return
    if parsed.binary is None:
        parser.error("name the binary of ASTRA-sim with --binary")
    print(" | ".join(COLUMNS))
    for case in SWITCH_CASES:
        if parsed.only in case.name:
            kept[case.name] = run_case(case, parsed.binary.resolve())
            print(" | ".join(row_of(case, kept[case.name]["last"])), flush=True)
    if parsed.store:
        ordered = {case.name: kept[case.name] for case in SWITCH_CASES if case.name in kept}
        OUTPUTS.write_text(json.dumps({"revision": REVISION, "cases": ordered}, indent=1) + "\n")


if __name__ == "__main__":
    main()
