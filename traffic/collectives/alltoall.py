"""All-to-all as NCCL 2.30 runs it: a grouped send and receive with every peer, in the order of its p2p schedule.

Sources: NCCL init.cc ncclP2pSchedule (order), enqueue.cc addP2pToPlan (cut), device.h (8 works a batch). One channel
carries everything: a send is not split over channels.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

from traffic.collectives.point_to_point import p2p_schedule
from traffic.collectives.steps import recv, send
from traffic.collectives.table import Lane, Schedule

PEERS_PER_BATCH: Final = 8
"""NCCL_MAX_DEV_WORK_P2P_PER_BATCH: peers that one channel serves side by side."""
SCHEDULE_GROUP_SIZE: Final = 8
"""NCCL_P2P_SCHEDULE_GROUP_SIZE."""


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
