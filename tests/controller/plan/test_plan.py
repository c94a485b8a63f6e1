"""Plans of small jobs, checked by hand: bytes per op, what each agent receives, what crosses the device under test."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etloop.cli.text.plan import rank_ranges, render_plan
from etloop.contract.base.errors import PlanError
from etloop.contract.model.assignment import Path, PortBackend
from etloop.controller.plan import demand
from etloop.controller.plan.plan import Plan, make_plan
from etloop.controller.plan.report import report_plan
from etloop.workload.trace.program import OpKind
from etloop.workload.trace.trace import CollectiveKind
from tests.support.runs.plan_by_hand import Coll, Msg, job_of, rig_of, scenario_of

AR, AG, RS, A2A, BC = (
    CollectiveKind.ALL_REDUCE,
    CollectiveKind.ALL_GATHER,
    CollectiveKind.REDUCE_SCATTER,
    CollectiveKind.ALL_TO_ALL,
    CollectiveKind.BROADCAST,
)
WORLD = (0, 1, 2, 3)
MIB = 1 << 20


def plan_of(*ops: Coll | Msg, ranks: int = 4, scenario: str = "", agents: int = 2) -> Plan:
    """The plan of a job on `agents` agents of one port each."""
    return make_plan(scenario_of(scenario), rig_of(dict.fromkeys("abcd"[:agents], 1)), job_of(ranks, *ops))


@pytest.mark.parametrize(
    ("op", "every_rank_sends", "crossing"),
    [
        (Coll(AR, WORLD, 4 * MIB), 6 * MIB, 12 * MIB),
        (Coll(AG, WORLD, MIB), 3 * MIB, 6 * MIB),
        (Coll(RS, WORLD, 4 * MIB), 3 * MIB, 6 * MIB),
        (Coll(A2A, WORLD, 4 * MIB), 3 * MIB, 8 * MIB),
    ],
)
def test_bytes_of_collectives_are_the_closed_forms(op: Coll, every_rank_sends: int, crossing: int) -> None:
    # Four ranks, two a port: of a ring's four edges two cross, of an all-to-all's twelve pairs eight.
    ops = plan_of(op).tables.ops
    assert (ops.wire_tx_bytes + ops.local_tx_bytes).tolist() == [every_rank_sends] * 4
    assert int(ops.wire_tx_bytes.sum()) == crossing


def test_bytes_of_a_send_stand_on_both_sides() -> None:
    halves = "mapping: {placement: explicit, explicit: {0-1: a/p0, 2-3: b/p0}}"
    plan = plan_of(Msg(0, 3, 1000), Msg(0, 1, 7), scenario=halves)
    ops = plan.tables.ops
    rows = list(zip(ops.rank.tolist(), ops.kind.tolist(), ops.peer.tolist(), strict=True))
    assert rows == [(0, OpKind.SEND, 3), (0, OpKind.SEND, 1), (1, OpKind.RECV, 0), (3, OpKind.RECV, 0)]
    assert ops.wire_tx_bytes.tolist() == [1000, 0, 0, 0]
    assert ops.local_tx_bytes.tolist() == [0, 7, 0, 0]
    assert ops.wire_rx_bytes.tolist() == [0, 0, 0, 1000]
    assert ops.local_rx_bytes.tolist() == [0, 0, 7, 0]
    assert plan.tables.connections.communicator.tolist() == [-1, -1]
    assert ops.node_id.tolist() == [101, 102, 101, 101], "the trace's nodes, without those of delays"


def test_connections_are_those_of_the_schedules() -> None:
    connections = plan_of(Coll(AR, WORLD, 64), Coll(AR, (0, 2), 64)).tables.connections
    pairs = list(
        zip(
            connections.communicator.tolist(),
            connections.src_rank.tolist(),
            connections.dst_rank.tolist(),
            strict=True,
        )
    )
    assert pairs == [(0, 0, 1), (0, 1, 2), (0, 2, 3), (0, 3, 0), (1, 0, 2), (1, 2, 0)]


def test_agents_receive_what_concerns_them() -> None:
    plan = plan_of(Coll(AR, WORLD, 64), Msg(2, 3, 5))
    a, b = plan.assignments["a"], plan.assignments["b"]
    assert [rank.rank for rank in a.ranks] == [0, 1]
    assert [rank.rank for rank in b.ranks] == [2, 3]
    assert [rank.program for rank in b.ranks] == [0, 1], "programs are numbered by the agent"
    assert plan.connection_rows["a"].tolist() == [1, 2, 4], "the hairpin of ranks 2 and 3 is not its business"
    everything = plan.tables.connections
    for agent, assignment in plan.assignments.items():
        rows = plan.connection_rows[agent]
        assert assignment.connections.src_rank.tolist() == everything.src_rank[rows].tolist()
        (port,) = assignment.ports
        assert port.addresses == tuple(f"10.{'ab'.index(agent)}.0.{host}" for host in (1, 2)), (
            "only those in use"
        )
    assert a.threads.total == 1


def test_engine_threads_of_one_host_are_counted_over_its_agents() -> None:
    rig = rig_of({"a": 1, "b": 2}, host="same")
    plan = make_plan(scenario_of(), rig, job_of(3, Coll(AR, (0, 1, 2), 64)))
    assert [assignment.threads.total for assignment in plan.assignments.values()] == [3, 3]
    assert [assignment.threads.first for assignment in plan.assignments.values()] == [0, 1]


def test_threads_of_a_port_are_its_queues_and_the_plan_says_how_they_share() -> None:
    """With a rank for every queue each has some of the addresses, else the queue pairs of every rank are dealt."""
    plain = rig_of({"a": 1, "b": 1}, host="same")
    agents = (
        dataclasses.replace(
            agent, ports=tuple(dataclasses.replace(port, queues=queues) for port in agent.ports)
        )
        for agent, queues in zip(plain.agents, (1, 3), strict=True)
    )
    plan = make_plan(
        scenario_of(), dataclasses.replace(plain, agents=tuple(agents)), job_of(2, Coll(AR, (0, 1), 64))
    )
    assert [assignment.threads.total for assignment in plan.assignments.values()] == [4, 4]
    assert [assignment.threads.first for assignment in plan.assignments.values()] == [0, 1]
    assert "queues: threads that share the queue pairs of every rank: b/p0 3" in plan.tables.notes


def test_agents_without_ranks_take_no_part() -> None:
    plan = plan_of(Coll(AR, (0, 1), 64), ranks=2, agents=3)
    assert set(plan.assignments) < {"a", "b", "c"}
    assert any(note.startswith("ports without ranks, left unused") for note in plan.tables.notes)


def test_programs_name_the_schedules_of_their_group_sizes() -> None:
    # Ranks 0 and 3 run equal programs in groups of different sizes.
    plan = plan_of(Coll(AR, (0, 1), 64), Coll(AR, (3, 2, 4), 64), ranks=5)
    for assignment in plan.assignments.values():
        tables = assignment.schedules
        for rank in assignment.ranks:
            program = assignment.programs[rank.program]
            schedule = int(program.schedule[program.kind == OpKind.COLLECTIVE][0])
            group = rank.communicators[0]
            first, last = assignment.communicator_offsets[group : group + 2].tolist()
            assert tables.schedules.size[schedule] == last - first
            position = assignment.communicator_members[first:last].tolist().index(rank.rank)
            here = slice(*tables.table_offsets[schedule : schedule + 2].tolist())
            assert position in tables.table_position[here].tolist()
            assert (program.schedule[program.kind == OpKind.DELAY] == -1).all()


def test_nothing_crossing_is_said() -> None:
    plan = plan_of(Coll(AR, WORLD, 64), agents=1)
    assert (
        "no traffic crosses the device under test: all communicating ranks share a port or a host"
        in plan.tables.notes
    )


def test_transport_settings_arrive() -> None:
    plan = plan_of(
        Coll(AR, WORLD, 64), scenario="transport: {path_mtu: 1024, qps_per_connection: 3}\nfaults: {drop: 2%}"
    )
    assignment = plan.assignments["a"]
    assert assignment.transport.path_mtu_bytes == 1024
    assert assignment.transport.drop_per_million == 20_000
    wire = assignment.connections.path == Path.WIRE
    assert (np.diff(assignment.connections.qp_offsets) == np.where(wire, 3, 0)).all()


@pytest.mark.parametrize(
    ("op", "message"),
    [
        (
            Coll(AR, WORLD, 1 << 47),
            r"rank 0 node 101: 141 TB in one operation \(and 3 more operations\); check the trace's",
        ),
    ],
)
def test_what_cannot_be_planned_is_refused(op: Coll, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        plan_of(op)


def test_more_steps_than_the_engine_reads_are_refused_by_the_name_of_what_has_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A reduce-scatter of 4,096 ranks by PAT has 2^24 steps a channel; here the limit is as small as the job."""
    pinned = "collectives: {all_reduce: {algorithm: ring, channels: 2}, all_gather: {algorithm: ring, channels: 1}}"
    ops = (Coll(AR, WORLD, 1 << 20), Coll(AG, WORLD, 1 << 20))
    plan_of(*ops, scenario=pinned)
    monkeypatch.setattr(demand, "MOST_SCHEDULE_STEPS", 8)
    with pytest.raises(PlanError) as refused:
        plan_of(*ops, scenario=pinned)
    assert str(refused.value) == (
        "collectives: the job's schedules have 72 steps in all, 56 of them the all-reduce by ring over 4 ranks; at most 8 are "
        "planned; pin another algorithm or fewer channels for it, take fewer ranks, or see etloop plan --summary"
    )


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([AR, AG, RS, A2A, BC]),
            st.permutations(range(6)),
            st.integers(2, 6),
            st.integers(0, 1 << 24),
        ),
        min_size=1,
        max_size=6,
    ),
    st.integers(1, 3),
    st.integers(1, 3),
    st.sampled_from(["blocked", "round_robin"]),
)
def test_bytes_agree_however_they_are_counted(
    ops: list[tuple[CollectiveKind, list[int], int, int]], agents: int, per_host: int, rule: str
) -> None:
    job = [Coll(kind, tuple(order[:size]), size_bytes) for kind, order, size, size_bytes in ops]
    text = f"mapping: {{ranks_per_host: {per_host}, placement: {rule}}}"
    plan = plan_of(*job, ranks=6, agents=agents, scenario=text)
    planned, connections = plan.tables.ops, plan.tables.connections
    wire = connections.path == Path.WIRE
    assert planned.wire_tx_bytes.sum() == planned.wire_rx_bytes.sum() == connections.payload_bytes[wire].sum()
    assert (
        planned.local_tx_bytes.sum() == planned.local_rx_bytes.sum() == connections.payload_bytes[~wire].sum()
    )
    for rank in range(6):
        sent = planned.wire_tx_bytes[planned.rank == rank].sum()
        assert sent == connections.payload_bytes[wire & (connections.src_rank == rank)].sum()
    report = report_plan(plan)
    assert sum(port.tx_bytes for port in report.ports) == report.fabric_bytes
    assert sum(kind.wire_bytes + kind.local_bytes for kind in report.kinds) == report.payload_bytes
    covered = set().union(*(rows.tolist() for rows in plan.connection_rows.values()))
    assert covered == set(range(len(wire)))


def test_the_same_input_gives_the_same_plan() -> None:
    first, second = (plan_of(Coll(A2A, WORLD, 999), Msg(1, 2, 3)) for _ in range(2))
    for agent, assignment in first.assignments.items():
        again = second.assignments[agent]
        for field in dataclasses.fields(assignment.connections):
            assert (
                getattr(assignment.connections, field.name) == getattr(again.connections, field.name)
            ).all()


def test_the_report_in_words() -> None:
    plan = plan_of(Coll(AR, WORLD, 4 * MIB), Msg(0, 3, 1000), scenario="mapping: {ranks_per_host: 2}")
    text = render_plan(report_plan(plan))
    assert (
        text
        == """\
by hand: 4 ranks, 6 network ops an iteration, 1 iterations, bytes x 1, time x 1, dependencies data, shaped as nccl 2.32.3
payload an iteration: S 25.2 MB, of which S_fabric 12.6 MB (50%) crosses the device under test
edges: none

rank  host  port  address
0     0     a/p0  10.0.0.1
1     0     a/p0  10.0.0.2
2     1     b/p0  10.1.0.1
3     1     b/p0  10.1.0.2

communicator  ranks  ops  payload  through DUT  members
g0            4      1    25.2 MB  12.6 MB      0-3

kind        algorithm  ranks  ops  put in   through DUT  local
all_reduce  ring       4      1    16.8 MB  12.6 MB      12.6 MB
send_recv   p2p        2      1    1 kB     1 kB         0 B

carried out  ranks  a host  bytes    algorithm  protocol  complete when  channels  messages  why
all_reduce   4      2       4.19 MB  ring       simple    posted         1         48        pinned: 87 us, next ring ll128 115 us
send_recv    2      1       1 kB     p2p        simple    posted         1         1         NCCL's grouped sends

port  link     ranks  QP ends  tx       rx       at link speed  hairpin
a/p0  100Gbps  0-1    3        6.29 MB  6.29 MB  503 us (100%)  0 B
b/p0  100Gbps  2-3    3        6.29 MB  6.29 MB  503 us (100%)  0 B

connections: 3 wire, 2 scale-up, 0 hairpin
no iteration can be shorter than 503 us: the busiest port's payload at link speed, and nothing else
"""
    )


def test_the_report_is_json() -> None:
    report = dataclasses.asdict(report_plan(plan_of(Coll(AR, WORLD, 64), Msg(0, 3, 1000))))
    assert json.loads(json.dumps(report))["schema"] == "etloop-plan-report/1"


@pytest.mark.parametrize(
    ("ranks", "shown"),
    [
        ((), ""),
        ((3,), "3"),
        ((0, 1), "0-1"),
        ((0, 2), "0,2"),
        ((0, 2, 4), "0-4:2"),
        ((0, 1, 2, 8, 9), "0-2,8-9"),
        ((3, 2, 1), "3,2,1"),
        ((0, 8, 16, 24, 1, 9, 17, 25), "0-24:8,1-25:8"),
        ((1, 4, 9, 16, 25, 36, 49, 64), "1,4,9,16,25,36,..."),
    ],
)
def test_ranks_are_shown_as_ranges(ranks: tuple[int, ...], shown: str) -> None:
    assert rank_ranges(ranks) == shown


@pytest.mark.parametrize(
    ("per_host", "seen"),
    [
        # Only the last host may have fewer: that is what schedules can say of hosts.
        (2, 2),
        (3, 3),
        (4, 4),
        (5, 5),
        (1, 1),
    ],
)
def test_a_host_that_has_fewer_ranks_is_still_a_host(per_host: int, seen: int) -> None:
    """An all-gather of 64 KiB would be PAT's, had every host one rank of the group."""
    job = job_of(5, Coll(CollectiveKind.ALL_GATHER, tuple(range(5)), 1 << 16))
    scenario = scenario_of(f"mapping: {{ranks_per_host: {per_host}}}\ncollectives: {{}}")
    plan = make_plan(scenario, rig_of({"a": 5}, addresses=1), job)
    (choice,) = plan.tables.choices
    assert choice.ranks_per_host == seen
    assert (choice.algorithm == "pat") is (seen == 1)


@pytest.mark.parametrize(
    ("rule", "backend", "reported"),
    [
        (
            "{do: corrupt_icrc, which: 3}",
            PortBackend.PACKET,
            "corrupt_icrc among transport.faults: udp ports cannot check ICRCs and accept such packets: a/p0",
        ),
        (
            "{do: drop, which: 3}",
            PortBackend.VERBS,
            "transport.faults: verbs ports use the NIC's transport, which cannot inject faults: b/p0",
        ),
        ("{do: drop, which: 3}", PortBackend.XDP, None),
    ],
)
def test_ports_that_cannot_do_or_see_what_is_wrong_are_named(
    rule: str, backend: PortBackend, reported: str | None
) -> None:
    rig = rig_of({"a": 1, "b": 1})
    other = dataclasses.replace(rig.agents[1].ports[0], backend=backend)
    agents = (rig.agents[0], dataclasses.replace(rig.agents[1], ports=(other,)))
    scenario = scenario_of(f"transport: {{faults: [{rule}]}}")
    plan = make_plan(scenario, dataclasses.replace(rig, agents=agents), job_of(4, Coll(AR, WORLD, MIB)))
    notes = [note for note in plan.tables.notes if "faults" in note]
    assert notes == ([reported] if reported else [])


def test_ports_that_never_see_trimmed_packets_are_named() -> None:
    rig = rig_of({"a": 1, "b": 1, "c": 1})
    card, frames = (
        dataclasses.replace(rig.agents[index].ports[0], backend=backend)
        for index, backend in ((1, PortBackend.VERBS), (2, PortBackend.PACKET))
    )
    agents = (
        rig.agents[0],
        dataclasses.replace(rig.agents[1], ports=(card,)),
        dataclasses.replace(rig.agents[2], ports=(frames,)),
    )
    scenario = scenario_of("transport: {trimming: {dscp: 48}}")
    plan = make_plan(
        scenario, dataclasses.replace(rig, agents=agents), job_of(6, Coll(AR, tuple(range(6)), MIB))
    )
    assert [note for note in plan.tables.notes if "trimming" in note] == [
        (
            "transport.trimming: in a run the kernel drops datagrams that are cut before a udp port sees them; "
            "backend: packet or xdp sees them: a/p0"
        ),
        (
            "transport.trimming: in a run a network card drops packets that are cut before software sees them; "
            "backend: packet or xdp sees them: b/p0"
        ),
    ]
