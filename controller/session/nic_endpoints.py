"""Queue pair ends on network cards: what one agent reports of its own becomes what the other agents need to know. Pure.

A card deals its own queue pair numbers, addresses and keys, so no plan can hold them. Ends of ours are as planned, and
nobody reports them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from etloop.contract.base.errors import ProtocolError
from etloop.contract.model.assignment import Assignment, ConnectionColumns
from etloop.contract.protocol.messages import QueuePairEnd

_Key = tuple[int, int, int, int]
"""Communicator, channel, sending and receiving rank: what makes a connection one."""


def peers_of(
    assignments: Mapping[str, Assignment], reported: Mapping[str, tuple[QueuePairEnd, ...]]
) -> dict[str, tuple[QueuePairEnd, ...]]:
    """For each agent the ends that its connections have at others (or at another port of its own), by its own rows.

    Raises ProtocolError for an end of a connection that the agent does not have.
    """
    if not any(reported.values()):
        return {}
    agent_of_rank = {rank.rank: name for name, assignment in assignments.items() for rank in assignment.ranks}
    keys = {name: _keys(assignment.connections) for name, assignment in assignments.items()}
    rows = {name: {key: row for row, key in enumerate(its_keys)} for name, its_keys in keys.items()}
    found: defaultdict[str, list[QueuePairEnd]] = defaultdict(list)
    for name, ends in reported.items():
        for end in ends:
            _check(assignments[name].connections, end, name)
            key = keys[name][end.connection]
            peer = agent_of_rank[key[3] if end.sends_data else key[2]]
            found[peer].append(replace(end, connection=rows[peer][key]))
    return {name: tuple(ends) for name, ends in found.items()}


def _check(columns: ConnectionColumns, end: QueuePairEnd, name: str) -> None:
    row = end.connection
    known = 0 <= row < len(columns.src_rank)
    if not known or not 0 <= end.queue_pair < columns.qp_offsets[row + 1] - columns.qp_offsets[row]:
        raise ProtocolError(
            f"agent '{name}' reports an end of queue pair {end.queue_pair} of connection {row}, which it has not"
        )


def _keys(columns: ConnectionColumns) -> list[_Key]:
    """What makes each row's connection one."""
    named = (columns.communicator, columns.channel, columns.src_rank, columns.dst_rank)
    return list(zip(*(column.tolist() for column in named), strict=True))
