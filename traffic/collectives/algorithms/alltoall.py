"""All-to-all as in NCCL 2.30: a grouped send and receive with every peer, in the order of its p2p schedule.

Sources: NCCL init.cc ncclP2pSchedule (order), enqueue.cc addP2pToPlan (parts and cut) and scheduleP2pTasksToPlan
(rounds without work take no slot in a batch), include/channel.h ncclP2pChannelBaseForRound (channel of a round),
device.h (8 works per batch). A transfer has one or more parts, each on its own channel; every channel serves eight
works in parallel, one batch after another. With uneven splits, no message is sent to a peer with zero bytes: PyTorch
posts neither the send nor the receive (torch/csrc/cuda/nccl.cpp), whereas NCCL itself would send an empty message.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from functools import lru_cache, partial
from typing import Final

from etloop.traffic.collectives.algorithms.point_to_point import p2p_schedule
from etloop.traffic.collectives.core.cutting import Request
from etloop.traffic.collectives.core.draft import KEEP, SEND, entry
from etloop.traffic.collectives.core.lazy_tables import LazyTables
from etloop.traffic.collectives.core.regular_columns import ExchangeShape, exchange_columns
from etloop.traffic.collectives.core.table import Lane, Schedule

PEERS_PER_BATCH: Final = 8
"""NCCL_MAX_DEV_WORK_P2P_PER_BATCH: works that one channel serves in parallel."""
SCHEDULE_GROUP_SIZE: Final = 8
"""NCCL_P2P_SCHEDULE_GROUP_SIZE."""
UNEVEN: Final = "p2p-uneven"
"""Algorithm name for uneven splits, so that their times are not averaged with those of even ones."""
_ORDERS_KEPT: Final = 256
"""Positions whose order is cached: it is needed again for every matrix of uneven splits."""


@lru_cache(maxsize=_ORDERS_KEPT)
def p2p_order(position: int, size: int, ranks_per_host: int) -> tuple[tuple[int, int], ...]:
    """Return (peer to send to, peer to receive from) for every round of one position; round 0 is the position itself.

    Hosts have `ranks_per_host` consecutive positions each. If these do not divide `size`, NCCL falls back to the
    greatest group size that divides all hosts, and so does this function.
    """
    group = _group_size(size, ranks_per_host)
    groups = size // group
    own_group, local = divmod(position, group)
    rounds: list[tuple[int, int]] = []
    for group_delta in quadratic_order(groups):
        send_group = (own_group + group_delta) % groups
        recv_group = (own_group - group_delta) % groups
        rounds += [
            (send_group * group + (local + delta) % group, recv_group * group + (local - delta) % group)
            for delta in range(group)
        ]
    return tuple(rounds)


def quadratic_order(groups: int) -> tuple[int, ...]:
    """Return 0, 1, 3, 6, 10, ... modulo the next power of two, without values that are not groups: each group once."""
    modulus = 1 << (groups - 1).bit_length()
    deltas = ((x * x + x) // 2 % modulus for x in range(modulus))
    return tuple(delta for delta in deltas if delta < groups)


def base_channel(round_number: int, size: int, ranks_per_host: int, channels: int) -> int:
    """Return the channel of the first part of a round; `channels` is a power of two.

    Neighbouring rounds get channels that are far apart, by reversing the bits of the round number. Between hosts, up to
    eight rounds with the same host share a channel.
    """
    number = round_number
    if size > ranks_per_host:
        # NCCL divides by the positions of a host, not by those of a schedule group.
        host, local = divmod(round_number, ranks_per_host)
        number = host * -(-ranks_per_host // PEERS_PER_BATCH) + local // PEERS_PER_BATCH
    bits = channels.bit_length() - 1
    return sum((number >> bit & 1) << (bits - 1 - bit) for bit in range(bits))


def p2p_all_to_all(request: Request) -> Schedule:
    """Build an all-to-all of a send buffer of B bytes: position r sends block d of its buffer to position d.

    With splits in the request, position i sends `splits[i][j]` bytes to position j, and the lanes state their bytes:
    the byte count of an op that uses this schedule is ignored. Data that a position keeps is not moved.
    """
    size = request.size
    assert size >= 2
    cutting = request.cutting
    channels = cutting.channels if cutting.peers is not None else 1
    assert channels & (channels - 1) == 0
    placed = replace(request, ranks_per_host=min(request.ranks_per_host, size))
    columns = None if request.splits else partial(exchange_columns, _exchange_shape(placed, channels))
    tables = LazyTables(size, lambda position: _lanes(position, placed, channels), columns)
    schedule = p2p_schedule(request, tables, empty_message=False)
    return replace(schedule, algorithm=UNEVEN) if request.splits else schedule


class _Batches:
    """Counts the works of every channel; a new batch begins after eight."""

    def __init__(self, request: Request, channels: int) -> None:
        self._request = request
        self._channels = channels
        self._works: Counter[int] = Counter()

    def place(self, round_number: int, part: int) -> tuple[int, int]:
        """Return (channel, batch) of the next part of a round."""
        base = base_channel(round_number, self._request.size, self._request.ranks_per_host, self._channels)
        channel = (base + part) & (self._channels - 1)
        batch = self._works[channel] // PEERS_PER_BATCH
        self._works[channel] += 1
        return channel, batch


def _exchange_shape(request: Request, channels: int) -> ExchangeShape:
    """Return the shape of an even all-to-all, from which columns are computed."""
    size, parts = request.size, request.cutting.parts
    group = _group_size(size, request.ranks_per_host)
    batches = _Batches(request, channels)
    return ExchangeShape(
        size=size,
        group=group,
        group_deltas=quadratic_order(size // group),
        parts=parts,
        places=tuple(batches.place(number, part) for number in range(1, size) for part in range(parts)),
    )


def _lanes(position: int, request: Request, channels: int) -> tuple[Lane, ...]:
    """Return one lane per part sent and one per part received; without splits their bytes follow from the op's."""
    size, splits = request.size, request.splits
    batches = _Batches(request, channels)
    lanes: list[Lane] = []
    # Round 0 is a copy inside the accelerator; it uses no slot in a batch.
    order = p2p_order(position, size, request.ranks_per_host)
    for number, (send_to, recv_from) in enumerate(order[1:], 1):
        sent, received = (splits[position][send_to], splits[recv_from][position]) if splits else (-1, -1)
        send_parts, recv_parts = _parts(request, sent), _parts(request, received)
        sending = entry(SEND, 0, position * size + send_to)
        receiving = entry(KEEP, 0, recv_from * size + position)
        for part in range(max(send_parts, recv_parts)):
            channel, batch = batches.place(number, part)
            if part < send_parts:
                share = (part, send_parts)
                lanes.append(Lane(batch, send_to, -1, send_to, size, (sending,), sent, channel, 1, *share))
            if part < recv_parts:
                share = (part, recv_parts)
                lanes.append(
                    Lane(batch, -1, recv_from, position, size, (receiving,), received, channel, 1, *share)
                )
    return tuple(sorted(lanes, key=lambda lane: lane.batch))


def _parts(request: Request, moved_bytes: int) -> int:
    """Return the number of parts of a transfer; `moved_bytes` -1: of a transfer of an even all-to-all."""
    if moved_bytes < 0:
        return request.cutting.parts
    peers = request.cutting.peers
    return 0 if not moved_bytes else 1 if peers is None else peers.parts_of(moved_bytes)


def _group_size(size: int, ranks_per_host: int) -> int:
    """Return the size of NCCL's schedule groups: 8, or the greatest common divisor with the sizes of all hosts."""
    local = [min(ranks_per_host, size - first) for first in range(0, size, ranks_per_host)]
    group = SCHEDULE_GROUP_SIZE if len(local) > 1 else size
    for count in local:
        if count % group != 0:
            group = math.gcd(group, count)
    return group
