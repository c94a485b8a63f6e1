"""A small run whose every figure can be worked out on paper: what the tests of `results` start from.

Four ranks on two agents (a: ranks 0, 1; b: ranks 2, 3), two iterations, times in round numbers. One iteration is
* an all-reduce of 4000 bytes over all four ranks (ring: each rank sends and receives 6000 bytes; 0 -> 1 and 2 -> 3 are
  inside a host, 1 -> 2 and 3 -> 0 cross the device under test);
* an all-gather of 1000-byte shards over ranks 1 and 2 (1000 bytes each way, all through the device under test);
* a send of 500 bytes from rank 0 to rank 3.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.ip_address import NO_ADDRESS, ip_bytes, ip_column
from etloop.contract.model.assignment import Path
from etloop.contract.model.records import FLOW_RECORD, OP_RECORD, PORT_RECORD
from etloop.contract.model.run import (
    AgentRecords,
    PlannedConnections,
    PlannedOps,
    PlanTables,
    RunEnd,
    RunOutcome,
)
from etloop.results.artifacts import RunRecords, measure_run_records
from etloop.results.measure.summary import measure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from etloop.results.store.run_dir import RunArtifacts

START_NS: Final = 5_000_000_000
"""Controller's clock at the start of the run."""
OFFSET_NS: Final = {"a": 1_000_000, "b": -70_000_000}
ITERATION_NS: Final = 100_000

ALL_REDUCE, ALL_GATHER = 0, 2
COLLECTIVE, SEND, RECEIVE = 1, 2, 3

# rank, op, node, kind, collective, communicator, peer, message, wire tx, wire rx, local tx, local rx, algorithm
PLANNED: Final = (
    (0, 0, 10, COLLECTIVE, ALL_REDUCE, 0, -1, 4000, 0, 6000, 6000, 0, 0),
    (0, 2, 12, SEND, -1, -1, 3, 500, 500, 0, 0, 0, 1),
    (1, 0, 20, COLLECTIVE, ALL_REDUCE, 0, -1, 4000, 6000, 0, 0, 6000, 0),
    (1, 1, 21, COLLECTIVE, ALL_GATHER, 1, -1, 1000, 1000, 1000, 0, 0, 0),
    (2, 0, 30, COLLECTIVE, ALL_REDUCE, 0, -1, 4000, 0, 6000, 6000, 0, 0),
    (2, 1, 31, COLLECTIVE, ALL_GATHER, 1, -1, 1000, 1000, 1000, 0, 0, 0),
    (3, 0, 40, COLLECTIVE, ALL_REDUCE, 0, -1, 4000, 6000, 0, 0, 6000, 0),
    (3, 1, 41, RECEIVE, -1, -1, 0, 500, 0, 500, 0, 0, 1),
)

# communicator, source, destination, path, queue pairs as (source number, destination number, ports), payload
CONNECTIONS: Final = (
    (0, 0, 1, Path.SCALE_UP, (), 6000),
    (0, 1, 2, Path.WIRE, ((0x101, 0x201, 50001, 50101), (0x102, 0x202, 50002, 50102)), 6000),
    (0, 2, 3, Path.SCALE_UP, (), 6000),
    (0, 3, 0, Path.WIRE, ((0x203, 0x103, 50003, 50103),), 6000),
    (1, 1, 2, Path.WIRE, ((0x104, 0x204, 50004, 50104),), 1000),
    (1, 2, 1, Path.WIRE, ((0x205, 0x105, 50005, 50105),), 1000),
    (-1, 0, 3, Path.WIRE, ((0x106, 0x206, 50006, 50106),), 500),
)

# Within an iteration, on the run's clock: (rank, op) -> intended, issued, first tx (0: none), completed
TIMES_NS: Final = {
    (0, 0): (0, 100, 200, 20_000),
    (1, 0): (0, 0, 100, 20_100),
    (2, 0): (2_000, 2_100, 2_200, 20_000),
    (3, 0): (0, 50, 150, 19_000),
    (1, 1): (20_100, 20_200, 20_300, 30_200),
    (2, 1): (20_000, 20_200, 20_300, 30_000),
    (0, 2): (20_000, 20_000, 20_500, 40_000),
    (3, 1): (19_000, 19_000, 0, 39_000),
}


def tables_by_hand() -> PlanTables:
    """The plan of the run above."""
    column = [np.array(values) for values in zip(*PLANNED, strict=True)]
    ops = PlannedOps(
        rank=column[0].astype(np.int32),
        op=column[1].astype(np.int32),
        node_id=column[2].astype(np.uint64),
        name=column[4].astype(np.int32) // 2,
        kind=column[3].astype(np.uint8),
        collective=column[4].astype(np.int8),
        communicator=column[5].astype(np.int32),
        peer=column[6].astype(np.int32),
        sequence=np.zeros(len(PLANNED), np.int32),
        message_bytes=column[7].astype(np.int64),
        trace_bytes=column[7].astype(np.int64) * 1000,
        wire_tx_bytes=column[8].astype(np.int64),
        wire_rx_bytes=column[9].astype(np.int64),
        local_tx_bytes=column[10].astype(np.int64),
        local_rx_bytes=column[11].astype(np.int64),
        algorithm=column[12].astype(np.int16),
    )
    return PlanTables(
        source="by hand",
        iterations=2,
        rank_agent=("a", "a", "b", "b"),
        rank_host=(0, 0, 1, 1),
        rank_port=("a/p0", "a/p0", "b/p0", "b/p0"),
        communicators=(("world", (0, 1, 2, 3)), ("tp1", (1, 2))),
        algorithms=("ring", "p2p"),
        op_names=("mb0.layer0.gradients", "mb0.layer0.weights"),
        ops=ops,
        connections=_connections(),
        bytes_scale="1/1000",
        time_scale="1",
        policy="data+communicator",
        edges={"data": 4, "communicator": 2},
        notes=("2 compute nodes have no duration",),
    )


def _connections() -> PlannedConnections:
    queue_pairs = [pair for row in CONNECTIONS for pair in row[4]]
    source_qpn, destination_qpn, source_port, destination_port = zip(*queue_pairs, strict=True)
    wire = np.array([row[3] == Path.WIRE for row in CONNECTIONS])
    source, destination = (np.array([row[index] for row in CONNECTIONS], np.int32) for index in (1, 2))
    return PlannedConnections(
        communicator=np.array([row[0] for row in CONNECTIONS], np.int32),
        channel=np.zeros(len(CONNECTIONS), np.int32),
        src_rank=source,
        dst_rank=destination,
        path=np.array([row[3] for row in CONNECTIONS], np.uint8),
        src_ip=_addresses(wire, source),
        dst_ip=_addresses(wire, destination),
        qp_offsets=np.cumsum([0] + [len(row[4]) for row in CONNECTIONS]).astype(np.int32),
        src_qpn=np.array(source_qpn, np.uint32),
        dst_qpn=np.array(destination_qpn, np.uint32),
        src_udp_port=np.array(source_port, np.uint16),
        dst_udp_port=np.array(destination_port, np.uint16),
        payload_bytes=np.array([row[5] for row in CONNECTIONS], np.int64),
    )


def _addresses(wire: NDArray[np.bool_], rank: NDArray[np.int32]) -> NDArray[np.void]:
    pairs = zip(wire.tolist(), rank.tolist(), strict=True)
    return ip_column(ip_bytes(f"10.0.0.{number + 1}") if crosses else NO_ADDRESS for crosses, number in pairs)


def connection_rows_by_hand() -> dict[str, NDArray[np.int32]]:
    """Row of each agent's own connections in the plan: those with an end on the agent, in the plan's order."""
    agent_of = ("a", "a", "b", "b")
    return {
        agent: np.array(
            [
                row
                for row, (_, src, dst, *_) in enumerate(CONNECTIONS)
                if agent in (agent_of[src], agent_of[dst])
            ],
            np.int32,
        )
        for agent in ("a", "b")
    }


def _op_records(agent: str, ranks: tuple[int, ...]) -> NDArray[np.void]:
    rows = [row for row in PLANNED if row[0] in ranks]
    records = np.zeros(2 * len(rows), OP_RECORD)
    shift_ns = START_NS + OFFSET_NS[agent]
    for iteration in range(2):
        for index, row in enumerate(rows):
            record = records[iteration * len(rows) + index]
            times_ns = TIMES_NS[row[0], row[1]]
            base_ns = shift_ns + iteration * ITERATION_NS
            record["rank"], record["op"], record["iteration"] = row[0], row[1], iteration
            record["intended_ns"], record["issued_ns"] = base_ns + times_ns[0], base_ns + times_ns[1]
            record["first_tx_ns"] = base_ns + times_ns[2] if times_ns[2] else 0
            record["completed_ns"] = base_ns + times_ns[3]
            record["acknowledged_ns"] = record["completed_ns"] if times_ns[2] else 0
            record["wire_tx_bytes"], record["wire_rx_bytes"] = row[8], row[9]
            record["local_tx_bytes"], record["local_rx_bytes"] = row[10], row[11]
            record["tx_messages"], record["rx_messages"] = 3, 3
    return records


def _flow_records(agent: str, ranks: tuple[int, ...]) -> NDArray[np.void]:
    """Both ends of every queue pair; two carry halves of their connection, one has lost a packet."""
    own_row = {int(row): index for index, row in enumerate(connection_rows_by_hand()[agent])}
    found = []
    for row, (_, source, destination, _, queue_pairs, payload_bytes) in enumerate(CONNECTIONS):
        for source_qpn, destination_qpn, _, _ in queue_pairs:
            carried_bytes = 2 * payload_bytes // len(queue_pairs)
            for rank, local, remote, sends in (
                (source, source_qpn, destination_qpn, True),
                (destination, destination_qpn, source_qpn, False),
            ):
                if rank not in ranks:
                    continue
                record = np.zeros((), FLOW_RECORD)
                record["local_qpn"], record["remote_qpn"] = local, remote
                record["connection"], record["sends_data"] = own_row[row], sends
                record["tx_payload_bytes"] = carried_bytes if sends else 64
                record["rx_payload_bytes"] = 64 if sends else carried_bytes
                record["tx_packets"], record["rx_packets"] = 10, 10
                if source_qpn == 0x101:
                    record["retransmitted_packets"] = 1 if sends else 0
                    record["naks_rx"], record["naks_tx"] = (1, 0) if sends else (0, 1)
                    record["out_of_sequence"] = 0 if sends else 2
                found.append(record)
    return np.array(found, FLOW_RECORD)


def outcome_by_hand() -> RunOutcome:
    """The run above, done."""
    ranks_of = {"a": (0, 1), "b": (2, 3)}
    agents = []
    for agent, ranks in ranks_of.items():
        ports = np.zeros(1, PORT_RECORD)
        ports["tx_datagrams"], ports["rx_datagrams"], ports["injected_drops"] = 60, 59, 1
        agents.append(
            AgentRecords(
                agent=agent,
                host=f"host-{agent}",
                ops=_op_records(agent, ranks),
                flows=_flow_records(agent, ranks),
                ports=ports,
                clock_offset_ns=OFFSET_NS[agent],
                clock_error_ns={"a": 1_500, "b": 20_000}[agent],
                degraded=("receive buffer is 212992 bytes, 4194304 asked",) if agent == "b" else (),
                versions={"etloop": "0.1.0"},
                complete=True,
            )
        )
    return RunOutcome(
        run_id="r1",
        state=RunEnd.DONE,
        reason="",
        started_at="2026-01-02T03:04:05+00:00",
        start_ns=START_NS,
        agents=tuple(agents),
    )


def with_agent(outcome: RunOutcome, name: str, change: Callable[[AgentRecords], AgentRecords]) -> RunOutcome:
    """`outcome` with one agent's records changed."""
    agents = tuple(change(agent) if agent.agent == name else agent for agent in outcome.agents)
    return replace(outcome, agents=agents)


def aborted_by_hand() -> RunOutcome:
    """The run above, where agent b was lost after its first iteration and never sent its counters."""

    def lose(agent: AgentRecords) -> AgentRecords:
        return replace(
            agent,
            ops=agent.ops[agent.ops["iteration"] == 0],
            flows=agent.flows[:0],
            ports=agent.ports[:0],
            complete=False,
        )

    outcome = with_agent(outcome_by_hand(), "b", lose)
    return replace(outcome, state=RunEnd.ABORTED, reason="agent b: no heartbeat for 3 s")


def run_by_hand(
    outcome: RunOutcome | None = None,
    tables: PlanTables | None = None,
    texts: tuple[str, str] = ("", ""),
    port_names: Mapping[str, tuple[str, ...]] | None = None,
    rows: Mapping[str, NDArray[np.int32]] | None = None,
) -> RunArtifacts:
    """The results of the run above, or of other records; `texts` are its scenario and its rig."""
    outcome, tables = outcome or outcome_by_hand(), tables or tables_by_hand()
    rows = connection_rows_by_hand() if rows is None else rows
    inputs = dict(zip(("scenario.yaml", "rig.yaml"), texts, strict=True))
    records = RunRecords(outcome, tables, rows, port_names or {}, inputs)
    return measure_run_records(records, measure(outcome, tables, rows))
