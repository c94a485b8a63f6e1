"""One port over several threads: an assignment as the engine runs it, and counters back to the ports of the rig. Pure.

A `udp` port with `queues: n` becomes n ports of the engine, each with a block of the port's addresses and the ranks that
have them. The kernel sorts datagrams by the address that a socket is bound to, so a flow stays with one thread for good,
in its order, and nothing is shared between threads but the bounded rings of ranks that talk inside the port. Decides which
queue has which address; leaves threads and sockets to the engine.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np
from etloop.contract.model.assignment import Assignment, PortBackend, PortSettings
from etloop.contract.model.counters import AgentObject, CounterNature, counters_of
from etloop.contract.model.records import PORT_RECORD
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Spread:
    """An assignment whose ports are threads, and which port of the rig each of them belongs to."""

    assignment: Assignment
    port_of: tuple[int, ...]


def spread_queues(assignment: Assignment) -> Spread:
    """The assignment with a port for every queue. Addresses are dealt in blocks, so that ranks of one host stay together."""
    if all(port.engine_threads == 1 for port in assignment.ports):
        return Spread(assignment, tuple(range(len(assignment.ports))))
    ports: list[PortSettings] = []
    port_of: list[int] = []
    place_of: dict[tuple[int, int], tuple[int, int]] = {}
    """Port and address of the rig -> port and address of the engine."""
    for index, port in enumerate(assignment.ports):
        threads = port.engine_threads
        queues = threads if port.backend is PortBackend.UDP else port.queues
        for first, last in itertools.pairwise(_block_edges(len(port.addresses), threads)):
            place_of.update({(index, first + at): (len(ports), at) for at in range(last - first)})
            pauses = port.pauses if first == 0 else ()
            ports.append(replace(port, addresses=port.addresses[first:last], queues=queues, pauses=pauses))
            port_of.append(index)
    moved = (place_of[rank.port, rank.address] for rank in assignment.ranks)
    ranks = tuple(
        replace(rank, port=port, address=address)
        for rank, (port, address) in zip(assignment.ranks, moved, strict=True)
    )
    return Spread(replace(assignment, ports=tuple(ports), ranks=ranks), tuple(port_of))


def _block_edges(addresses: int, queues: int) -> list[int]:
    """Where blocks of addresses begin and end: as equal as they can be, the longer ones first."""
    size, longer = divmod(addresses, queues)
    sizes = [size + (queue < longer) for queue in range(queues)]
    return [sum(sizes[:queue]) for queue in range(queues + 1)]


def gather_counters(rows: NDArray[np.void], port_of: tuple[int, ...]) -> NDArray[np.void]:
    """PORT_RECORD rows of queues to one row a port: totals, but the least receive buffer."""
    if len(set(port_of)) == len(port_of):
        return rows
    out = np.zeros(max(port_of) + 1, PORT_RECORD)
    for port in range(len(out)):
        of_port = rows[np.array(port_of) == port]
        for counter in counters_of(AgentObject.PORT):
            column = of_port[counter.name]
            least = counter.nature is CounterNature.GAUGE  # of an address's socket: not a total
            out[counter.name][port] = column.min() if least else column.sum()
    return out
