"""The network operations of one rank in issue order, with sizes in bytes, checked one by one.

Decides which nodes use the network and what each one carries. Leaves who takes part to communicators.py and whether
the ranks agree to matching.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from workload.findings import EXAMPLES_KEPT, Check, Severity, node_example
from workload.program import OpKind
from workload.trace import ABSENT, CollectiveKind, NodeKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from workload.findings import FindingLog
    from workload.trace import RankTrace

MAX_OP_BYTES: Final = 1 << 44
"""16 TiB: a larger size is a mistake of the exporter, and sums over a job would leave the int64 range."""

BARRIER_BYTES: Final = 4
"""Payload of a barrier. Exporters write anything into its comm_size, such as a duration."""

_KINDS: Final = {
    NodeKind.COMM_COLL: OpKind.COLLECTIVE,
    NodeKind.COMM_SEND: OpKind.SEND,
    NodeKind.COMM_RECV: OpKind.RECV,
}
_UNSUPPORTED: Final = (CollectiveKind.GATHER, CollectiveKind.SCATTER)
_ROOTED: Final = (CollectiveKind.REDUCE, CollectiveKind.BROADCAST)


@dataclass(frozen=True, slots=True, eq=False)
class RankOps:
    """Columns over the m network operations of a rank, in issue order."""

    node: NDArray[np.int64]
    """Index of the node in its file."""
    kind: NDArray[np.uint8]
    """`OpKind`."""
    collective: NDArray[np.int8]
    """`CollectiveKind`, REDUCE_SCATTER_BLOCK being REDUCE_SCATTER; -1 for send and receive."""
    size_bytes: NDArray[np.int64]
    src: NDArray[np.int64]
    """SEND, RECV: the ranks at both ends; else -1."""
    dst: NDArray[np.int64]
    tag: NDArray[np.int64]
    """`ABSENT` where the node has none."""
    sound: NDArray[np.bool_]
    """Operations without a mistake of their own; the others are left out when ranks are compared."""

    def __len__(self) -> int:
        return len(self.node)


def network_ops(
    rank: RankTrace, order: NDArray[np.int64], unit_bytes: int, rank_count: int, log: FindingLog
) -> RankOps:
    """Reads the operations of a rank and notes every mistake. `unit_bytes` is what one unit of comm_size stands for."""
    kinds = rank.kind[order]
    is_comm = np.isin(kinds, tuple(_KINDS))
    on_cpu = (rank.is_cpu_op[order] != ABSENT) & (rank.is_cpu_op[order] != 0)
    _report_nodes(rank, order[is_comm & on_cpu], order[kinds > max(NodeKind)], log)
    node = order[is_comm & ~on_cpu]
    kind = rank.kind[node]
    is_collective = kind == NodeKind.COMM_COLL
    collective, sound = _collectives(rank, node, is_collective, log)
    size_bytes = _sizes(rank, node, collective, unit_bytes, sound, log)
    src, dst = _ends(rank, node, rank_count, sound, log)
    op_kind = np.full(len(node), OpKind.COLLECTIVE, dtype=np.uint8)
    op_kind[kind == NodeKind.COMM_SEND] = OpKind.SEND
    op_kind[kind == NodeKind.COMM_RECV] = OpKind.RECV
    return RankOps(node, op_kind, collective, size_bytes, src, dst, rank.comm_tag[node], sound)


def _report_nodes(
    rank: RankTrace, on_cpu: NDArray[np.int64], unknown: NDArray[np.int64], log: FindingLog
) -> None:
    if len(on_cpu):
        log.add(
            Check.CPU_COMM_NODE,
            Severity.INFO,
            "it launches an operation that has its own node, and is not replayed",
            node_example(rank, int(on_cpu[0]), "communication on the device", "is_cpu_op true"),
            count=len(on_cpu),
        )
    if len(unknown):
        index = int(unknown[0])
        log.add(
            Check.NODE_KIND,
            Severity.WARNING,
            "it is taken as a node that costs no time",
            node_example(rank, index, "a node type of the schema (0 to 9)", f"type {rank.kind[index]}"),
            count=len(unknown),
        )


@dataclass(frozen=True, slots=True)
class _Mistake:
    """A mistake that many operations of a rank may have; `found` tells that of the node at an index."""

    check: Check
    expected: str
    found: Callable[[int], str]
    remedy: str


def _flag(
    rank: RankTrace, node: NDArray[np.int64], wrong: NDArray[np.bool_], mistake: _Mistake, log: FindingLog
) -> None:
    """Notes the operations marked `wrong`."""
    indices = node[wrong]
    if len(indices):
        examples = (
            node_example(rank, index, mistake.expected, mistake.found(index))
            for index in indices[:EXAMPLES_KEPT].tolist()
        )
        log.add(mistake.check, Severity.ERROR, mistake.remedy, *examples, count=len(indices))


def _none(_: int) -> str:
    return "none"


def _stated(column: NDArray[np.int64], index: int) -> str:
    value = int(column[index])
    return "none" if value == ABSENT else str(value)


def _collectives(
    rank: RankTrace, node: NDArray[np.int64], is_collective: NDArray[np.bool_], log: FindingLog
) -> tuple[NDArray[np.int8], NDArray[np.bool_]]:
    comm_type = rank.comm_type[node]
    absent = is_collective & (comm_type == ABSENT)
    unknown = is_collective & ~absent & ((comm_type < 0) | (comm_type > max(CollectiveKind)))
    unsupported = is_collective & np.isin(comm_type, _UNSUPPORTED)
    mistakes = (
        (
            absent,
            _Mistake(
                Check.COMM_TYPE_ABSENT,
                "comm_type on a collective",
                _none,
                "write comm_type; absent it would read as ALL_REDUCE, which is 0 in the schema",
            ),
        ),
        (
            unknown,
            _Mistake(
                Check.COMM_TYPE_UNKNOWN,
                f"comm_type 0 to {max(CollectiveKind):d}",
                lambda index: f"comm_type {rank.comm_type[index]}",
                "correct the exporter",
            ),
        ),
        (
            unsupported,
            _Mistake(
                Check.COMM_TYPE_UNSUPPORTED,
                "a collective that can be replayed",
                lambda index: CollectiveKind(int(rank.comm_type[index])).name,
                "GATHER and SCATTER are not supported yet; write them as sends and receives",
            ),
        ),
    )
    for wrong, mistake in mistakes:
        _flag(rank, node, wrong, mistake, log)
    sound = ~(absent | unknown | unsupported)
    collective = np.where(is_collective & sound, comm_type, -1).astype(np.int8)
    collective[collective == CollectiveKind.REDUCE_SCATTER_BLOCK] = CollectiveKind.REDUCE_SCATTER
    rooted = np.flatnonzero(np.isin(collective, _ROOTED))
    if len(rooted):
        log.add(
            Check.ROOT_UNKNOWN,
            Severity.INFO,
            "position 0 of the communicator is taken",
            node_example(rank, int(node[rooted[0]]), "a root", "none: the schema has no attribute for it"),
            count=len(rooted),
        )
    return collective, sound


def _sizes(
    rank: RankTrace,
    node: NDArray[np.int64],
    collective: NDArray[np.int8],
    unit_bytes: int,
    sound: NDArray[np.bool_],
    log: FindingLog,
) -> NDArray[np.int64]:
    size = rank.comm_size[node]
    sized = collective != CollectiveKind.BARRIER
    absent = sized & (size == ABSENT)
    limit = MAX_OP_BYTES // unit_bytes
    wrong = sized & ~absent & ((size < 0) | (size > limit))
    nothing = _Mistake(Check.COMM_SIZE_ABSENT, "comm_size", _none, "write how much the rank puts in")
    outside = _Mistake(
        Check.COMM_SIZE_RANGE,
        f"comm_size between 0 and {limit}",
        lambda index: _stated(rank.comm_size, index),
        "correct the exporter, or the size unit",
    )
    _flag(rank, node, absent, nothing, log)
    _flag(rank, node, wrong, outside, log)
    sound &= ~(absent | wrong)
    size_bytes = np.where(sized & ~absent & ~wrong, size, 0) * unit_bytes
    size_bytes[~sized] = BARRIER_BYTES
    return size_bytes.astype(np.int64)


def _ends(
    rank: RankTrace, node: NDArray[np.int64], rank_count: int, sound: NDArray[np.bool_], log: FindingLog
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Source and destination rank of sends and receives: the own end may be left out, the other may not."""
    kind = rank.kind[node]
    is_send, is_recv = kind == NodeKind.COMM_SEND, kind == NodeKind.COMM_RECV
    src, dst = rank.comm_src[node].copy(), rank.comm_dst[node].copy()
    src[is_send & (src == ABSENT)] = rank.rank
    dst[is_recv & (dst == ABSENT)] = rank.rank
    own, peer = np.where(is_send, src, dst), np.where(is_send, dst, src)
    paired = is_send | is_recv
    absent = paired & (peer == ABSENT)
    outside = paired & ~absent & ((peer < 0) | (peer >= rank_count))
    foreign = paired & (own != rank.rank)
    itself = paired & ~foreign & (peer == rank.rank)

    def route(index: int) -> str:
        return f"{_stated(rank.comm_src, index)} -> {_stated(rank.comm_dst, index)}"

    mend = "write the global rank at the other end"
    for wrong, mistake in (
        (absent, _Mistake(Check.PEER_ABSENT, "comm_dst on a SEND, comm_src on a RECV", _none, mend)),
        (
            outside,
            _Mistake(Check.PEER_OUT_OF_RANGE, f"a peer among ranks 0 to {rank_count - 1}", route, mend),
        ),
        (foreign, _Mistake(Check.WRONG_END, f"rank {rank.rank} at its own end", route, mend)),
        (
            itself,
            _Mistake(
                Check.PEER_SELF, "another rank", lambda index: f"a message to itself ({route(index)})", mend
            ),
        ),
    ):
        _flag(rank, node, wrong, mistake, log)
        sound &= ~wrong
    src[~paired] = -1
    dst[~paired] = -1
    return src, dst
