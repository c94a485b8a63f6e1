"""Key figures of a run in which something went wrong, and percentiles of times that differ, worked out on paper.

`test_key_figures` has every figure of a quiet run; a formula that is always 0 would pass there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest

from etloop.contract.model.run import AgentRecords
from etloop.results.kpis.run_kpis import key_figures
from etloop.results.schema.kpis import FIGURES
from etloop.results.schema.summary import JobComparison, JobFigures
from etloop.results.tables.frames import frame_by_hand
from tests.results.kpis.test_key_figures import ABSENT, BASIS, BY_HAND, input_of, kpis_of
from tests.support.runs.records_by_hand import outcome_by_hand, with_agent

if TYPE_CHECKING:
    from pathlib import Path

    from etloop.contract.model.run import RunOutcome


def in_trouble() -> RunOutcome:
    """The run by hand, 120 packets sent, with marks, notifications, a timeout, and loss of ours and of the device's."""

    def change(records: AgentRecords) -> AgentRecords:
        flows, ports = records.flows.copy(), records.ports.copy()
        flows["np_ecn_marked_roce_packets"][0] = 6
        flows["rp_cnp_handled"][0], flows["rp_cnp_ignored"][1] = 4, 1
        flows["local_ack_timeout_err"][1] = 2
        flows["trimmed_received"][1] = 7
        flows["duplicate_request"][1] = 6
        flows["stale_answers"][1] = 3
        flows["rx_packets"][0] -= 9
        ports["receive_overflows"] = 3
        ports["foreign_datagrams"] = ports["foreign_wrong_p_key"] = 8
        ports["rx_icrc_encapsulated"] = 1
        return replace(records, flows=flows, ports=ports)

    return with_agent(outcome_by_hand(), "a", change)


IN_TROUBLE: Final = {
    "ecn_marked_share": (6 / 111, "6 of 120 - 9 received"),
    "cnps": (5, "4 that changed a rate and 1 that did not"),
    "timeouts": (2, "of one queue pair"),
    "trimmed_packets": (7, "of one queue pair"),
    "discarded_packets": (
        3 + 8 + 1,
        "stale answers, wrong P_Keys and a wrong ICRC; the sum of reasons is none itself",
    ),
    "lost_packets": (9 - 3 - 2, "9 never came; 3 were lost by our buffer, 2 dropped on purpose"),
    "lost_share": (4 / 120, "33333 ppm"),
    "own_lost_packets": (3, "port a's"),
    "needless_share": (6 / 120, "6 requests came that were there already"),
}


@pytest.mark.parametrize("name", IN_TROUBLE)
def test_trouble_is_counted(tmp_path: Path, name: str) -> None:
    value, why = IN_TROUBLE[name]
    assert kpis_of(tmp_path, in_trouble()).value(name) == pytest.approx(value), why


DEVICE: Final = {
    "queue_dropped_packets": 7,
    "group_dropped_packets": 2,
    "port_rx_dropped_packets": 1000,
    "queue_ecn_marked_packets": 40,
    "port_ecn_marked_packets": 1000,
    "priority_pfc_tx": 3,
    "priority_pfc_rx": 5,
    "queue_paused_ns": 9_000,
}
"""What a device counted; where queues and groups are counted, ports' drops and marks are the same ones again."""
OF_DEVICE: Final = {
    "dut_dropped_packets": 7 + 2,
    "dut_ecn_marked_packets": 40,
    "dut_pfc_tx_frames": 3,
    "dut_pfc_rx_frames": 5,
    "dut_paused_ns": 9_000,
    "dut_difference_share": 0.004,
}


def device(counters: dict[str, int]) -> Any:
    rows = [type("Row", (), {"difference_share": share}) for share in (0.001, None, 0.004)]
    return type("Device", (), {"counters": counters, "reconciliation": rows})()


@pytest.mark.parametrize("name", OF_DEVICE)
def test_what_the_device_counted(tmp_path: Path, name: str) -> None:
    given = input_of(tmp_path)
    given = replace(given, summary=replace(given.summary, dut=device(DEVICE)))
    assert key_figures(given, BASIS).value(name) == OF_DEVICE[name]


def test_ports_stand_in_where_no_queue_is_counted(tmp_path: Path) -> None:
    given = input_of(tmp_path)
    counters = {"port_rx_dropped_packets": 4, "port_tx_dropped_packets": 6, "port_ecn_marked_packets": 8}
    kpis = key_figures(replace(given, summary=replace(given.summary, dut=device(counters))), BASIS)
    assert (kpis.value("dut_dropped_packets"), kpis.value("dut_ecn_marked_packets")) == (10, 8)


def test_what_switches_in_virtual_time_counted(tmp_path: Path) -> None:
    """Without a source of counters the sums over counters.parquet are the device's."""
    counted = (
        *(("queue", "dropped_packets", 3), ("queue", "dropped_packets", 4), ("group", "dropped_packets", 1)),
        *(("queue", "ecn_marked_packets", 40), ("priority", "pfc_tx", 2), ("priority", "pfc_tx", 1)),
        *(("priority", "pfc_rx", 5), ("queue", "paused_ns", 9_000), ("queue", "watermark_bytes", np.nan)),
        ("port", "no_route_packets", 2),
    )
    kinds, names, increases = zip(*counted, strict=True)
    columns: dict[str, Any] = {
        "kind": np.array(kinds, object),
        "counter": np.array(names, object),
        "increase": np.array(increases, np.float64),
    }
    given = input_of(tmp_path)
    frames = {**given.frames, "counters": frame_by_hand("counters", columns, dict.fromkeys(columns, "count"))}
    kpis = key_figures(replace(given, frames=frames), BASIS)
    of_switches = {name: kpis.value(name) for name in OF_DEVICE if name != "dut_difference_share"}
    assert of_switches == {
        "dut_dropped_packets": 8 + 2,
        "dut_ecn_marked_packets": 40,
        "dut_pfc_tx_frames": 3,
        "dut_pfc_rx_frames": 5,
        "dut_paused_ns": 9_000,
    }


def test_beside_the_twin(tmp_path: Path) -> None:
    given = input_of(tmp_path)
    job = JobFigures(2, 70_000, 40_000, 100_000)
    comparison: Any = type("Comparison", (), {"job": JobComparison(job, job, job, 2.0, 1.25, ())})()
    given = replace(given, summary=replace(given.summary, comparison=comparison))
    kpis = key_figures(given, BASIS)
    assert (kpis.value("jct_per_ideal"), kpis.value("jct_per_twin")) == (2.0, 1.25)


LATER_NS: Final = 5_000


def with_a_late_member() -> RunOutcome:
    """In the second iteration rank 3 completes its part of the all-reduce 5 us after the rest: 25.1 us in place of 20.1."""

    def change(records: AgentRecords) -> AgentRecords:
        ops = records.ops.copy()
        late = (ops["rank"] == 3) & (ops["op"] == 0) & (ops["iteration"] == 1)
        ops["completed_ns"][late] += 1_100 + LATER_NS
        return replace(records, ops=ops)

    return with_agent(outcome_by_hand(), "b", change)


def test_percentiles_of_collectives_that_differ(tmp_path: Path) -> None:
    """Two of a kind: 20.1 and 25.1 us. The half has ended by the first, everything above by the second."""
    kpis = kpis_of(tmp_path, with_a_late_member())
    (kind,) = (one for one in kpis.kinds if one.kind == "all_reduce")
    assert (kind.time_p50_ns, kind.time_p90_ns, kind.time_p95_ns) == (20_100, 25_100, 25_100)
    assert (kind.time_p99_ns, kind.time_p999_ns, kind.time_max_ns) == (25_100, 25_100, 25_100)
    assert (kind.time_avg_ns, kind.joined_avg_ns) == (22_600, 22_600 - 2_100)
    assert (kind.skew_p99_ns, kind.size_bytes, kind.fabric_bytes) == (2_100, 8_000, 24_000)
    assert kind.busbw_bytes_per_s == pytest.approx(1.5 * 8000 / 45_200e-9)
    assert kind.busbw_p50_bytes_per_s == pytest.approx(1.5 * 4000 / 25_100e-9), "the slower of two bandwidths"


def test_distributions_of_completion(tmp_path: Path) -> None:
    kpis = kpis_of(tmp_path, with_a_late_member())
    curves = {one.name: one for one in kpis.curves}
    assert curves["all_reduce, 4 ranks"].time_ns == (20_100, 25_100)
    assert curves["all_reduce, 4 ranks"].shares == (0.5, 1.0)
    assert curves["iterations"].time_ns == (40_000, 100_000)
    # First packet to completion of ranks' ops that sent anything: seven an iteration, one of them later in the second.
    first = [9_700, 9_900, 17_800, 18_850, 19_500, 19_800, 20_000]
    second = [9_700, 9_900, 17_800, 18_850 + 1_100 + LATER_NS, 19_500, 19_800, 20_000]
    transfers = curves["transfers of ranks"]
    assert transfers.time_ns == tuple(sorted(first + second))
    assert transfers.shares == tuple(np.arange(1, 15) / 14)


def test_skew_of_a_rank_that_begins_late(tmp_path: Path) -> None:
    """Rank 2 issues its second all-gather 0.7 us later: 0 and 0.7 there, 2.1 twice of the all-reduce; the second of four."""

    def change(records: AgentRecords) -> AgentRecords:
        ops = records.ops.copy()
        ops["issued_ns"][(ops["rank"] == 2) & (ops["op"] == 1) & (ops["iteration"] == 1)] += 700
        return replace(records, ops=ops)

    kpis = kpis_of(tmp_path, with_agent(outcome_by_hand(), "b", change))
    assert [kpis.value(f"start_skew_{name}_ns") for name in ("p50", "p99", "max")] == [700, 2_100, 2_100]


def test_no_figure_is_only_ever_nothing() -> None:
    """Of every figure some test has a value that is not 0: here, by hand in the quiet run, or where it says."""
    elsewhere = {
        "rtt_min_ns",
        "rtt_p50_ns",
        "rtt_p99_ns",
        "convergence_p50_ns",
        "convergence_max_ns",
        "rates_jain",
        "ports_jain",
        "ports_max_to_mean",
        "pause_frames",
        "paused_ns",
        "paused_share",
        "busy_share",
        "uplinks_jain",
        "uplinks_max_to_mean",
    }  # test_key_figures
    elsewhere |= {"interference_max"}  # test_job_shares
    elsewhere |= {
        one.name for one in FIGURES if one.name.startswith("fct_")
    }  # tests/controller/plan/test_flow_jobs
    elsewhere |= {"lost_control_packets", "unexplained_packets"}  # test_losses
    seen = {name for name, (value, _) in BY_HAND.items() if value} | IN_TROUBLE.keys() | OF_DEVICE.keys()
    seen |= {"jct_per_ideal", "jct_per_twin", "start_skew_p50_ns"}
    assert seen | elsewhere == {figure.name for figure in FIGURES}
    assert elsewhere <= BY_HAND.keys() | ABSENT.keys()
