"""Every key figure of a tiny run, worked out on paper beside the code that must agree with it."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest
from hypothesis import given as with_given
from hypothesis import strategies as st

from etloop.contract.model.records import CC_RECORD
from etloop.contract.model.run import AgentRecords, RunOutcome
from etloop.results.artifacts import add_joint_figures, kpi_input
from etloop.results.kpis.job import curve
from etloop.results.kpis.network import balance
from etloop.results.kpis.rates import settling_ns
from etloop.results.kpis.run_kpis import key_figures
from etloop.results.measure.job_shares import interference_factor
from etloop.results.schema.kpis import FIGURES, KindKpis, KpiBasis, KpiSet
from etloop.results.schema.summary import JobComparison, JobFigures
from etloop.results.store.run_dir import read_artifacts, write_run
from etloop.results.tables.frames import frame_by_hand
from etloop.results.tables.switch_tables import LANE_UNITS
from tests.support.places import ROOT
from tests.support.runs.records_by_hand import (
    OFFSET_NS,
    START_NS,
    aborted_by_hand,
    outcome_by_hand,
    run_by_hand,
    with_agent,
)

if TYPE_CHECKING:
    from etloop.results.kpis.input import KpiInput

GBPS: Final = 1_000_000_000
BASIS: Final = KpiBasis({"a/p0": GBPS, "b/p0": 2 * GBPS}, (1000, 2000, 0, 500), 4096)
"""Port a at 1 Gbit/s: a byte in 8 ns; port b twice as fast."""


def input_of(run_dir: Path, outcome: RunOutcome | None = None, basis: KpiBasis = BASIS) -> KpiInput:
    write_run(run_dir, run_by_hand(outcome))
    return kpi_input(add_joint_figures(read_artifacts(run_dir), basis), basis)


def kpis_of(run_dir: Path, outcome: RunOutcome | None = None, basis: KpiBasis = BASIS) -> KpiSet:
    return key_figures(input_of(run_dir, outcome, basis), basis)


def with_ports(**columns: tuple[int, int]) -> RunOutcome:
    """The run by hand whose ports of agents a and b have these counters."""
    outcome = outcome_by_hand()
    for number, agent in enumerate(("a", "b")):

        def change(records: AgentRecords, number: int = number) -> AgentRecords:
            ports = records.ports.copy()
            for name, values in columns.items():
                ports[name] = values[number]
            return replace(records, ports=ports)

        outcome = with_agent(outcome, agent, change)
    return outcome


BY_HAND: Final[dict[str, tuple[float, str]]] = {
    "jct_min_ns": (40_000, "the first iteration ends at 40 us, the second at 140"),
    "jct_avg_ns": (70_000, "(40 + 100) / 2"),
    "jct_p50_ns": (40_000, "the first of two"),
    "jct_p99_ns": (100_000, "the second of two"),
    "jct_max_ns": (100_000, "from 40 to 140 us"),
    "jct_cv": (2**0.5 * 30 / 70, "30 from the mean each, and n - 1 is 1"),
    "compute_ns": (2_000, "rank 1 computes most"),
    "network_ns": (60_000, "port a sends 500 + 6000 + 1000 = 7500 B, at 8 ns a byte"),
    "roofline_ns": (62_000, "one after the other"),
    "jct_ratio": (70 / 62, "70 of 62"),
    "comm_overhead_ns": (68_000, "70 - 2"),
    "overlap_fraction": (1 - 68 / 60, "1 - (70 - 2) / 60"),
    "goodput_bps": (29_000 * 8e9 / 140_000, "29000 B of both iterations from 0 to 140 us"),
    "busiest_port_share": (60 / 70, "60 of 70"),
    "share_of_ideal": (
        (48_000 + 8_000 + 4_000) / (18_000 + 10_000 + 20_000),
        "all-reduce: 6000 B out of a, joined 2.1 to 20.1; all-gather: 1000 B, 20.2 to 30.2; send: 500 B, 20 to 40",
    ),
    "start_skew_p50_ns": (0, "all-gather 0, 0; all-reduce 2100, 2100"),
    "start_skew_p99_ns": (2_100, "the last of the four"),
    "start_skew_max_ns": (2_100, "the same"),
    "transfer_p50_ns": (18_850, "9700 9900 17800 18850 19500 19800 20000: the fourth of seven"),
    "transfer_p99_ns": (20_000, "the last"),
    "transfer_p999_ns": (20_000, "the last"),
    "transfer_max_ns": (20_000, "rank 1's part of the all-reduce"),
    "one_way_min_ns": (18_500, "sent at 20500, there at 39000"),
    "one_way_p50_ns": (18_500, "both alike"),
    "one_way_p99_ns": (18_500, "both alike"),
    "one_way_error_ns": (21_500, "1500 + 20000"),
    "tx_packets": (120, "12 ends of 10"),
    "lost_packets": (0, "10 sent, 10 received, everywhere"),
    "lost_share": (0, "the same"),
    "lost_control_packets": (0, "no end by hand counts an answer"),
    "not_received_packets": (
        120 - 118 + 2,
        "ports sent 120 and received 118, of which two were dropped on purpose",
    ),
    "retransmitted_packets": (1, "one of queue pair 0x101"),
    "retransmitted_share": (1 / 120, "of 120"),
    "retransmissions_per_s": (1 / 140e-6, "in 140 us"),
    "timeouts": (0, "none"),
    "trimmed_packets": (0, "none"),
    "discarded_packets": (0, "none"),
    "out_of_order_share": (2 / 120, "two of 120 received"),
    "ecn_marked_share": (0, "none"),
    "cnps": (0, "none"),
    "pause_frames": (0, "none"),
    "paused_ns": (0, "none"),
    "paused_share": (0, "none"),
    "slip_p50_ns": (50, "0 0 0 50 100 100 100 200"),
    "slip_p99_ns": (200, "the greatest"),
    "slip_max_ns": (200, "the same"),
    "slip_share": ((300 / 40_000 + 300 / 100_000) / 2, "rank 2: 100 + 200, of 40 us and of 100"),
    "own_lost_packets": (0, "none"),
    "needless_share": (0, "none"),
}
ABSENT: Final = {
    **dict.fromkeys(("jct_per_ideal", "jct_per_twin"), "to compare with this run"),
    **dict.fromkeys(("fct_p50_ns", "fct_p99_ns"), "not of sends and receives alone"),
    **dict.fromkeys(
        ("fct_slowdown_p50", "fct_slowdown_p95", "fct_slowdown_p99"), "not of sends and receives alone"
    ),
    **dict.fromkeys(("rtt_min_ns", "rtt_p50_ns", "rtt_p99_ns"), "does not ask for samples"),
    **dict.fromkeys(("convergence_p50_ns", "convergence_max_ns", "rates_jain"), "does not ask for samples"),
    **dict.fromkeys(("ports_jain", "ports_max_to_mean"), "no bytes were sent"),
    **dict.fromkeys(("uplinks_jain", "uplinks_max_to_mean"), "no counters of switches"),
    **dict.fromkeys(
        (
            "dut_dropped_packets",
            "dut_ecn_marked_packets",
            "dut_pfc_tx_frames",
            "dut_pfc_rx_frames",
            "dut_paused_ns",
        ),
        "names no source",
    ),
    "unexplained_packets": "nothing counted what the device dropped",
    "dut_difference_share": "no cable was counted at both ends",
    "busy_share": "no loop turned",
    "interference_max": "no job ran alone and next to others",
}


@pytest.fixture(scope="module")
def kpis(tmp_path_factory: pytest.TempPathFactory) -> KpiSet:
    return kpis_of(tmp_path_factory.mktemp("run"))


@pytest.mark.parametrize("name", BY_HAND)
def test_a_figure_is_what_paper_says(kpis: KpiSet, name: str) -> None:
    value, why = BY_HAND[name]
    assert kpis.value(name) == pytest.approx(value), why


@pytest.mark.parametrize("name", ABSENT)
def test_a_figure_that_does_not_exist_says_why(kpis: KpiSet, name: str) -> None:
    (found,) = (kpi for kpi in kpis.figures if kpi.name == name)
    assert found.value is None
    assert ABSENT[name] in found.absent


def test_no_figure_is_forgotten_here() -> None:
    assert BY_HAND.keys() | ABSENT.keys() == {figure.name for figure in FIGURES}


def test_collectives_of_a_kind(kpis: KpiSet) -> None:
    (all_reduce,) = (one for one in kpis.kinds if one.kind == "all_reduce")
    assert (all_reduce.algorithm, all_reduce.ranks, all_reduce.count) == ("ring", 4, 2)
    assert (all_reduce.time_avg_ns, all_reduce.time_p999_ns, all_reduce.joined_avg_ns) == (
        20_100,
        20_100,
        18_000,
    )
    # 1.5 x 4000 B in 20.1 us; 6000 B need 48 us of port a, which had 18 us.
    assert all_reduce.busbw_bytes_per_s == pytest.approx(6000 / 20_100e-9)
    assert all_reduce.least_ns == 48_000
    assert all_reduce.share_of_ideal == pytest.approx(48 / 18)


def test_ports_and_pauses(tmp_path: Path) -> None:
    outcome = with_ports(
        tx_bytes=(300, 100),
        rx_pause_frames=(2, 3),
        paused_ns=(1000, 7000),
        loop_turns=(100, 100),
        idle_turns=(90, 40),
    )
    kpis = kpis_of(tmp_path, outcome)
    assert kpis.value("ports_jain") == pytest.approx(400**2 / (2 * (300**2 + 100**2)))
    assert kpis.value("ports_max_to_mean") == pytest.approx(300 / 200)
    assert (kpis.value("pause_frames"), kpis.value("paused_ns")) == (5, 8000)
    assert kpis.value("paused_share") == pytest.approx(7000 / 140_000)
    assert kpis.value("busy_share") == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("sentence", "own", "lost"),
    [
        ("seven sent and never received", {}, 7 - 2),
        ("of which our own buffer lost one", {"receive_overflows": (1, 0)}, 7 - 2 - 1),
        ("more than all is not less than none", {"receive_overflows": (9, 9)}, 0),
    ],
)
def test_loss_is_what_neither_end_nor_the_scenario_lost(
    tmp_path: Path, sentence: str, own: dict[str, tuple[int, int]], lost: int
) -> None:
    """Every port by hand drops one on purpose, two in all."""

    def fewer(records: AgentRecords) -> AgentRecords:
        flows = records.flows.copy()
        flows["rx_packets"][0] -= 7
        return replace(records, flows=flows)

    kpis = kpis_of(tmp_path, with_agent(with_ports(**own), "a", fewer))
    assert kpis.value("lost_packets") == lost, sentence


def test_rates_over_time(tmp_path: Path) -> None:
    """Two queue pairs over ten samples: one settles at the fourth, one is settled from the first."""
    rates = np.zeros(20, CC_RECORD)
    for pair, values in enumerate(([10, 40, 20, *[30] * 7], [10] * 10)):
        rows = slice(pair * 10, pair * 10 + 10)
        rates["rate_bps"][rows] = values
        rates["time_ns"][rows] = START_NS + OFFSET_NS["a"] + np.arange(10) * 1000
        rates["rtt_ns"][rows] = np.arange(10) + 1
        rates["local_qpn"][rows] = 0x101 + pair
    outcome = with_agent(outcome_by_hand(), "a", lambda records: replace(records, rates=rates))
    kpis = kpis_of(tmp_path, outcome)
    assert (kpis.value("convergence_p50_ns"), kpis.value("convergence_max_ns")) == (0, 3000)
    assert kpis.value("rates_jain") == pytest.approx(40**2 / (2 * (30**2 + 10**2)))
    assert [kpis.value(f"rtt_{name}_ns") for name in ("min", "p50", "p99")] == [1, 5, 10]


def test_a_rate_that_still_moves_at_the_end_has_not_settled() -> None:
    times = np.arange(8, dtype=np.float64)
    assert settling_ns(times, np.array([1.0, 2, 3, 4, 5, 6, 7, 20])) is None
    assert settling_ns(times, np.array([9.0, 5, 9, 9.5, 9, 9, 9, 9])) == 2


def test_beside_ideal_and_twin(tmp_path: Path) -> None:
    given = input_of(tmp_path)
    job = JobFigures(2, 40_000, 40_000, 40_000)
    comparison: Any = type("Comparison", (), {"job": JobComparison(job, job, job, 1.25, None, ())})()
    given = replace(given, summary=replace(given.summary, comparison=comparison))
    kpis = key_figures(given, BASIS)
    assert (kpis.value("jct_per_ideal"), kpis.value("jct_per_twin")) == (1.25, None)


def test_links_between_switches(tmp_path: Path) -> None:
    given = input_of(tmp_path)
    columns: dict[str, np.ndarray[Any, Any]] = {name: np.zeros(3) for name in LANE_UNITS}
    columns["switch"] = np.array(["leaf", "leaf", "spine"], object)
    columns["port"] = np.array(["1", "2", "3"], object)
    columns["peer"] = np.array(["spine/0", "spine/1", "leaf/1"], object)
    columns["queue_bytes"] = np.array([300.0, 100.0, 200.0])
    frames = {**given.frames, "switches": frame_by_hand("switches", columns, LANE_UNITS)}
    kpis = key_figures(replace(given, frames=frames), BASIS)
    assert kpis.value("uplinks_jain") == pytest.approx(600**2 / (3 * (300**2 + 100**2 + 200**2)))
    assert kpis.value("uplinks_max_to_mean") == pytest.approx(1.5)


def test_interference() -> None:
    assert interference_factor(150, 100) == 1.5


@pytest.mark.parametrize("agents", ["one was lost", "none is left"])
def test_a_run_that_broke_off_has_the_figures_that_it_has(tmp_path: Path, agents: str) -> None:
    outcome = aborted_by_hand() if agents == "one was lost" else replace(aborted_by_hand(), agents=())
    kpis = kpis_of(tmp_path, outcome)
    assert all(kpi.absent for kpi in kpis.figures if kpi.value is None)
    assert (kpis.value("jct_avg_ns") is None) == (agents == "none is left")


def test_ops_that_took_no_time_at_all_make_no_figure_infinite(tmp_path: Path) -> None:
    outcome = outcome_by_hand()
    for name in ("a", "b"):

        def at_once(records: AgentRecords) -> AgentRecords:
            ops = records.ops.copy()
            for column in ("issued_ns", "first_tx_ns", "completed_ns"):
                ops[column] = ops["intended_ns"].max()
            return replace(records, ops=ops)

        outcome = with_agent(outcome, name, at_once)
    kpis = kpis_of(tmp_path, outcome)
    values = [kpi.value for kpi in kpis.figures if kpi.value is not None]
    assert np.isfinite(values).all()
    assert {kpi.name: kpi.absent for kpi in kpis.figures}["share_of_ideal"] == "its collectives took no time"


def test_without_speeds_and_compute_the_rest_stands(tmp_path: Path) -> None:
    kpis = kpis_of(tmp_path, basis=KpiBasis({}, None, 4096))
    reported = {kpi.name: kpi.absent for kpi in kpis.figures if kpi.value is None}
    assert reported["network_ns"] == "the speed of a port is not known"
    assert reported["jct_ratio"] == "the compute of the job is not known"
    assert kpis.value("jct_avg_ns") == 70_000
    assert kpis.kinds[0].share_of_ideal is None


@with_given(st.lists(st.floats(1, 1e9), min_size=2, max_size=50))
def test_balance_is_between_its_bounds(sent: list[float]) -> None:
    figures = dict(balance("ports", np.array(sent)))
    jain, most = float(figures["ports_jain"]), float(figures["ports_max_to_mean"])
    assert 1 / len(sent) - 1e-9 <= jain <= 1 + 1e-9
    assert 1 - 1e-9 <= most <= len(sent)


@with_given(st.lists(st.integers(0, 1000), min_size=1, max_size=500))
def test_a_curve_is_a_distribution_of_its_values(values: list[int]) -> None:
    drawn = curve("x", np.array(values, np.float64))
    assert len(drawn.shares) == len(drawn.time_ns) <= 101
    assert drawn.shares[-1] == 1
    assert drawn.time_ns[-1] == max(values)
    for share, time_ns in zip(drawn.shares, drawn.time_ns, strict=True):
        assert sum(value <= time_ns for value in values) >= share * len(values) - 1e-6


def test_the_page_derives_every_figure() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([^`\n]+)`", page[page.index("## 9. kpis.json") :]))
    assert {figure.name for figure in FIGURES} <= named
    assert {field.name for field in fields(KindKpis)} | {field.name for field in fields(KpiBasis)} <= named
