"""Find lanes that wait for the whole of a lane which, from some byte count on, waits for them: a deadlock by size.

An execution proves one byte count. A wait for a whole lane completes there if the lane has one loop, but never if it
has several loops, or more messages than the connection has slots, and cannot end before the waiting lane has advanced.
This module proves that no byte count causes that. Waits within a loop are the same in every loop, so one execution
checks them.

A lane with many loops cannot end unless these lanes advance: the lanes at the other end of its connections (its
receives must be sent, and its sends received, or its slots stay full), those that its entries wait for, and all those
that must be complete before. If a lane reached in this way waits for the end of the first lane, there is a cycle. Lanes
may be any number of loops apart, so only the waits-for relation matters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np

from etloop.traffic.collectives.core.table import EntryKind, Handshake, Lane, Schedule

_LaneKey = tuple[int, int]
Wait = tuple[_LaneKey, int, _LaneKey]
"""(lane, its entry, the lane whose end it waits for); entry -1: the waiting lane is in a later batch."""


def find_wait_cycles(schedule: Schedule) -> Iterator[tuple[Wait, list[_LaneKey]]]:
    """Yield waits for a whole lane that can never end, each with the path from that lane back to the waiting one.

    The path includes both lanes. The schedule's indices must be in range. No wait is yielded if lanes state their
    bytes: their number of loops is fixed, and an execution has checked all of them.
    """
    if any(lane.lane_bytes >= 0 for table in schedule.tables for lane in table):
        return
    ends = list(_ends_waited_for(schedule))
    if not ends:
        return
    needs = _needs(schedule, ends)
    group_of = _strongly_connected(needs)
    reported: set[tuple[_LaneKey, _LaneKey]] = set()
    for wait in ends:
        waiting, _, awaited = wait
        if group_of[waiting] == group_of[awaited] and (waiting, awaited) not in reported:
            reported.add((waiting, awaited))
            yield wait, _way(needs, awaited, waiting)


def _ends_waited_for(schedule: Schedule) -> Iterator[Wait]:
    """Yield all waits for whole lanes, those of later batches included."""
    for position, table in enumerate(schedule.tables):
        batches: dict[int, dict[int, list[int]]] = {}
        for index, lane in enumerate(table):
            batches.setdefault(lane.channel, {}).setdefault(lane.batch, []).append(index)
            for number, entry in enumerate(lane.entries):
                if entry.after_lane >= 0 and entry.after_entry < 0:
                    yield (position, index), number, (position, entry.after_lane)
        for channel_batches in batches.values():
            batches_in_order = [channel_batches[batch] for batch in sorted(channel_batches)]
            for earlier, later in pairwise(batches_in_order):
                yield from (
                    ((position, waiting), -1, (position, awaited)) for waiting in later for awaited in earlier
                )


def _needs(schedule: Schedule, ends: Iterable[Wait]) -> dict[_LaneKey, dict[_LaneKey, None]]:
    """Return lane -> lanes without which it does not end."""
    needs: dict[_LaneKey, dict[_LaneKey, None]] = {}
    senders: dict[tuple[int, int, int], _LaneKey] = {}
    receivers: dict[tuple[int, int, int], _LaneKey] = {}
    for position, table in enumerate(schedule.tables):
        for index, lane in enumerate(table):
            needs[position, index] = {
                (position, entry.after_lane): None for entry in lane.entries if entry.after_lane >= 0
            }
            if _has(lane, EntryKind.SEND):
                senders[position, lane.send_to, lane.channel] = position, index
            if _has(lane, EntryKind.RECV):
                receivers[lane.recv_from, position, lane.channel] = position, index
    for connection, receiver in receivers.items():
        sender = senders.get(connection)
        if sender is None:
            continue
        needs[receiver][sender] = None
        if schedule.handshake is Handshake.CTS:
            needs[sender][receiver] = None
    for waiting, _, awaited in ends:
        needs[waiting][awaited] = None
    return needs


def _has(lane: Lane, kind: EntryKind) -> bool:
    """Return whether a lane has an entry of this kind."""
    return any(entry.kind & kind for entry in lane.entries)


def _strongly_connected(needs: dict[_LaneKey, dict[_LaneKey, None]]) -> dict[_LaneKey, int]:
    """Return for each lane the number of its strongly connected component, in which all lanes need each other."""
    # Imported here because it takes a quarter of a second, and few schedules wait for whole lanes.
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    number = {lane: index for index, lane in enumerate(needs)}
    pairs = [
        (number[lane], number[needed]) for lane, needed_lanes in needs.items() for needed in needed_lanes
    ]
    rows, columns = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    edges = csr_array((np.ones(len(pairs), dtype=np.int8), (rows, columns)), shape=(len(needs), len(needs)))
    _, group_of = connected_components(edges, directed=True, connection="strong")
    return dict(zip(needs, group_of.tolist(), strict=True))


def _way(needs: dict[_LaneKey, dict[_LaneKey, None]], first: _LaneKey, last: _LaneKey) -> list[_LaneKey]:
    """Return the shortest path from a lane to one that it needs."""
    came_from: dict[_LaneKey, _LaneKey] = {first: first}
    queue = [first]
    for lane in queue:
        if lane == last:
            break
        for needed in needs[lane]:
            if needed not in came_from:
                came_from[needed] = lane
                queue.append(needed)
    way = [last]
    while way[-1] != first:
        way.append(came_from[way[-1]])
    return way[::-1]
