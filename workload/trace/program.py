"""Defines a rank's program: its trace reduced to the operations on the network and the delays between them, in columns,
ready for the engine.

Ops are in a topological order: every dependency of op i has a smaller index. Ranks whose programs are equal after
communicators and peers are replaced by slots share one `Program`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from etloop.contract.base.late_dataclass import dataclass

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from etloop.contract.model.run import RecordedBaselines


class OpKind(IntEnum):
    """Action of an op once its dependencies are met."""

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
    """COLLECTIVE: index within its communicator; SEND, RECV: index within its (source, destination) pair; DELAY: -1."""
    message_bytes: NDArray[np.int64]
    """Payload that one rank puts in: buffer, own shard (all-gather), full input (reduce-scatter, all-to-all), its own
    part included."""
    delay_ns: NDArray[np.int64]
    """Duration of a DELAY, 0 for all other ops."""
    dep_offsets: NDArray[np.int64]
    deps: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.kind)


@dataclass(frozen=True, slots=True, eq=False)
class RankProgram:
    """The program of one rank: a shared `Program` and this rank's communicators and peers for its slots."""

    rank: int
    program: int
    """Index into `Job.programs`."""
    communicators: tuple[int, ...]
    """Index into `Job.communicators`, by slot."""
    peers: tuple[int, ...]
    """Peer rank, by slot."""
    node_id: NDArray[np.uint64]
    """Trace node of each op (a contracted DELAY has the id of its last node)."""
    trace_bytes: NDArray[np.int64] | None = None
    """`Program.message_bytes` of each op in the trace, before scaling; None: not scaled."""
    splits: NDArray[np.int32] | None = None
    """Per op, the index into `Job.splits` of an uneven all-to-all, -1 for any other op; None: the rank has no uneven
    all-to-all."""
    name: NDArray[np.int32] | None = None
    """Per op, the index of its name in `Job.op_names`, -1 for one without a name; None: no op has one."""


@dataclass(frozen=True, slots=True)
class Job:
    """The operations of a trace on the network, matched across ranks and free of deadlock."""

    source: str
    communicators: tuple[Communicator, ...]
    programs: tuple[Program, ...]
    ranks: tuple[RankProgram, ...]
    policy: str
    """Dependencies that were honoured, such as "data+communicator"."""
    edges: dict[str, int]
    """Number of dependencies of all ranks by outcome, for each sort of contract/model/edges.py."""
    notes: tuple[str, ...]
    """Facts that a reader of the results must know, such as compute nodes without a duration."""
    splits: tuple[NDArray[np.int64], ...] = ()
    """Distinct matrices of uneven all-to-alls, after scaling: `[i, j]` bytes go from position i to position j of the
    communicator. The part that a position keeps (i = j) belongs to its message but is not sent."""
    split_trace_bytes: tuple[int, ...] = ()
    """For each matrix, the bytes that its busiest member sends according to the trace, before scaling; (): the matrices
    are unscaled."""
    baselines: RecordedBaselines | None = None
    """Recorded durations of its collectives and messages, by this job's numbering; None if none were recorded."""
    op_names: tuple[str, ...] = ()
    """Distinct names of network operations, such as "mb0.layer0.attention.sum"."""

    def busiest_split_bytes(self) -> tuple[int, ...]:
        """Return, for each matrix, the bytes that its busiest member sends according to the trace, before scaling."""
        return self.split_trace_bytes or tuple(int(matrix.sum(axis=1).max()) for matrix in self.splits)
