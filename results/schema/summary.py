"""The shape of summary.json: the figures of a run as one frozen value. `measure/summary.py` fills it; `text/table.py`
prints it.

Field names are the keys of the file; `summary.schema.json` describes the same for other programs, and docs/metrics.md
derives every figure. A figure that does not exist (no op completed, no bytes) is None, never 0.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.counters import AgentObject, CounterUse, counters_of
from etloop.contract.model.run import LinkEvent, PlannedChoice, RunEnd
from etloop.results.schema.device import DeviceSummary
from etloop.results.schema.findings import NO_DIAGNOSIS, Diagnosis
from etloop.results.schema.flow_sizes import FlowSizes
from etloop.results.schema.jobs import JobShare
from etloop.results.schema.losses import LossSummary
from etloop.results.schema.slow_ops import SlowNames
from etloop.results.schema.verdict import RunResult, Verdict

SUMMARY_SCHEMA: Final = "etloop-summary/1"
MOST_BASELINES: Final = 64
TRANSPORT_COUNTERS: Final = {
    owner: tuple(counter.name for counter in counters_of(owner, CounterUse.SUMMED)) for owner in AgentObject
}
"""By owning object: names of the counters whose sums are in `transport`."""
VIRTUAL_TIME: Final = "in virtual time"
"""Used instead of the wall time of the start of a run in virtual time, so that the same inputs give the same bytes."""


class ConsistencyResult(StrEnum):
    """Result of a consistency check."""

    PASS = "pass"  # noqa: S105 - a word, not a password
    FAIL = "fail"
    NOT_CHECKED = "not_checked"
    """The run ended early, so it cannot be expected to have carried everything."""


@dataclass(frozen=True, slots=True)
class ConsistencyCheck:
    """One property that the measurements must have."""

    name: str
    result: ConsistencyResult
    checked: int
    mismatches: int
    examples: tuple[str, ...]
    """The first few mismatches in words."""


@dataclass(frozen=True, slots=True)
class AgentSummary:
    """One agent's part in the run."""

    name: str
    host: str
    complete: bool
    ranks: int
    ops_recorded: int
    clock_offset_ns: int
    clock_error_ns: int
    degraded: tuple[str, ...]
    versions: dict[str, str]
    capabilities: tuple[str, ...] = ()
    """Optional features of the host that its ports had; empty in files of earlier versions."""


@dataclass(frozen=True, slots=True)
class WorkloadSummary:
    """The planned communication and how it was to be carried out."""

    source: str
    ranks: int
    iterations: int
    policy: str
    edges: dict[str, int]
    bytes_scale: str
    time_scale: str
    shaping: str
    """The library whose traffic is modelled, such as "nccl 2.30.7"."""
    choices: tuple[PlannedChoice, ...]
    """How the collectives were carried out, and why."""
    digest: str
    """Digest of the communication in the traces, before scaling: equal for equal communication, whatever the files are called."""


@dataclass(frozen=True, slots=True)
class OpCounts:
    """Network ops of all ranks and iterations."""

    planned: int
    recorded: int
    missing: int


@dataclass(frozen=True, slots=True)
class IterationSummary:
    """One pass over the trace."""

    iteration: int
    start_ns: int
    """Time of the first issue, which may be earlier than the end of the previous iteration."""
    end_ns: int
    jct_ns: int
    """From the end of the previous iteration; for the first one from the start of the run (`iterations`)."""
    ops_recorded: int
    complete: bool


@dataclass(frozen=True, slots=True)
class JobSummary:
    """All iterations together. The per-iteration figures are over complete iterations only."""

    start_ns: int | None
    """First issue of any op."""
    end_ns: int | None
    jct_ns: int | None
    """From the start of the run to `end_ns`: the sum of the times of its iterations."""
    complete: bool
    iteration_jct_min_ns: int | None
    iteration_jct_avg_ns: int | None
    iteration_jct_max_ns: int | None
    per_iteration: tuple[IterationSummary, ...]
    """Iterations with at least one record."""


@dataclass(frozen=True, slots=True)
class KindSummary:
    """All complete collectives of one kind, algorithm and size of group."""

    kind: str
    algorithm: str
    ranks: int
    count: int
    incomplete: int
    size_bytes: int
    sent_bytes: int
    fabric_bytes: int
    fabric_share: float | None
    messages: int
    time_min_ns: int | None
    time_avg_ns: int | None
    time_p50_ns: int | None
    time_p99_ns: int | None
    time_max_ns: int | None
    skew_p50_ns: int | None
    skew_max_ns: int | None
    algbw_bytes_per_s: float | None
    busbw_bytes_per_s: float | None
    joined_busbw_bytes_per_s: float | None


@dataclass(frozen=True, slots=True)
class BaselineSummary:
    """One collective or pair whose time the trace recorded, with its time in the replay."""

    kind: str
    communicator: str
    """Name, or `SOURCE -> DESTINATION` of a pair."""
    sequence: int
    size_bytes: int
    count: int
    """Complete ones over all iterations."""
    joined_min_ns: int
    joined_p50_ns: int
    recorded_ns: int
    ranks: int
    recorded_ranks: int
    """If fewer than `ranks`, `recorded_ns` is an upper bound."""


@dataclass(frozen=True, slots=True)
class Baselines:
    """Replayed times next to recorded times."""

    total: int
    first: tuple[BaselineSummary, ...]
    """The first `MOST_BASELINES` by communicator and number; all of them are in collectives.parquet."""


@dataclass(frozen=True, slots=True)
class SlipSummary:
    """The emulator's own lateness over all recorded ops."""

    ops: int
    p50_ns: int
    p99_ns: int
    max_ns: int


@dataclass(frozen=True, slots=True)
class ByteCounts:
    """Payload bytes of all recorded ops."""

    wire_tx_bytes: int
    wire_rx_bytes: int
    local_tx_bytes: int
    local_rx_bytes: int
    planned_wire_tx_bytes: int
    planned_local_tx_bytes: int
    fabric_share: float | None
    messages: int
    message_bytes: int
    trace_bytes: int


@dataclass(frozen=True, slots=True)
class ClockSummary:
    """Accuracy of the agents' clocks."""

    error_max_ns: int
    between_agents_error_ns: int


@dataclass(frozen=True, slots=True)
class ExpectedSummary:
    """One run in virtual time that the measured run is compared with."""

    network: str
    """"ideal" or "twin"; docs/flow_level.md and docs/device.md define them."""
    level: str
    """"packet" or "flow"."""
    described_by: str
    """File name of the topology; "" if ideal."""
    iterations: int
    complete: bool
    """Whether every op of the iterations completed."""
    failure: str
    counters: dict[str, int]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JobFigures:
    """Figures of the job in one of ideal, twin and measured."""

    iterations: int
    """Number of complete iterations, over which the figures are computed."""
    iteration_jct_avg_ns: int | None
    iteration_jct_min_ns: int | None
    iteration_jct_max_ns: int | None


@dataclass(frozen=True, slots=True)
class KindFigures:
    """Figures of complete collectives of one kind in one of ideal, twin and measured."""

    count: int
    time_avg_ns: int | None
    """From the first member's issue to the last one's completion."""
    joined_avg_ns: int | None
    """From the last member's issue: without waiting for stragglers."""
    busbw_bytes_per_s: float | None
    joined_busbw_bytes_per_s: float | None


@dataclass(frozen=True, slots=True)
class JobComparison:
    """Figures of the measured job next to the expected ones; None if there is no such expected run."""

    ideal: JobFigures | None
    twin: JobFigures | None
    measured: JobFigures
    measured_per_ideal: float | None
    measured_per_twin: float | None
    degraded: tuple[str, ...]
    """Why the measured and the expected runs are not fully comparable."""


@dataclass(frozen=True, slots=True)
class KindComparison:
    """Figures of all collectives of one kind, algorithm and group size, measured and expected; ratios are of
    `joined_avg_ns`."""

    kind: str
    algorithm: str
    ranks: int
    ideal: KindFigures | None
    twin: KindFigures | None
    measured: KindFigures
    measured_per_ideal: float | None
    measured_per_twin: float | None
    degraded: tuple[str, ...]
    """Reasons in addition to those of the job."""


@dataclass(frozen=True, slots=True)
class ComparisonSummary:
    """`ideal`, `twin` and `measured` next to each other."""

    expected: tuple[ExpectedSummary, ...]
    absent: tuple[str, ...]
    """Expected runs that are missing, each with the reason."""
    job: JobComparison
    kinds: tuple[KindComparison, ...]


class StreamWord(StrEnum):
    """Type of the datagrams of a stream."""

    UDP = "udp"
    UUD = "uud"
    """UET's unreliable delivery."""


@dataclass(frozen=True, slots=True)
class StreamSummary:
    """One stream of datagrams next to the jobs; None for counts that an end did not report."""

    name: str
    sent_datagrams: int | None
    sent_bytes: int | None
    left_out: int | None
    """Datagrams that the sending agent could not send in time."""
    received_datagrams: int | None
    received_bytes: int | None
    form: StreamWord = StreamWord.UDP


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """Identity of a run and how it ended."""

    schema: str
    run_id: str
    state: RunEnd
    reason: str
    started_at: str
    """Wall time (ISO 8601), or `VIRTUAL_TIME`."""


@dataclass(frozen=True, slots=True)
class Summary(RunIdentity):
    """The content of summary.json."""

    workload: WorkloadSummary
    ops: OpCounts
    job: JobSummary
    kinds: tuple[KindSummary, ...]
    baselines: Baselines
    slip: SlipSummary | None
    bytes: ByteCounts
    transport: dict[str, int]
    """By name of `TRANSPORT_COUNTERS`: sums over all queue pair ends and ports whose agents sent their counters."""
    clock: ClockSummary
    checks: tuple[ConsistencyCheck, ...]
    agents: tuple[AgentSummary, ...]
    degraded: tuple[str, ...]
    notes: tuple[str, ...]
    comparison: ComparisonSummary | None = None
    """None in runs that were not compared, and in files of earlier versions."""
    verdict: Verdict | None = None
    """None in runs without conditions, and in files of earlier versions."""
    dut: DeviceSummary | None = None
    """None in runs whose rig names no source of the device's counters, and in files of earlier versions."""
    jobs: tuple[JobShare, ...] = ()
    """Only in a run of several jobs or with background; all other figures of jobs exclude the background."""
    streams: tuple[StreamSummary, ...] = ()
    """Background of plain UDP."""
    timeline: tuple[LinkEvent, ...] = ()
    """Scheduled link-down and link-up events."""
    losses: LossSummary | None = None
    """None in files of earlier versions, and in runs that were stopped before their verdict."""
    overload_frames: int = 0
    """Frames lost by a soft switch used as the device because its host could not keep up; 0 in files of earlier versions."""
    flow_sizes: FlowSizes | None = None
    """Only in a run that has only sends and receives; None in other runs, and in files of earlier versions."""
    slow_names: SlowNames | None = None
    """None if the trace has no names or no traffic crossed the device, and in files of earlier versions."""
    diagnosis: Diagnosis = NO_DIAGNOSIS
    """Named causes of faults and slowness; empty in files of earlier versions."""
    run_nonce: int = 0
    """Seed, in addition to the scenario's, of queue pair numbers, keys and first sequence numbers; 0: none."""

    def __repr__(self) -> str:
        """Return the identity and the result."""
        return f"<Summary of {self.run_id}: {self.result}, {self.workload.ranks} ranks>"

    @property
    def is_consistent(self) -> bool:
        """Return whether no consistency check failed."""
        return not self.failed_checks

    @property
    def failed_checks(self) -> tuple[ConsistencyCheck, ...]:
        """Return the consistency checks that failed."""
        return tuple(check for check in self.checks if check.result is ConsistencyResult.FAIL)

    @property
    def overload(self) -> tuple[str, ...]:
        """Return, in words, how a soft switch used as the device was itself the limit; empty if it was not."""
        message = f"the soft switch lost {self.overload_frames} frames because its host could not keep up"
        return (f"{message} (overload_frames)",) if self.overload_frames else ()

    @property
    def result(self) -> RunResult:
        """Return the result of the run: its verdict, or `BROKEN` if it ended early or a consistency check failed."""
        if self.state is not RunEnd.DONE or not self.is_consistent:
            return RunResult.BROKEN
        return RunResult.NO_VERDICT if self.verdict is None else RunResult(self.verdict.result)

    @property
    def failure(self) -> str:
        """Return why the run did not pass, one reason a line, the most severe first; "" if it passed."""
        if self.result in {RunResult.PASS, RunResult.NO_VERDICT}:
            return ""
        lines = [self.reason] if self.reason else []
        if self.failed_checks:
            names = ", ".join(check.name for check in self.failed_checks)
            lines.append(f"consistency checks failed: {names}")
        return "\n".join((*lines, *(self.verdict.reasons if self.verdict is not None else ())))
