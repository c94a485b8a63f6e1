"""What a device counted, worked out on paper: increases, agreement with the agents, queues of classes, tables and summary."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etloop.contract.model.counters import CountedObject, CounterObject
from etloop.contract.model.device_counts import CountedDevice, CountedSource, CounterGap, SamplePhase, Series
from etloop.contract.model.run import RunOutcome
from etloop.controller.run.verdict import counting_conditions
from etloop.dut_profiles.reading.catalogue import find_profile, profile_names
from etloop.results.artifacts import add_device_counters, add_verdict, kpi_input
from etloop.results.device.class_queues import ExpectedClass, PacketKind, ReceivedClasses, class_queues
from etloop.results.device.index import device_ports, increases_of, index_device
from etloop.results.device.reconcile import AgentPort, DevicePort, PlainDatagrams, reconcile
from etloop.results.device.summary import DeviceBasis, RigPortFacts
from etloop.results.kpis.run_kpis import key_figures, vocabulary
from etloop.results.schema.device import Agreement, Direction
from etloop.results.schema.kpis import KpiBasis
from etloop.results.schema.summary import Summary
from etloop.results.schema.verdict import RequestedCondition, Result
from etloop.results.store.run_dir import read_artifacts, read_run, write_run
from etloop.results.text.table import render
from etloop.results.verdict.verdict import Conditions, EmulatorLimits, find_condition_mistakes
from tests.support.runs.records_by_hand import (
    START_NS,
    outcome_by_hand,
    run_by_hand,
    with_agent,
)

BEFORE, DURING, AFTER, DRAINED = SamplePhase
A_PORT: Final = CountedObject(CounterObject.PORT, "s/0")
B_PORT: Final = CountedObject(CounterObject.PORT, "s/1")


def queue(port: str, number: int) -> CountedObject:
    return CountedObject(CounterObject.QUEUE, port, number)


def source_of(
    rows: dict[tuple[CountedObject, str], list[tuple[SamplePhase, int]]],
    *,
    width_bits: int = 64,
    peers: tuple[tuple[str, str], ...] = (("s/0", "a/p0"), ("s/1", "b/p0")),
    **changes: Any,
) -> CountedSource:
    """Every series sampled once a microsecond from START_NS - 1 us on."""
    samples = [
        (number, START_NS + 1000 * (step - 1), phase, value)
        for number, series in enumerate(rows.values())
        for step, (phase, value) in enumerate(series)
    ]
    samples.sort(key=lambda row: row[1])
    whole = CountedSource(
        name="lab", reader="soft_switch", interval_ns=1000, peers=peers, several_devices=True, is_host_side=False,
        series=tuple(Series(one, counter, width_bits) for one, counter in rows),
        row_series=np.array([row[0] for row in samples], np.int32),
        row_time_ns=np.array([row[1] for row in samples], np.int64),
        row_error_ns=np.full(len(samples), 5, np.int64),
        row_phase=np.array([row[2] for row in samples], np.int8),
        row_value=np.array([row[3] for row in samples], np.uint64),
        readings=4, gaps=(), notes=(), at_rest=True,
    )  # fmt: skip
    return replace(whole, **changes)


@pytest.mark.parametrize(
    ("what", "width_bits", "samples", "increase", "whole", "set_back"),
    [
        ("from the last reading before to the last after", 64,
         [(BEFORE, 5), (BEFORE, 10), (DURING, 15), (AFTER, 20), (DRAINED, 21)], 11, True, 0),
        ("nothing moved", 64, [(BEFORE, 10), (DRAINED, 10)], 0, True, 0),
        ("not read before: observed", 64, [(DURING, 10), (AFTER, 12)], 2, False, 0),
        ("not read after: observed", 64, [(BEFORE, 10), (DURING, 12)], 2, False, 0),
        ("32 bits that began anew", 32, [(BEFORE, 2**32 - 5), (DURING, 3), (AFTER, 4)], 9, True, 0),
        ("32 bits that were set back: too far for a wrap", 32, [(BEFORE, 2**31), (DURING, 2**31 - 9), (AFTER, 2**31)],
         9, False, 1),
        ("64 bits never begin anew: they were set back", 64, [(BEFORE, 100), (DURING, 3), (AFTER, 10)], 7, False, 1),
        ("the greatest values there are", 64, [(BEFORE, 2**64 - 9), (AFTER, 2**64 - 1)], 8, True, 0),
        ("read once", 64, [(BEFORE, 9)], 0, False, 0),
    ],
)  # fmt: skip
def test_increases_are_counted_from_before_to_after(
    what: str,
    width_bits: int,
    samples: list[tuple[SamplePhase, int]],
    increase: int,
    whole: bool,
    set_back: int,
) -> None:
    found = increases_of(source_of({(A_PORT, "rx_packets"): samples}, width_bits=width_bits))
    assert (int(found.increase[0]), bool(found.whole[0]), len(found.set_back)) == (
        increase,
        whole,
        set_back,
    ), what


@given(st.lists(st.integers(0, 2**40), min_size=2, max_size=20), st.integers(0, 2**63))
def test_the_increase_is_the_sum_of_the_steps(steps: list[int], begin: int) -> None:
    values = np.cumsum([begin, *steps], dtype=np.uint64).tolist()
    phases = [BEFORE, *[DURING] * (len(steps) - 1), AFTER]
    found = increases_of(source_of({(A_PORT, "rx_packets"): list(zip(phases, values, strict=True))}))
    assert int(found.increase[0]) == sum(steps)
    assert found.whole[0]


def test_moments_have_no_increase_but_a_greatest_value_since_the_begin() -> None:
    depth = (queue("s/0", 3), "current_bytes")
    found = increases_of(source_of({depth: [(BEFORE, 900), (DURING, 70), (DURING, 80), (AFTER, 0)]}))
    assert int(found.increase[0]) == 0
    assert int(found.most[0]) == 80, "what was before the run is not of the run"
    assert found.set_back == (), "a queue that drains was not set back"


# ---- agents and device

AGENT: Final = AgentPort("a/p0", 100, 10_000, 50, 5_000, 0, 4, counts_packets=True)
DEVICE: Final = DevicePort("lab", "s/0", "a/p0", 100, 50, 10_000 + 100 * 46, 5_000 + 50 * 46, with_fcs=True)
"""Every IPv4 datagram is 14 + 20 + 8 + 4 = 46 bytes longer as a frame."""


@pytest.mark.parametrize(
    ("what", "agent", "device", "to_device", "from_device"),
    [
        ("frame for frame", AGENT, DEVICE, (0, 0, Agreement.EXACT), (0, 0, Agreement.EXACT)),
        ("IPv6 is 20 bytes longer", replace(AGENT, ip_version=6),
         replace(DEVICE, rx_bytes=10_000 + 6600, tx_bytes=5_000 + 3300), (0, 0, Agreement.EXACT), (0, 0, Agreement.EXACT)),
        ("a VLAN tag on every frame", replace(AGENT, added_bytes=4),
         replace(DEVICE, rx_bytes=10_000 + 5_000, tx_bytes=5_000 + 2_500), (0, 0, Agreement.EXACT), (0, 0, Agreement.EXACT)),
        ("plain UDP beside the job, which has no tag", replace(AGENT, added_bytes=4, plain=PlainDatagrams(7, 700, 3, 30)),
         replace(DEVICE, rx_frames=107, rx_bytes=15_000 + 700 + 7 * 46, tx_frames=53, tx_bytes=7_500 + 30 + 3 * 46),
         (0, 0, Agreement.EXACT), (0, 0, Agreement.EXACT)),
        ("short frames, which are filled up on a cable", replace(AGENT, tx_padding_bytes=90, rx_padding_bytes=6),
         replace(DEVICE, rx_bytes=14_600 + 90, tx_bytes=7_300 + 6), (0, 0, Agreement.EXACT), (0, 0, Agreement.EXACT)),
        ("and not where the host counts its own", replace(AGENT, tx_padding_bytes=90, rx_padding_bytes=6),
         replace(DEVICE, rx_frames=50, tx_frames=100, rx_bytes=7300, tx_bytes=14600, is_ours=True),
         (0, 0, Agreement.EXACT), (0, 0, Agreement.EXACT)),
        ("plain UDP that may have been cut", replace(AGENT, plain=PlainDatagrams(unknown="long")), DEVICE,
         (None, None, Agreement.UNKNOWN), (None, None, Agreement.UNKNOWN)),
        ("perhaps a VLAN tag", replace(AGENT, added_bytes=None), DEVICE, (0, None, Agreement.EXACT), (0, None, Agreement.EXACT)),
        ("without check sequences", AGENT, replace(DEVICE, rx_bytes=14_200, tx_bytes=7_100, with_fcs=False),
         (0, 0, Agreement.EXACT), (0, 0, Agreement.EXACT)),
        ("one of a hundred more is within 2 %", AGENT, replace(DEVICE, rx_frames=101, rx_bytes=14_746),
         (1, 146, Agreement.WITHIN), (0, 0, Agreement.EXACT)),
        ("three of a hundred less are beyond", AGENT, replace(DEVICE, rx_frames=97, rx_bytes=14_162),
         (-3, -438, Agreement.BEYOND), (0, 0, Agreement.EXACT)),
        ("frames agree, bytes do not", AGENT, replace(DEVICE, rx_bytes=20_000),
         (0, 5400, Agreement.BEYOND), (0, 0, Agreement.EXACT)),
        ("our own receive buffers lost five: the device counts them, too", replace(AGENT, own_lost_datagrams=5),
         replace(DEVICE, tx_frames=55, tx_bytes=9_000), (0, 0, Agreement.EXACT), (0, None, Agreement.EXACT)),
        ("both address families: frames only", replace(AGENT, ip_version=0), DEVICE,
         (0, None, Agreement.EXACT), (0, None, Agreement.EXACT)),
        ("the device does not tell", AGENT, replace(DEVICE, rx_frames=None, rx_bytes=None),
         (None, None, Agreement.UNKNOWN), (0, 0, Agreement.EXACT)),
        ("damaged on the way, dropped by our kernel", replace(AGENT, rx_datagrams=48, damaged_datagrams=2), DEVICE,
         (0, 0, Agreement.EXACT), (0, None, Agreement.EXACT)),
        ("a network card that sends by itself", replace(AGENT, counts_packets=False), DEVICE,
         (None, None, Agreement.UNKNOWN), (None, None, Agreement.UNKNOWN)),
        ("nothing sent and nothing counted", AgentPort("a/p0", 0, 0, 0, 0, 0, 4, counts_packets=True),
         DevicePort("lab", "s/0", "a/p0", 0, 0, 0, 0, with_fcs=True), (0, 0, Agreement.EXACT), (0, 0, Agreement.EXACT)),
        ("nothing sent, and the device counts others", AgentPort("a/p0", 0, 0, 0, 0, 0, 4, counts_packets=True),
         DevicePort("lab", "s/0", "a/p0", 1, 0, 64, 0, with_fcs=True), (1, 64, Agreement.BEYOND), (0, 0, Agreement.EXACT)),
        ("the rig's own interface: what it sends goes to the device", AGENT,
         replace(DEVICE, rx_frames=50, tx_frames=100, rx_bytes=7300, tx_bytes=14600, is_ours=True),
         (0, 0, Agreement.EXACT), (0, 0, Agreement.EXACT)),
    ],
)  # fmt: skip
def test_what_agents_and_device_count_is_held_against_each_other(
    what: str, agent: AgentPort, device: DevicePort, to_device: tuple[Any, ...], from_device: tuple[Any, ...]
) -> None:
    there, back = reconcile([agent], [device], 20_000)
    assert (there.direction, back.direction) == (Direction.TO_DEVICE, Direction.FROM_DEVICE)
    for row, expected in ((there, to_device), (back, from_device)):
        assert (row.difference_frames, row.difference_bytes, row.agreement) == expected, what


def test_an_agent_without_counters_is_told() -> None:
    row, _ = reconcile([], [DEVICE], 0)
    assert row.agreement is Agreement.UNKNOWN
    assert row.why == "the agent of that port sent no counters"


def moved(amount: int) -> list[tuple[SamplePhase, int]]:
    return [(BEFORE, 1000), (DRAINED, 1000 + amount)]


@pytest.mark.parametrize(
    ("what", "queues", "expected"),
    [
        ("every packet where the maps say", {0: 0, 3: 40, 6: 2}, [(3, 40, 0, None), (6, 2, 0, None)]),
        ("a queue carries others' packets, too", {0: 5, 3: 90, 6: 2}, [(3, 40, 0, None), (6, 2, 0, None)]),
        ("data in queue 1 instead", {1: 40, 3: 0, 6: 2}, [(3, 40, 40, 1), (6, 2, 0, None)]),
        ("notifications where the data is", {0: 0, 3: 42, 6: 0}, [(3, 40, 0, None), (6, 2, 2, 3)]),
        ("queues of which nothing is told", {3: 40}, [(3, 40, 0, None), (6, 2, None, None)]),
    ],
)  # fmt: skip
def test_packets_are_looked_for_in_the_queue_of_their_class(
    what: str, queues: dict[int, int], expected: list[tuple[int, int, int | None, int | None]]
) -> None:
    source = source_of({(queue("s/0", number), "packets"): moved(count) for number, count in queues.items()})
    classes = (ExpectedClass(26, 3, PacketKind.DATA), ExpectedClass(48, 6, PacketKind.NOTIFICATIONS))
    came = ReceivedClasses("a/p0", {PacketKind.DATA: 40, PacketKind.NOTIFICATIONS: 2})
    rows = class_queues([came], index_device(CountedDevice("x", 0, (source,))), classes)
    found = [(row.expected_queue, row.agent_packets, row.missing_packets, row.found_queue) for row in rows]
    assert found == expected, what


def test_acknowledgements_with_marks_of_their_own_leave_by_a_queue_of_their_own() -> None:
    moved_by = {0: 8, 3: 40, 6: 2}
    source = source_of(
        {(queue("s/0", number), "packets"): moved(count) for number, count in moved_by.items()}
    )
    classes = (
        ExpectedClass(26, 3, PacketKind.DATA),
        ExpectedClass(10, 0, PacketKind.ANSWERS),
        ExpectedClass(11, None, PacketKind.GRANTS),
        ExpectedClass(48, 6, PacketKind.NOTIFICATIONS),
    )
    came = ReceivedClasses("a/p0", dict(zip(PacketKind, (40, 8, 5, 2), strict=True)))
    rows = class_queues([came], index_device(CountedDevice("x", 0, (source,))), classes)
    assert [(row.expected_queue, row.carries, row.agent_packets, row.missing_packets) for row in rows] == [
        (0, "acknowledgements", 8, 0),
        (3, "data", 40, 0),
        (6, "notifications", 2, 0),
    ]
    one_queue = tuple(replace(one, queue=3) for one in classes)
    (row,) = class_queues([came], index_device(CountedDevice("x", 0, (source,))), one_queue)
    assert (row.carries, row.dscp, row.agent_packets, row.missing_packets) == (
        "data, acknowledgements, clear to send, notifications",
        *(26, 55, 15),
    )


# ---- a run directory


def counted(**changes: Any) -> CountedDevice:
    """A device that counted what the agents of the run by hand did: 20 and 10 datagrams of 100 bytes each way."""
    rows = {
        (A_PORT, "rx_packets"): moved(20), (A_PORT, "rx_bytes"): moved(20 * 146),
        (A_PORT, "tx_packets"): moved(10), (A_PORT, "tx_bytes"): moved(10 * 146),
        (B_PORT, "rx_packets"): moved(10), (B_PORT, "rx_bytes"): moved(10 * 146),
        (B_PORT, "tx_packets"): moved(20), (B_PORT, "tx_bytes"): moved(20 * 146),
        (queue("s/0", 3), "packets"): moved(10), (queue("s/1", 1), "packets"): moved(20),
        (queue("s/1", 3), "packets"): moved(0), (queue("s/1", 1), "dropped_packets"): moved(7),
        (queue("s/1", 1), "current_bytes"): [(BEFORE, 0), (DURING, 400), (AFTER, 0)],
        (CountedObject(CounterObject.PRIORITY, "s/1", 3), "pfc_tx"): moved(2),
    }  # fmt: skip
    return CountedDevice("soft-switch", 1000, (source_of(rows, **changes),))


BASIS: Final = DeviceBasis(
    START_NS,
    {name: RigPortFacts(4, counts_packets=True) for name in ("a/p0", "b/p0", "unused/p0")},
    (ExpectedClass(26, 3, PacketKind.DATA),),
)


KPI_BASIS: Final = KpiBasis({}, None, 4096)


def outcome() -> RunOutcome:
    """The run by hand, whose ports counted what `counted` did."""
    changed = outcome_by_hand()
    for name, sent, came in (("a", 20, 10), ("b", 10, 20)):

        def change(records: Any, sent: int = sent, came: int = came) -> Any:
            ports = records.ports.copy()
            ports["tx_datagrams"], ports["tx_bytes"] = sent, 100 * sent
            ports["rx_datagrams"], ports["rx_bytes"] = came, 100 * came
            ports["receive_overflows"] = 0
            flows = records.flows.copy()
            flows["rp_cnp_handled"] = flows["rp_cnp_ignored"] = 0
            return replace(records, ports=ports, flows=flows)

        changed = with_agent(changed, name, change)
    return changed


def with_verdict(
    run_dir: Path, device: CountedDevice, *conditions: str, basis: DeviceBasis = BASIS
) -> Summary:
    """The summary of a run directory that got a device's counters and was judged by conditions."""
    names = {"a": ("p0",), "b": ("p0",)}
    run = run_by_hand(outcome(), port_names=names)
    write_run(run_dir, run)
    counted = add_device_counters(run, device, basis)
    write_run(run_dir, counted, run)
    checks = tuple(RequestedCondition(one, "why", "here") for one in conditions)
    asked = Conditions(checks, EmulatorLimits(slip_share=9.0))
    return add_verdict(read_artifacts(run_dir), KPI_BASIS, asked, pages=False).summary


def test_losses_that_are_not_for_want_of_room_are_told_too(tmp_path: Path) -> None:
    """A storm's packets and those that a fault dropped are lost like any other."""
    rows = {
        (queue("s/1", 3), "watchdog_storms"): moved(2),
        (queue("s/1", 3), "watchdog_dropped_packets"): moved(187),
        (B_PORT, "fault_dropped_packets"): moved(4),
    }
    summary = with_verdict(tmp_path, CountedDevice("soft-switch", 1000, (source_of(rows),)))
    reported = (
        "device          191 dropped (187 by the watchdog, 4 by faults of the topology), 2 pause storms"
    )
    assert reported in render(summary, "here")


def test_plain_udp_beside_the_job_counts_at_both_its_ends(tmp_path: Path) -> None:
    """The device counted it, and the agents' ports did not: without it a device that is right would fail."""
    plain = {
        "a/p0": PlainDatagrams(tx_datagrams=3, tx_bytes=300),
        "b/p0": PlainDatagrams(rx_datagrams=2, rx_bytes=200),
    }
    seen = {A_PORT: "rx", B_PORT: "tx"}
    (source,) = counted().sources
    values = source.row_value.copy()
    more = {"rx_packets": 3, "rx_bytes": 3 * 146} | {"tx_packets": 2, "tx_bytes": 2 * 146}
    for row, (number, phase) in enumerate(zip(source.row_series, source.row_phase, strict=True)):
        series = source.series[number]
        if phase == DRAINED and seen.get(series.object) == series.counter[:2]:
            values[row] += more[series.counter]
    device = replace(counted(), sources=(replace(source, row_value=values),))
    condition = "reconciliation.difference_share <= 0.1%"
    summary = with_verdict(tmp_path / "reported", device, condition, basis=replace(BASIS, plain=plain))
    assert summary.verdict is not None
    assert summary.verdict.result is Result.PASS
    unreported = with_verdict(tmp_path / "untold", device, condition)
    assert unreported.verdict is not None
    assert unreported.verdict.result is Result.FAIL


def test_a_run_directory_gets_the_devices_counters(tmp_path: Path) -> None:
    summary = with_verdict(tmp_path, counted(), "reconciliation.difference_share <= 0.1%")
    assert summary.dut is not None
    assert [row.agreement for row in summary.dut.reconciliation] == [Agreement.EXACT] * 4
    assert summary.dut.counters == {"queue_dropped_packets": 7, "priority_pfc_tx": 2}
    assert summary.dut.sources[0].whole
    assert summary.verdict is not None
    assert summary.verdict.result is Result.PASS
    table = render(summary, "here")
    assert "agreement       of agents and device, 4 directions of cables: 4 frame for frame" in table
    assert "device          7 dropped (7 no room at a queue), 2 pauses sent" in table
    lanes = pq.read_table(tmp_path / "switches.parquet").to_pylist()
    (lane,) = [row for row in lanes if (row["port"], row["cos"]) == ("1", 1)]
    assert (lane["switch"], lane["peer"]) == ("s", "b/p0")
    assert (lane["queue_packets"], lane["queue_dropped_packets"]) == (20, 7)
    assert lane["queue_ecn_marked_packets"] is None, "what a device does not count is not 0"
    over_time = pq.read_table(tmp_path / "queues.parquet").to_pylist()
    depths = [(row["time_ns"], row["queued_bytes"]) for row in over_time if row["cos"] == 1]
    assert depths == [(0, 400), (1000, 0)]
    counters = pq.read_table(tmp_path / "counters.parquet").to_pylist()
    assert [row["increase"] for row in counters if row["counter"] == "pfc_tx"] == [2]
    assert [row["most"] for row in counters if row["counter"] == "current_bytes"] == [400]
    assert pq.read_table(tmp_path / "dut.parquet").num_rows == 2 * 13 + 3
    page = str(add_verdict(read_artifacts(tmp_path), KPI_BASIS, Conditions()).texts["report.html"])
    assert "Of agents and device, 4 directions of cables: 4 frame for frame." in page
    assert "counted by the device" in page


def test_a_port_without_ranks_leaves_the_verdict_as_it_is(tmp_path: Path) -> None:
    """Nobody counts there; the device still sees what any host says to its neighbours."""
    peers = (("s/0", "a/p0"), ("s/1", "b/p0"), ("s/2", "unused/p0"))
    summary = with_verdict(tmp_path, counted(peers=peers), "reconciliation.difference_share <= 0.1%")
    assert summary.dut is not None
    assert {row.port for row in summary.dut.reconciliation} == {"a/p0", "b/p0"}
    assert not [note for note in summary.dut.notes if "unused" in note]
    assert summary.verdict is not None
    assert summary.verdict.result is Result.PASS


def test_key_figures_of_the_device(tmp_path: Path) -> None:
    with_verdict(
        tmp_path,
        counted(),
        "dut_dropped_packets == 7 and dut_pfc_tx_frames == 2 and dut_difference_share == 0",
    )
    kpis = key_figures(kpi_input(read_artifacts(tmp_path), KPI_BASIS), KPI_BASIS)
    assert kpis.value("dut_dropped_packets") == 7
    assert kpis.value("dut_pfc_tx_frames") == 2
    assert kpis.value("dut_difference_share") == 0
    absent = {kpi.name: kpi.absent for kpi in kpis.figures if kpi.value is None}
    assert absent["dut_ecn_marked_packets"] == "not counted over the whole run", (
        "the device does not count marks"
    )


def test_a_mapped_class_in_another_queue_fails_and_names_the_queue(tmp_path: Path) -> None:
    summary = with_verdict(
        tmp_path, counted(), "classes.missing_share <= 1%", "switches.queue_dropped_packets == 0"
    )
    assert summary.verdict is not None
    assert summary.verdict.result is Result.FAIL
    classes, dropped = summary.verdict.checks
    assert classes.rows == (
        "classes: port b/p0, device_port s/1, dscp 26, expected_queue 3, queue_packets 0, found_queue 1, found_packets 20 (= 1)",
    )
    assert dropped.result is Result.FAIL
    assert dropped.rows == ("switches: switch s, port 1, cos 1, peer b/p0 (= 7)",)


def test_counters_that_stopped_leave_what_they_would_have_told_open(tmp_path: Path) -> None:
    gap = CounterGap("lab", START_NS + 10, START_NS + 90, "ended: the lab ended")
    device = counted(gaps=(gap,), row_phase=np.full(29, DURING, np.int8))
    summary = with_verdict(tmp_path, device, "reconciliation.difference_share <= 0.1%", "lost_share <= 100%")
    assert summary.verdict is not None
    reconciliation, lost = summary.verdict.checks
    assert reconciliation.result is Result.INCONCLUSIVE
    assert reconciliation.reason == "a value is missing in 4 of 4 rows"
    assert lost.result is Result.PASS
    table = render(summary, "here")
    assert "gap             lab: from 0.00 to 0.00 s of the run: ended: the lab ended" in table
    assert "NOT ALL OF THEM BEFORE AND AFTER THE RUN" in table
    assert "4 not known" in table


def test_a_source_that_never_answered_leaves_tables_without_rows_and_says_so(tmp_path: Path) -> None:
    gap = CounterGap("lab", START_NS, START_NS + 90, "unreachable: nobody there")
    device = CountedDevice("soft-switch", 1000, (source_of({}, readings=0, gaps=(gap,), at_rest=False),))
    summary = with_verdict(
        tmp_path, device, 'counters[counter == "x"].increase == 0', "classes.missing_share <= 1%"
    )
    assert summary.verdict is not None
    assert [one.result for one in summary.verdict.checks] == [Result.INCONCLUSIVE] * 2
    assert "NO READINGS" in render(summary, "here")
    assert read_run(tmp_path).summary.dut == summary.dut


def test_a_soft_switch_that_was_overloaded_is_not_held_against_the_device(tmp_path: Path) -> None:
    source = counted().sources[0]
    rows = source_of({(A_PORT, "overload_frames"): moved(3), (A_PORT, "rx_packets"): moved(1)})
    device = CountedDevice("soft-switch", 1000, (rows,))
    summary = with_verdict(tmp_path, device, "reconciliation.difference_share <= 0.1%")
    assert source.name == "lab"
    assert summary.verdict is not None
    assert summary.verdict.result is Result.INCONCLUSIVE
    assert summary.verdict.emulator == (
        "the soft switch lost 3 frames because its host could not keep up (overload_frames)",
    )


def test_ports_of_the_rig_that_no_source_knows_are_told(tmp_path: Path) -> None:
    summary = with_verdict(tmp_path, counted(peers=(("s/0", "a/p0"),)))
    assert summary.dut is not None
    assert summary.dut.notes == ("no source of counters says which port of the device is connected to b/p0",)


def test_a_linux_interface_counts_without_check_sequences() -> None:
    rows = {(A_PORT, "rx_packets"): moved(2), (A_PORT, "rx_bytes_without_fcs"): moved(200)}
    (port, _) = device_ports(
        index_device(CountedDevice("x", 0, (source_of(rows),))), frozenset({"a/p0", "b/p0"})
    )
    assert (port.rx_frames, port.rx_bytes, port.tx_bytes, port.with_fcs) == (2, 200, None, False)


@pytest.mark.parametrize("name", profile_names())
def test_conditions_of_shipped_profiles_can_be_read(name: str) -> None:
    profile = find_profile(name)
    checks = [RequestedCondition(one.expression, one.why, one.where) for one in profile.checks]
    assert find_condition_mistakes([*checks, *counting_conditions(profile)], vocabulary()) == ()
