"""A rank's program: its trace reduced to what the network sees, in columns, ready to be executed by the engine.

Ops are in a topological order: every dependency of op i has a smaller index. Ranks whose programs are equal after
communicators and peers are replaced by slots share one `Program`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from etloop.contract.base.late_dataclass import dataclass

if TYPE_CHECKING:
    import numpy as np
    from etloop.contract.model.run import RecordedBaselines
    from numpy.typing import NDArray


class OpKind(IntEnum):
    """What an op does when its dependencies are met."""

    DELAY = 0
    COLLECTIVE = 1
    SEND = 2
    RECV = 3


@dataclass(frozen=True, slots=True)
class Communicator:
    """An ordered group of ranks; the position of a rank in `members` is its rank inside the communicator."""

    index: int
    name: str
    members: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """Columns of n ops. `deps[dep_offsets[i]:dep_offsets[i + 1]]` are the op indices that op i waits for."""

    kind: NDArray[np.uint8]
    """`OpKind`."""
    collective: NDArray[np.int8]
    """`CollectiveKind` of a COLLECTIVE, else -1."""
    slot: NDArray[np.int32]
    """COLLECTIVE: index into `RankProgram.communicators`; SEND, RECV: into `RankProgram.peers`; DELAY: -1."""
    sequence: NDArray[np.int32]
    """COLLECTIVE: k-th of its communicator; SEND, RECV: k-th of its (source, destination) pair; DELAY: -1."""
    message_bytes: NDArray[np.int64]
    """What one rank puts in (payload): buffer, own shard (all-gather), full input (reduce-scatter, all-to-all), its own
    part included."""
    delay_ns: NDArray[np.int64]
    """Duration of a DELAY, 0 for the others."""
    dep_offsets: NDArray[np.int64]
    deps: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.kind)


@dataclass(frozen=True, slots=True, eq=False)
class RankProgram:
    """What one rank runs: a shared `Program` and this rank's meaning of its slots."""

    rank: int
    program: int
    """Index into `Job.programs`."""
    communicators: tuple[int, ...]
    """Slot -> index into `Job.communicators`."""
    peers: tuple[int, ...]
    """Slot -> peer rank."""
    node_id: NDArray[np.uint64]
    """Trace node behind each op (a contracted DELAY names its last node)."""
    trace_bytes: NDArray[np.int64] | None = None
    """`Program.message_bytes` of each op as the trace has it, before scaling; None: not scaled."""
    splits: NDArray[np.int32] | None = None
    """Per op, the index into `Job.splits` of an uneven all-to-all, -1 for all others; None: the rank has none."""
    name: NDArray[np.int32] | None = None
    """Per op, the index into `Job.op_names` of what the trace calls it, -1 for one without a name; None: none has one."""


@dataclass(frozen=True, slots=True)
class Job:
    """All that the network will see of a trace, matched across ranks and free of deadlock."""

    source: str
    communicators: tuple[Communicator, ...]
    programs: tuple[Program, ...]
    ranks: tuple[RankProgram, ...]
    policy: str
    """Dependencies that were honoured, such as "data+communicator"."""
    edges: dict[str, int]
    """What became of the dependencies of all ranks: how many of each sort of contract/model/edges.py."""
    notes: tuple[str, ...]
    """What a reader of the results must know, such as compute nodes without a duration."""
    splits: tuple[NDArray[np.int64], ...] = ()
    """Distinct matrices of uneven all-to-alls, after scaling: `[i, j]` bytes go from position i to position j of the
    communicator. What a position keeps (i = j) is part of its message and does not move."""
    split_trace_bytes: tuple[int, ...] = ()
    """Of each matrix, what its busiest member sends as the trace has it, before scaling; (): as the matrices say."""
    baselines: RecordedBaselines | None = None
    """What the trace recorded of its collectives, by this job's numbering; None if nothing."""
    op_names: tuple[str, ...] = ()
    """Different names of network operations, such as "mb0.layer0.attention.sum"."""

    def busiest_split_bytes(self) -> tuple[int, ...]:
        """Return of each matrix what its busiest member sends as the trace has it."""
        return self.split_trace_bytes or tuple(int(one.sum(axis=1).max()) for one in self.splits)
