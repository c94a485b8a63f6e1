"""What each agent has handed over so far, kept bounded by what the plan lets it send.

Turns into `AgentRecords` at the end, whether or not the agent could finish.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from etloop.contract.base.errors import ProtocolError
from etloop.contract.model.assignment import Assignment
from etloop.contract.model.records import CC_RECORD, FLOW_RECORD, OP_RECORD, PORT_RECORD
from etloop.contract.model.run import AgentRecords
from etloop.contract.protocol.messages import Finished, Flows, Rates, Report
from etloop.controller.session.clock_map import ClockOffset
from etloop.workload.trace.program import OpKind
from numpy.typing import NDArray

MOST_RATE_ROWS: Final = 1 << 19
"""Rows of one port's series; the engine thins out at half of that (traffic/native/cc/rate_series.h), two samples at least."""


def most_ops(assignment: Assignment) -> int:
    """Records that an agent may send: its communication ops, once per iteration."""
    per_program = [int(np.count_nonzero(program.kind != OpKind.DELAY)) for program in assignment.programs]
    return assignment.iterations * sum(per_program[rank.program] for rank in assignment.ranks)


@dataclass(slots=True)
class RecordSink:
    """Records of one agent. The methods raise `ProtocolError` when an agent sends more than its assignment allows."""

    agent: str
    ops_limit: int
    flows_limit: int
    ports_limit: int
    rates_limit: int
    streams_limit: int = 0
    degraded: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    finished: Finished | None = None
    ops_received: int = 0
    flows_received: int = 0
    rates_received: int = 0
    _ops: list[NDArray[np.void]] = field(default_factory=list)
    _flows: list[NDArray[np.void]] = field(default_factory=list)
    _rates: list[NDArray[np.void]] = field(default_factory=list)

    @classmethod
    def of(cls, agent: str, assignment: Assignment) -> RecordSink:
        """An empty sink with the limits that follow from the assignment (a queue pair has at most two ends here)."""
        flows_limit = 2 * len(assignment.connections.src_qpn)
        ports = len(assignment.ports)
        asked = assignment.transport.congestion.series_interval_ns > 0
        threads = sum(port.engine_threads for port in assignment.ports)
        rates_limit = threads * max(MOST_RATE_ROWS, flows_limit) if asked else 0
        return cls(agent, most_ops(assignment), flows_limit, ports, rates_limit, len(assignment.streams))

    def take_report(self, report: Report) -> None:
        """Adds completed ops."""
        self.ops_received += len(report.ops)
        self._within("op", self.ops_received, self.ops_limit)
        if len(report.ops):
            self._ops.append(report.ops)

    def take_counters(self, counters: Flows | Rates) -> None:
        """Adds queue pair counters, or rates over time."""
        match counters:
            case Flows():
                self._take_flows(counters)
            case Rates():
                self._take_rates(counters)

    def _take_flows(self, flows: Flows) -> None:
        self.flows_received += len(flows.flows)
        self._within("flow", self.flows_received, self.flows_limit)
        self._flows.append(flows.flows)

    def _take_rates(self, rates: Rates) -> None:
        self.rates_received += len(rates.rates)
        self._within("rate", self.rates_received, self.rates_limit)
        self._rates.append(rates.rates)

    def take_finished(self, finished: Finished) -> None:
        """Closes the sink."""
        self._within("port", len(finished.ports), self.ports_limit)
        self._within("stream", len(finished.streams), self.streams_limit)
        self.finished = finished

    def _within(self, what: str, received: int, limit: int) -> None:
        if received > limit:
            raise ProtocolError(f"{received} {what} records; its assignment allows {limit}")

    def shortfall(self) -> str:
        """What a finished agent claims to have sent and did not arrive; "" if all is here."""
        if self.finished is None:
            return "it did not finish handing over"
        if self.finished.ops_sent != self.ops_received:
            return f"{self.finished.ops_sent} op records sent, {self.ops_received} received"
        if self.finished.flows_sent != self.flows_received:
            return f"{self.finished.flows_sent} flow records sent, {self.flows_received} received"
        if self.finished.rates_sent != self.rates_received:
            return f"{self.finished.rates_sent} rate records sent, {self.rates_received} received"
        return ""

    def records(
        self, host: str, versions: dict[str, str], offset: ClockOffset, complete: bool
    ) -> AgentRecords:
        """Everything that arrived."""
        none = np.empty(0, PORT_RECORD)
        return AgentRecords(
            agent=self.agent,
            host=host,
            ops=np.concatenate(self._ops) if self._ops else np.empty(0, OP_RECORD),
            flows=np.concatenate(self._flows) if self._flows else np.empty(0, FLOW_RECORD),
            rates=np.concatenate(self._rates) if self._rates else np.empty(0, CC_RECORD),
            ports=self.finished.ports if self.finished is not None else none,
            clock_offset_ns=offset.offset_ns,
            clock_error_ns=offset.error_ns,
            degraded=self.degraded,
            capabilities=self.capabilities,
            versions=versions,
            complete=complete and not self.shortfall(),
            streams=self.finished.streams if self.finished is not None else (),
        )
