"""Defines a job as its trace files describe it: nodes in columns, one `RankTrace` per rank, without interpretation.

Columns are read-only numpy arrays of equal length n, in file order. An absent attribute is `ABSENT`, never 0: in the
schema ALL_REDUCE is 0, so a missing comm_type must not be read as one (facts: proto3 zero default).
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from etloop.contract.base.errors import Problem
from etloop.contract.base.late_dataclass import dataclass

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Scalar = TypeVar("Scalar", bound="np.generic")

ABSENT: Final = -(1 << 63)
"""Value of an integer attribute that a node does not carry (the least int64)."""

DIMENSION_COUNT_SHIFT: Final = 32
"""Bit position of the number of dimensions in `CommColumns.dims`, above the flags of 32 dimensions."""


class NodeKind(IntEnum):
    """`NodeType` of the Chakra schema (mlcommons/chakra:schema/protobuf/et_def.proto)."""

    INVALID = 0
    METADATA = 1
    MEM_LOAD = 2
    MEM_STORE = 3
    COMP = 4
    COMM_SEND = 5
    COMM_RECV = 6
    COMM_COLL = 7
    STORAGE = 8
    DATA_OP = 9


class CollectiveKind(IntEnum):
    """`CollectiveCommType` of the Chakra schema."""

    ALL_REDUCE = 0
    REDUCE = 1
    ALL_GATHER = 2
    GATHER = 3
    SCATTER = 4
    BROADCAST = 5
    ALL_TO_ALL = 6
    REDUCE_SCATTER = 7
    REDUCE_SCATTER_BLOCK = 8
    BARRIER = 9


class Parallelism(StrEnum):
    """Kind of parallelism that a group of ranks serves."""

    TENSOR = "TP"
    DATA = "DP"
    SHARDED_DATA = "FSDP"
    EXPERT = "EP"
    EXPERT_DATA = "EDP"
    """Ranks that hold the same experts."""
    TENSOR_EXPERT = "TPxEP"
    """All tensor-parallel ranks of an expert group."""
    PIPELINE = "PP"
    EVERYONE = "all"
    ALONE = "alone"


@dataclass(frozen=True, slots=True, eq=False)
class Rows(Generic[Scalar]):
    """Values of each node in compressed sparse rows."""

    offsets: NDArray[np.int64]
    """Start of each row in `values`, and the end of the last; one entry more than there are nodes."""
    values: NDArray[Scalar]

    def __getitem__(self, index: int) -> NDArray[Scalar]:
        """Return the values of the node at `index`."""
        return self.values[self.offsets[index] : self.offsets[index + 1]]


@dataclass(frozen=True, slots=True, eq=False)
class CommColumns:
    """Columns of the communication attributes (`comm_type` and so on) of a rank's nodes."""

    type: NDArray[np.int64]
    size: NDArray[np.int64]
    """Unscaled as in the file: bytes or elements, see `WorkloadSettings.size_unit`."""
    stated_src: NDArray[np.int64]
    stated_dst: NDArray[np.int64]
    tag: NDArray[np.int64]
    dims: NDArray[np.int64] | None = None
    """Dimensions of a logical topology that take part (`involved_dim`): flags from bit 0, and from bit
    `DIMENSION_COUNT_SHIFT` the number of dimensions. None if no node has the attribute."""
    root: NDArray[np.int64] | None = None
    """Position of the root in the group of a broadcast, reduce, gather or scatter, `ABSENT` if not stated; None if no
    node has one."""
    ends_from: int = 0
    """Rank from which `stated_src` and `stated_dst` count, so that ranks with peers at the same distance share them; 0: they
    are ranks."""

    @property
    def src(self) -> NDArray[np.int64]:
        """Return the sending rank of each send and receive, `ABSENT` if not stated, int64 [n]."""
        return self._ranks(self.stated_src)

    @property
    def dst(self) -> NDArray[np.int64]:
        """Return the receiving rank of each send and receive, `ABSENT` if not stated, int64 [n]."""
        return self._ranks(self.stated_dst)

    def _ranks(self, stated: NDArray[np.int64]) -> NDArray[np.int64]:
        if not self.ends_from:
            return stated
        ranks: NDArray[np.int64] = stated + (stated != ABSENT) * self.ends_from
        return ranks


@dataclass(frozen=True, slots=True)
class RankTrace:
    """The nodes of one rank in file order.

    Dependencies are node ids exactly as the file has them (duplicates, dangling and self references included).
    """

    rank: int
    path: str
    schema: str
    """Version that the file states (GlobalMetadata.version, else its `schema` attribute), "" if neither."""
    node_id: NDArray[np.uint64]
    kind: NDArray[np.uint8]
    byte_offset: NDArray[np.uint64]
    """Offset of each node's length prefix in the decompressed stream, for error messages."""
    name_offsets: NDArray[np.uint64]
    name_bytes: bytes
    data_deps: Rows[np.uint64]
    ctrl_deps: Rows[np.uint64]
    start_us: NDArray[np.uint64]
    duration_us: NDArray[np.uint64]
    comm: CommColumns
    is_cpu_op: NDArray[np.int64]
    num_ops: NDArray[np.int64]
    tensor_size: NDArray[np.int64]
    pg_name: NDArray[np.int32]
    """Index into `pg_names`, -1 if the node has none."""
    pg_names: tuple[str, ...]
    stream: NDArray[np.int64] | None = None
    """GPU stream of a node, `ABSENT` for CPU nodes; None if the source has no streams."""
    start_ns: NDArray[np.int64] | None = None
    """Recorded start on the rank's own clock, `ABSENT` where unknown; None if the source has no time stamps."""
    duration_ns: NDArray[np.int64] | None = None
    """Recorded duration if the source is finer than `duration_us`, `ABSENT` where unknown; None otherwise."""
    send_splits: Rows[np.int64] | None = None
    """Uneven all-to-all: the bytes that a node sends to each member of its communicator, in member order; an empty row
    is an even split. None if no node has splits."""
    recv_splits: Rows[np.int64] | None = None
    """Bytes that a node expects from each member, in the same form; used only to check them against the bytes sent."""
    moved_bytes: NDArray[np.int64] | None = None
    """Bytes that the storage operation of a node moves, `ABSENT` if not stated; None if no node has one."""
    groups: dict[str, tuple[int, ...]] | None = None
    """Communicators that this rank itself recorded (process-group records), key -> global ranks in order. The same key
    may mean other ranks on another rank: a communicator is identified by key and members together."""

    def __len__(self) -> int:
        return len(self.node_id)

    def name(self, index: int) -> str:
        """Return the name of the node at `index`; bytes that are not UTF-8 become replacement characters."""
        first, last = int(self.name_offsets[index]), int(self.name_offsets[index + 1])
        return self.name_bytes[first:last].decode(errors="replace")


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Communication in a source that cannot be replayed, with the reason and advice."""

    problem: Problem
    count: int
    """Number of kernels or calls on all ranks."""


@dataclass(frozen=True, slots=True)
class Trace:
    """One job: the traces of ranks 0..n-1, in order, and the group file that came with them."""

    source: str
    ranks: tuple[RankTrace, ...]
    groups: dict[str, tuple[int, ...]] | None
    """Communicator key -> member ranks in file order; None if there is no group file."""
    remarks: tuple[Problem, ...] = ()
    """Content that the source lacks, or assumptions of its reader; not mistakes, but worth knowing."""
    left_out: tuple[LeftOut, ...] = ()
    roles: dict[str, Parallelism] | None = None
    """Communicator key -> kind of parallelism, for a source that states it."""

    def __repr__(self) -> str:
        """Return the source and the number of ranks."""
        return f"<Trace of {self.source!r}: {len(self.ranks)} ranks>"
