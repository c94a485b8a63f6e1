"""Output of a plan and a finished session for `results`: everything a report needs, without the controller's own types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.frame_streams import FrameCount
from etloop.contract.model.records import CC_RECORD, PROBE_RECORD, StreamCount


class RunEnd(StrEnum):
    """End of a run."""

    DONE = "done"
    ABORTED = "aborted"
    """A failure ended it."""
    STOPPED = "stopped"
    """A user ended it early, such as by Ctrl-C."""


@dataclass(frozen=True, slots=True, eq=False)
class PlannedOps:
    """Columns of all network ops of all ranks (no DELAY), sorted by (rank, op)."""

    rank: NDArray[np.int32]
    op: NDArray[np.int32]
    node_id: NDArray[np.uint64]
    name: NDArray[np.int32]
    """Index into `PlanTables.op_names` of its name in the trace; -1: it has no name."""
    kind: NDArray[np.uint8]
    """`OpKind`: 1 collective, 2 send, 3 receive."""
    collective: NDArray[np.int8]
    """`CollectiveKind`, -1 for send and receive."""
    communicator: NDArray[np.int32]
    """Index into `PlanTables.communicators`; -1 for send and receive."""
    peer: NDArray[np.int32]
    """Peer rank of a send or receive, else -1."""
    sequence: NDArray[np.int32]
    message_bytes: NDArray[np.int64]
    """Input bytes of this rank, after scaling."""
    trace_bytes: NDArray[np.int64]
    """Before scaling."""
    wire_tx_bytes: NDArray[np.int64]
    """Analytic payload bytes that this rank sends through the device under test for this op."""
    wire_rx_bytes: NDArray[np.int64]
    local_tx_bytes: NDArray[np.int64]
    local_rx_bytes: NDArray[np.int64]
    algorithm: NDArray[np.int16]
    """Index into `PlanTables.algorithms`."""


@dataclass(frozen=True, slots=True, eq=False)
class PlannedConnections:
    """Every connection of the job, once (not per agent)."""

    communicator: NDArray[np.int32]
    channel: NDArray[np.int32]
    src_rank: NDArray[np.int32]
    dst_rank: NDArray[np.int32]
    path: NDArray[np.uint8]
    src_ip: NDArray[np.void]
    dst_ip: NDArray[np.void]
    """Columns of addresses as in `contract.base.ip_address`."""
    qp_offsets: NDArray[np.int32]
    src_qpn: NDArray[np.uint32]
    dst_qpn: NDArray[np.uint32]
    src_udp_port: NDArray[np.uint16]
    dst_udp_port: NDArray[np.uint16]
    payload_bytes: NDArray[np.int64]
    """Analytic payload bytes of one iteration."""


@dataclass(frozen=True, slots=True, eq=False)
class RecordedBaselines:
    """Columns over the collectives, and pairs of send and receive, for which the trace has a recorded time."""

    communicator: NDArray[np.int32]
    """Index into `PlanTables.communicators`; -1 for a pair."""
    src_rank: NDArray[np.int32]
    """-1 for a collective."""
    dst_rank: NDArray[np.int32]
    sequence: NDArray[np.int32]
    recorded_ns: NDArray[np.int64]
    """From the last rank's begin to the end, as recorded."""
    recorded_ranks: NDArray[np.int32]
    """Number of ranks that recorded it; if some did not, `recorded_ns` is an upper bound."""


@dataclass(frozen=True, slots=True)
class PlannedChoice:
    """Algorithm chosen for ops of one collective, group size, hosts and range of byte counts."""

    collective: str
    ranks: int
    ranks_per_host: int
    """Consecutive members on each host."""
    least_bytes: int
    """Smallest size of the ops that the choice applies to, up to `most_bytes`: input bytes of one rank, or for uneven splits
    the bytes that the busiest rank sends."""
    most_bytes: int
    algorithm: str
    protocol: str
    """"simple", "ll" or "ll128"."""
    completion: str
    """When an op is complete: "acknowledged", "posted", or "posted up to" a message size."""
    channels: int
    messages: int
    """Messages of all members together, for an op of `most_bytes`."""
    reason: str
    alternatives: dict[str, int]
    """Modelled nanoseconds of the largest op, before `scale.bytes`, by "algorithm protocol", the choice included; empty
    without a model."""


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """One of several jobs of a plan; its ranks are [first_rank, first_rank + ranks)."""

    name: str
    first_rank: int
    ranks: int
    passes: int
    """Number of times its ranks execute their programs in a phase."""
    background: bool = False
    """Background load: it ends with the jobs, and is not in their figures."""


@dataclass(frozen=True, slots=True, eq=False)
class PlannedJobs:
    """Several jobs in one plan. An iteration of the plan is a round: its phases one after the other."""

    jobs: tuple[PlannedJob, ...]
    phases: tuple[tuple[int, ...], ...]
    """Indices of the jobs that run in each phase. With several phases, each ends with a barrier of all their ranks."""
    turn: NDArray[np.int32]
    """phase * passes of its job + pass, for each row of `PlannedOps`; -1 for the barriers between phases."""


@dataclass(frozen=True, slots=True, eq=False)
class PlanTables:
    """The plan as results need it; written to plan.json next to the records."""

    source: str
    iterations: int
    rank_agent: tuple[str, ...]
    rank_host: tuple[int, ...]
    rank_port: tuple[str, ...]
    communicators: tuple[tuple[str, tuple[int, ...]], ...]
    """(name, members)."""
    algorithms: tuple[str, ...]
    op_names: tuple[str, ...]
    """Distinct names of operations in the trace."""
    ops: PlannedOps
    connections: PlannedConnections
    bytes_scale: str
    """Factor applied to message bytes, as the scenario wrote it ("1" if none)."""
    time_scale: str
    policy: str
    edges: dict[str, int]
    notes: tuple[str, ...]
    baselines: RecordedBaselines | None = None
    """None if the trace recorded no times of collectives."""
    shaping: str = ""
    """Library whose traffic is reproduced, such as "nccl 2.30.7"; "" in tables that no scenario made."""
    choices: tuple[PlannedChoice, ...] = ()
    several: PlannedJobs | None = None
    """None if the plan is of a single job without background load."""
    run_nonce: int = 0
    """Varies queue pair numbers, keys and first sequence numbers; 0: they depend on the seed alone."""
    rank_transport: tuple[str, ...] = ()
    """Transport kind of each rank (`transport.kind`); empty in plans stored without it."""

    @property
    def port_names(self) -> list[str]:
        """Return the port of each rank as "agent/port"; ports of a plan in virtual time already have such names."""
        places = zip(self.rank_agent, self.rank_port, strict=True)
        return [port if "/" in port else f"{agent}/{port}" for agent, port in places]

    def node_words(self, row: int) -> str:
        """Return words for the trace node of a row of `ops`: its id, and its name if it has one."""
        name = int(self.ops.name[row])
        return f"node {self.ops.node_id[row]}" + (f' "{self.op_names[name]}"' if name >= 0 else "")


@dataclass(frozen=True, slots=True, eq=False)
class AgentRecords:
    """Measurements of one agent. Arrays have the record types of contract/model/records.py; times are of the agent's clock."""

    agent: str
    host: str
    ops: NDArray[np.void]
    flows: NDArray[np.void]
    ports: NDArray[np.void]
    clock_offset_ns: int
    """Agent clock minus controller clock."""
    clock_error_ns: int
    """Bound on the error of the offset: half the least round trip."""
    degraded: tuple[str, ...]
    """Settings that this agent could not meet, such as a small receive buffer or blocking instead of spinning."""
    versions: dict[str, str]
    complete: bool
    """True if the agent finished and sent its flow and port counters."""
    rates: NDArray[np.void] = field(default_factory=lambda: np.empty(0, CC_RECORD))
    """Rates and windows over time; empty if not requested."""
    streams: tuple[StreamCount, ...] = ()
    """Background streams of UDP."""
    frames: tuple[FrameCount, ...] = ()
    captured: Mapping[int, bytes] = field(default_factory=dict)
    """Records of a pcap file by port of the assignment."""
    round_trips: NDArray[np.void] = field(default_factory=lambda: np.empty(0, PROBE_RECORD))
    """Least round trips of the agent's connections before the load; empty if no connection was probed."""
    capabilities: tuple[str, ...] = ()
    """Optional host features that its ports had, such as departure times; () from agents of earlier versions."""


@dataclass(frozen=True, slots=True, eq=False)
class ExpectedRun:
    """Computed run of a plan on a fully known network, in virtual time."""

    network: str
    """"ideal": limited only by the ports' own rates; "twin": the device as a topology describes it."""
    level: str
    """"packet": every packet, with the engine's own transport; "flow": messages that share links fairly."""
    described_by: str
    """The topology's file; "" if ideal."""
    iterations: int
    """Number of iterations of the plan, from the first."""
    ops: NDArray[np.void]
    """OP_RECORD rows of the whole job in virtual time."""
    start_ns: int
    """Start of the job, in virtual time."""
    failure: str
    """"" if every op completed."""
    counters: dict[str, int]
    """Counters of the described switches, such as "ecn_marked_packets"; empty without switches."""
    notes: tuple[str, ...] = ()
    """Parts of the run that were left out."""


@dataclass(frozen=True, slots=True)
class LinkEvent:
    """A link of the device that was to go down or come up during the run."""

    at_ns: int
    """Planned time of the event, after the start."""
    link: str
    """A port of a switch, as "leaf0/3"."""
    up: bool
    done_ns: int
    """Time at which it happened; -1: it did not."""
    why: str
    """Reason why it did not happen; "" if it did."""


class KeptOps(Protocol):
    """Op records of all agents of a run that are kept outside of memory, in parts of whole iterations."""

    @property
    def iterations_each(self) -> int:
        """Return the number of iterations per part; part n begins with iteration n times this."""

    @property
    def parts(self) -> int:
        """Return the number of parts up to the last that has a record."""

    @property
    def records(self) -> int:
        """Return the number of records, those of `outside` included."""

    @property
    def outside(self) -> int:
        """Return the number of records that belong to no iteration of the plan, and are not kept."""

    def part(self, number: int) -> tuple[NDArray[np.void], ...]:
        """Return the records of a part by agent, in order of arrival. Raises `OSError`."""


@dataclass(frozen=True, slots=True, eq=False)
class RunOutcome:
    """End of a session and all that was collected until then."""

    run_id: str
    state: RunEnd
    reason: str
    """Reason why it was aborted or stopped, "" if done; may have several lines (wait-for chain)."""
    started_at: str
    """Wall time, ISO 8601, for display."""
    start_ns: int
    """Controller's monotonic clock at the planned start: time 0 of the tables."""
    agents: tuple[AgentRecords, ...]
    events: tuple[LinkEvent, ...] = ()
    """Link events of the scenario's timeline."""
    overload_frames: int = 0
    """Frames lost by a soft switch used as the device because its host could not keep up."""
    overload_unread: str = ""
    """Why these frames could not be read after the run; "" if they were, or without a lab."""
    kept_ops: KeptOps | None = None
    """Store of the op records, if they are not in `agents`."""

    @property
    def op_records(self) -> int:
        """Return the number of op records."""
        return (
            sum(len(agent.ops) for agent in self.agents) if self.kept_ops is None else self.kept_ops.records
        )
