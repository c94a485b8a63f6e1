"""Rings and even all-to-alls as columns directly: the values of their lanes, computed for many positions at once.

The lanes of `ring` and `alltoall` are the definition; a property test checks that these columns are equal to them. At
1,024 positions and 16 channels, lanes would be millions of objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.traffic.collectives.core.lazy_tables import TableColumns
from etloop.traffic.collectives.core.table import Entry, EntryKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NONE: Final = np.array([-1], np.int32)
_ZERO: Final = np.zeros(1, np.int32)
_ONE: Final = np.ones(1, np.int32)
_FOLLOWS_OP: Final = np.array([-1], np.int64)
_SEND_AND_RECEIVE: Final = np.array([EntryKind.SEND, EntryKind.RECV | EntryKind.COPY], np.uint8)


@dataclass(frozen=True, slots=True)
class RingShape:
    """The rings of all channels, each as its positions in order, and the entries of the position at place 0 of a ring.

    If `chunks_turn`, the chunk of an entry at place p is larger by p (modulo the size). If `chunks_are_positions`
    (reduce-scatter), the chunk is then replaced by the position at that place of the ring.
    """

    orders: tuple[tuple[int, ...], ...]
    entries: tuple[Entry, ...]
    chunks_turn: bool
    chunks_are_positions: bool


def ring_columns(shape: RingShape, positions: Sequence[int]) -> TableColumns:
    """Return the tables of some positions: one lane per channel. Equal entries are shared."""
    distinct = {order: index for index, order in enumerate(dict.fromkeys(shape.orders))}
    order = np.array(list(distinct), np.int32)
    size, channels = order.shape[1], len(shape.orders)
    ring_of_channel = np.array([distinct[ring] for ring in shape.orders], np.int64)
    position = np.array(positions, np.int32)
    place = np.argsort(order, axis=1)[ring_of_channel][:, position].T
    if not shape.chunks_turn:
        key = np.zeros_like(place)
    else:
        key = ring_of_channel[None, :] * size + place if shape.chunks_are_positions else place
    used, number = np.unique(key, return_inverse=True)
    length = len(shape.entries)
    chunk = np.array([entry.chunk for entry in shape.entries], np.int64)[None, :]
    if shape.chunks_turn:
        chunk = (chunk + used[:, None] % size) % size
    if shape.chunks_are_positions:
        chunk = order[(used // size)[:, None], chunk]
    lanes = len(position) * channels
    several = channels > 1
    return TableColumns(
        position=position,
        lane_count=np.full(len(position), channels, np.int32),
        lane_batch=_ZERO,
        lane_send_to=order[ring_of_channel[None, :], (place + 1) % size].reshape(lanes),
        lane_recv_from=order[ring_of_channel[None, :], (place - 1) % size].reshape(lanes),
        lane_part=_ZERO,
        lane_parts=_ONE,
        lane_span=_ONE,
        lane_share=_channel_column(len(position), channels) if several else _ZERO,
        lane_shares=np.array([channels], np.int32),
        lane_bytes=_FOLLOWS_OP,
        lane_channel=_channel_column(len(position), channels) if several else _ZERO,
        lane_first_entry=(number.reshape(lanes) * length).astype(np.int32),
        lane_entry_count=np.array([length], np.int32),
        entry_kind=np.tile(np.array([int(entry.kind) for entry in shape.entries], np.uint8), len(used)),
        entry_chunk=np.broadcast_to(chunk, (len(used), length)).reshape(-1).astype(np.int32),
        entry_after_lane=_NONE,
        entry_after_entry=_NONE,
    )


@dataclass(frozen=True, slots=True)
class ExchangeShape:
    """An all-to-all in rounds: schedule groups of `group` positions, and where each part of each round after 0 is."""

    size: int
    group: int
    group_deltas: tuple[int, ...]
    parts: int
    places: tuple[tuple[int, int], ...]
    """(channel, batch), by round, then by part."""


def exchange_columns(shape: ExchangeShape, positions: Sequence[int]) -> TableColumns:
    """Return the tables of some positions: one lane per part sent and one per part received, in batch order."""
    position = np.array(positions, np.int32)
    sends_to, receives_from = _rounds(shape, position)
    channel, batch = np.array(shape.places, np.int32).reshape(-1, 2).T
    # Every part of every round has two lanes: even numbers send, odd numbers receive.
    order = np.argsort(np.repeat(batch, 2), kind="stable")
    receives = order % 2 == 1
    round_of = order // 2 // shape.parts
    send_to = np.where(receives, -1, sends_to[:, round_of])
    lanes = len(position) * len(order)

    def for_all(column: NDArray[np.int32]) -> NDArray[np.int32]:
        return np.tile(column, len(position))

    return TableColumns(
        position=position,
        lane_count=np.full(len(position), len(order), np.int32),
        lane_batch=for_all(batch[order // 2]),
        lane_send_to=send_to.reshape(lanes).astype(np.int32),
        lane_recv_from=np.where(receives, receives_from[:, round_of], -1).reshape(lanes).astype(np.int32),
        lane_part=np.where(receives, position[:, None], send_to).reshape(lanes).astype(np.int32),
        lane_parts=np.array([shape.size], np.int32),
        lane_span=_ONE,
        lane_share=for_all((order // 2 % shape.parts).astype(np.int32)) if shape.parts > 1 else _ZERO,
        lane_shares=np.array([shape.parts], np.int32),
        lane_bytes=_FOLLOWS_OP,
        lane_channel=for_all(channel[order // 2]),
        lane_first_entry=for_all(receives.astype(np.int32)),
        lane_entry_count=_ONE,
        entry_kind=_SEND_AND_RECEIVE,
        entry_chunk=np.zeros(2, np.int32),
        entry_after_lane=_NONE,
        entry_after_entry=_NONE,
    )


def _rounds(shape: ExchangeShape, position: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the peers to send to and to receive from: int32, one row per position, one column per round after 0."""
    groups = shape.size // shape.group
    own_group, local = (part[:, None] for part in np.divmod(position, np.int32(shape.group)))
    group_delta = np.repeat(np.array(shape.group_deltas, np.int32), shape.group)
    delta = np.tile(np.arange(shape.group, dtype=np.int32), groups)
    sends_to = (own_group + group_delta) % groups * shape.group + (local + delta) % shape.group
    receives_from = (own_group - group_delta) % groups * shape.group + (local - delta) % shape.group
    return sends_to[:, 1:], receives_from[:, 1:]


def _channel_column(positions: int, channels: int) -> NDArray[np.int32]:
    """Return channels 0 to `channels` - 1, repeated for every position."""
    return np.tile(np.arange(channels, dtype=np.int32), positions)
