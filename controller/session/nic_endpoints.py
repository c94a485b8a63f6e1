"""Queue pair ends on NICs: turns the ends that one agent reports into what its peers' agents need. Pure.

A NIC chooses its queue pair numbers, addresses and keys itself, so a plan cannot hold them. Ends of the engine's own
queue pairs are as planned and are not reported.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from etloop.contract.base.errors import ProtocolError
from etloop.contract.model.assignment import Assignment, ConnectionColumns
from etloop.contract.protocol.messages import QueuePairEnd

_Key = tuple[int, int, int, int]
"""Communicator, channel, sending and receiving rank: together they identify a connection."""


def peers_of(
    assignments: Mapping[str, Assignment], reported: Mapping[str, tuple[QueuePairEnd, ...]]
) -> dict[str, tuple[QueuePairEnd, ...]]:
    """Return for each agent the remote ends of its connections, with `connection` as its own row.

    A remote end is another agent's, or that of another port of the same agent. Raises `ProtocolError` for an end of a
    connection that the reporting agent does not have.
    """
    if not any(reported.values()):
        return {}
    agent_of_rank = {rank.rank: name for name, assignment in assignments.items() for rank in assignment.ranks}
    keys = {name: _keys(assignment.connections) for name, assignment in assignments.items()}
    rows = {name: {key: row for row, key in enumerate(agent_keys)} for name, agent_keys in keys.items()}
    ends_of_agent: defaultdict[str, list[QueuePairEnd]] = defaultdict(list)
    for name, ends in reported.items():
        for end in ends:
            _check(assignments[name].connections, end, name)
            key = keys[name][end.connection]
            peer = agent_of_rank[key[3] if end.sends_data else key[2]]
            ends_of_agent[peer].append(replace(end, connection=rows[peer][key]))
    return {name: tuple(ends) for name, ends in ends_of_agent.items()}


def _check(columns: ConnectionColumns, end: QueuePairEnd, name: str) -> None:
    row = end.connection
    is_known = 0 <= row < len(columns.src_rank)
    if not is_known or not 0 <= end.queue_pair < columns.qp_offsets[row + 1] - columns.qp_offsets[row]:
        raise ProtocolError(
            f"agent '{name}' reports an end of queue pair {end.queue_pair} of connection {row}, which it does not have"
        )


def _keys(columns: ConnectionColumns) -> list[_Key]:
    """Return for each row the tuple that identifies its connection."""
    key_columns = (columns.communicator, columns.channel, columns.src_rank, columns.dst_rank)
    return list(zip(*(column.tolist() for column in key_columns), strict=True))
