"""Finds lanes that wait for all of a lane which, from some byte count on, waits for them: a standstill by size.

An execution proves one byte count. A wait for a whole lane comes to its end there if the lane has one loop, and never if it
has several, or more messages than the connection has slots: then the lane cannot end before the one that waits for it has
gone on. Decided here is that no byte count brings that about; waits within a loop are the same in every loop, so one
execution shows them.

A lane that has many loops cannot end unless these go on: the lanes at the other end of its connections (what it receives must
be sent, and what it sends be taken in, or its slots stay full), those that its entries wait for, and all those that must be
over before. Whichever of them is reached this way and waits for the end of the first lane closes a cycle; as distances in
loops may be anything, nothing but who waits for whom matters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np
from etloop.traffic.collectives.core.table import EntryKind, Handshake, Lane, Schedule

_LaneKey = tuple[int, int]
Wait = tuple[_LaneKey, int, _LaneKey]
"""(lane, its entry, the lane that it waits for the end of); entry -1: it is of a later batch."""


def find_wait_cycles(schedule: Schedule) -> Iterator[tuple[Wait, list[_LaneKey]]]:
    """Waits for a whole lane which can never end, and the way from that lane back to the one that waits, both included.

    The schedule's indices must be in range. Lanes that state their bytes have as many loops as these make, so of their
    schedules nothing is said: an execution has shown all.
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
    for position, table in enumerate(schedule.tables):
        batches: dict[int, dict[int, list[int]]] = {}
        for index, lane in enumerate(table):
            batches.setdefault(lane.channel, {}).setdefault(lane.batch, []).append(index)
            for number, entry in enumerate(lane.entries):
                if entry.after_lane >= 0 and entry.after_entry < 0:
                    yield (position, index), number, (position, entry.after_lane)
        for of_channel in batches.values():
            ordered = [of_channel[batch] for batch in sorted(of_channel)]
            for before, after in pairwise(ordered):
                yield from (((position, one), -1, (position, other)) for one in after for other in before)


def _needs(schedule: Schedule, ends: Iterable[Wait]) -> dict[_LaneKey, dict[_LaneKey, None]]:
    """Lane -> those without which it does not end."""
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
    return any(entry.kind & kind for entry in lane.entries)


def _strongly_connected(needs: dict[_LaneKey, dict[_LaneKey, None]]) -> dict[_LaneKey, int]:
    """Return per lane the number of its group, in which all need each other."""
    # Late: it takes a quarter of a second, and few schedules wait for whole lanes.
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    number = {lane: index for index, lane in enumerate(needs)}
    pairs = [(number[lane], number[other]) for lane, others in needs.items() for other in others]
    rows, columns = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    edges = csr_array((np.ones(len(pairs), dtype=np.int8), (rows, columns)), shape=(len(needs), len(needs)))
    _, group_of = connected_components(edges, directed=True, connection="strong")
    return dict(zip(needs, group_of.tolist(), strict=True))


def _way(needs: dict[_LaneKey, dict[_LaneKey, None]], first: _LaneKey, last: _LaneKey) -> list[_LaneKey]:
    """The shortest way from a lane to one that it needs."""
    came_from: dict[_LaneKey, _LaneKey] = {first: first}
    reached = [first]
    for lane in reached:
        if lane == last:
            break
        for other in needs[lane]:
            if other not in came_from:
                came_from[other] = lane
                reached.append(other)
    way = [last]
    while way[-1] != first:
        way.append(came_from[way[-1]])
    return way[::-1]
