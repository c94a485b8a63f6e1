"""Runs the cases of `tests.support.simulator_cases` in unmodified htsim and in the twin, side by side.

    python -m tests.measure.simulators --htsim PATH/htsim_uec [--store] [--only TEXT]
    python -m tests.measure.simulators --write

`--store` writes the completion times of htsim to `OUTPUTS`; `--write` computes the twin's side anew and writes the record
and the table of docs/credibility.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np

from etloop.controller.export.bundle import OUTPUT_FILE, Manifest, Simulator
from etloop.controller.export.export import export_plan
from etloop.controller.export.outputs import read_output
from etloop.controller.plan.run_numbers import TWIN_ID
from etloop.controller.run.derived_rig import derived_rig
from etloop.controller.run.pipeline import SilentWatcher
from etloop.controller.run.prepare import InputFile, Prepared, PrepareOptions, RunInputs, prepare
from etloop.controller.run.twin import TwinExecution, described_device
from etloop.traffic.twin import TwinSettings
from tests.support.docs.records import marked, rendered
from tests.support.places import ROOT
from tests.support.simulator_cases import CASES, SimulatorCase

OUTPUTS: Final = ROOT / "tests/support/htsim_outputs.json"
PAGE: Final = ROOT / "docs/credibility.md"
RECORD: Final = ROOT / "tests/measure/outcomes/simulators.json"
COLUMNS: Final = ["case", "htsim", "UET", "MRC", "error UET", "error MRC", "budget", ""]
KINDS: Final = ("uet", "mrc")
REVISION: Final = "ultraethernet/uet-htsim 40ccb05"


def prepare_case(case: SimulatorCase, directory: Path, kind: str) -> Prepared:
    """Return the plan of a case, whose files are written to `directory`."""
    scenario, topology_path = case.write(directory, kind)
    topology = InputFile(topology_path)
    inputs = RunInputs(InputFile(scenario), derived_rig(topology), topology, TWIN_ID)
    return prepare(inputs, PrepareOptions(keeps_case=False))


def twin_times(prepared: Prepared) -> dict[str, float]:
    """Return first, mean and last completion in the twin, in us."""
    executed = TwinExecution(TwinSettings(seed=1)).execute(prepared, "", SilentWatcher(), None)
    twin = executed.twin
    assert twin is not None
    assert twin.failure == "", twin.failure
    ops = twin.ops[twin.ops["wire_tx_bytes"] > 0]
    return summary_us(ops["completed_ns"] - twin.start_ns)


def summary_us(end_ns: Any) -> dict[str, float]:
    """Return first, mean and last of times in ns."""
    times = np.asarray(end_ns, np.float64) / 1000
    return {"first": float(times.min()), "mean": float(times.mean()), "last": float(times.max())}


def export_case(prepared: Prepared, directory: Path, simulator: Simulator = Simulator.HTSIM) -> Manifest:
    """Write the export of a case to `directory`."""
    about, files = export_plan(prepared.plan, described_device(prepared).topology, simulator)
    for name, content in files.items():
        (directory / name).write_bytes(content)
    return about


def simulator_times(
    case: SimulatorCase, directory: Path, binary: Path, simulator: Simulator, kind: str
) -> tuple[dict[str, float], str]:
    """Run a simulator on the export of a case over a transport; return its times and the command."""
    about = export_case(prepare_case(case, directory, kind), directory, simulator)
    words = about.command.removesuffix(f" > {OUTPUT_FILE}").split()[1:]
    done = subprocess.run(
        [binary, *words], cwd=directory, capture_output=True, text=True, timeout=1800, check=True
    )
    times = read_output(done.stdout, about)
    return summary_us(times.end_ns), about.command


def table_rows(stored: dict[str, Any], ours: dict[str, dict[str, float]]) -> list[list[str]]:
    """Return the rows below `COLUMNS`; `ours` is the last completion by case and transport, in us."""
    rows = []
    for case in CASES:
        last_us = stored["cases"][case.name]["last"]
        errors = {kind: ours[case.name][kind] / last_us - 1 for kind in KINDS}
        fails = [kind.upper() for kind in KINDS if abs(errors[kind]) > case.budget]
        cells = [f"{ours[case.name][kind]:.1f}" for kind in KINDS]
        cells += [f"{100 * errors[kind]:+.1f} %" for kind in KINDS]
        verdict = f"fails: {', '.join(fails)}" if fails else "ok"
        rows.append([case.name, f"{last_us:.1f}", *cells, f"{100 * case.budget:.0f} %", verdict])
    return rows


def write_page() -> None:
    """Compute the twin's side of every case; write the record and the table of the page."""
    stored = json.loads(OUTPUTS.read_text())
    ours: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as place:
        for case in CASES:
            ours[case.name] = {
                kind: twin_times(prepare_case(case, Path(place), kind))["last"] for kind in KINDS
            }
    source = f"{REVISION}, outputs in tests/support/htsim_outputs.json"
    write_record(RECORD, "simulators", source, COLUMNS, table_rows(stored, ours))


def write_record(
    record_file: Path, module: str, source: str, columns: list[str], rows: list[list[str]]
) -> None:
    """Write a record of virtual time, and its table on the page. `module` of tests.measure makes it with `--write`."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    record = {
        "command": f"python -m tests.measure.{module} --write",
        "machine": "any: virtual time",
        "commit": commit,
        "date": datetime.now(UTC).date().isoformat(),
        "source": source,
        "columns": columns,
        "rows": rows,
    }
    record_file.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    name = record_file.stem.replace("_", "-")
    shown = dict(marked(PAGE.read_text()))[name]
    PAGE.write_text(PAGE.read_text().replace(shown, rendered(name, record)))


def main() -> None:
    """Print a row for each case, and store the outputs of htsim if asked."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--htsim", type=Path)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--store", action="store_true")
    parser.add_argument("--only", default="")
    parsed = parser.parse_args()
    if parsed.write:
        write_page()
        return
    if parsed.htsim is None:
        parser.error("name the binary of htsim with --htsim")
    stored: dict[str, Any] = {}
    print(
        "| case | htsim last (mean) us | UET | MRC | UET / htsim | MRC / htsim |\n|---|---|---|---|---|---|"
    )
    for case in CASES:
        if parsed.only not in case.name:
            continue
        with tempfile.TemporaryDirectory() as place:
            directory = Path(place)
            theirs, command = simulator_times(case, directory, parsed.htsim, Simulator.HTSIM, "uet")
            ours = {kind: twin_times(prepare_case(case, directory, kind)) for kind in KINDS}
        stored[case.name] = {**theirs, "command": command}
        cells = [f"{ours[kind]['last']:.1f} ({ours[kind]['mean']:.1f})" for kind in KINDS]
        ratios = [f"{ours[kind]['last'] / theirs['last']:.3f}" for kind in KINDS]
        print(
            f"| {case.name} | {theirs['last']:.1f} ({theirs['mean']:.1f}) | {' | '.join([*cells, *ratios])} |",
            flush=True,
        )
    if parsed.store:
        kept = json.loads(OUTPUTS.read_text())["cases"] if OUTPUTS.exists() else {}
        cases = {
            case.name: {**kept, **stored}[case.name] for case in CASES if case.name in {**kept, **stored}
        }
        OUTPUTS.write_text(json.dumps({"revision": REVISION, "cases": cases}, indent=1) + "\n")


if __name__ == "__main__":
    main()
