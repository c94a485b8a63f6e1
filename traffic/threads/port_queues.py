"""One port over several threads: an assignment as the engine runs it, and counters back to the ports of the rig. Pure.

A port with `queues: n` becomes n ports of the engine. Where a `udp` port has at least as many addresses, each has a block of
them and the ranks there: the kernel sorts datagrams by the address that a socket is bound to, and threads share nothing but
the bounded rings of ranks that talk inside the port. Else every queue has all addresses: a rank's operations are on one of
them, its queue pairs are dealt over all by their numbers (traffic/native/plan/queue_deal.h). Decides which queue has which
address and rank; leaves threads and sockets to the engine.
"""

from __future__ import annotations

import bisect
import itertools
from dataclasses import replace

import numpy as np
from etloop.contract.base.late_dataclass import dataclass
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
    """Return the assignment with a port for every queue."""
    if all(port.engine_threads <= 1 for port in assignment.ports):
        return Spread(assignment, tuple(range(len(assignment.ports))))
    ports: list[PortSettings] = []
    port_of: list[int] = []
    place_of: dict[tuple[int, int], tuple[int, int]] = {}
    """Port and address of the rig -> port and address of the engine."""
    for index, port in enumerate(assignment.ports):
        divide = _with_all_addresses if port.shares_addresses else _by_address
        for (first, last), queue in divide(port):
            shift = 0 if port.shares_addresses else first
            place_of.update({(index, at): (len(ports), at - shift) for at in range(first, last)})
            ports.append(queue)
            port_of.append(index)
    moved = (place_of[rank.port, rank.address] for rank in assignment.ranks)
    ranks = tuple(
        replace(rank, port=port, address=address)
        for rank, (port, address) in zip(assignment.ranks, moved, strict=True)
    )
    return Spread(replace(assignment, ports=tuple(ports), ranks=ranks), tuple(port_of))


_Share = tuple[tuple[int, int], PortSettings]
"""Addresses whose ranks a queue has, from one on and before another, and the queue."""


def _by_address(port: PortSettings) -> list[_Share]:
    """Addresses in blocks, so that ranks of one host stay together."""
    queues = port.engine_threads if port.backend is PortBackend.UDP else port.queues
    shares: list[_Share] = []
    for first, last in itertools.pairwise(_block_edges(len(port.addresses), max(port.engine_threads, 1))):
        pauses = port.pauses if first == 0 else ()
        queue = replace(port, addresses=port.addresses[first:last], queues=queues, pauses=pauses)
        shares.append(((first, last), queue))
    return shares


def _with_all_addresses(port: PortSettings) -> list[_Share]:
    """Ranks as far from each other as they can be: what has none carries queue pairs only."""
    addresses, queues = len(port.addresses), port.engine_threads
    homes = [address * queues // addresses for address in range(addresses)]
    shares: list[_Share] = []
    for number in range(queues):
        first, last = bisect.bisect_left(homes, number), bisect.bisect_left(homes, number + 1)
        pauses = port.pauses if number == 0 else ()
        shares.append(((first, last), replace(port, queue=number, pauses=pauses)))
    return shares


def whole_ports(assignment: Assignment) -> Assignment:
    """Return the assignment as virtual time runs it, which has no threads: a port that is not divided is one queue."""
    ports = tuple(port if port.queue >= 0 else replace(port, queues=1) for port in assignment.ports)
    return replace(assignment, ports=ports)


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
