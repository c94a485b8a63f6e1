"""The twin's outcome as the records of a run, from which the same figures, tables and checks are made. Pure."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from etloop.contract.model.counters import (
    DISCARD_REASONS,
    FOREIGN_REASONS,
    CountedObject,
    CounterBatch,
    CounterObject,
    CounterReading,
)
from etloop.contract.model.device_counts import SamplePhase
from etloop.contract.model.fault_rules import FaultAction
from etloop.contract.model.records import PORT_RECORD, StreamCount
from etloop.contract.model.run import AgentRecords, RunEnd, RunOutcome
from etloop.contract.model.switch_counters import SWITCH_PORT_COUNTERS
from etloop.contract.model.topology import Topology
from etloop.controller.plan.udp_streams import agent_of
from etloop.counters.readers.lab_values import switch_port_readings
from etloop.counters.source_log import SourceLog
from etloop.results.device.tables import SeriesColumns, series_columns, table_since_zero
from etloop.results.schema.summary import VIRTUAL_TIME

if TYPE_CHECKING:
    from etloop.contract.model.topology import Topology
    from etloop.controller.plan.plan import Plan
    from etloop.traffic.twin import TwinOutcome

_TOPOLOGIES_KEPT: Final = 8
_INJECTED: Final = {
    FaultAction.DROP: "injected_losses",
    FaultAction.DUPLICATE: "injected_duplicates",
    FaultAction.REORDER: "injected_reorders",
    FaultAction.DELAY: "injected_delays",
    FaultAction.CORRUPT_ICRC: "injected_bad_icrcs",
    FaultAction.MARK_CE: "injected_marks",
    FaultAction.SEND_NAK: "injected_naks",
    FaultAction.SEND_RNR: "injected_rnr_naks",
    FaultAction.SEND_CNP: "injected_cnps",
    FaultAction.TRIM: "injected_trims",
}


def run_outcome(
    plan: Plan, twin: TwinOutcome, run_id: str, topology: Topology, attachments: list[int]
) -> RunOutcome:
    """Return the records of the twin, divided among the agents of the plan.

    `attachments` has by port of `plan.placement.ports` its index in the topology's attachments. Connections are numbered as
    in the whole plan: `connection_rows` has the table for `results`.
    """
    agents = tuple(dict.fromkeys(place.agent for place in plan.placement.ports))
    rank_agent = np.array([agents.index(name) for name in plan.tables.rank_agent])
    connections = plan.tables.connections
    sender_agent = rank_agent[connections.src_rank[twin.flows["connection"]]]
    receiver_agent = rank_agent[connections.dst_rank[twin.flows["connection"]]]
    flow_agent = np.where(twin.flows["sends_data"] != 0, sender_agent, receiver_agent)
    op_agent = rank_agent[twin.ops["rank"]]
    ports = _port_records(twin, topology, attachments)
    port_agent = np.array([agents.index(place.agent) for place in plan.placement.ports])
    streams: dict[str, tuple[StreamCount, ...]] = {}
    for planned_stream, counts in zip(plan.parts.streams, twin.streams, strict=True):
        for port, count in zip((planned_stream.from_port, planned_stream.to_port), counts, strict=True):
            streams[agent_of(port)] = (*streams.get(agent_of(port), ()), count)
    return RunOutcome(
        run_id=run_id,
        state=RunEnd.ABORTED if twin.failure else RunEnd.DONE,
        reason=twin.failure,
        started_at=VIRTUAL_TIME,
        start_ns=twin.start_ns,
        agents=tuple(
            AgentRecords(
                agent=name,
                host="virtual",
                ops=twin.ops[op_agent == number],
                flows=twin.flows[flow_agent == number],
                ports=ports[port_agent == number],
                clock_offset_ns=0,
                clock_error_ns=0,
                degraded=(),
                versions={},
                complete=not twin.failure,
                rates=twin.rates[_rate_agents(twin, flow_agent) == number],
                streams=streams.get(name, ()),
            )
            for number, name in enumerate(agents)
        ),
    )


def connection_rows(plan: Plan) -> dict[str, NDArray[np.int32]]:
    """Return by agent the identity table of connection rows (int32): the twin numbers connections as the plan does."""
    all_rows = np.arange(len(plan.tables.connections.src_rank), dtype=np.int32)
    return {place.agent: all_rows for place in plan.placement.ports}


def _rate_agents(twin: TwinOutcome, flow_agent: NDArray[np.integer]) -> NDArray[np.integer]:
    """Return the agent of each row of the rates (int64): that of the connection's sending end, as only senders have rates."""
    sends = twin.flows["sends_data"] != 0
    agent_of_connection = dict(
        zip(twin.flows["connection"][sends].tolist(), flow_agent[sends].tolist(), strict=True)
    )
    return np.array([agent_of_connection[row] for row in twin.rates["connection"].tolist()], np.int64)


def _port_records(twin: TwinOutcome, topology: Topology, attachments: list[int]) -> NDArray[np.void]:
    """Return the totals of the ports (PORT_RECORD rows), as counted by their NICs, with the effects of faults.

    Bytes are those of whole frames.
    """
    records = np.zeros(len(attachments), PORT_RECORD)
    cards = twin.cards[attachments]
    records["tx_datagrams"] = cards["frames"]
    records["tx_bytes"] = cards["bytes"]
    records["rx_datagrams"] = cards["delivered_frames"]
    records["rx_bytes"] = cards["delivered_bytes"]
    ends = [topology.attachments[number].end for number in attachments]
    for name, of_switch in (("rx_pause_frames", "pfc_tx"), ("tx_pause_frames", "pfc_rx")):
        records[name] = [int(twin.switch_ports[end.switch][of_switch][end.port].sum()) for end in ends]
    records["paused_ns"] = cards["paused_ns"]
    records["trimmed_datagrams"] = twin.trimmed_packets
    records["rx_icrc_encapsulated"] = twin.damaged_packets
    for number, name in enumerate(DISCARD_REASONS):
        records[name] = twin.discards[:, number]
    records["foreign_datagrams"] = twin.discards[:, : len(FOREIGN_REASONS)].sum(axis=1)
    for action, name in _INJECTED.items():
        records[name] = twin.faults[:, action]
    return records


def twin_counters_table(topology: Topology, outcome: TwinOutcome) -> Any:
    """Return the Arrow table of counters.parquet of a twin. Its switches start with the job, so all their counts belong to
    the run."""
    names = tuple((switch.name, tuple(port.name for port in switch.ports)) for switch in topology.switches)
    rig_peers = tuple(
        (topology.port_name(attachment.end), attachment.rig_port) for attachment in topology.attachments
    )
    counts = [
        np.concatenate([[watermark_bytes], np.ascontiguousarray(rows).view(np.int64).ravel()])
        for rows, watermark_bytes in zip(outcome.switch_ports, outcome.pool_watermark_bytes, strict=True)
    ]
    values = np.concatenate(counts).astype(np.int64, copy=False)
    assert values.min(initial=0) >= 0
    return table_since_zero(_switch_series(names, rig_peers + topology.cables()), values)


# Cached because a sweep makes thousands of runs on the same switches.
@lru_cache(maxsize=_TOPOLOGIES_KEPT)
def _switch_series(
    names: tuple[tuple[str, tuple[str, ...]], ...], peers: tuple[tuple[str, str], ...]
) -> SeriesColumns:
    """Return the series of switches, given with their ports: the pool of each, then port by port as in its counters."""
    log = SourceLog("twin", frozenset(), 0)

    def add(*readings: CounterReading) -> None:
        log.add(CounterBatch(0, 0, readings, ()), SamplePhase.BEFORE)

    # Batches are bounded, so that each port is one: a network may have any number.
    for switch, ports in names:
        add(CounterReading(CountedObject(CounterObject.POOL, switch), "watermark_bytes", 0))
        for port in ports:
            add(*switch_port_readings(f"{switch}/{port}", np.zeros(1, SWITCH_PORT_COUNTERS)[0]))
    return series_columns([log.finish(0, "twin", 0, peers, several=True, host_side=False)])
