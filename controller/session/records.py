"""The records of each agent so far, bounded by the number that the plan lets it send, in memory or in a spool.

Turned into `AgentRecords` at the end, whether or not the agent could finish.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from etloop.contract.base.errors import EtloopError, ProtocolError
from etloop.contract.model.assignment import Assignment
from etloop.contract.model.frame_streams import MOST_CAPTURED_BYTES
from etloop.contract.model.records import CC_RECORD, FLOW_RECORD, OP_RECORD, PORT_RECORD, PROBE_RECORD
from etloop.contract.model.run import AgentRecords
from etloop.contract.protocol.machine import RunState
from etloop.contract.protocol.messages import (
    Captured,
    Finished,
    Flows,
    Hello,
    Loaded,
    Probed,
    Progress,
    QueuePairEnd,
    Rates,
    Report,
)
from etloop.controller.session.actions import PortProgress, RunProgress
from etloop.controller.session.clock_map import ClockOffset
from etloop.workload.trace.program import OpKind

MOST_RATE_ROWS: Final = 1 << 19
"""Rows of one port's rate series. The engine thins out at half of that (traffic/native/cc/rate_series.h), but keeps at
least two samples of every queue pair."""

OnOps = Callable[[NDArray[np.void]], None]
"""Callback for op records of one agent; times are on that agent's clock."""


class SpoolFailed(EtloopError):
    """Measured records cannot be written or read back, most often because the disk is full."""


class RecordKeeper(Protocol):
    """Destination of records as they arrive (`spool`). Both methods raise `SpoolFailed` if they cannot be written."""

    def keep_ops(self, agent: int, ops: NDArray[np.void]) -> None:
        """Keep op records (`OP_RECORD`). Raises `ProtocolError` if there are more than their iterations have."""

    def keep_message(self, agent: int, message: Flows | Rates | Finished) -> None:
        """Keep a message that results are made of, other than op records."""


def most_ops(assignment: Assignment) -> int:
    """Return how many op records an agent may send: one per communication op and iteration."""
    per_program = [int(np.count_nonzero(program.kind != OpKind.DELAY)) for program in assignment.programs]
    return assignment.iterations * sum(per_program[rank.program] for rank in assignment.ranks)


@dataclass(slots=True)
class RecordSink:
    """Records of one agent. Methods raise `ProtocolError` if an agent sends more than its assignment allows."""

    agent: str
    limits: dict[str, int]
    """Record kind -> highest number of records."""
    degraded: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    ends: tuple[QueuePairEnd, ...] = ()
    """The agent's queue pair ends on NICs."""
    round_trips: NDArray[np.void] = field(default_factory=lambda: np.empty(0, PROBE_RECORD))
    """Round trips of the agent's connections before the load."""
    finished: Finished | None = None
    spool: RecordKeeper | None = None
    """Destination of records as they arrive; None keeps them in memory."""
    number: int = 0
    """Number of the agent in the spool."""
    unkept: str = ""
    """Why the spool failed to keep a record, "" if it did not."""
    ports: tuple[str, ...] = ()
    """Port of each engine thread, as "agent/port"."""
    on_ops: OnOps | None = None
    """Called with op records as they arrive."""
    slip_ns: int = -1
    """99th percentile of the issue delay of the ops reported last; -1 before the first."""
    captured: dict[int, bytes] = field(default_factory=dict)
    """Records of a pcap file by port of the assignment."""
    _batches: dict[str, list[NDArray[np.void]]] = field(
        default_factory=lambda: {"op": [], "flow": [], "rate": []}
    )
    _received: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(
        cls, agent: str, assignment: Assignment, spool: RecordKeeper | None = None, number: int = 0
    ) -> RecordSink:
        """Return an empty sink with the limits that follow from the assignment (at most two ends of a queue pair are here)."""
        flows = 2 * len(assignment.connections.src_qpn)
        has_rate_series = any(
            transport.congestion.series.interval_ns > 0 for transport in assignment.transports
        )
        threads = sum(port.engine_threads for port in assignment.ports)
        limits = {
            "op": most_ops(assignment),
            "flow": flows,
            "rate": threads * max(MOST_RATE_ROWS, flows) if has_rate_series else 0,
            "port": len(assignment.ports),
            "stream": len(assignment.streams),
            # A port that only captures has a count of its own.
            "frame stream": len(assignment.frames.streams) + len(assignment.frames.captures),
            "captured byte": len(assignment.frames.captures) * MOST_CAPTURED_BYTES,
            "probe": flows,
        }
        ports = tuple(
            _label(agent, port.name) for port in assignment.ports for _ in range(port.engine_threads)
        )
        return cls(agent, limits, spool=spool, number=number, ports=ports)

    def allow_ops(self, ops: int) -> None:
        """Allow so many op records more, of ops that were ordered while the run lasts."""
        self.limits["op"] += ops

    def take_loaded(self, loaded: Loaded) -> None:
        """Keep the engine's degradations, capabilities and NIC queue pair ends, as reported after it opened."""
        self.degraded, self.capabilities, self.ends = loaded.degraded, loaded.capabilities, loaded.ends

    def take_probed(self, probed: Probed) -> None:
        """Keep the round trips of the agent's connections before the load."""
        self._within("probe", len(probed.round_trips))
        self.round_trips = probed.round_trips

    def take(self, message: Report | Flows | Rates | Captured) -> None:
        """Add completed ops, queue pair counters, rates over time, or captured frames."""
        match message:
            case Report():
                self._within("frame stream", len(message.progress.frames))
                self._add("op", message.ops)
                if self.on_ops is not None:
                    self.on_ops(message.ops)
                if len(message.ops):
                    late_ns = message.ops["issued_ns"] - message.ops["intended_ns"]
                    self.slip_ns = int(np.percentile(late_ns, 99))
            case Flows():
                self._add("flow", message.flows)
                self._keep(message)
            case Rates():
                self._add("rate", message.rates)
                self._keep(message)
            case Captured():
                self._received["captured byte"] += len(message.records)
                self._within("captured byte", self._received["captured byte"])
                self.captured[message.port] = self.captured.get(message.port, b"") + message.records

    def _add(self, kind: str, records: NDArray[np.void]) -> None:
        self._received[kind] += len(records)
        self._within(kind, self._received[kind])
        if not len(records):
            return
        if kind != "op" or self.spool is None:
            self._batches[kind].append(records)
            return
        try:
            self.spool.keep_ops(self.number, records)
        except SpoolFailed as error:
            self.unkept = self.unkept or str(error)

    def _keep(self, message: Flows | Rates | Finished) -> None:
        if self.spool is None:
            return
        try:
            self.spool.keep_message(self.number, message)
        except SpoolFailed as error:
            self.unkept = self.unkept or str(error)

    def count_kept(self, ops: int) -> None:
        """Set the number of op records that are already in the spool, for a sink rebuilt from it."""
        self._received["op"] = ops

    def take_finished(self, finished: Finished) -> None:
        """Keep the agent's last message: port and stream counters, and how many records it sent."""
        self._within("port", len(finished.ports))
        self._within("stream", len(finished.streams))
        self._within("frame stream", len(finished.frames))
        self.finished = finished
        self._keep(finished)

    def _handed_over(self, kind: str, layout: np.dtype[np.void]) -> NDArray[np.void]:
        batches = self._batches.pop(kind)
        return batches[0] if len(batches) == 1 else np.concatenate([np.empty(0, layout), *batches])

    def _within(self, kind: str, received: int) -> None:
        if received > self.limits[kind]:
            raise ProtocolError(f"{received} {kind} records; its assignment allows {self.limits[kind]}")

    def shortfall(self) -> str:
        """Return which records are missing according to the agent's own totals; "" if all arrived."""
        finished = self.finished
        if finished is None:
            return "it did not finish transferring its records"
        if self.unkept:
            return f"not all of its records could be stored: {self.unkept}"
        for record_kind, sent_records in {
            "op": finished.ops_sent,
            "flow": finished.flows_sent,
            "rate": finished.rates_sent,
        }.items():
            if sent_records != self._received[record_kind]:
                return f"{sent_records} {record_kind} records sent, {self._received[record_kind]} received"
        return ""

    def records(self, hello: Hello, offset: ClockOffset) -> AgentRecords:
        """Return everything that the agent of `hello` sent, with its clock offset. Call once: batches are handed over."""
        finished = self.finished
        return AgentRecords(
            agent=self.agent,
            host=hello.host,
            ops=self._handed_over("op", OP_RECORD),
            flows=self._handed_over("flow", FLOW_RECORD),
            rates=self._handed_over("rate", CC_RECORD),
            ports=finished.ports if finished is not None else np.empty(0, PORT_RECORD),
            clock_offset_ns=offset.offset_ns,
            clock_error_ns=offset.error_ns,
            degraded=self.degraded,
            capabilities=self.capabilities,
            versions=hello.versions,
            complete=not self.shortfall(),
            streams=finished.streams if finished is not None else (),
            frames=finished.frames if finished is not None else (),
            captured=self.captured,
            round_trips=self.round_trips,
        )


def sinks_of(
    assignments: Mapping[str, Assignment], spool: RecordKeeper | None, on_ops: OnOps | None = None
) -> dict[str, RecordSink]:
    """Return an empty sink for every agent of a run; `on_ops` is called with the op records of all agents as they arrive."""
    sinks = {
        name: RecordSink.of(name, assignment, spool, number)
        for number, (name, assignment) in enumerate(assignments.items())
    }
    for sink in sinks.values():
        sink.on_ops = on_ops
    return sinks


def run_progress(
    state: RunState, parts: Mapping[str, Progress], sinks: Mapping[str, RecordSink]
) -> RunProgress:
    """Return the progress of the whole run, from each agent's last report."""
    progress_of_port: dict[str, PortProgress] = {}
    for agent, part in parts.items():
        for name, thread in zip(sinks[agent].ports, part.threads, strict=False):
            earlier = progress_of_port.get(name, PortProgress(name, 0, 0))
            tx_bytes = earlier.wire_tx_bytes + thread.wire_tx_bytes
            progress_of_port[name] = PortProgress(
                name, tx_bytes, earlier.wire_rx_bytes + thread.wire_rx_bytes
            )
    return RunProgress(
        state,
        sum(part.ops_done for part in parts.values()),
        sum(sink.limits["op"] for sink in sinks.values()),
        sum(part.wire_tx_bytes for part in parts.values()),
        sum(part.wire_rx_bytes for part in parts.values()),
        tuple(progress_of_port.values()),
        max((sink.slip_ns for sink in sinks.values()), default=-1),
    )


def _label(agent: str, port: str) -> str:
    return port if "/" in port else f"{agent}/{port}"
