"""Collectives along rails, as in NCCL for buffers in symmetric windows.

Between hosts a position of an all-gather or reduce-scatter sends only to its place on other hosts. Inside a host NCCL uses
NVLink multicast, loads or copy engines; here that is a message for each neighbour and block.

* `rail_ring`: the symmetric kernel AllGather_RailRing_LsaSTMC over GIN (src/device/symmetric/all_gather_gin.cuh). A ring
  over hosts: every block is passed on to the next host.
* `rail_a2a`: the symmetric kernels ReduceScatter_RailA2A_LsaLD and _LsaLDMC over GIN
  (src/device/symmetric/reduce_scatter_gin.cuh). A host adds up its blocks for each place of another host, and sends the sum
  there.
* `ce_direct`: the hierarchical copy-engine all-gather (src/ce_coll.cc ncclHierCeAllGatherDirect), all rails at once, and
  all-to-all (ncclHierCeAlltoAll), all peers at once.
* `ce_ring`: the all-gather with NCCL_HIER_CE_COLL_AG_RAIL_RING_ENABLE=1 (ncclHierCeAllGatherRing). Two rings over hosts,
  each with half of every block, in opposite directions: even and odd channels.

Between H hosts a position sends (H-1) blocks, or one to each peer. NCCL's one-sided puts end in a signal; here they have
grants. Its barriers at both ends, messages without data, are left out.
"""

from __future__ import annotations

from collections.abc import Callable

from etloop.traffic.collectives.algorithms.direct import all_to_all
from etloop.traffic.collectives.algorithms.hierarchical import Grid, grid_of
from etloop.traffic.collectives.core.cutting import Request
from etloop.traffic.collectives.core.draft import (
    ADD,
    FINISH,
    KEEP,
    SEND,
    Move,
    Step,
    TableDraft,
    block_moves,
    each_channel,
    on_channels,
    schedule_of,
)
from etloop.traffic.collectives.core.lazy_tables import LazyTables
from etloop.traffic.collectives.core.symmetric_tables import Symmetry, ahead, ahead_in_grid, symmetric_tables
from etloop.traffic.collectives.core.table import Lane, Schedule

_Arrivals = list[tuple[int, Step]]
"""Distance of the host that a block comes from, and the step at which it has arrived."""
_Rails = Callable[[TableDraft, Grid, int, int], _Arrivals]


def rail_ring(request: Request) -> Schedule:
    """Build a ring over hosts."""
    return _build(request, "rail_ring", (_forwards,))


def rail_a2a(request: Request) -> Schedule:
    """Build a reduce-scatter: sums inside hosts, then direct sends between hosts."""
    grid = grid_of(request)
    assert grid.hosts >= 2
    turn = ahead_in_grid(grid.hosts, grid.places)
    tables = each_channel(
        request, lambda position: _scatter(grid, *divmod(position, grid.places)), Symmetry(turn, turn)
    )
    return schedule_of(request, "rail_a2a", tables, blocks=request.size)


def ce_direct(request: Request) -> Schedule:
    """Build direct sends to all hosts at once, of an all-to-all to all ranks."""
    if request.collective == "all-to-all":
        size = request.size
        symmetry = Symmetry(ahead(size), ahead(size))
        tables = each_channel(request, lambda position: all_to_all(position, size), symmetry)
        return schedule_of(request, "ce_direct", tables, blocks=size)
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


def _scatter(grid: Grid, host: int, place: int) -> tuple[Lane, ...]:
    """Return the table of a position of a reduce-scatter on one channel."""
    table = TableDraft()
    hosts = [(host + distance) % grid.hosts for distance in (*range(1, grid.hosts), 0)]
    added: dict[int, list[Step]] = {other: [] for other in hosts}
    for i in range(1, grid.places):
        lane = table.lane(send_to=grid.at(host, place + i), recv_from=grid.at(host, place - i))
        for other in hosts:
            lane.add(SEND, block_moves([grid.at(other, place + i)]))
            added[other].append(lane.add(ADD, block_moves([grid.at(other, place)])))
    own = added[host]
    for distance in range(1, grid.hosts):
        target = grid.at(host + distance, place)
        lane = table.lane(send_to=target, recv_from=grid.at(host - distance, place))
        lane.add(SEND, block_moves([target]), added[target // grid.places])
        is_last = distance == grid.hosts - 1
        kind = FINISH if is_last else ADD
        own.append(lane.add(kind, block_moves([grid.at(host, place)]), own if is_last else ()))
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
