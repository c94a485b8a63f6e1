"""DeepEP's exchanges of a mixture of experts, from histograms: how many tokens of each rank go to each expert, rank or
host.

Low latency: one RDMA write per token and expert, directly to the expert's rank, on the queue pair (channel) with the
expert's number on its rank, and one atomic add to close each; combining is the same in reverse. Normal mode: a token is
sent once to the same place of a destination host, several tokens per write, and is forwarded inside the host to the
ranks that need it. There are no grants (`Handshake.ONE_SIDED`). Source: deepseek-ai/DeepEP
csrc/kernels/internode_ll.cu, internode.cu.

The schedules are uneven all-to-alls: their lanes state their bytes, and `Schedule.splits` sums them over channels. The
workload decides how tokens choose experts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from etloop.contract.base.setting import setting
from etloop.contract.base.value_parsers import integer, one_of
from etloop.traffic.collectives.algorithms.direct import exchange_move
from etloop.traffic.collectives.core.cutting import Request
from etloop.traffic.collectives.core.draft import (
    KEEP,
    SEND,
    LaneDraft,
    Move,
    TableDraft,
    each_channel,
    schedule_of,
)
from etloop.traffic.collectives.core.symmetric_tables import Symmetry, ahead
from etloop.traffic.collectives.core.table import ChunkRule, Handshake, Lane, Schedule, Split

if TYPE_CHECKING:
    Counts = Sequence[Sequence[int]]

HEADER_BYTES: Final = 16
"""Header of a token in a low-latency dispatch: its source index, padded."""
VALUES_PER_SCALE: Final = 128
"""FP8 values that share a scale; `hidden` is a multiple."""
MOST_HIDDEN: Final = 1 << 16
"""Most values of a token, far above those of any model."""
_SLOTS: Final = 32
"""Writes of one queue pair in flight; DeepEP has no limit except the send queue."""


@dataclass(frozen=True, slots=True)
class TokenShape:
    """A token on the wire: `hidden` values, of one byte with a scale for every 128 (FP8) or of two bytes (BF16)."""

    hidden: int = setting("hidden", integer(VALUES_PER_SCALE, MOST_HIDDEN), 7168)
    """Values of a token, a multiple of 128."""
    fp8: bool = setting("values", one_of({"fp8": True, "bf16": False}), True)
    """Type of the values."""
    top_k: int = 8

    @property
    def dispatch_bytes(self) -> int:
        """Return the bytes of a low-latency dispatch write: 7,408 for 7,168 values in FP8, 14,352 in BF16."""
        if self.fp8:
            return HEADER_BYTES + self.hidden + self.hidden // VALUES_PER_SCALE * 4
        return HEADER_BYTES + 2 * self.hidden

    @property
    def combine_bytes(self) -> int:
        """Return the bytes of a low-latency combine write, which is always BF16."""
        return 2 * self.hidden

    @property
    def normal_bytes(self) -> int:
        """Return the bytes of a token in normal mode: values, source, scales, and expert and weight of each choice.

        The result is a multiple of 16.
        """
        values, scales = (self.hidden, self.hidden // VALUES_PER_SCALE) if self.fp8 else (2 * self.hidden, 0)
        return -(-(values + 8 + 4 * scales + 8 * self.top_k) // 16) * 16


TOKEN: Final = TokenShape()
"""Token of DeepSeek-V3, used if only bytes are known."""


def deepep(request: Request) -> Schedule:
    """Build any all-to-all as a low-latency exchange: one-token writes (`Cutting.token_bytes`), spread over channels.

    For traces, which record how many bytes a pair exchanges but no experts; channels represent the experts of a rank.
    """
    size, channels = request.size, request.cutting.channels
    assert size >= 2
    token = request.cutting.token_bytes or TOKEN.dispatch_bytes
    if request.splits:
        legs = [
            _Leg(source, target, channel, part_bytes)
            for source, row in enumerate(request.splits)
            for target, split in enumerate(row)
            for channel, part_bytes in enumerate(_whole_tokens(split, channels, token))
        ]
        return _schedule("deepep", size, channels, legs, token)
    symmetry = Symmetry(ahead(size), ahead(size))
    tables = each_channel(request, lambda position: _even_lanes(position, size), symmetry)
    return replace(
        schedule_of(request, "deepep", tables, blocks=size),
        chunk_bytes=token,
        min_slice_bytes=0,
        slots=_SLOTS,
        split=Split.EQUAL,
        handshake=Handshake.ONE_SIDED,
    )


def low_latency_dispatch(counts: Counts, message_bytes: int) -> Schedule:
    """Build a dispatch of `counts[rank][expert]` tokens of every rank to every expert.

    Experts are spread evenly over ranks, in order. Requires at least 2 ranks, and a number of experts that is a
    multiple of the ranks.
    """
    size, experts_per_rank = _shape(counts)
    legs = [
        _Leg(source, expert // experts_per_rank, expert % experts_per_rank, tokens * message_bytes)
        for source, row in enumerate(counts)
        for expert, tokens in enumerate(row)
    ]
    return _schedule("deepep_dispatch", size, experts_per_rank, legs, message_bytes)


def low_latency_combine(counts: Counts, message_bytes: int) -> Schedule:
    """Build the combine for the same tokens: every expert's rank returns their results to the source rank."""
    size, experts_per_rank = _shape(counts)
    legs = [
        _Leg(expert // experts_per_rank, target, expert % experts_per_rank, tokens * message_bytes)
        for target, row in enumerate(counts)
        for expert, tokens in enumerate(row)
    ]
    return _schedule("deepep_combine", size, experts_per_rank, legs, message_bytes)


def normal_dispatch(
    rank_tokens: Counts, host_tokens: Counts, ranks_per_host: int, token_bytes: int, tokens_per_write: int
) -> Schedule:
    """Build a dispatch in normal mode, by way of hosts.

    Rank q needs `rank_tokens[r][q]` tokens of rank r, and at least one rank of host h needs `host_tokens[r][h]` of
    them. A rank forwards data inside its host after all data from its place on the source host has arrived; channel h
    of a connection inside a host carries the data of host h. Requires hosts with the same number of ranks.
    """
    size, hosts = len(rank_tokens), len(rank_tokens) // ranks_per_host
    assert size == hosts * ranks_per_host
    legs = []
    for source, (to_ranks, to_hosts) in enumerate(zip(rank_tokens, host_tokens, strict=True)):
        own_host, place = divmod(source, ranks_per_host)
        for host in range(hosts):
            relay = host * ranks_per_host + place
            if host != own_host:
                legs.append(_Leg(source, relay, 0, to_hosts[host] * token_bytes))
            for target in range(host * ranks_per_host, (host + 1) * ranks_per_host):
                came_from = source if host != own_host else -1
                legs.append(_Leg(relay, target, own_host, to_ranks[target] * token_bytes, came_from))
    channels = hosts if ranks_per_host > 1 else 1
    return _schedule("deepep_normal", size, channels, legs, token_bytes * tokens_per_write)


@dataclass(frozen=True, slots=True)
class _Leg:
    """Bytes from one rank to another on a channel, sent after those from `after` (-1: none) have arrived on channel 0."""

    source: int
    target: int
    channel: int
    leg_bytes: int
    after: int = -1


def _even_lanes(position: int, size: int) -> tuple[Lane, ...]:
    """Return the table of a position for equal blocks."""
    table = TableDraft()
    for i in range(1, size):
        source, target = (position - i) % size, (position + i) % size
        table.lane(recv_from=source).add(KEEP, [exchange_move(source, position, size)])
        table.lane(send_to=target).add(SEND, [exchange_move(position, target, size)])
    return table.lanes()


def _whole_tokens(split_bytes: int, channels: int, token_bytes: int) -> Iterator[int]:
    """Yield the bytes of every channel: whole tokens divided evenly; the last token may be partial."""
    tokens = -(-split_bytes // token_bytes)
    for channel in range(channels):
        first, last = channel * tokens // channels, (channel + 1) * tokens // channels
        yield min(last * token_bytes, split_bytes) - first * token_bytes if last > first else 0


def _shape(counts: Counts) -> tuple[int, int]:
    """Return the number of ranks, and of experts per rank."""
    size = len(counts)
    assert size >= 2
    assert all(len(row) == len(counts[0]) for row in counts)
    assert len(counts[0]) % size == 0
    return size, len(counts[0]) // size


def _schedule(algorithm: str, size: int, channels: int, legs: Sequence[_Leg], message_bytes: int) -> Schedule:
    """Build the schedule of legs between different ranks."""
    crossing = [leg for leg in legs if leg.source != leg.target]
    splits = [[0] * size for _ in range(size)]
    for leg in crossing:
        splits[leg.source][leg.target] += leg.leg_bytes
    return Schedule(
        collective="uneven all-to-all",
        algorithm=algorithm,
        size=size,
        tables=tuple(_tables(size, crossing)),
        chunk_rule=ChunkRule.FIXED,
        chunk_bytes=message_bytes,
        chunks_per_loop=1,
        shrink_last=False,
        slices=1,
        min_slice_bytes=0,
        slots=_SLOTS,
        empty_message=False,
        slice_align_bytes=1,
        splits=tuple(map(tuple, splits)),
        channels=channels,
        handshake=Handshake.ONE_SIDED,
    )


def _tables(size: int, legs: Sequence[_Leg]) -> Iterator[tuple[Lane, ...]]:
    """Yield the table of every position."""
    sent: list[list[_Leg]] = [[] for _ in range(size)]
    received: list[list[_Leg]] = [[] for _ in range(size)]
    for leg in legs:
        sent[leg.source].append(leg)
        received[leg.target].append(leg)
    for position in range(size):
        table = TableDraft()
        arriving: dict[int, LaneDraft] = {}
        # Peers in the order of distance, so that every rank begins with a different one.
        for leg in sorted(received[position], key=lambda leg: (position - leg.source) % size):
            lane = table.add(Lane(0, -1, leg.source, 0, 1, (), leg.leg_bytes, leg.channel))
            lane.add(KEEP, [Move(0, leg.source * size + position)])
            if leg.channel == 0 and leg.after < 0:
                arriving[leg.source] = lane
        for leg in sorted(sent[position], key=lambda leg: (leg.target - position) % size):
            lane = table.add(Lane(0, leg.target, -1, 0, 1, (), leg.leg_bytes, leg.channel))
            waits = [arriving[leg.after].done] if leg.after >= 0 else []
            lane.add(SEND, [Move(0, position * size + leg.target)], waits)
        yield table.lanes()
