"""What each agent has handed over so far, kept bounded by what the plan lets it send, in memory or in a spool.

Turns into `AgentRecords` at the end, whether or not the agent could finish.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np
from etloop.contract.base.errors import EtloopError, ProtocolError
from etloop.contract.model.assignment import Assignment
from etloop.contract.model.records import CC_RECORD, FLOW_RECORD, OP_RECORD, PORT_RECORD, PROBE_RECORD
from etloop.contract.model.run import AgentRecords
from etloop.contract.protocol.machine import RunState
from etloop.contract.protocol.messages import (
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
from numpy.typing import NDArray

MOST_RATE_ROWS: Final = 1 << 19
"""Rows of one port's series; the engine thins out at half of that (traffic/native/cc/rate_series.h), two samples at least."""

OnOps = Callable[[NDArray[np.void]], None]
"""Takes op records of one agent, on that agent's clock."""


class SpoolFailed(EtloopError):
    """What was measured cannot be kept or read again, most often because the disk is full."""


class RecordKeeper(Protocol):
    """Where records go as they come (`spool`). Both raise `SpoolFailed` if that cannot be kept."""

    def keep_ops(self, agent: int, ops: NDArray[np.void]) -> None:
        """Keep op records. Raises `ProtocolError` for more than their iterations have."""

    def keep_message(self, agent: int, message: Flows | Rates | Finished) -> None:
        """Keep what else results are made of."""


def most_ops(assignment: Assignment) -> int:
    """Records that an agent may send: its communication ops, once per iteration."""
    per_program = [int(np.count_nonzero(program.kind != OpKind.DELAY)) for program in assignment.programs]
    return assignment.iterations * sum(per_program[rank.program] for rank in assignment.ranks)


@dataclass(slots=True)
class RecordSink:
    """Records of one agent. The methods raise `ProtocolError` when an agent sends more than its assignment allows."""

    agent: str
    limits: Mapping[str, int]
    """Most records of each sort."""
    degraded: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    ends: tuple[QueuePairEnd, ...] = ()
    """Its queue pair ends on network cards."""
    round_trips: NDArray[np.void] = field(default_factory=lambda: np.empty(0, PROBE_RECORD))
    finished: Finished | None = None
    spool: RecordKeeper | None = None
    """Where records go as they come; None: they stay in memory."""
    number: int = 0
    """Of the agent, in the spool."""
    unkept: str = ""
    """Why the spool took no more, "" if it did."""
    ports: tuple[str, ...] = ()
    """Of each of its engine threads, as "agent/port"."""
    on_ops: OnOps | None = None
    """Gets op records as they come."""
    slip_ns: int = -1
    """99th percentile of the lateness of the ops that came last; -1: none came."""
    _batches: dict[str, list[NDArray[np.void]]] = field(
        default_factory=lambda: {"op": [], "flow": [], "rate": []}
    )
    _received: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(
        cls, agent: str, assignment: Assignment, spool: RecordKeeper | None = None, number: int = 0
    ) -> RecordSink:
        """An empty sink with the limits that follow from the assignment (a queue pair has at most two ends here)."""
        flows = 2 * len(assignment.connections.src_qpn)
        asked = any(transport.congestion.series_interval_ns > 0 for transport in assignment.transports)
        threads = sum(port.engine_threads for port in assignment.ports)
        limits = {
            "op": most_ops(assignment),
            "flow": flows,
            "rate": threads * max(MOST_RATE_ROWS, flows) if asked else 0,
            "port": len(assignment.ports),
            "stream": len(assignment.streams),
            "probe": flows,
        }
        ports = tuple(
            _label(agent, port.name) for port in assignment.ports for _ in range(port.engine_threads)
        )
        return cls(agent, limits, spool=spool, number=number, ports=ports)

    def take_loaded(self, loaded: Loaded) -> None:
        """Keeps what the agent's engine said of itself when it was open."""
        self.degraded, self.capabilities, self.ends = loaded.degraded, loaded.capabilities, loaded.ends

    def take_probed(self, probed: Probed) -> None:
        """Keep the round trips of the agent's connections before the load."""
        self._within("probe", len(probed.round_trips))
        self.round_trips = probed.round_trips

    def take(self, message: Report | Flows | Rates) -> None:
        """Adds completed ops, queue pair counters, or rates over time."""
        match message:
            case Report():
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

    def _add(self, what: str, records: NDArray[np.void]) -> None:
        self._received[what] += len(records)
        self._within(what, self._received[what])
        if not len(records):
            return
        if what != "op" or self.spool is None:
            self._batches[what].append(records)
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
        """Of a sink that is made of a spool: so many op records are there."""
        self._received["op"] = ops

    def take_finished(self, finished: Finished) -> None:
        """Closes the sink."""
        self._within("port", len(finished.ports))
        self._within("stream", len(finished.streams))
        self.finished = finished
        self._keep(finished)

    def _handed_over(self, what: str, layout: np.dtype[np.void]) -> NDArray[np.void]:
        batches = self._batches.pop(what)
        return batches[0] if len(batches) == 1 else np.concatenate([np.empty(0, layout), *batches])

    def _within(self, what: str, received: int) -> None:
        if received > self.limits[what]:
            raise ProtocolError(f"{received} {what} records; its assignment allows {self.limits[what]}")

    def shortfall(self) -> str:
        """What a finished agent claims to have sent and did not arrive; "" if all is here."""
        left = self.finished
        if left is None:
            return "it did not finish handing over"
        if self.unkept:
            return f"not all that it measured could be kept: {self.unkept}"
        for what, sent in {"op": left.ops_sent, "flow": left.flows_sent, "rate": left.rates_sent}.items():
            if sent != self._received[what]:
                return f"{sent} {what} records sent, {self._received[what]} received"
        return ""

    def records(self, hello: Hello, offset: ClockOffset) -> AgentRecords:
        """Everything that arrived from the agent of this `hello`, whose clock stands at `offset`; it is handed over once."""
        left = self.finished
        return AgentRecords(
            agent=self.agent,
            host=hello.host,
            ops=self._handed_over("op", OP_RECORD),
            flows=self._handed_over("flow", FLOW_RECORD),
            rates=self._handed_over("rate", CC_RECORD),
            ports=left.ports if left is not None else np.empty(0, PORT_RECORD),
            clock_offset_ns=offset.offset_ns,
            clock_error_ns=offset.error_ns,
            degraded=self.degraded,
            capabilities=self.capabilities,
            versions=hello.versions,
            complete=not self.shortfall(),
            streams=left.streams if left is not None else (),
            round_trips=self.round_trips,
        )


def sinks_of(
    assignments: Mapping[str, Assignment], spool: RecordKeeper | None, on_ops: OnOps | None = None
) -> dict[str, RecordSink]:
    """Return an empty sink for every agent of a run; `on_ops` gets the op records of all as they come."""
    sinks = {
        name: RecordSink.of(name, each, spool, number)
        for number, (name, each) in enumerate(assignments.items())
    }
    for sink in sinks.values():
        sink.on_ops = on_ops
    return sinks


def run_progress(
    state: RunState, parts: Mapping[str, Progress], sinks: Mapping[str, RecordSink]
) -> RunProgress:
    """How far the whole run is, from what its agents last said."""
    moved: dict[str, PortProgress] = {}
    for agent, part in parts.items():
        for name, thread in zip(sinks[agent].ports, part.threads, strict=False):
            before = moved.get(name, PortProgress(name, 0, 0))
            tx_bytes = before.wire_tx_bytes + thread.wire_tx_bytes
            moved[name] = PortProgress(name, tx_bytes, before.wire_rx_bytes + thread.wire_rx_bytes)
    return RunProgress(
        state,
        sum(part.ops_done for part in parts.values()),
        sum(sink.limits["op"] for sink in sinks.values()),
        sum(part.wire_tx_bytes for part in parts.values()),
        sum(part.wire_rx_bytes for part in parts.values()),
        tuple(moved.values()),
        max((sink.slip_ns for sink in sinks.values()), default=-1),
    )


def _label(agent: str, port: str) -> str:
    return port if "/" in port else f"{agent}/{port}"
