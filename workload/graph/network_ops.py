"""The network operations of one rank in issue order, with sizes in bytes, checked one by one.

Decides which nodes use the network and what each one carries. Leaves who takes part to communicators.py and whether
the ranks agree to matching.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from etloop.contract.base.errors import Severity
from etloop.workload.graph.split_rows import rows_of
from etloop.workload.trace.findings import EXAMPLES_KEPT, Check, node_example
from etloop.workload.trace.program import OpKind
from etloop.workload.trace.trace import ABSENT, CollectiveKind, NodeKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from etloop.workload.graph.split_rows import SplitRows
    from etloop.workload.trace.findings import FindingLog
    from etloop.workload.trace.trace import RankTrace
    from numpy.typing import NDArray

MAX_OP_BYTES: Final = 1 << 44
"""16 TiB: a larger size is a mistake of the exporter, and sums over a job would leave the int64 range."""

BARRIER_BYTES: Final = 4
"""Payload of a barrier. Exporters write anything into its comm_size, such as a duration."""

_KINDS: Final = {
    NodeKind.COMM_COLL: OpKind.COLLECTIVE,
    NodeKind.COMM_SEND: OpKind.SEND,
    NodeKind.COMM_RECV: OpKind.RECV,
}
_ROOTED: Final = (
    CollectiveKind.REDUCE,
    CollectiveKind.BROADCAST,
    CollectiveKind.GATHER,
    CollectiveKind.SCATTER,
)


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
    send_splits: SplitRows | None = None
    """Bytes to each member of the operation's communicator; None where no operation of the rank has splits."""
    recv_splits: SplitRows | None = None
    """Bytes expected from each member."""

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
    send_splits = rows_of(rank.send_splits, node)
    recv_splits = rows_of(rank.recv_splits, node)
    for rows in (send_splits, recv_splits):
        _check_splits(rank, node, collective, rows, sound, log)
    size_bytes = _sizes(rank, node, collective, unit_bytes, send_splits, sound, log)
    src, dst = _ends(rank, node, rank_count, sound, log)
    op_kind = np.full(len(node), OpKind.COLLECTIVE, dtype=np.uint8)
    op_kind[kind == NodeKind.COMM_SEND] = OpKind.SEND
    op_kind[kind == NodeKind.COMM_RECV] = OpKind.RECV
    tag = rank.comm.tag[node]
    return RankOps(node, op_kind, collective, size_bytes, src, dst, tag, sound, send_splits, recv_splits)


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
    comm_type = rank.comm.type[node]
    absent = is_collective & (comm_type == ABSENT)
    unknown = is_collective & ~absent & ((comm_type < 0) | (comm_type > max(CollectiveKind)))
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
                lambda index: f"comm_type {rank.comm.type[index]}",
                "correct the exporter",
            ),
        ),
    )
    for wrong, mistake in mistakes:
        _flag(rank, node, wrong, mistake, log)
    sound = ~(absent | unknown)
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
    splits: SplitRows | None,
    sound: NDArray[np.bool_],
    log: FindingLog,
) -> NDArray[np.int64]:
    size = rank.comm.size[node]
    sized = collective != CollectiveKind.BARRIER
    split = np.zeros(len(node), np.bool_) if splits is None else splits.counts > 0
    unstated = sized & (size == ABSENT)
    absent = unstated & ~split
    limit = MAX_OP_BYTES // unit_bytes
    wrong = sized & ~unstated & ((size < 0) | (size > limit))
    nothing = _Mistake(Check.COMM_SIZE_ABSENT, "comm_size", _none, "write how much the rank puts in")
    outside = _Mistake(
        Check.COMM_SIZE_RANGE,
        f"comm_size between 0 and {limit}",
        lambda index: _stated(rank.comm.size, index),
        "correct the exporter, or the size unit",
    )
    _flag(rank, node, absent, nothing, log)
    _flag(rank, node, wrong, outside, log)
    sound &= ~(absent | wrong)
    size_bytes = (np.where(sized & ~unstated & ~wrong, size, 0) * unit_bytes).astype(np.int64)
    size_bytes[~sized] = BARRIER_BYTES
    if splits is not None:
        sums = splits.sums()
        stated = split & sized & sound
        differs = stated & ~unstated & (sums != size_bytes)
        _report_sums(rank, node, sums, size_bytes, differs, log)
        sound &= ~differs
        size_bytes[stated] = sums[stated]
    return size_bytes


def _report_sums(
    rank: RankTrace,
    node: NDArray[np.int64],
    sums: NDArray[np.int64],
    size_bytes: NDArray[np.int64],
    differs: NDArray[np.bool_],
    log: FindingLog,
) -> None:
    wrong = np.flatnonzero(differs)
    if len(wrong):
        examples = (
            node_example(
                rank,
                int(node[at]),
                f"splits that add up to the {size_bytes[at]} bytes of comm_size",
                f"{sums[at]} bytes",
            )
            for at in wrong[:EXAMPLES_KEPT].tolist()
        )
        remedy = "correct comm_size or the split sizes; both count what the rank sends, its own part included"
        log.add(Check.SPLIT_SUM, Severity.ERROR, remedy, *examples, count=len(wrong))


def _check_splits(
    rank: RankTrace,
    node: NDArray[np.int64],
    collective: NDArray[np.int8],
    splits: SplitRows | None,
    sound: NDArray[np.bool_],
    log: FindingLog,
) -> None:
    """Splits belong to an all-to-all, and each is a number of bytes."""
    if splits is None:
        return
    # Sums are exact where they matter: a row with an entry of another size is wrong whatever its sum wraps to.
    outside = (splits.entry_bytes < 0) | (splits.entry_bytes > MAX_OP_BYTES)
    row = np.repeat(np.arange(len(node)), splits.counts)
    wrong = splits.sums() > MAX_OP_BYTES
    wrong[row[outside]] = True
    elsewhere = (splits.counts > 0) & (collective != CollectiveKind.ALL_TO_ALL) & sound
    worst = dict(zip(node[wrong].tolist(), splits.sums()[wrong].tolist(), strict=True))
    worst |= dict(zip(node[row[outside]].tolist(), splits.entry_bytes[outside].tolist(), strict=True))
    for found, mistake in (
        (
            wrong,
            _Mistake(
                Check.SPLIT_RANGE,
                f"split sizes of 0 to {MAX_OP_BYTES} bytes, alone and together",
                lambda index: f"{worst[index]}",
                "correct the exporter",
            ),
        ),
        (
            elsewhere,
            _Mistake(
                Check.SPLIT_KIND,
                "split sizes on ALL_TO_ALL alone",
                lambda index: f"split sizes on comm_type {_stated(rank.comm.type, index)}",
                "leave the split sizes out; other uneven collectives cannot be replayed yet",
            ),
        ),
    ):
        _flag(rank, node, found, mistake, log)
        sound &= ~found


def _ends(
    rank: RankTrace, node: NDArray[np.int64], rank_count: int, sound: NDArray[np.bool_], log: FindingLog
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Source and destination rank of sends and receives: the own end may be left out, the other may not."""
    kind = rank.kind[node]
    is_send, is_recv = kind == NodeKind.COMM_SEND, kind == NodeKind.COMM_RECV
    src, dst = rank.comm.src[node].copy(), rank.comm.dst[node].copy()
    src[is_send & (src == ABSENT)] = rank.rank
    dst[is_recv & (dst == ABSENT)] = rank.rank
    own, peer = np.where(is_send, src, dst), np.where(is_send, dst, src)
    paired = is_send | is_recv
    absent = paired & (peer == ABSENT)
    outside = paired & ~absent & ((peer < 0) | (peer >= rank_count))
    foreign = paired & (own != rank.rank)
    itself = paired & ~foreign & (peer == rank.rank)

    def route(index: int) -> str:
        return f"{_stated(rank.comm.src, index)} -> {_stated(rank.comm.dst, index)}"

    fix = "write the global rank at the other end"
    for wrong, mistake in (
        (absent, _Mistake(Check.PEER_ABSENT, "comm_dst on a SEND, comm_src on a RECV", _none, fix)),
        (
            outside,
            _Mistake(Check.PEER_OUT_OF_RANGE, f"a peer among ranks 0 to {rank_count - 1}", route, fix),
        ),
        (foreign, _Mistake(Check.WRONG_END, f"rank {rank.rank} at its own end", route, fix)),
        (
            itself,
            _Mistake(
                Check.PEER_SELF, "another rank", lambda index: f"a message to itself ({route(index)})", fix
            ),
        ),
    ):
        _flag(rank, node, wrong, mistake, log)
        sound &= ~wrong
    src[~paired] = -1
    dst[~paired] = -1
    return src, dst
