"""One port over several threads: the assignment as the engine runs it, and the counters merged per port of the rig.
Pure.

A port with `queues: n` becomes n ports of the engine. If a `udp` port has at least n addresses, each queue gets a block
of them and the ranks there: the kernel delivers datagrams by the address that a socket is bound to, and threads share
nothing except the bounded rings of ranks that communicate inside the port. Otherwise every queue has all addresses: the
operations of a rank are on one queue, and its queue pairs are dealt over all queues by number
(traffic/native/plan/queue_deal.h). This module decides the addresses and ranks of each queue; the engine creates
threads and sockets.
"""

from __future__ import annotations

import bisect
import itertools
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.assignment import Assignment, PortBackend, PortSettings
from etloop.contract.model.counters import AgentObject, CounterNature, counters_of
from etloop.contract.model.records import PORT_RECORD


@dataclass(frozen=True, slots=True)
class Spread:
    """An assignment with one port per thread, and the rig port of each."""

    assignment: Assignment
    port_of: tuple[int, ...]


def spread_queues(assignment: Assignment) -> Spread:
    """Return the assignment with one port per queue."""
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
            place_of.update(
                {(index, address): (len(ports), address - shift) for address in range(first, last)}
            )
            ports.append(queue)
            port_of.append(index)
    engine_places = (place_of[rank.port, rank.address] for rank in assignment.ranks)
    ranks = tuple(
        replace(rank, port=port, address=address)
        for rank, (port, address) in zip(assignment.ranks, engine_places, strict=True)
    )
    return Spread(replace(assignment, ports=tuple(ports), ranks=ranks), tuple(port_of))


_Share = tuple[tuple[int, int], PortSettings]
"""(first, last) addresses whose ranks a queue has, `last` excluded, and the queue."""


def _by_address(port: PortSettings) -> list[_Share]:
    """Divide a port into queues with blocks of addresses each, so that ranks of one address stay together."""
    queues = port.engine_threads if port.backend is PortBackend.UDP else port.queues
    shares: list[_Share] = []
    for first, last in itertools.pairwise(_block_edges(len(port.addresses), max(port.engine_threads, 1))):
        pauses = port.pauses if first == 0 else ()
        queue = replace(port, addresses=port.addresses[first:last], queues=queues, pauses=pauses)
        shares.append(((first, last), queue))
    return shares


def _with_all_addresses(port: PortSettings) -> list[_Share]:
    """Divide a port into queues with all addresses; ranks are spread evenly, some queues have queue pairs only."""
    addresses, queues = len(port.addresses), port.engine_threads
    homes = [address * queues // addresses for address in range(addresses)]
    shares: list[_Share] = []
    for number in range(queues):
        first, last = bisect.bisect_left(homes, number), bisect.bisect_left(homes, number + 1)
        pauses = port.pauses if number == 0 else ()
        shares.append(((first, last), replace(port, queue=number, pauses=pauses)))
    return shares


def whole_ports(assignment: Assignment) -> Assignment:
    """Return the assignment for virtual time, which has no threads: a port that is not divided has one queue."""
    ports = tuple(port if port.queue >= 0 else replace(port, queues=1) for port in assignment.ports)
    return replace(assignment, ports=ports)


def _block_edges(addresses: int, queues: int) -> list[int]:
    """Return where blocks of addresses begin and end: sizes differ by one at most, longer blocks first."""
    size, longer = divmod(addresses, queues)
    sizes = [size + (queue < longer) for queue in range(queues)]
    return [sum(sizes[:queue]) for queue in range(queues + 1)]


def gather_counters(rows: NDArray[np.void], port_of: tuple[int, ...]) -> NDArray[np.void]:
    """Merge PORT_RECORD rows of queues into one row per port: sums, but the minimum of the receive buffer."""
    if len(set(port_of)) == len(port_of):
        return rows
    out = np.zeros(max(port_of) + 1, PORT_RECORD)
    for port in range(len(out)):
        of_port = rows[np.array(port_of) == port]
        for counter in counters_of(AgentObject.PORT):
            column = of_port[counter.name]
            is_gauge = counter.nature is CounterNature.GAUGE  # receive buffer of one socket: not additive
            out[counter.name][port] = column.min() if is_gauge else column.sum()
    return out
