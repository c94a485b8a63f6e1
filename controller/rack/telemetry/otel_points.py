"""The rack's metrics in OpenTelemetry's form: those of /metrics, and values of every job that ended. Pure.

Names are lower case, words of a name joined by `_`, its parts by dots, as in OpenTelemetry's conventions and SONiC's
test telemetry; the unit is separate. Of SONiC's labels (sonic-net/sonic-mgmt, docs/tests/telemetry.md) those are used
that a rack knows: `test.testbed`, `test.job.id`, `device.port.id`. Job ids appear only with the values of one job,
which are sent once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.late_dataclass import dataclass
from etloop.controller.rack.job import Job

NAMES: Final[Mapping[str, tuple[str, str]]] = {
    "etloop_rack_jobs": ("etloop.rack.jobs", "{job}"),
    "etloop_rack_jobs_ended": ("etloop.rack.jobs.ended", "{job}"),
    "etloop_rack_job_duration_seconds": ("etloop.rack.job.duration", "s"),
    "etloop_rack_agent_present": ("etloop.rack.agent.present", "1"),
    "etloop_rack_agent_runs": ("etloop.rack.agent.runs", "{run}"),
    "etloop_rack_agent_clock_error_seconds": ("etloop.rack.agent.clock_error", "s"),
    "etloop_rack_port_leased": ("etloop.rack.port.leased", "1"),
    "etloop_rack_port_in_service": ("etloop.rack.port.in_service", "1"),
    "etloop_rack_port_drained": ("etloop.rack.port.drained", "1"),
    "etloop_rack_wire_sent_bytes": ("etloop.rack.wire.sent", "By"),
    "etloop_rack_retransmitted_packets": ("etloop.rack.packets.retransmitted", "{packet}"),
    "etloop_rack_slip_max_seconds": ("etloop.rack.slip.max", "s"),
    "etloop_rack_findings": ("etloop.rack.findings", "{finding}"),
    "etloop_rack_oldest_queued_seconds": ("etloop.rack.job.oldest_queued", "s"),
    "etloop_rack_queue_paused": ("etloop.rack.queue.paused", "1"),
    "etloop_rack_jobs_held": ("etloop.rack.jobs.held", "{job}"),
    "etloop_rack_ready": ("etloop.rack.ready", "1"),
    "etloop_rack_disk_free_bytes": ("etloop.rack.disk.free", "By"),
    "etloop_rack_broker_connected": ("etloop.rack.broker.connected", "1"),
    "etloop_rack_loop_lag_seconds": ("etloop.rack.loop.lag", "s"),
    "etloop_rack_requests_dropped": ("etloop.rack.requests.dropped", "{request}"),
    "etloop_rack_connections_refused": ("etloop.rack.connections.refused", "{connection}"),
    "etloop_rack_http_requests_refused": ("etloop.rack.http.requests.refused", "{request}"),
}
"""Family of /metrics -> name and unit (UCUM) here. A test checks that every family has a row."""
LABELS: Final = {
    "agent": "device.id",
    "port": "device.port.id",
    "state": "etloop.job.state",
    "exit_code": "etloop.job.exit_code",
    "reason": "etloop.reason",
    "kind": "etloop.finding.kind",
    "role": "etloop.finding.role",
}
"""Label of /metrics -> attribute here."""


@dataclass(frozen=True, slots=True, eq=False)
class EndedJob:
    """An ended job and its summary."""

    job: Job
    ended_ns: int
    """Wall time in ns since 1970 at which the controller saw it end."""
    summary: Mapping[str, Any] | None
    """summary.json; None if no results were stored."""


def metrics_data(
    families: Iterable[Any], ended: Iterable[EndedJob], rack: str, version: str, began_ns: int, now_ns: int
) -> MetricsData:
    """Return one export: the rack's metrics at `now_ns`, counted since `began_ns`, and those of `ended`.

    Both times are wall time in ns since 1970.
    """
    resource = Resource(
        {
            "service.name": "etloop-controller",
            "service.version": version,
            "service.instance.id": rack,
            "test.testbed": rack,
        }
    )
    metrics = [_of_family(family, began_ns, now_ns) for family in families]
    scope = ScopeMetrics(InstrumentationScope("etloop", version), [*metrics, *_of_jobs(tuple(ended))], "")
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def _of_family(family: Any, began_ns: int, now_ns: int) -> Metric:
    name, unit = NAMES[family.name]
    return Metric(name, family.documentation, unit, _data(family, began_ns, now_ns))


def _data(family: Any, began_ns: int, now_ns: int) -> Gauge | Sum | Histogram:
    if family.type == "histogram":
        return _histogram(family, began_ns, now_ns)
    is_counter = family.type == "counter"
    points = [
        NumberDataPoint(_attributes(sample.labels), began_ns if is_counter else 0, now_ns, sample.value)
        for sample in family.samples
        if not sample.name.endswith("_created")
    ]
    return Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic=True) if is_counter else Gauge(points)


def _histogram(family: Any, began_ns: int, now_ns: int) -> Histogram:
    """Convert cumulative bucket counts to counts per bucket. Minimum and maximum are unknown."""
    buckets = [sample for sample in family.samples if sample.name.endswith("_bucket")]
    (total,) = (sample.value for sample in family.samples if sample.name.endswith("_sum"))
    cumulative = [int(sample.value) for sample in buckets]
    counts = [count - lower_count for lower_count, count in zip([0, *cumulative], cumulative, strict=False)]
    bounds = [float(sample.labels["le"]) for sample in buckets if sample.labels["le"] != "+Inf"]
    point = HistogramDataPoint(
        attributes={},
        start_time_unix_nano=began_ns,
        time_unix_nano=now_ns,
        count=cumulative[-1],
        sum=total,
        bucket_counts=counts,
        explicit_bounds=bounds,
        # Optional on the wire, and left out there; the model's types do not allow None.
        min=None,  # type: ignore[arg-type]
        max=None,  # type: ignore[arg-type]
    )
    return Histogram([point], AggregationTemporality.CUMULATIVE)


def _attributes(labels: Mapping[str, str]) -> dict[str, str]:
    return {LABELS[label]: value for label, value in labels.items()}


# ---- ended jobs


def _of_jobs(ended: tuple[EndedJob, ...]) -> Iterator[Metric]:
    """Yield one metric per figure, with one point for each job that has it."""
    for name, unit, place, meaning in _JOB_FIGURES:
        points = [
            NumberDataPoint(_job_attributes(entry.job), 0, entry.ended_ns, value)
            for entry in ended
            if (value := _figure(place, entry)) is not None
        ]
        if points:
            yield Metric(name, meaning, unit, Gauge(points))


_EXIT_CODES: Final = "Exit code of a job: 0 pass, 20 inconclusive, 30 failed, 50 broke, 65 not prepared."
_JCT: Final = "Job completion time: from the first op's start to the last one's end."
_SENT: Final = "Payload bytes sent through the device under test."
_JOB_FIGURES: Final = (
    ("etloop.job.exit_code", "1", "", _EXIT_CODES),
    ("etloop.job.completion_time", "s", "job.jct_ns", _JCT),
    ("etloop.job.iteration.time.avg", "s", "job.iteration_jct_avg_ns", "Average time of an iteration."),
    ("etloop.job.wire.sent", "By", "bytes.wire_tx_bytes", _SENT),
    (
        "etloop.job.packets.sent",
        "{packet}",
        "transport.tx_packets",
        "Packets sent, retransmissions included.",
    ),
    (
        "etloop.job.packets.retransmitted",
        "{packet}",
        "transport.retransmitted_packets",
        "Packets retransmitted.",
    ),
    (
        "etloop.job.packets.ecn_marked",
        "{packet}",
        "transport.np_ecn_marked_roce_packets",
        "Packets received with an ECN mark.",
    ),
    ("etloop.job.slip.max", "s", "slip.max_ns", "Greatest slip of the emulator."),
)
"""Name, unit, section and key in summary.json ("" for the exit code), meaning."""


def _figure(place: str, ended: EndedJob) -> float | int | None:
    if not place:
        return None if ended.job.exit_code is None else int(ended.job.exit_code)
    if ended.summary is None:
        return None
    section, _, key = place.partition(".")
    value = (ended.summary[section] or {}).get(key)
    if value is None:
        return None
    return value / NS_PER_S if key.endswith("_ns") else int(value)


def _job_attributes(job: Job) -> dict[str, str]:
    labels = {f"etloop.job.label.{name}": value for name, value in job.request.labels}
    return {"test.job.id": job.job_id, "etloop.job.state": str(job.state)} | labels
