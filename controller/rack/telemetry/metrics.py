"""Prometheus metrics of a rack, computed from its state at the time of reading. Otherwise pure.

Names follow Prometheus's conventions: base units, `_total` for counters. Labels have few values: states, agents and
ports of the rig, never job ids.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry, Info, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from etloop.contract.base.clock import NS_PER_S
from etloop.contract.protocol.messages import RefusalCause
from etloop.controller.rack.events import RackState
from etloop.controller.rack.job import ENDED, Job, JobState
from etloop.controller.rack.maintenance import OrderKind
from etloop.controller.rack.transfers.admission import REQUEST_REFUSALS
from etloop.controller.session.admission import ADMISSION_REFUSALS
from etloop.results.schema.findings import ROLES, FindingKind, Role
from etloop.runtime.clock import monotonic_ns
from etloop.runtime.version import installed_version

if TYPE_CHECKING:
    from etloop.controller.rack.agent_pool import AgentPresence
    from etloop.controller.rack.api import Rack

CONNECTION_REFUSALS = (*(cause.value for cause in RefusalCause), *ADMISSION_REFUSALS)
"""Values of the label `reason` of refused connections."""
_DURATION_BOUNDS_S = (1, 5, 15, 60, 300, 900, 3600, 14400, 86400)


_LAG_SHOWN_NS: Final = 60 * NS_PER_S


@dataclass(slots=True)
class Lag:
    """Longest delay of a turn of the daemon's loop in the last one to two minutes. Reading it does not reset it."""

    _began_ns: int = 0
    _now_s: float = 0.0
    _before_s: float = 0.0

    def saw(self, lag_s: float, now_ns: int) -> None:
        """Record by how much a turn exceeded its planned duration, in seconds."""
        self._pass(now_ns)
        self._now_s = max(self._now_s, lag_s)

    def longest_s(self, now_ns: int) -> float:
        """Return the longest recorded delay, in seconds."""
        self._pass(now_ns)
        return max(self._now_s, self._before_s)

    def _pass(self, now_ns: int) -> None:
        windows = (now_ns - self._began_ns) // _LAG_SHOWN_NS
        if windows > 0:
            self._before_s, self._now_s = (self._now_s if windows == 1 else 0.0), 0.0
            self._began_ns += windows * _LAG_SHOWN_NS


@dataclass(slots=True)
class Tallies:
    """Counts since the start of the daemon; each is updated where its event happens."""

    ended: dict[tuple[str, int], int] = field(default_factory=dict)
    """(state, exit code) -> jobs."""
    durations: list[int] = field(default_factory=lambda: [0] * (len(_DURATION_BOUNDS_S) + 1))
    duration_sum_s: float = 0.0
    wire_tx_bytes: int = 0
    """Payload bytes of finished runs, through the device under test."""
    retransmitted_packets: int = 0
    slip_max_s: float = 0.0
    """Largest slip of the last finished run."""
    lag: Lag = field(default_factory=Lag)
    dropped_requests: int = 0
    refused_connections: Counter[str] = field(
        default_factory=lambda: Counter(dict.fromkeys(CONNECTION_REFUSALS, 0))
    )
    """Reason -> connections."""
    refused_requests: Counter[str] = field(
        default_factory=lambda: Counter(dict.fromkeys(REQUEST_REFUSALS, 0))
    )
    """Reason -> HTTP requests."""
    findings: Counter[tuple[str, str]] = field(
        default_factory=lambda: Counter(
            dict.fromkeys(((kind.value, ROLES.get(kind, Role.FAULT).value) for kind in FindingKind), 0)
        )
    )
    """(kind, role) -> causes that finished runs found."""

    def ended_job(self, job: Job, seconds: float, summary: dict[str, Any] | None) -> None:
        """Count a job that ended after `seconds` on its ports; `summary` is its summary.json."""
        assert job.state in ENDED
        key = (str(job.state), int(job.exit_code) if job.exit_code is not None else -1)
        self.ended[key] = self.ended.get(key, 0) + 1
        self.duration_sum_s += seconds
        bucket = next((i for i, bound in enumerate(_DURATION_BOUNDS_S) if seconds <= bound), -1)
        self.durations[bucket] += 1
        if summary is None:
            return
        self.wire_tx_bytes += int(summary["bytes"]["wire_tx_bytes"])
        self.retransmitted_packets += int(summary["transport"]["retransmitted_packets"])
        slip = summary.get("slip")
        self.slip_max_s = int(slip["max_ns"]) / NS_PER_S if slip else 0.0
        self.findings.update(
            (finding["kind"], finding["role"])
            for finding in summary.get("diagnosis", {}).get("findings", ())
            if finding["effect_of"] is None
        )


class RackCollector:
    """Computes the metric families at every reading."""

    def __init__(
        self,
        rack: Rack,
        presence: Callable[[], tuple[AgentPresence, ...]],
        tallies: Tallies,
        free_disk_bytes: Callable[[], int],
        broker_connected: Callable[[], bool],
    ) -> None:
        self._rack = rack
        self._presence = presence
        self._tallies = tallies
        self._free_disk_bytes = free_disk_bytes
        self._broker_connected = broker_connected

    def collect(self) -> Iterator[Any]:
        """Yield all metric families. Called by the registry."""
        rack, tallies, agents, leases = self._rack, self._tallies, self._presence(), self._rack.leases()
        gauge, counter = partial(_family, GaugeMetricFamily), partial(_family, CounterMetricFamily)
        waiting = {(str(state),): rack.store.count(state) for state in JobState if state not in ENDED}
        yield gauge("etloop_rack_jobs", "Jobs that have not ended, by state.", waiting, "state")
        meaning = "How long the job that was queued first has waited; 0 without one."
        yield gauge("etloop_rack_oldest_queued_seconds", meaning, self._oldest_queued_s())
        ended = {(state, str(code)): count for (state, code), count in sorted(tallies.ended.items())}
        meaning = "Jobs that ended since the controller started."
        yield counter("etloop_rack_jobs_ended", meaning, ended, "state", "exit_code")
        yield self._durations()
        present = {(agent.name,): int(agent.idle_slots + agent.leased_slots > 0) for agent in agents}
        yield gauge("etloop_rack_agent_present", "1 while an agent is connected.", present, "agent")
        runs = {(agent.name,): agent.leased_slots for agent in agents}
        yield gauge("etloop_rack_agent_runs", "Runs that an agent takes part in.", runs, "agent")
        errors = {
            (agent.name,): agent.clock.error_ns / NS_PER_S for agent in agents if agent.clock is not None
        }
        meaning = "Error bound of an agent's clock."
        yield gauge("etloop_rack_agent_clock_error_seconds", meaning, errors, "agent")
        leased = {(port.label,): int(port.label in leases) for port in rack.ports}
        yield gauge("etloop_rack_port_leased", "1 while a job holds the port.", leased, "port")
        out_of_service = rack.health.out_of_service()
        in_service = {(port.label,): int(port.label not in out_of_service) for port in rack.ports}
        meaning = "0 while the port is out of service because it could not be prepared."
        yield gauge("etloop_rack_port_in_service", meaning, in_service, "port")
        drained = rack.orders.texts(OrderKind.DRAINED)
        drained_ports = {(port.label,): int(port.label in drained) for port in rack.ports}
        meaning = "1 while the port is drained by an operator."
        yield gauge("etloop_rack_port_drained", meaning, drained_ports, "port")
        meaning = "Payload bytes that finished runs sent through the device under test."
        yield counter("etloop_rack_wire_sent_bytes", meaning, tallies.wire_tx_bytes)
        meaning = "Packets retransmitted by finished runs."
        yield counter("etloop_rack_retransmitted_packets", meaning, tallies.retransmitted_packets)
        meaning = "Greatest slip of the emulator in the last finished run."
        yield gauge("etloop_rack_slip_max_seconds", meaning, tallies.slip_max_s)
        meaning = "Causes that finished runs found, by kind and role; without effects of other findings."
        yield counter("etloop_rack_findings", meaning, tallies.findings, "kind", "role")
        is_ready = int(rack.state is RackState.READY)
        yield gauge("etloop_rack_ready", "1 if the controller takes jobs, 0 while it drains.", is_ready)
        is_paused = int(bool(rack.pause_text()))
        yield gauge("etloop_rack_queue_paused", "1 while the queue is paused by an operator.", is_paused)
        held_count = len(rack.orders.texts(OrderKind.HELD))
        yield gauge("etloop_rack_jobs_held", "Queued jobs that an operator holds.", held_count)
        meaning = "Free bytes where jobs and results are kept."
        yield gauge("etloop_rack_disk_free_bytes", meaning, self._free_disk_bytes())
        is_connected = int(self._broker_connected())
        yield gauge("etloop_rack_broker_connected", "1 while the MQTT broker is connected.", is_connected)
        meaning = "Longest turn of the controller's loop in the last one to two minutes."
        yield gauge("etloop_rack_loop_lag_seconds", meaning, tallies.lag.longest_s(monotonic_ns()))
        meaning = "Requests dropped for their size or rate."
        yield counter("etloop_rack_requests_dropped", meaning, tallies.dropped_requests)
        meaning = "Connections of agents refused, by reason."
        refused = {(why,): count for why, count in sorted(tallies.refused_connections.items())}
        yield counter("etloop_rack_connections_refused", meaning, refused, "reason")
        meaning = "Requests over HTTP refused, by reason."
        refused = {(why,): count for why, count in sorted(tallies.refused_requests.items())}
        yield counter("etloop_rack_http_requests_refused", meaning, refused, "reason")

    def _oldest_queued_s(self) -> float:
        submitted_at = self._rack.store.oldest_submitted_at(JobState.QUEUED)
        if not submitted_at:
            return 0.0
        return max(0.0, (datetime.now(UTC) - datetime.fromisoformat(submitted_at)).total_seconds())

    def _durations(self) -> HistogramMetricFamily:
        meaning = "From a job's start until its results are stored."
        durations = HistogramMetricFamily("etloop_rack_job_duration_seconds", meaning)
        bounds = (*map(str, _DURATION_BOUNDS_S), "+Inf")
        buckets = list(zip(bounds, accumulate(self._tallies.durations), strict=True))
        durations.add_metric([], buckets, self._tallies.duration_sum_s)
        return durations


def _family(
    kind: type[Any], name: str, meaning: str, figures: float | Mapping[Any, float], *labels: str
) -> Any:
    """Return a family of one value, or of one value for each tuple of its `labels`' values."""
    family = kind(name, meaning, labels=labels)
    for label_values, figure in (figures if isinstance(figures, Mapping) else {(): figures}).items():
        family.add_metric(label_values, figure)
    return family


def exposition(collector: RackCollector) -> bytes:
    """Return the text of /metrics."""
    registry = CollectorRegistry()
    registry.register(collector)
    ProcessCollector(registry=registry)
    build = Info("etloop_rack_build", "Version of the controller.", registry=registry)
    build.info({"version": installed_version()})
    return generate_latest(registry)
