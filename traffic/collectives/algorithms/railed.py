"""All-gathers along rails, as in NCCL for buffers in symmetric windows.

Between hosts a position sends only to its place on other hosts; inside a host it hands every block that it has on to its
neighbours. NCCL does that by NVLink multicast or copy engines; here it is a message to each neighbour.

* `rail_ring`: the symmetric kernel AllGather_RailRing_LsaSTMC over GIN (src/device/symmetric/all_gather_gin.cuh). A ring
  over hosts: every block is passed on to the next host.
* `ce_direct`: the hierarchical copy-engine all-gather (src/ce_coll.cc ncclHierCeAllGatherDirect). All rails at once.
* `ce_ring`: the same with NCCL_HIER_CE_COLL_AG_RAIL_RING_ENABLE=1 (ncclHierCeAllGatherRing). Two rings over hosts, each
  with half of every block, in opposite directions: even and odd channels.

A position sends (H-1) blocks between H hosts, and every block of its rail to g-1 neighbours. NCCL's one-sided puts end in
a signal; here they have grants. Its barriers at both ends, messages without data, are left out.
"""

from __future__ import annotations

from collections.abc import Callable

from etloop.traffic.collectives.algorithms.hierarchical import Grid, grid_of
from etloop.traffic.collectives.core.cutting import Request
from etloop.traffic.collectives.core.draft import (
    KEEP,
    SEND,
    Move,
    Step,
    TableDraft,
    on_channels,
    schedule_of,
)
from etloop.traffic.collectives.core.lazy_tables import LazyTables
from etloop.traffic.collectives.core.symmetric_tables import Symmetry, ahead_in_grid, symmetric_tables
from etloop.traffic.collectives.core.table import Lane, Schedule

_Arrivals = list[tuple[int, Step]]
"""Distance of the host that a block comes from, and the step at which it has arrived."""
_Rails = Callable[[TableDraft, Grid, int, int], _Arrivals]


def rail_ring(request: Request) -> Schedule:
    """Build a ring over hosts."""
    return _build(request, "rail_ring", (_forwards,))


def ce_direct(request: Request) -> Schedule:
    """Build direct sends to all hosts at once."""
    return _build(request, "ce_direct", (_direct,))


def ce_ring(request: Request) -> Schedule:
    """Build two opposite rings over hosts."""
    return _build(request, "ce_ring", (_forwards, _backwards))


def _build(request: Request, algorithm: str, rails: tuple[_Rails, ...]) -> Schedule:
    """Build the schedule whose channel c uses `rails[c mod len(rails)]`."""
    grid = grid_of(request)
    assert grid.hosts >= 2
    assert request.cutting.channels % len(rails) == 0

    def table(position: int) -> tuple[Lane, ...]:
        lanes = [_gather(grid, *divmod(position, grid.places), rail) for rail in rails]
        return on_channels(lanes * (request.cutting.channels // len(rails)))

    symmetry = Symmetry(ahead_in_grid(grid.hosts, grid.places))
    tables = LazyTables(
        request.size, table, lambda positions: symmetric_tables(table(0), symmetry, positions)
    )
    return schedule_of(request, algorithm, tables)


def _gather(grid: Grid, host: int, place: int, rails: _Rails) -> tuple[Lane, ...]:
    """Return the table of a position on one channel."""
    table = TableDraft()
    arrivals = rails(table, grid, host, place)
    for i in range(1, grid.places):
        target, source = grid.at(host, place + i), grid.at(host, place - i)
        lane = table.lane(send_to=target, recv_from=source)
        lane.add(SEND, [Move(0, grid.at(host, place))])
        lane.add(KEEP, [Move(0, source)])
        for distance, arrival in arrivals:
            lane.add(SEND, [Move(0, grid.at(host - distance, place))], [arrival])
            lane.add(KEEP, [Move(0, grid.at(host - distance, place - i))])
    return table.lanes()


def _forwards(table: TableDraft, grid: Grid, host: int, place: int) -> _Arrivals:
    return _ring(table, grid, host, place, 1)


def _backwards(table: TableDraft, grid: Grid, host: int, place: int) -> _Arrivals:
    return _ring(table, grid, host, place, -1)


def _ring(table: TableDraft, grid: Grid, host: int, place: int, direction: int) -> _Arrivals:
    """Add a lane that sends to the next host in a direction; return its arrivals."""
    lane = table.lane(send_to=grid.at(host + direction, place), recv_from=grid.at(host - direction, place))
    lane.add(SEND, [Move(0, grid.at(host, place))])
    arrivals: _Arrivals = []
    for hop in range(1, grid.hosts):
        kind = KEEP | SEND if hop < grid.hosts - 1 else KEEP
        distance = direction * hop
        arrivals.append((distance, lane.add(kind, [Move(0, grid.at(host - distance, place))])))
    return arrivals


def _direct(table: TableDraft, grid: Grid, host: int, place: int) -> _Arrivals:
    """Add a lane for each distance between hosts; return their arrivals."""
    arrivals: _Arrivals = []
    for distance in range(1, grid.hosts):
        source = grid.at(host - distance, place)
        lane = table.lane(send_to=grid.at(host + distance, place), recv_from=source)
        lane.add(SEND, [Move(0, grid.at(host, place))])
        arrivals.append((distance, lane.add(KEEP, [Move(0, source)])))
    return arrivals
