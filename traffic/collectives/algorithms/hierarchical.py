"""Two-level algorithms over hosts of g positions: inside a host first, then between equal places of the hosts, then
inside.

All-to-all: a position sends each neighbour on its host all blocks for that neighbour's place on any host, as one
message; then it exchanges with its place on every other host the blocks that its host has for that position, as one
message of g blocks. Between hosts only positions of the same place communicate, so rails stay separate, and messages
are g times fewer and longer.

All-reduce: ring reduce-scatter inside the host, ring all-reduce of the slice between hosts, ring all-gather inside;
each position of a host carries 1/g of the buffer between hosts. Sources: the two-dimensional algorithm of
NVIDIA/nccl-tests and MSCCL ("2D hierarchical all-to-all", microsoft/msccl-tools), astra-sim's localBWAware all-reduce.
"""

from __future__ import annotations

from dataclasses import dataclass

from etloop.traffic.collectives.algorithms.direct import exchange_move
from etloop.traffic.collectives.core.cutting import Request
from etloop.traffic.collectives.core.draft import (
    ADD,
    FINISH,
    KEEP,
    RECV,
    SEND,
    LaneDraft,
    Move,
    Step,
    TableDraft,
    block_moves,
    each_channel,
    schedule_of,
)
from etloop.traffic.collectives.core.symmetric_tables import Symmetry, ahead_in_grid, slices_of_grid
from etloop.traffic.collectives.core.table import Lane, Schedule


@dataclass(frozen=True, slots=True)
class Grid:
    """Hosts with the same number of positions; a position is (host, place)."""

    hosts: int
    places: int

    @property
    def size(self) -> int:
        """Return the number of positions."""
        return self.hosts * self.places

    def at(self, host: int, place: int) -> int:
        """Return the position of (host, place), both taken modulo their number."""
        return host % self.hosts * self.places + place % self.places


def grid_of(request: Request) -> Grid:
    """Return the hosts of a request whose group fills them."""
    assert request.size % request.ranks_per_host == 0
    return Grid(request.size // request.ranks_per_host, request.ranks_per_host)


def hierarchical(request: Request) -> Schedule:
    """Build an all-reduce, barrier or all-to-all over at least two hosts of at least two positions."""
    grid = grid_of(request)
    assert grid.hosts >= 2
    assert grid.places >= 2
    is_all_to_all = request.collective == "all-to-all"
    lanes = _all_to_all if is_all_to_all else _all_reduce
    peers = ahead_in_grid(grid.hosts, grid.places)
    symmetry = Symmetry(peers, peers if is_all_to_all else slices_of_grid(grid.hosts, grid.places))
    tables = each_channel(request, lambda position: lanes(grid, *divmod(position, grid.places)), symmetry)
    return schedule_of(request, "hierarchical", tables, blocks=request.size)


def _all_to_all(grid: Grid, host: int, place: int) -> tuple[Lane, ...]:
    """Return the table of a position for an all-to-all."""
    table = TableDraft()
    position = grid.at(host, place)
    arrived: list[Step] = []
    for i in range(1, grid.places):
        target, source = grid.at(host, place + i), grid.at(host, place - i)
        lane = table.lane(send_to=target, recv_from=source)
        lane.add(SEND, _for_place(grid, position, place + i))
        arriving = _for_place(grid, source, place)
        kinds = [KEEP if move.chunk == position else RECV for move in arriving]
        arrived.append(lane.add_each(list(zip(kinds, arriving, strict=True))))
    for i in range(1, grid.hosts):
        target, source = grid.at(host + i, place), grid.at(host - i, place)
        lane = table.lane(send_to=target, recv_from=source)
        lane.add(SEND, _from_host(grid, host, target), arrived)
        lane.add(KEEP, _from_host(grid, host - i, position))
    return table.lanes()


def _for_place(grid: Grid, source: int, place: int) -> list[Move]:
    """Return the moves from a position to a place on all hosts, its own host first."""
    own_host = source // grid.places
    return [exchange_move(source, grid.at(own_host + delta, place), grid.size) for delta in range(grid.hosts)]


def _from_host(grid: Grid, host: int, destination: int) -> list[Move]:
    """Return the moves from all positions of a host to a position."""
    return [exchange_move(grid.at(host, place), destination, grid.size) for place in range(grid.places)]


def _all_reduce(grid: Grid, host: int, place: int) -> tuple[Lane, ...]:
    """Return the table of a position for an all-reduce."""
    table = TableDraft()
    inside = table.lane(send_to=grid.at(host, place + 1), recv_from=grid.at(host, place - 1))
    between = table.lane(send_to=grid.at(host + 1, place), recv_from=grid.at(host - 1, place))
    # Reduce-scatter: the slice of the previous place is sent first, the own slice is received last.
    inside.add(SEND, _slice(grid, host, place - 1))
    for j in range(2, grid.places):
        inside.add(ADD | SEND, _slice(grid, host, place - j))
    reduced = inside.add(ADD, _slice(grid, host, place))
    final = _all_reduce_slice(grid, between, host, place, reduced)
    inside.add(SEND, _slice(grid, host, place), [final])
    for j in range(1, grid.places - 1):
        inside.add(KEEP | SEND, _slice(grid, host, place - j))
    inside.add(KEEP, _slice(grid, host, place + 1))
    return table.lanes()


def _all_reduce_slice(grid: Grid, lane: LaneDraft, host: int, place: int, before: Step) -> Step:
    """Add a ring all-reduce of one slice between hosts; return its last step."""

    def block(other: int) -> tuple[Move, ...]:
        return block_moves([place % grid.places * grid.hosts + other % grid.hosts])

    lane.add(SEND, block(host - 1), [before])
    for j in range(2, grid.hosts):
        lane.add(ADD | SEND, block(host - j))
    lane.add(FINISH | SEND, block(host))
    for j in range(1, grid.hosts - 1):
        lane.add(KEEP | SEND, block(host - j))
    return lane.add(KEEP, block(host + 1))


def _slice(grid: Grid, host: int, place: int) -> tuple[Move, ...]:
    """Return the part of the buffer that a place reduces between hosts, as one block per host, the own host first."""
    first = place % grid.places * grid.hosts
    return block_moves(first + (host + delta) % grid.hosts for delta in range(grid.hosts))
