"""Losses of whole runs in virtual time, where every packet can be accounted for: nothing is left unexplained."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from etloop.controller.run.pipeline import (
    FinishedRun,
    InputFile,
    RunInputs,
    RunOptions,
    SilentWatcher,
    prepare,
    run_plan,
)
from etloop.controller.run.twin import TwinExecution
from etloop.results.store.run_dir import read_kpis, read_run
from etloop.results.text.table import render
from etloop.traffic.twin import TwinSettings

if TYPE_CHECKING:
    from etloop.results.schema.losses import LossSummary

RIG: Final = "agents:\n" + "".join(
    f"  - {{name: {name}, host: h{number}, ports: [{{name: p0, addresses: 10.0.{number}.1-10.0.{number}.2, link: 2Gbps}}]}}\n"
    for number, name in enumerate("abcd")
)
ALL_TO_ALL: Final = """\
workload: {collective: {kind: all_to_all, ranks: 8, size: 512KiB}}
transport: {cc: {algorithm: none}}
"""
SMALL: Final = "{preset: lossy, buffer: 64KiB}"


def fabric(switch: str = SMALL) -> str:
    return f"""\
leaf_spine:
  leaves: [{{ports: [a/p0, b/p0]}}, {{ports: [c/p0, d/p0]}}]
  spines: 2
  rate: 2Gbps
  leaf: {switch}
  spine: {switch}
"""


@dataclass(frozen=True)
class Case:
    sentence: str
    scenario: str = ALL_TO_ALL
    topology: str = fabric()
    rows: tuple[str, ...] = ()
    """Reasons for which packets must have been lost."""


CASES: Final = (
    Case("small buffers drop on both sides of the switch", rows=("dropped_at_queue", "dropped_on_arrival")),
    Case(
        "what is cut comes damaged, and is dropped by the host",
        topology=fabric("{preset: lossy, buffer: 64KiB, trimming: {size: 256B, dscp: 10}}"),
        rows=("came_damaged",),
    ),
    Case(
        "a link that is down",
        topology="outages: [{port: switch/0, from: 500us, until: 2ms}]\n"
        "single: {ports: [a/p0, b/p0, c/p0, d/p0], rate: 2Gbps}\n",
        rows=("dropped_link_down", "dropped_no_route"),
    ),
    Case(
        "a switch that damages and one that loses",
        topology="single:\n  ports: [a/p0, b/p0, c/p0, d/p0]\n  rate: 2Gbps\n"
        "  switch: {faults: [{in: a/p0, chance: 1%, corrupt: true}, {in: b/p0, chance: 1%}]}\n",
        rows=("dropped_by_fault", "came_damaged"),
    ),
    Case(
        "every rule of an endpoint, on both sides of its port",
        scenario=ALL_TO_ALL.replace(
            "transport: {",
            "transport: {faults: [{do: drop, chance: 0.5%}, {do: drop, chance: 0.5%, side: received}, "
            "{do: duplicate, chance: 0.5%}, {do: duplicate, chance: 0.5%, side: received}, "
            "{do: corrupt_icrc, chance: 0.5%}, {do: delay, delay: 100us, chance: 0.5%}, "
            "{do: send_nak, side: received, chance: 0.5%}, {do: send_cnp, side: received, chance: 0.5%}], ",
        ),
        rows=("lost_on_purpose", "repeated_on_purpose", "came_damaged"),
    ),
)


def twin_of(case: Case, out_dir: Path | None = None, verdict: str = "") -> FinishedRun:
    inputs = RunInputs(
        InputFile(Path("s.yaml"), (case.scenario + verdict).encode()),
        InputFile(Path("r.yaml"), RIG.encode()),
        InputFile(Path("t.yaml"), case.topology.encode()),
        "r1",
    )
    options = RunOptions(out_dir, expects=False)
    return run_plan(prepare(inputs), TwinExecution(TwinSettings()), options, SilentWatcher())


def losses_of(run: FinishedRun) -> LossSummary:
    assert run.summary.losses is not None
    return run.summary.losses


IMPATIENT: Final = "transport: {{cc: {{algorithm: none}}, timeout_floor: {floor}, kind: {kind}}}\n"
SLOW: Final = (
    "single: {ports: [a/p0, b/p0, c/p0, d/p0], rate: 10Mbps, switch: {preset: lossless, buffer: 4MiB}}\n"
)
INCAST: Final = "workload: {incast: {senders: 3, size: 512KiB}}\nmapping: {ranks_per_host: 1}\n"


@pytest.mark.parametrize("kind", ["rocev2", "mrc", "uet"])
@pytest.mark.parametrize("floor", ["20us", "1ms"])
def test_copies_that_a_short_timer_sent_are_received_by_the_run_that_sent_them(kind: str, floor: str) -> None:
    """Copies of probes are not the job's, and those that are queued as it ends, for half a second here, are."""
    scenario = INCAST + IMPATIENT.format(floor=floor, kind=kind)
    run = twin_of(Case("", scenario, SLOW))
    losses = losses_of(run)
    assert run.summary.transport["retransmitted_packets"] > 0
    assert losses.packets("all") == losses.unexplained_packets == 0
    assert losses.packets("data") == losses.lost_control_packets == 0
    assert not losses.notes


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.sentence)
def test_every_packet_is_explained(case: Case) -> None:
    losses = losses_of(twin_of(case))
    assert losses.why == ""
    assert (losses.unexplained_packets, losses.notes) == (0, ())
    for name in case.rows:
        assert losses.packets(name), name


def test_figures_conditions_and_table_say_the_same(tmp_path: Path) -> None:
    """Dropped is of every kind, lost is data; what is between them are answers to data."""
    verdict = (
        "verdict: {checks: [{check: dut_dropped_packets == 0}, {check: unexplained_packets == 0}, "
        "{check: not_received_packets == dut_dropped_packets}, "
        "{check: lost_packets + lost_control_packets == not_received_packets}]}\n"
    )
    run = twin_of(CASES[0], tmp_path / "run", verdict)
    assert run.summary.verdict is not None
    assert [one.result.value for one in run.summary.verdict.checks] == ["fail", "pass", "pass", "pass"]
    kpis, losses = read_kpis(tmp_path / "run"), losses_of(run)
    kept = read_run(tmp_path / "run")
    assert kept.summary.losses == losses
    counters = np.array(
        [losses.packets("dropped_at_queue") or 0, losses.packets("dropped_on_arrival") or 0], np.int64
    )
    assert kpis.value("dut_dropped_packets") == losses.dropped_packets == counters.sum() > 0
    assert kpis.value("lost_packets") == losses.packets("data")
    assert (kpis.value("lost_control_packets") or 0) > 0
    table = render(run.summary, "here")
    assert f"losses          {losses.packets('all')} of " in table
    assert "Losses</h2>" in (tmp_path / "run" / "report.html").read_text()


def test_a_condition_over_rows_says_that_it_is_the_worst_row(tmp_path: Path) -> None:
    verdict = "verdict: {checks: [{check: switches.queue_dropped_packets == 0}, {check: switches.queue_watchdog_storms == 0}]}\n"
    run = twin_of(CASES[0], tmp_path / "run", verdict)
    assert run.summary.verdict is not None
    dropped, storms = run.summary.verdict.checks
    total = losses_of(run).packets("dropped_at_queue")
    assert dropped.value.startswith("switches.queue_dropped_packets = ")
    assert f" in the worst of {dropped.checked} rows, switch leaf" in dropped.value
    assert dropped.value.endswith(f"; {total} in all {dropped.checked} rows")
    assert storms.value == f"switches.queue_watchdog_storms = 0 in each of {storms.checked} rows"


def test_a_quiet_twin_says_so_in_one_line_also_without_a_directory() -> None:
    quiet = Case("", topology="single: {ports: [a/p0, b/p0, c/p0, d/p0], rate: 2Gbps}\n")
    run = twin_of(quiet)
    lines = [line for line in render(run.summary, "here").splitlines() if line.startswith("losses")]
    sent = next(row.sent for row in losses_of(run).rows if row.name == "all")
    assert lines == [
        f"losses          none: {sent} packets were sent, every one was received, none was sent again"
    ]


def test_junit_of_a_twin_has_no_date_and_says_why(tmp_path: Path) -> None:
    """The schema of Jenkins allows both to be absent; a date that is none is refused by readers that want an xs:dateTime."""
    twin_of(CASES[0], tmp_path / "run", "verdict: {checks: [{check: lost_packets == 0}]}\n")
    (suite,) = ET.parse(tmp_path / "run" / "junit.xml").getroot()
    assert suite.get("timestamp") is None
    assert suite.find("properties/property[@name='clock']") is not None
    run, condition = suite.findall("testcase")
    assert float(run.get("time") or 0) > 0
    assert condition.get("time") is None
