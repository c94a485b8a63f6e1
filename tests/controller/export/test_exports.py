"""Exports: the messages of a job, their waits in each simulator's form, refusals by name, and outputs read back."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from etloop.contract.base.errors import ConfigError, PlanError
from etloop.controller.export.bundle import MANIFEST_FILE, MESSAGES_FILE, Manifest, Simulator
from etloop.controller.export.comparison import RunOps, compare_times, parse_messages
from etloop.controller.export.export import export_plan
from etloop.controller.export.graph import MessageGraph, NodeKind
from etloop.controller.export.htsim import flow_starts
from etloop.controller.export.message_graph import message_graph
from etloop.controller.export.outputs import read_output
from etloop.controller.plan.run_numbers import PLAN_ID
from etloop.controller.run.derived_rig import derived_rig
from etloop.controller.run.prepare import InputFile, Prepared, PrepareOptions, RunInputs, prepare
from etloop.controller.run.twin import described_device
from etloop.results.schema.typed_json import from_json

UET = "collectives: {shaping: plain}\ntransport: {kind: uet, cc: {algorithm: nscc}}\n"
NCCL = "transport: {kind: uet, cc: {algorithm: nscc}}\n"
FOUR = "single: {ports: [a0/p, a1/p, a2/p, a3/p], rate: 100Gbps, delay: 1us, switch: {preset: lossy}}"
LEAVES = """\
leaf_spine:
  leaves: [{ports: [a0/p, a2/p]}, {ports: [a1/p, a3/p]}]
  spines: 2
  uplinks: 1
  rate: 400Gbps
  delay: 500ns
  leaf: {preset: lossy}
  spine: {preset: lossy}
"""
INTERLEAVED = """\
switches: [{name: s0, preset: lossy}, {name: s1, preset: lossy}, {name: top, preset: lossy}]
links: [{from: s0/up, to: top/0, rate: 100Gbps}, {from: s1/up, to: top/1, rate: 100Gbps}]
attach:
  - {port: a0/p, to: s0, rate: 100Gbps}
  - {port: a1/p, to: s1, rate: 100Gbps}
  - {port: a2/p, to: s0, rate: 100Gbps}
  - {port: a3/p, to: s1, rate: 100Gbps}
"""
FASTER_ABOVE = LEAVES.replace("uplinks: 1", "uplinks: 1\n  uplink_rate: 800Gbps").replace(
    "{preset: lossy}",
    "{preset: lossy, buffer: 8MiB, queues: {3: {ecn: {kmin: 100KiB, kmax: 400KiB, pmax: 20%, at: dequeue}}}}",
)


def prepared(workload: str, topology: str = FOUR, more: str = UET, directory: Path | None = None) -> Prepared:
    place = directory or Path.cwd()
    switches = InputFile(place / "topology.yaml", topology.encode())
    scenario = InputFile(place / "scenario.yaml", f"workload: {workload}\n{more}".encode())
    inputs = RunInputs(scenario, derived_rig(switches), switches, PLAN_ID)
    return prepare(inputs, PrepareOptions(keeps_case=False))


def collective(kind: str, size: str = "4MiB") -> str:
    return f"{{collective: {{kind: {kind}, ranks: 4, size: {size}}}}}"


def exported(run: Prepared, simulator: Simulator = Simulator.HTSIM) -> tuple[Manifest, dict[str, bytes]]:
    return export_plan(run.plan, described_device(run).topology, simulator)


def graph_of(workload: str) -> MessageGraph:
    return message_graph(prepared(workload).plan)


@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"])
def test_messages_have_the_bytes_of_the_plan(kind: str) -> None:
    run = prepared(collective(kind))
    graph = message_graph(run.plan)
    sent: Counter[tuple[int, int]] = Counter()
    for message in graph.messages:
        sent[message.source, message.target] += message.payload_bytes
    assert +sent == bytes_by_pair(run)


def test_each_message_is_sent_once_and_received_once() -> None:
    graph = graph_of(collective("all_reduce"))
    for kind, end in ((NodeKind.SEND, "source"), (NodeKind.RECV, "target")):
        found = {
            node.message: rank
            for rank, nodes in enumerate(graph.ranks)
            for node in nodes
            if node.kind is kind
        }
        assert found == {number: getattr(message, end) for number, message in enumerate(graph.messages)}


def test_waits_name_earlier_nodes() -> None:
    graph = graph_of(collective("all_to_all"))
    assert all(
        awaited < number
        for nodes in graph.ranks
        for number, node in enumerate(nodes)
        for awaited in node.after
    )


def test_a_ring_forwards_what_arrived() -> None:
    graph = graph_of("{collective: {kind: all_gather, ranks: 4, size: 16KiB}}")
    starts = flow_starts(graph)
    waits = Counter(len(start.events) for start in starts)
    assert waits[0] == 4, "each rank sends its own block at once"
    for start in starts:
        for event in start.events:
            message = graph.messages[event.message]
            assert event.acknowledged or message.target in {m.source for m in graph.messages}


def test_point_to_point_chunks_are_one_message() -> None:
    graph = graph_of("{incast: {senders: 3, size: 1MiB}}")
    assert sorted(message.payload_bytes for message in graph.messages) == [1 << 20] * 3


def test_htsim_files_of_an_incast() -> None:
    about, files = exported(prepared("{incast: {senders: 3, size: 1MiB}}", LEAVES))
    lines = files["connections.cm"].decode().splitlines()
    assert lines[:3] == ["Nodes 4", "Connections 3", "Triggers 0"]
    assert all(line.endswith("start 0 size 1048576") for line in lines[3:])
    topology = files["fabric.topo"].decode()
    assert "Tiers 2" in topology
    assert "Radix_Down 2\nRadix_Up 2" in topology
    assert "Downlink_speed_Gbps 400" in topology
    assert about.messages == 3
    assert "-linkspeed 400000" in about.command
    assert from_json(Manifest, files[MANIFEST_FILE].decode(), MANIFEST_FILE, about.schema) == about


def test_hosts_are_numbered_leaf_by_leaf() -> None:
    _, files = exported(prepared("{incast: {senders: 3, size: 1MiB}}", INTERLEAVED))
    flows = [line.split()[0] for line in files["connections.cm"].decode().splitlines()[3:]]
    # Ranks 0 and 2 are on the first leaf.
    nodes = {0: 0, 1: 2, 2: 1, 3: 3}
    messages = parse_messages(files[MESSAGES_FILE].decode())
    assert flows == [f"{nodes[source]}->{nodes[target]}" for source, target in messages[:, 1:3].tolist()]


def test_htsim_triggers_are_declared_and_counted() -> None:
    _, files = exported(
        prepared("{collective: {kind: all_reduce, ranks: 4, size: 4MiB}}", more=f"iterations: 2\n{UET}")
    )
    lines = files["connections.cm"].decode().splitlines()
    declared = {
        line.split()[2]: int(line.split()[-1]) if "count" in line else 1
        for line in lines
        if line.startswith("trigger")
    }
    fired: Counter[str] = Counter()
    for line in lines:
        words = line.split()
        fired.update(words[at + 1] for at, word in enumerate(words) if word.endswith("_done_trigger"))
    assert declared
    assert dict(fired) == declared


def bytes_by_pair(run: Prepared) -> Counter[tuple[int, int]]:
    columns = run.plan.tables.connections
    found: Counter[tuple[int, int]] = Counter()
    for source, target, size in zip(
        columns.src_rank.tolist(), columns.dst_rank.tolist(), columns.payload_bytes.tolist(), strict=True
    ):
        found[source, target] += size
    return +found


@pytest.mark.parametrize(
    ("simulator", "trace"), [(Simulator.GOAL, "out/job.goal"), (Simulator.ASTRA_SIM, "out")]
)
def test_exports_are_jobs_of_the_same_bytes(simulator: Simulator, trace: str, tmp_path: Path) -> None:
    run = prepared(collective("all_reduce", "256KiB"))
    about, files = exported(run, simulator)
    (tmp_path / "out").mkdir()
    for name, content in files.items():
        if name.startswith("job."):
            (tmp_path / "out" / name).write_bytes(content)
    again = prepared(f"{{trace: {trace}}}", directory=tmp_path)
    assert len(again.plan.tables.rank_agent) == about.ranks == 4
    assert bytes_by_pair(again) == bytes_by_pair(run)


@pytest.mark.parametrize(
    ("workload", "topology", "more", "named"),
    [
        (collective("all_reduce"), FOUR, "", "transport: kind"),
        (collective("all_reduce"), FOUR, "transport: {kind: uet, cc: {algorithm: swift}}\n", "swift"),
        (collective("all_reduce"), FOUR.replace("lossy", "lossless"), UET, "PFC"),
        (collective("all_reduce"), FOUR.replace("lossy", "lossy, balancing: spray"), UET, "spray"),
        (
            collective("all_reduce"),
            "dumbbell: {left: [a0/p, a1/p, a2/p], right: [a3/p], rate: 100Gbps, switch: {preset: lossy}}",
            UET,
            "regular fat trees",
        ),
        (
            collective("all_reduce"),
            LEAVES.replace("uplinks: 1", "uplinks: 1\n  uplink_rate: 800Gbps"),
            UET,
            "differ in queues",
        ),
        (
            collective("all_reduce"),
            FOUR.replace("lossy", "lossy, port_settings: [{ports: ['0'], queues: {3: {weight: 2}}}]"),
            UET,
            "ports of a switch differ",
        ),
        (
            collective("all_reduce"),
            FASTER_ABOVE,
            UET,
            "other rates up than down",
        ),
    ],
)
def test_refusals_name_what_htsim_does_not_have(workload: str, topology: str, more: str, named: str) -> None:
    with pytest.raises(PlanError, match=named):
        exported(prepared(workload, topology, more))


def test_compute_between_messages_is_refused_for_htsim_alone(tmp_path: Path) -> None:
    (tmp_path / "job.goal").write_text(
        "num_ranks 2\nrank 0 {\na: recv 100b from 1\nb: calc 5000\nc: send 100b to 1\nb requires a\nc requires b\n}\n"
        "rank 1 {\nsend 100b to 0\nrecv 100b from 0\n}\n"
    )
    run = prepared("{trace: job.goal}", directory=tmp_path)
    with pytest.raises(PlanError, match="htsim has no compute"):
        exported(run)
    _, files = exported(run, Simulator.GOAL)
    assert b"calc 5000000" in files["job.goal"]


ABOUT = Manifest(Simulator.HTSIM, "job", 2, 1, 2, 200, "htsim_uec", (), ())
OUTPUT = """\
Flow Uec_0_1 flowId 2 uecSrc 0 finished at 20.5 total messages 1
Flow Uec_1_0 flowId 1 uecSrc 0 finished at 10 total messages 1
New: 7 Rtx: 1 RTS: 0 Bounced: 0 ACKs: 5 NACKs: 2 Pulls: 0 sleek_pkts: 0
"""
MESSAGES = parse_messages(
    "message,source,target,bytes,iteration,source_op,target_op\n0,0,1,100,0,3,4\n1,1,0,100,0,5,6\n"
)


def test_htsim_output_next_to_a_run() -> None:
    times = read_output(OUTPUT, ABOUT)
    assert times.end_ns.tolist() == [10_000.0, 20_500.0]
    assert times.counts == {"new": 7, "retransmitted": 1, "nacks": 2}
    zero = np.zeros(2, np.int64)
    ops = RunOps(zero, np.array([0, 1]), np.array([3, 5]), np.array([11_000, 20_500]))
    found = {figure.name: figure.ratio for figure in compare_times(ops, MESSAGES, times, ABOUT).figures}
    assert found["first"] == pytest.approx(1.1)
    assert found["last"] == pytest.approx(1.0)


def test_an_output_that_lacks_a_flow_is_refused() -> None:
    with pytest.raises(ConfigError, match="message 0 is missing"):
        read_output(OUTPUT.replace("flowId 1", "flowId 2"), ABOUT)


def test_a_run_of_another_job_is_refused() -> None:
    zero = np.zeros(1, np.int64)
    with pytest.raises(ConfigError, match="op 5 of rank 1"):
        compare_times(RunOps(zero, zero, np.array([3]), zero), MESSAGES, read_output(OUTPUT, ABOUT), ABOUT)


def test_outputs_by_rank() -> None:
    goal = Manifest(Simulator.GOAL, "job", 2, 1, 2, 200, "", (), ())
    assert read_output("Host 0: 1000\nHost 1: 2500\n", goal).end_ns.tolist() == [1.0, 2.5]
    astra = Manifest(Simulator.ASTRA_SIM, "job", 2, 1, 2, 200, "", (), ())
    text = "[x] [workload] [info] sys[1] finished, 70 cycles, exposed communication 70 cycles.\nsys[0] finished, 60 cycles, "
    assert read_output(text, astra).end_ns.tolist() == [60.0, 70.0]
