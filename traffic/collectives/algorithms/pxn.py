"""Rail-aligned all-to-all as in NCCL's PXN: a block for another rail is first sent over scale-up to that rail's GPU on
the own host.

A position sends the block for (host, place) to the neighbour with that place on its host, which forwards it: between
hosts only equal places communicate, and NIC r communicates with NIC r of other hosts only. In contrast to
`hierarchical`, blocks are not collected: every block is relayed as its own message, chunk by chunk, as soon as it has
arrived. Source: NCCL graph/search.cc, transport/net.cc (PXN), in the order of ncclP2pSchedule (init.cc).
"""

from __future__ import annotations

from etloop.traffic.collectives.algorithms.alltoall import quadratic_order
from etloop.traffic.collectives.algorithms.direct import exchange_move
from etloop.traffic.collectives.algorithms.hierarchical import Grid, grid_of
from etloop.traffic.collectives.core.cutting import Request
from etloop.traffic.collectives.core.draft import (
    KEEP,
    RECV,
    SEND,
    Step,
    TableDraft,
    each_channel,
    schedule_of,
)
from etloop.traffic.collectives.core.symmetric_tables import Symmetry, ahead_in_grid
from etloop.traffic.collectives.core.table import Lane, Schedule


def pxn(request: Request) -> Schedule:
    """Build an all-to-all over at least two full hosts."""
    grid = grid_of(request)
    assert grid.hosts >= 2
    turn = ahead_in_grid(grid.hosts, grid.places)
    tables = each_channel(
        request, lambda position: _lanes(grid, *divmod(position, grid.places)), Symmetry(turn, turn)
    )
    return schedule_of(request, "pxn", tables, blocks=request.size)


def _lanes(grid: Grid, host: int, place: int) -> tuple[Lane, ...]:
    """Return the table of a position: relaying inside the host, then sends between hosts."""
    table = TableDraft()
    position = grid.at(host, place)
    order = quadratic_order(grid.hosts)
    arrived: dict[tuple[int, int], Step] = {}
    for i in range(1, grid.places):
        target, source = grid.at(host, place + i), grid.at(host, place - i)
        sending, receiving = table.lane(send_to=target), table.lane(recv_from=source)
        for delta in order:
            # In the order of destination hosts, the own host first: its block is for the neighbour itself.
            sending.add(SEND, [exchange_move(position, grid.at(host + delta, place + i), grid.size)])
            kind = KEEP if delta == 0 else RECV
            move = exchange_move(source, grid.at(host + delta, place), grid.size)
            arrived[i, delta] = receiving.add(kind, [move])
    for delta in order[1:]:
        target, source = grid.at(host + delta, place), grid.at(host - delta, place)
        sending, receiving = table.lane(send_to=target), table.lane(recv_from=source)
        for i in range(grid.places):
            waits = [arrived[i, delta]] if i else []
            sending.add(SEND, [exchange_move(grid.at(host, place - i), target, grid.size)], waits)
            receiving.add(KEEP, [exchange_move(grid.at(host - delta, place - i), position, grid.size)])
    return table.lanes()
