"""Extracts the network operations of one rank in issue order, with sizes in bytes, and checks each of them.

Decides which nodes use the network, how much each carries, and how the rows of uneven all-to-alls are laid out in
one array. Leaves membership to communicators.py, agreement between ranks to matching.py, and the meaning of the rows
to splits.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.errors import Severity
from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.trace.findings import EXAMPLES_KEPT, Check, FindingLog, RankFindings, node_example
from etloop.workload.trace.program import OpKind
from etloop.workload.trace.shared_columns import ColumnStore, columns_identity
from etloop.workload.trace.trace import ABSENT, CollectiveKind, NodeKind, RankTrace, Rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_OP_BYTES: Final = 1 << 44
"""Largest operation, 16 TiB. A larger size is a mistake of the exporter, and sums over a job would exceed the int64
range."""

CHECKPOINT_NODE: Final = 10
"""A node type that was proposed together with other meanings of 8 and 9, and is in no released schema."""

BARRIER_BYTES: Final = 4
"""Payload of a barrier. Its comm_size is ignored, because exporters write unrelated values there, such as a duration."""

_KINDS: Final = {
    NodeKind.COMM_COLL: OpKind.COLLECTIVE,
    NodeKind.COMM_SEND: OpKind.SEND,
    NodeKind.COMM_RECV: OpKind.RECV,
}
ROOTED: Final = (
    CollectiveKind.REDUCE,
    CollectiveKind.BROADCAST,
    CollectiveKind.GATHER,
    CollectiveKind.SCATTER,
)
"""Collectives that have a root."""


@dataclass(frozen=True, slots=True, eq=False)
class RankOps:
    """Columns over the m network operations of a rank, in issue order. Ranks whose columns are equal share all but `sound`."""

    rank: int
    node: NDArray[np.int64]
    """Index of the node in its file."""
    kind: NDArray[np.uint8]
    """`OpKind`."""
    collective: NDArray[np.int8]
    """`CollectiveKind`, with REDUCE_SCATTER_BLOCK as REDUCE_SCATTER; -1 for send and receive."""
    size_bytes: NDArray[np.int64]
    peer_step: NDArray[np.int64]
    """Peer of a SEND or RECV minus `rank`; else 0."""
    tag: NDArray[np.int64]
    """`ABSENT` where the node has none."""
    sound: NDArray[np.bool_]
    """Operations without a mistake of their own; an operation with one is skipped when ranks are compared."""
    send_splits: SplitRows | None = None
    """Bytes to each member of the operation's communicator; None if no operation of the rank has splits."""
    recv_splits: SplitRows | None = None
    """Bytes expected from each member."""
    stated_root: NDArray[np.int64] | None = None
    """Position of the root that the trace gives, `ABSENT` for an operation without one; None if no operation has one."""

    @property
    def root(self) -> NDArray[np.int64]:
        """Return `stated_root` of every operation, `ABSENT` where the trace gives none, int64 [m]."""
        return np.full(len(self.node), ABSENT, np.int64) if self.stated_root is None else self.stated_root

    @property
    def peer(self) -> NDArray[np.int64]:
        """Return the other rank of each SEND or RECV, else -1, int64 [m]."""
        return np.where(self.kind == OpKind.COLLECTIVE, -1, self.rank + self.peer_step)

    @property
    def src(self) -> NDArray[np.int64]:
        """Return the sending rank of each SEND or RECV, else -1, int64 [m]."""
        return np.where(self.kind == OpKind.SEND, self.rank, self.peer)

    @property
    def dst(self) -> NDArray[np.int64]:
        """Return the receiving rank of each SEND or RECV, else -1, int64 [m]."""
        return np.where(self.kind == OpKind.RECV, self.rank, self.peer)

    def identity(self) -> tuple[int, ...]:
        """Return the same numbers for ranks that share all columns but `sound`."""
        columns = (self.node, self.kind, self.collective, self.size_bytes, self.peer_step, self.tag)
        return columns_identity((columns, self.send_splits, self.recv_splits, self.stated_root))

    def __len__(self) -> int:
        return len(self.node)


def job_ops(
    ranks: Sequence[RankTrace], orders: Sequence[NDArray[np.int64]], unit_bytes: int, log: FindingLog
) -> tuple[RankOps, ...]:
    """Return the operations of each rank. `orders` has the issue order of each; ranks with equal columns share the result.

    The columns of a rank without mistakes hold for every rank that has the same columns, and peers at the same distance
    within the job.
    """
    store, known = ColumnStore(), dict[tuple[int, ...], RankOps]()
    has_messages: dict[int, bool] = {}
    result = []
    for rank, order in zip(ranks, orders, strict=True):
        if id(rank.kind) not in has_messages:
            has_messages[id(rank.kind)] = bool(
                np.isin(rank.kind, (NodeKind.COMM_SEND, NodeKind.COMM_RECV)).any()
            )
        distance = rank.comm.ends_from - rank.rank if has_messages[id(rank.kind)] else 0
        columns = (
            rank.kind,
            rank.is_cpu_op,
            replace(rank.comm, ends_from=0),
            rank.send_splits,
            rank.recv_splits,
        )
        key = (distance, id(order), *columns_identity(columns))
        shared = known.get(key)
        if shared is not None and _reaches(shared, rank.rank, len(ranks)):
            result.append(replace(shared, rank=rank.rank, sound=shared.sound.copy()))
            continue
        mistakes = log.total()
        rank_ops = network_ops(rank, order, unit_bytes, len(ranks), log)
        rank_ops = replace(store.share(rank_ops), sound=rank_ops.sound)
        if log.total() == mistakes:
            known[key] = rank_ops
        result.append(rank_ops)
    return tuple(result)


def _reaches(ops: RankOps, rank: int, rank_count: int) -> bool:
    """Decide whether the peers of `ops` exist if `rank` runs them."""
    first, last = (ops.peer_step.min(), ops.peer_step.max()) if len(ops) else (0, 0)
    return bool(rank + first >= 0 and rank + last < rank_count)


def network_ops(
    rank: RankTrace, order: NDArray[np.int64], unit_bytes: int, rank_count: int, log: FindingLog
) -> RankOps:
    """Return the operations of a rank, in issue order, and report every mistake. One unit of comm_size is `unit_bytes`
    bytes."""
    kinds = rank.kind[order]
    is_comm = np.isin(kinds, tuple(_KINDS))
    on_cpu = (rank.is_cpu_op[order] != ABSENT) & (rank.is_cpu_op[order] != 0)
    _report_nodes(rank, order[is_comm & on_cpu], order[kinds > max(NodeKind)], log)
    node = order[is_comm & ~on_cpu]
    kind = rank.kind[node]
    is_collective = kind == NodeKind.COMM_COLL
    sound = np.ones(len(node), dtype=np.bool_)
    mistakes = _Mistakes(rank, node, sound, log)
    collective = _collectives(mistakes, is_collective)
    send_splits = rows_of(rank.send_splits, node)
    recv_splits = rows_of(rank.recv_splits, node)
    _check_splits(mistakes, collective, send_splits, CollectiveKind.REDUCE_SCATTER)
    _check_splits(mistakes, collective, recv_splits, CollectiveKind.ALL_GATHER)
    size_bytes = _sizes(mistakes, collective, unit_bytes, send_splits)
    peer_step = _peer_steps(mistakes, rank_count)
    op_kind = np.full(len(node), OpKind.COLLECTIVE, dtype=np.uint8)
    op_kind[kind == NodeKind.COMM_SEND] = OpKind.SEND
    op_kind[kind == NodeKind.COMM_RECV] = OpKind.RECV
    tag = rank.comm.tag[node]
    root = None if rank.comm.root is None else rank.comm.root[node]
    return RankOps(
        rank.rank,
        node,
        op_kind,
        collective,
        size_bytes,
        peer_step,
        tag,
        sound,
        send_splits,
        recv_splits,
        root,
    )


def _report_nodes(
    rank: RankTrace, on_cpu: NDArray[np.int64], unknown: NDArray[np.int64], log: FindingLog
) -> None:
    remedy = "not replayed: it launches an operation that has its own node"
    RankFindings(rank, log).add(
        Check.CPU_COMM_NODE, remedy, on_cpu, "communication on the device", "is_cpu_op true"
    )
    remedy, expected = "replayed as a node with zero duration", "a node type of the schema (0 to 9)"
    proposed = unknown[rank.kind[unknown] == CHECKPOINT_NODE]
    RankFindings(rank, log).add(
        Check.NODE_KIND,
        remedy,
        unknown[rank.kind[unknown] != CHECKPOINT_NODE],
        expected,
        lambda node: f"type {rank.kind[node]}",
    )
    remedy = "write sends and receives instead, or wait for the schema: with type 10, types 8 and 9 have other meanings too"
    proposal = (
        "CHECKPOINT_NODE of a proposal (mlcommons/chakra #216: STORAGE_NODE, BATCH_NODE, CHECKPOINT_NODE)"
    )
    RankFindings(rank, log, Severity.ERROR).add(Check.NODE_KIND, remedy, proposed, expected, proposal)


@dataclass(frozen=True, slots=True, eq=False)
class _Mistakes:
    """Reports mistakes that many operations of a rank may have, and marks these operations as not sound."""

    rank: RankTrace
    node: NDArray[np.int64]
    sound: NDArray[np.bool_]
    log: FindingLog

    def note(
        self,
        check: Check,
        wrong: NDArray[np.bool_],
        expected: str,
        actual: str | Callable[[int], str],
        remedy: str,
    ) -> None:
        """Report the operations marked `wrong` (mask [m]); `actual` may depend on the index of the node."""
        nodes = self.node[wrong]
        RankFindings(self.rank, self.log).add(check, remedy, nodes, expected, actual, examples=EXAMPLES_KEPT)
        self.sound[wrong] = False


def _value_words(column: NDArray[np.int64], index: int) -> str:
    value = int(column[index])
    return "none" if value == ABSENT else str(value)


def _collectives(mistakes: _Mistakes, is_collective: NDArray[np.bool_]) -> NDArray[np.int8]:
    rank, node = mistakes.rank, mistakes.node
    comm_type = rank.comm.type[node]
    absent = is_collective & (comm_type == ABSENT)
    unknown = is_collective & ~absent & ((comm_type < 0) | (comm_type > max(CollectiveKind)))
    remedy = "write comm_type; if absent it is read as ALL_REDUCE, which is 0 in the schema"
    mistakes.note(Check.COMM_TYPE_ABSENT, absent, "comm_type on a collective", "none", remedy)
    mistakes.note(
        Check.COMM_TYPE_UNKNOWN,
        unknown,
        f"comm_type 0 to {max(CollectiveKind):d}",
        lambda index: f"comm_type {rank.comm.type[index]}",
        "correct the exporter",
    )
    collective = np.where(is_collective & ~(absent | unknown), comm_type, -1).astype(np.int8)
    collective[collective == CollectiveKind.REDUCE_SCATTER_BLOCK] = CollectiveKind.REDUCE_SCATTER
    return collective


def _sizes(
    mistakes: _Mistakes, collective: NDArray[np.int8], unit_bytes: int, splits: SplitRows | None
) -> NDArray[np.int64]:
    rank, node, sound = mistakes.rank, mistakes.node, mistakes.sound
    size = rank.comm.size[node]
    has_size = collective != CollectiveKind.BARRIER
    has_splits = np.zeros(len(node), np.bool_) if splits is None else splits.counts > 0
    size_absent = has_size & (size == ABSENT)
    limit = MAX_OP_BYTES // unit_bytes
    wrong = has_size & ~size_absent & ((size < 0) | (size > limit))
    remedy = "write the bytes that the rank contributes"
    mistakes.note(Check.COMM_SIZE_ABSENT, size_absent & ~has_splits, "comm_size", "none", remedy)
    mistakes.note(
        Check.COMM_SIZE_RANGE,
        wrong,
        f"comm_size between 0 and {limit}",
        lambda index: _value_words(rank.comm.size, index),
        "correct the exporter, or the size unit",
    )
    size_bytes = (np.where(has_size & ~size_absent & ~wrong, size, 0) * unit_bytes).astype(np.int64)
    size_bytes[~has_size] = BARRIER_BYTES
    if splits is not None:
        sums = splits.sums()
        split_sized = has_splits & has_size & sound
        differs = split_sized & ~size_absent & (sums != size_bytes)
        _report_sums(rank, node, sums, size_bytes, differs, mistakes.log)
        sound &= ~differs
        size_bytes[split_sized] = sums[split_sized]
    return size_bytes


def _report_sums(
    rank: RankTrace,
    node: NDArray[np.int64],
    sums: NDArray[np.int64],
    size_bytes: NDArray[np.int64],
    differs: NDArray[np.bool_],
    log: FindingLog,
) -> None:
    wrong, expected = np.flatnonzero(differs), "splits that add up to the {} bytes of comm_size"
    if len(wrong):
        examples = (
            node_example(rank, int(node[op]), expected.format(size_bytes[op]), f"{sums[op]} bytes")
            for op in wrong[:EXAMPLES_KEPT].tolist()
        )
        remedy = "correct comm_size or the split sizes; both count the bytes that the rank sends, including those to itself"
        log.add(Check.SPLIT_SUM, remedy, *examples, count=len(wrong))


def _check_splits(
    mistakes: _Mistakes, collective: NDArray[np.int8], splits: SplitRows | None, also: CollectiveKind
) -> None:
    """Check that splits belong to an all-to-all or to the collective `also`, and that each entry is a valid number of
    bytes."""
    if splits is None:
        return
    rank, node = mistakes.rank, mistakes.node
    # A sum may wrap only if an entry is out of range, and then the row is wrong anyway.
    outside = (splits.entry_bytes < 0) | (splits.entry_bytes > MAX_OP_BYTES)
    row = np.repeat(np.arange(len(node)), splits.counts)
    wrong = splits.sums() > MAX_OP_BYTES
    wrong[row[outside]] = True
    on_other_kind = (
        (splits.counts > 0) & ~np.isin(collective, (CollectiveKind.ALL_TO_ALL, also)) & mistakes.sound
    )
    example_bytes = dict(zip(node[wrong].tolist(), splits.sums()[wrong].tolist(), strict=True))
    example_bytes |= dict(zip(node[row[outside]].tolist(), splits.entry_bytes[outside].tolist(), strict=True))
    mistakes.note(
        Check.SPLIT_RANGE,
        wrong,
        f"split sizes of 0 to {MAX_OP_BYTES} bytes, alone and together",
        lambda index: f"{example_bytes[index]}",
        "correct the exporter",
    )
    mistakes.note(
        Check.SPLIT_KIND,
        on_other_kind,
        f"split sizes on ALL_TO_ALL or {also.name} alone",
        lambda index: f"split sizes on comm_type {_value_words(rank.comm.type, index)}",
        "remove the split sizes: this collective has none",
    )


def _peer_steps(mistakes: _Mistakes, rank_count: int) -> NDArray[np.int64]:
    """Return the peer of each send and receive minus the rank, int64 [m]; 0 for collectives.

    The rank's own end may be absent; the peer must be given.
    """
    rank, node = mistakes.rank, mistakes.node
    kind = rank.kind[node]
    is_send, is_recv = kind == NodeKind.COMM_SEND, kind == NodeKind.COMM_RECV
    src, dst = rank.comm.src[node].copy(), rank.comm.dst[node].copy()
    src[is_send & (src == ABSENT)] = rank.rank
    dst[is_recv & (dst == ABSENT)] = rank.rank
    own_end, peer = np.where(is_send, src, dst), np.where(is_send, dst, src)
    is_p2p = is_send | is_recv
    absent = is_p2p & (peer == ABSENT)
    outside = is_p2p & ~absent & ((peer < 0) | (peer >= rank_count))
    wrong_own_end = is_p2p & (own_end != rank.rank)
    to_itself = is_p2p & ~wrong_own_end & (peer == rank.rank)

    def route(index: int) -> str:
        return f"{_value_words(rank.comm.src, index)} -> {_value_words(rank.comm.dst, index)}"

    remedy = "write the global rank of the peer"
    for check, wrong, expected, actual in (
        (Check.PEER_ABSENT, absent, "comm_dst on a SEND, comm_src on a RECV", "none"),
        (Check.PEER_OUT_OF_RANGE, outside, f"a peer among ranks 0 to {rank_count - 1}", route),
        (Check.WRONG_END, wrong_own_end, f"rank {rank.rank} as its own peer", route),
        (Check.PEER_SELF, to_itself, "another rank", lambda index: f"a message to itself ({route(index)})"),
    ):
        mistakes.note(check, wrong, expected, actual, remedy)
    return np.where(is_p2p, peer - rank.rank, 0)


@dataclass(frozen=True, slots=True, eq=False)
class SplitRows:
    """A row of bytes per member for each of m operations; empty where an operation has none."""

    offsets: NDArray[np.int64]
    entry_bytes: NDArray[np.int64]

    @property
    def counts(self) -> NDArray[np.int64]:
        """Return the number of entries of each row, int64 [m]."""
        return np.diff(self.offsets)

    def sums(self) -> NDArray[np.int64]:
        """Return the total bytes of each row, int64 [m]; 0 for an empty row. Entries that are not sizes may make it
        wrap."""
        total = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.entry_bytes)])
        return np.asarray(total[self.offsets[1:]] - total[self.offsets[:-1]], np.int64)

    def rows(self, at: NDArray[np.int64], members: int) -> NDArray[np.int64]:
        """Return the rows of the operations `at` as [len(at), members] int64. Each of them must have `members` entries."""
        return np.asarray(self.entry_bytes[self.offsets[at][:, None] + np.arange(members)], np.int64)


def rows_of(splits: Rows[np.int64] | None, node: NDArray[np.int64]) -> SplitRows | None:
    """Return the rows of the operations at `node`, or None if none of them has a row."""
    if splits is None:
        return None
    offsets, entry_bytes = splits.offsets, splits.values
    counts = np.diff(offsets)[node]
    if not counts.any():
        return None
    row_offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]).astype(np.int64)
    entry_index = np.arange(int(row_offsets[-1])) - np.repeat(row_offsets[:-1], counts)
    return SplitRows(row_offsets, entry_bytes[np.repeat(offsets[:-1][node], counts) + entry_index])
