"""All-to-all as NCCL 2.30 runs it: a grouped send and receive with every peer, in the order of its p2p schedule.

Sources: NCCL init.cc ncclP2pSchedule (order), enqueue.cc addP2pToPlan (cut) and scheduleP2pTasksToPlan (rounds without
work take no place in a batch), device.h (8 works a batch). One channel carries everything: a send is not split over
channels. With uneven splits a peer of zero bytes is sent nothing at all: PyTorch posts neither the send nor the receive
(torch/csrc/cuda/nccl.cpp), where NCCL itself would send an empty message.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from traffic.collectives.point_to_point import p2p_schedule
from traffic.collectives.steps import recv, send
from traffic.collectives.table import Lane, Schedule

if TYPE_CHECKING:
    from collections.abc import Sequence

PEERS_PER_BATCH: Final = 8
"""NCCL_MAX_DEV_WORK_P2P_PER_BATCH: peers that one channel serves side by side."""
SCHEDULE_GROUP_SIZE: Final = 8
"""NCCL_P2P_SCHEDULE_GROUP_SIZE."""
UNEVEN: Final = "p2p-uneven"
"""Algorithm of uneven splits: a name of its own, so that its times are not averaged with those of even ones."""
_ORDERS_KEPT: Final = 256
"""Positions whose order is remembered: uneven splits ask for it again with every matrix."""


@lru_cache(maxsize=_ORDERS_KEPT)
def p2p_order(position: int, size: int, ranks_per_host: int) -> tuple[tuple[int, int], ...]:
    """(peer to send to, peer to receive from) of every round of one position; round 0 is the position itself.

    Hosts have `ranks_per_host` consecutive positions each. Where these do not divide `size` NCCL falls back to
    the greatest group that fits all hosts, and so does this.
    """
    group = _group_size(size, ranks_per_host)
    groups = size // group
    own_group, local = divmod(position, group)
    rounds: list[tuple[int, int]] = []
    for group_delta in _quadratic_order(groups):
        send_group = (own_group + group_delta) % groups
        recv_group = (own_group - group_delta) % groups
        rounds += [
            (send_group * group + (local + delta) % group, recv_group * group + (local - delta) % group)
            for delta in range(group)
        ]
    return tuple(rounds)


def p2p_all_to_all(size: int, ranks_per_host: int) -> Schedule:
    """All-to-all of a send buffer of B bytes: position r sends block d of its buffer to position d."""
    assert size >= 2
    tables = tuple(_lanes(position, size, ranks_per_host) for position in range(size))
    return p2p_schedule("all-to-all", tables, empty_message=False)


def uneven_all_to_all(splits: Sequence[Sequence[int]], ranks_per_host: int) -> Schedule:
    """All-to-all in which position i sends `splits[i][j]` bytes to position j; what it keeps (j = i) is not moved.

    The lanes state their bytes: the byte count of an op that runs this schedule does not matter.
    """
    size = len(splits)
    assert size >= 2
    assert all(len(row) == size for row in splits)
    tables = tuple(_uneven_lanes(position, splits, ranks_per_host) for position in range(size))
    schedule = p2p_schedule("uneven all-to-all", tables, empty_message=False)
    return replace(schedule, algorithm=UNEVEN, splits=tuple(map(tuple, splits)))


@lru_cache(maxsize=1 << 18)
def _send_lane(batch: int, send_to: int, size: int) -> Lane:
    # Equal for all positions that send to this peer in this batch, so it is made once for them.
    return Lane(batch, send_to, -1, send_to, size, (send(0, send_to),))


def _lanes(position: int, size: int, ranks_per_host: int) -> tuple[Lane, ...]:
    received = (recv(0, position),)
    lanes: list[Lane] = []
    # The self round is a copy inside the accelerator; it takes no place in a batch.
    for index, (send_to, recv_from) in enumerate(p2p_order(position, size, ranks_per_host)[1:]):
        batch = index // PEERS_PER_BATCH
        lanes.append(_send_lane(batch, send_to, size))
        lanes.append(Lane(batch, -1, recv_from, position, size, received))
    return tuple(lanes)


def _uneven_lanes(position: int, splits: Sequence[Sequence[int]], ranks_per_host: int) -> tuple[Lane, ...]:
    size = len(splits)
    lanes: list[Lane] = []
    works = 0
    for send_to, recv_from in p2p_order(position, size, ranks_per_host)[1:]:
        sent, received = splits[position][send_to], splits[recv_from][position]
        if not sent and not received:
            continue
        batch = works // PEERS_PER_BATCH
        works += 1
        if sent:
            entries = (send(0, position),)
            lanes.append(Lane(batch, send_to, -1, send_to, size, entries, sent))
        if received:
            entries = (recv(0, recv_from),)
            lanes.append(Lane(batch, -1, recv_from, position, size, entries, received))
    return tuple(lanes)


def _group_size(size: int, ranks_per_host: int) -> int:
    local = [min(ranks_per_host, size - first) for first in range(0, size, ranks_per_host)]
    group = SCHEDULE_GROUP_SIZE if len(local) > 1 else size
    for count in local:
        if count % group != 0:
            group = math.gcd(group, count)
    return group


def _quadratic_order(groups: int) -> tuple[int, ...]:
    """0, 1, 3, 6, 10, ... modulo the next power of two, without values that name no group: each group once."""
    modulus = 1 << (groups - 1).bit_length()
    deltas = ((x * x + x) // 2 % modulus for x in range(modulus))
    return tuple(delta for delta in deltas if delta < groups)
