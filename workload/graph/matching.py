"""Matches operations across ranks: collectives by their k-th use, sends and receives by (src, dst, tag).

A trace has no collective id. The k-th operation of a communicator, in issue order, on one member is the k-th on
every other. If members disagree in count, type or size, the trace cannot be replayed and both sides are reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.graph.network_ops import RankOps
from etloop.workload.trace.findings import Check, FindingLog, node_example, node_words
from etloop.workload.trace.program import Communicator, OpKind
from etloop.workload.trace.shared_columns import offsets_of
from etloop.workload.trace.trace import ABSENT, CollectiveKind, RankTrace, Trace
from etloop.workload.trace.trace_names import printable_name

if TYPE_CHECKING:
    from numpy.typing import NDArray


MAY_DIFFER: Final = (CollectiveKind.ALL_TO_ALL, CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER)
"""Collectives whose members may put in different sizes."""


@dataclass(frozen=True, slots=True, eq=False)
class Matching:
    """Operations of all ranks joined into items: a collective is one item on all its members; each send or receive has
    its own."""

    item: tuple[NDArray[np.int64], ...]
    """Per rank: item of each operation."""
    item_count: int
    use: tuple[NDArray[np.int64], ...]
    """Per rank: k of each collective, its index among the uses of its communicator in issue order; -1 for sends and
    receives."""
    collective_count: int
    """Items [0, collective_count) are collectives, ordered by communicator."""
    first_collective: NDArray[np.int64]
    """First item of each communicator."""
    first_message: NDArray[np.int64]
    """First item of the sends and receives of each rank, which follow each other in issue order."""
    sends: NDArray[np.int64]
    """Item of the SEND of each pair; `recvs` holds that of its RECV."""
    recvs: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Side:
    """One member's operations of a communicator: positions in its `RankOps`, in issue order."""

    rank: RankTrace
    ops: RankOps
    at: NDArray[np.int64]

    def call(self, k: int) -> str:
        """Describe the k-th operation, with rank and node."""
        position = int(self.at[k])
        node = int(self.ops.node[position])
        kind = CollectiveKind(int(self.ops.collective[position])).name
        return (
            f"{kind} of {self.ops.size_bytes[position]} bytes "
            f"(rank {self.rank.rank} {node_words(self.rank, node)})"
        )

    def node(self, k: int) -> int:
        return int(self.ops.node[self.at[k]])


def match(
    trace: Trace,
    ops: Sequence[RankOps],
    communicators: Sequence[Communicator],
    communicator_of: Sequence[NDArray[np.int32]],
    log: FindingLog,
    *,
    takes_uneven: bool = False,
) -> Matching:
    """Join the operations of all ranks and report every disagreement. The result is valid only if no error was
    reported.

    With `takes_uneven`, members of a collective in `MAY_DIFFER` may put in different sizes without stating splits.
    """
    item = tuple(np.full(len(rank_ops), -1, dtype=np.int64) for rank_ops in ops)
    use = tuple(np.full(len(rank_ops), -1, dtype=np.int64) for rank_ops in ops)
    item_count = 0
    uses = [_uses(column) for column in communicator_of]
    no_positions = np.zeros(0, dtype=np.int64)
    first_collective, first_message = [], []
    for communicator in communicators:
        first_collective.append(item_count)
        sides = [
            _Side(trace.ranks[member], ops[member], uses[member].get(communicator.index, no_positions))
            for member in communicator.members
            if 0 <= member < len(trace.ranks)
        ]
        longest = max((len(side.at) for side in sides), default=0)
        uneven = _uneven(sides, longest, takes_uneven=takes_uneven)
        for side in sides:
            use[side.rank.rank][side.at] = np.arange(len(side.at))
            item[side.rank.rank][side.at] = item_count + np.arange(len(side.at))
        item_count += longest
        for side in sides[1:]:
            _compare(communicator, sides[0], side, uneven, log)
    collective_count = item_count
    for rank_ops, column in zip(ops, item, strict=True):
        first_message.append(item_count)
        p2p_positions = np.flatnonzero(rank_ops.kind != OpKind.COLLECTIVE)
        column[p2p_positions] = item_count + np.arange(len(p2p_positions))
        item_count += len(p2p_positions)
    sends, recvs = _pair(trace, ops, item, log)
    return Matching(
        item,
        item_count,
        use,
        collective_count,
        np.array(first_collective, dtype=np.int64),
        np.array(first_message, dtype=np.int64),
        sends,
        recvs,
    )


def _uses(communicator_of: NDArray[np.int32]) -> dict[int, NDArray[np.int64]]:
    """Return the positions of the operations of each communicator, in issue order, by communicator index."""
    if not len(communicator_of):
        return {}
    by_communicator = np.argsort(communicator_of, kind="stable")
    sorted_column = communicator_of[by_communicator]
    indices, starts = np.unique(sorted_column, return_index=True)
    position_groups = np.split(by_communicator, starts[1:])
    return {
        index: positions
        for index, positions in zip(indices.tolist(), position_groups, strict=True)
        if index >= 0
    }


def _uneven(sides: Sequence[_Side], longest: int, *, takes_uneven: bool) -> NDArray[np.bool_]:
    """Return a mask [longest] of operations whose members may put in different sizes: a member states splits, or the
    user allows it."""
    uneven = np.zeros(longest, dtype=np.bool_)
    for side in sides:
        for rows in (side.ops.send_splits, side.ops.recv_splits):
            if rows is not None:
                uneven[: len(side.at)] |= rows.counts[side.at] > 0
        if takes_uneven:
            uneven[: len(side.at)] |= np.isin(side.ops.collective[side.at], MAY_DIFFER)
    return uneven


def _compare(
    communicator: Communicator, first: _Side, other: _Side, uneven: NDArray[np.bool_], log: FindingLog
) -> None:
    if len(first.at) != len(other.at):
        _report_count(communicator, first, other, log)
    shared = min(len(first.at), len(other.at))
    first_positions, other_positions = first.at[:shared], other.at[:shared]
    sound = first.ops.sound[first_positions] & other.ops.sound[other_positions]
    differs = sound & (
        (first.ops.collective[first_positions] != other.ops.collective[other_positions])
        | (
            (first.ops.size_bytes[first_positions] != other.ops.size_bytes[other_positions])
            & ~uneven[:shared]
        )
    )
    differing = np.flatnonzero(differs)
    if len(differing):
        k = int(differing[0])
        name = printable_name(communicator.name)
        expected = f'operation {k} of communicator "{name}" alike on all members: {first.call(k)}'
        remedy = "the members must issue the same operations in the same order: correct the exporter, or the group file"
        kinds = first.ops.collective[first_positions][differing]
        if (
            np.isin(kinds, MAY_DIFFER).all()
            and (kinds == other.ops.collective[other_positions][differing]).all()
        ):
            remedy = (
                "if uneven sizes are intended (experts, unequal shards), choose how they are split: workload.uneven "
                "(--uneven) even or skew; a PyTorch host trace (JSON) states the split sizes, .et does not; else correct the "
                "exporter, or the group file"
            )
        example = node_example(other.rank, other.node(k), expected, other.call(k))
        log.add(Check.COLLECTIVE_DIFFERS, remedy, example, count=len(differing))


def _report_count(communicator: Communicator, first: _Side, other: _Side, log: FindingLog) -> None:
    longer, shorter = (first, other) if len(first.at) > len(other.at) else (other, first)
    k = len(shorter.at)
    expected = (
        f'operation {k} of communicator "{printable_name(communicator.name)}" on rank {shorter.rank.rank} too'
    )
    actual = f"{len(longer.at)} operations on rank {longer.rank.rank} and {k} on rank {shorter.rank.rank}"
    remedy = (
        "every member must take part in every operation: if the recordings end at different steps, record the same steps on "
        "all ranks (torch.profiler.schedule); if a program wrote the trace, add the missing nodes, or correct the group file"
    )
    log.add(Check.COLLECTIVE_COUNT, remedy, node_example(longer.rank, longer.node(k), expected, actual))


@dataclass(frozen=True, slots=True)
class _End:
    """One end of a message, a send or a receive: its place."""

    rank: int
    position: int


@dataclass(frozen=True, slots=True, eq=False)
class _Ends:
    """The sends and receives of all ranks without a mistake of their own, one column entry each."""

    rank: NDArray[np.int64]
    position: NDArray[np.int64]
    item: NDArray[np.int64]
    is_recv: NDArray[np.bool_]
    src: NDArray[np.int64]
    dst: NDArray[np.int64]
    tag: NDArray[np.int64]
    size_bytes: NDArray[np.int64]

    def sort(self) -> _Ends:
        """Return the ends by (src, dst, tag); of each, sends first, both in issue order."""
        order = np.lexsort((self.is_recv, self.tag, self.dst, self.src))
        return _Ends(*(getattr(self, entry.name)[order] for entry in fields(self)))

    def place(self, at: int) -> _End:
        return _End(int(self.rank[at]), int(self.position[at]))


def _message_ends(ops: Sequence[RankOps], item: Sequence[NDArray[np.int64]]) -> _Ends:
    columns: list[list[NDArray[np.int64]]] = [[np.zeros(0, np.int64)] for _ in fields(_Ends)]
    for rank, (rank_ops, items) in enumerate(zip(ops, item, strict=True)):
        position = np.flatnonzero((rank_ops.kind != OpKind.COLLECTIVE) & rank_ops.sound)
        if not len(position):
            continue
        is_recv = rank_ops.kind[position] == OpKind.RECV
        own, peer = np.full(len(position), rank), rank + rank_ops.peer_step[position]
        src, dst = np.where(is_recv, peer, own), np.where(is_recv, own, peer)
        tag, size_bytes = rank_ops.tag[position], rank_ops.size_bytes[position]
        values = (own, position, items[position], is_recv, src, dst, tag, size_bytes)
        for column, value in zip(columns, values, strict=True):
            column.append(value)
    ranks, positions, all_items, are_recv, *others = (np.concatenate(column) for column in columns)
    return _Ends(ranks, positions, all_items, are_recv.astype(np.bool_), *others)


def _pair(
    trace: Trace, ops: Sequence[RankOps], item: Sequence[NDArray[np.int64]], log: FindingLog
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pair the k-th send of a (src, dst, tag) with its k-th receive. Returns the items of sends and receives, each
    int64 [pairs]."""
    ends = _message_ends(ops, item).sort()
    if not len(ends.rank):
        return ends.item, ends.item
    begins = np.ones(len(ends.rank), dtype=np.bool_)
    begins[1:] = (np.diff(ends.src) != 0) | (np.diff(ends.dst) != 0) | (ends.tag[1:] != ends.tag[:-1])
    starts = np.flatnonzero(begins)
    recv_counts = np.add.reduceat(ends.is_recv.astype(np.int64), starts)
    send_counts = np.diff(np.append(starts, len(ends.rank))) - recv_counts
    pair_counts = np.minimum(send_counts, recv_counts)
    pair_offsets = offsets_of(pair_counts)
    send_at = np.repeat(starts - pair_offsets[:-1], pair_counts) + np.arange(pair_offsets[-1])
    recv_at = send_at + np.repeat(send_counts, pair_counts)
    differs = np.flatnonzero(ends.size_bytes[send_at] != ends.size_bytes[recv_at])
    key_of_differing = np.searchsorted(pair_offsets, differs, side="right") - 1
    # An end may lack its partner because the partner had a mistake of its own, which was reported already.
    ranks_with_mistakes = {
        rank
        for rank, rank_ops in enumerate(ops)
        if bool((~rank_ops.sound & (rank_ops.kind != OpKind.COLLECTIVE)).any())
    }
    for key in np.union1d(key_of_differing, np.flatnonzero(send_counts != recv_counts)).tolist():
        first_pair, next_pair = np.searchsorted(key_of_differing, [key, key + 1])
        for pair in differs[first_pair:next_pair].tolist():
            send, recv = ends.place(int(send_at[pair])), ends.place(int(recv_at[pair]))
            _report_sizes(trace, ops, send, recv, log)
        first, first_recv = int(starts[key]), int(starts[key] + send_counts[key])
        src, dst = int(ends.src[first]), int(ends.dst[first])
        paired, sends, recvs = int(pair_counts[key]), int(send_counts[key]), int(recv_counts[key])
        _report_unmatched(
            trace,
            ops,
            (src, dst, int(ends.tag[first])),
            [ends.place(first + k) for k in range(paired, sends) if dst not in ranks_with_mistakes],
            [ends.place(first_recv + k) for k in range(paired, recvs) if src not in ranks_with_mistakes],
            log,
        )
    return ends.item[send_at], ends.item[recv_at]


def _report_sizes(trace: Trace, ops: Sequence[RankOps], send: _End, recv: _End, log: FindingLog) -> None:
    sent = int(ops[send.rank].size_bytes[send.position])
    received = int(ops[recv.rank].size_bytes[recv.position])
    rank, node = trace.ranks[recv.rank], int(ops[recv.rank].node[recv.position])
    sender = node_words(trace.ranks[send.rank], int(ops[send.rank].node[send.position]))
    expected = f"the {sent} bytes that rank {send.rank} {sender} sends"
    remedy = "a receive must expect what is sent: correct comm_size or comm_tag"
    log.add(Check.P2P_SIZE_DIFFERS, remedy, node_example(rank, node, expected, f"{received} bytes"))


def _report_unmatched(
    trace: Trace,
    ops: Sequence[RankOps],
    key: tuple[int, int, int],
    sends: list[_End],
    recvs: list[_End],
    log: FindingLog,
) -> None:
    src, dst, tag = key
    route = f"rank {src} to rank {dst} with {'no tag' if tag == ABSENT else f'tag {tag}'}"
    for ends, check, partner, peer in (
        (sends, Check.SEND_UNMATCHED, "a COMM_RECV", dst),
        (recvs, Check.RECV_UNMATCHED, "a COMM_SEND", src),
    ):
        if ends:
            rank, node = trace.ranks[ends[0].rank], int(ops[ends[0].rank].node[ends[0].position])
            remedy = "every send needs its receive: correct comm_src, comm_dst or comm_tag, or add the node"
            example = node_example(rank, node, f"{partner} on rank {peer} for {route}", "none unmatched")
            log.add(check, remedy, example, count=len(ends))
