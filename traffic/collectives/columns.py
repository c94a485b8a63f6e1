"""Step tables as columns: what travels in an assignment and what the native cursor reads."""

from __future__ import annotations

from itertools import accumulate, chain
from typing import TYPE_CHECKING

import numpy as np

from contract.assignment import ScheduleTables

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from traffic.collectives.table import Lane, Schedule


def to_columns(schedules: Sequence[Schedule]) -> ScheduleTables:
    """All positions of all schedules; schedule i of the result is `schedules[i]`."""
    tables = [table for schedule in schedules for table in schedule.tables]
    lanes = [lane for table in tables for lane in table]
    entry_kind, entry_chunk = _entries(lanes)
    return ScheduleTables(
        chunk_rule=np.array([s.chunk_rule for s in schedules], np.uint8),
        chunk_bytes=np.array([s.chunk_bytes for s in schedules], np.int64),
        chunks_per_loop=np.array([s.chunks_per_loop for s in schedules], np.int32),
        shrink_last=np.array([s.shrink_last for s in schedules], np.uint8),
        slices=np.array([s.slices for s in schedules], np.int32),
        min_slice_bytes=np.array([s.min_slice_bytes for s in schedules], np.int64),
        slots=np.array([s.slots for s in schedules], np.int32),
        empty_message=np.array([s.empty_message for s in schedules], np.uint8),
        slice_align_bytes=np.array([s.slice_align_bytes for s in schedules], np.int64),
        table_offsets=_offsets(len(s.tables) for s in schedules),
        lane_offsets=_offsets(len(table) for table in tables),
        lane_batch=np.array([lane.batch for lane in lanes], np.int32),
        lane_send_to=np.array([lane.send_to for lane in lanes], np.int32),
        lane_recv_from=np.array([lane.recv_from for lane in lanes], np.int32),
        lane_part=np.array([lane.part for lane in lanes], np.int32),
        lane_parts=np.array([lane.parts for lane in lanes], np.int32),
        lane_bytes=np.array([lane.lane_bytes for lane in lanes], np.int64),
        entry_offsets=_offsets(len(lane.entries) for lane in lanes),
        entry_kind=entry_kind,
        entry_chunk=entry_chunk,
    )


def _entries(lanes: Sequence[Lane]) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    entries = list(chain.from_iterable(lane.entries for lane in lanes))
    # IntFlag members convert slowly; there are only a handful of kinds.
    plain = {kind: int(kind) for kind in {entry.kind for entry in entries}}
    return (
        np.array([plain[entry.kind] for entry in entries], np.uint8),
        np.array([entry.chunk for entry in entries], np.int32),
    )


def _offsets(counts: Iterable[int]) -> NDArray[np.int32]:
    return np.array([*accumulate(counts, initial=0)], np.int32)
