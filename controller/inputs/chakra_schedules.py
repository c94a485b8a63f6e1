"""Custom-collective traces as a schedule: per-rank Chakra files whose sends and receives make up one collective.

Decides how such files become lanes: one per peer and direction, one entry per message, dependencies as waits. Nodes that
are neither send nor receive only order other nodes. The files give sizes but no buffer offsets, so the contents of
messages are not proved. The checks prove that every send has its receive and that nothing deadlocks. They also prove that
the messages to a rank depend, directly or through other ranks, on all ranks whose data its result contains, and that they
have at least the bytes of that result.
Source: astra-sim/collectiveapi chakra_converter, astra-sim examples/system/custom_collectives.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from etloop.contract.base.errors import Problem, TraceError
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import approximate_bytes
from etloop.traffic.collectives.core.cutting import Request
from etloop.traffic.collectives.core.draft import KEEP, SEND, LaneDraft, Move, Step, TableDraft, schedule_of
from etloop.traffic.collectives.core.table import Lane, Schedule
from etloop.workload.trace.trace import ABSENT, NodeKind, RankTrace, Trace

if TYPE_CHECKING:
    from etloop.traffic.collectives.msccl.schedule import EntryKey

MOST_RANKS: Final = 1024
MOST_PIECES: Final = 1 << 12
MOST_MESSAGES: Final = 1 << 20
MOST_PROBLEMS: Final = 20
_CYCLE_SHOWN: Final = 16
"""Most nodes of a cycle that an error names."""


class Key(NamedTuple):
    """A node: rank and index in the rank's file."""

    rank: int
    node: int


@dataclass(slots=True)
class _Message:
    src: Key
    dst: Key
    message_bytes: int
    number: int
    """Index among the messages of its pair of ranks, in the order of sending."""


@dataclass(frozen=True, slots=True)
class CustomProgram:
    """A collective as read from its files."""

    source: str
    ranks: int
    recorded_bytes: int
    """Size of the buffer that the files were made for."""
    pieces: int
    """Number of equal pieces of the buffer; every message is a whole number of them."""
    sends: dict[Key, tuple[int, int, int]] = field(default_factory=dict)
    """(peer, index among the messages to it, pieces)."""
    receives: dict[Key, tuple[int, int, int]] = field(default_factory=dict)
    order: tuple[Key, ...] = ()
    """All nodes in an executable order."""
    before: dict[Key, tuple[Key, ...]] = field(default_factory=dict)
    """Nodes of the same rank that a node waits for."""


def read_custom(trace: Trace, source: str, recorded_bytes: int, collective: str) -> CustomProgram:
    """Return the program of a set of files that were made for a buffer of `recorded_bytes`.

    Raises `TraceError` if sends and receives do not match, dependencies are cyclic, or the messages do not implement the
    collective.
    """
    if len(trace.ranks) > MOST_RANKS or sum(map(len, trace.ranks)) > MOST_MESSAGES:
        problem = f"{len(trace.ranks)} ranks with {sum(map(len, trace.ranks))} nodes"
        raise TraceError(
            Problem(source, problem, f"use at most {MOST_RANKS} ranks and {MOST_MESSAGES} nodes")
        )
    problems: list[Problem] = []
    before = {key: deps for rank in trace.ranks for key, deps in _dependencies(rank, problems)}
    messages = list(_match_messages(trace, problems))
    _refuse(problems)
    piece_bytes = math.gcd(recorded_bytes, *(message.message_bytes for message in messages))
    pieces = recorded_bytes // piece_bytes
    if not messages or pieces > MOST_PIECES:
        problem = (
            f"the messages are not a simple fraction of {recorded_bytes} bytes"
            if messages
            else "the traces have no messages"
        )
        raise TraceError(Problem(source, problem, "write the buffer size of the files under recorded"))
    program = CustomProgram(source, len(trace.ranks), recorded_bytes, pieces, before=before)
    for message in messages:
        count = message.message_bytes // piece_bytes
        program.sends[message.src] = (message.dst.rank, message.number, count)
        program.receives[message.dst] = (message.src.rank, message.number, count)
    order, heard = _execute(trace, messages, before, source)
    _refuse(_check_result(collective, program, messages, heard))
    return replace(program, order=order)


def schedule_of_custom(
    request: Request, name: str, program: CustomProgram
) -> tuple[Schedule, dict[EntryKey, Key]]:
    """Return the schedule of a program, and the node that each of its entries comes from.

    A message keeps its share of the buffer at any buffer size.
    """
    assert request.size == program.ranks
    span = request.size if request.collective == "all-gather" else 1
    tables = [TableDraft() for _ in range(program.ranks)]
    lanes: dict[tuple[int, int, bool], LaneDraft] = {}
    steps_of_node: dict[Key, tuple[Step, ...]] = {}
    nodes: dict[EntryKey, Key] = {}
    for key in program.order:
        waits = tuple(
            dict.fromkeys(step for dependency in program.before[key] for step in steps_of_node[dependency])
        )
        sends = key in program.sends
        if not sends and key not in program.receives:
            steps_of_node[key] = waits
            continue
        peer, number, count = (program.sends if sends else program.receives)[key]
        lane_key = (key.rank, peer, sends)
        if lane_key not in lanes:
            ends = (peer, -1) if sends else (-1, peer)
            lanes[lane_key] = tables[key.rank].add(Lane(0, *ends, 0, 1, (), span=span))
        # The files do not give the offset of the data; both ends number pieces the same way, so that sizes agree.
        moves = [Move((number * count + i) % program.pieces, 0) for i in range(count)]
        draft = lanes[lane_key]
        first_entry = len(draft.entries)
        steps_of_node[key] = (draft.add(SEND if sends else KEEP, moves, waits),)
        nodes |= {(key.rank, draft.index, entry): key for entry in range(first_entry, len(draft.entries))}
    tables_of_all = tuple(table.lanes() for table in tables)
    return schedule_of(request, name, tables_of_all, blocks=program.pieces), nodes


def name_of_node(trace: Trace, key: Key) -> str:
    """Return the name of a node in errors: file and node id."""
    rank = trace.ranks[key.rank]
    return f"{rank.path}: node {rank.node_id[key.node]}"


def _dependencies(rank: RankTrace, problems: list[Problem]) -> Iterator[tuple[Key, tuple[Key, ...]]]:
    index = {int(node): row for row, node in enumerate(rank.node_id.tolist())}
    for row in range(len(rank)):
        node_ids = [
            *rank.data_deps[row].tolist(),
            *rank.ctrl_deps[row].tolist(),
        ]
        absent_ids = [node for node in node_ids if node not in index]
        if absent_ids:
            problem = f"node {rank.node_id[row]} waits for node {absent_ids[0]}, which does not exist"
            problems.append(Problem(rank.path, problem, "name a node of the same file"))
        yield (
            Key(rank.rank, row),
            tuple(Key(rank.rank, index[node]) for node in dict.fromkeys(node_ids) if node in index),
        )


def _match_messages(trace: Trace, problems: list[Problem]) -> Iterator[_Message]:
    """Yield each send with its receive, matched by pair and tag, the k-th send with the k-th receive.

    Appends sends and receives without a match, or with different sizes, to `problems`.
    """
    receive_queues: dict[tuple[int, int, int], deque[int]] = defaultdict(deque)
    ranks = len(trace.ranks)
    for rank in trace.ranks:
        for row in _of_kind(rank, NodeKind.COMM_RECV):
            source = int(rank.comm.src[row])
            if not 0 <= source < ranks or source == rank.rank:
                problems.append(_no_peer(rank, row, "receives from", source, ranks))
                continue
            receive_queues[source, rank.rank, int(rank.comm.tag[row])].append(row)
    for rank in trace.ranks:
        numbers: dict[int, int] = defaultdict(int)
        for row in _of_kind(rank, NodeKind.COMM_SEND):
            peer, size = int(rank.comm.dst[row]), int(rank.comm.size[row])
            if not 0 <= peer < ranks or peer == rank.rank:
                problems.append(_no_peer(rank, row, "sends to", peer, ranks))
                continue
            queue = receive_queues[rank.rank, peer, int(rank.comm.tag[row])]
            if not queue:
                problems.append(
                    _mismatch_problem(rank, row, f"sends to rank {peer}, which does not receive it")
                )
                continue
            receive = queue.popleft()
            receive_bytes = int(trace.ranks[peer].comm.size[receive])
            if size != receive_bytes or size <= 0:
                problem = f"sends {size} bytes to rank {peer}, which receives {receive_bytes}"
                problems.append(_mismatch_problem(rank, row, problem.replace(str(ABSENT), "unknown")))
                continue
            yield _Message(Key(rank.rank, row), Key(peer, receive), size, numbers[peer])
            numbers[peer] += 1
    for (source, rank_number, _), queue in receive_queues.items():
        for row in queue:
            problem = f"receives from rank {source}, which does not send it"
            problems.append(_mismatch_problem(trace.ranks[rank_number], row, problem))


def _of_kind(rank: RankTrace, kind: NodeKind) -> Iterable[int]:
    return (row for row, node_kind in enumerate(rank.kind.tolist()) if node_kind == kind)


def _no_peer(rank: RankTrace, at: int, verb: str, peer: int, ranks: int) -> Problem:
    peer_name = "no peer" if peer == ABSENT else f"rank {peer}"
    problem = f"node {rank.node_id[at]} {verb} {peer_name}"
    return Problem(rank.path, problem, f"name another rank from 0 to {ranks - 1}")


def _mismatch_problem(rank: RankTrace, at: int, mismatch: str) -> Problem:
    return Problem(
        rank.path, f"node {rank.node_id[at]} {mismatch}", "give every send a receive of its tag and size"
    )


def _execute(
    trace: Trace, messages: list[_Message], before: dict[Key, tuple[Key, ...]], source: str
) -> tuple[tuple[Key, ...], list[int]]:
    """Return all nodes in an executable order, and by rank a bitmask of the ranks whose data can have reached it.

    The messages of a pair are executed in the order of sending: each send and receive waits for the previous one of its pair.
    Raises `TraceError` with the cycle if there is no such order.
    """
    waits: dict[Key, list[Key]] = {key: list(deps) for key, deps in before.items()}
    latest: dict[tuple[int, int], _Message] = {}
    for message in messages:
        waits[message.dst].append(message.src)
        previous = latest.get((message.src.rank, message.dst.rank))
        if previous is not None:
            waits[message.src].append(previous.src)
            waits[message.dst].append(previous.dst)
        latest[message.src.rank, message.dst.rank] = message
    followers: dict[Key, list[Key]] = defaultdict(list)
    for key, deps in waits.items():
        for dependency in deps:
            followers[dependency].append(key)
    open_waits = {key: len(deps) for key, deps in waits.items()}
    ready = deque(key for key, count in open_waits.items() if count == 0)
    sources: dict[Key, int] = {}
    order: list[Key] = []
    while ready:
        key = ready.popleft()
        order.append(key)
        sources[key] = 1 << key.rank
        for dependency in waits[key]:
            sources[key] |= sources[dependency]
        for follower in followers[key]:
            open_waits[follower] -= 1
            if open_waits[follower] == 0:
                ready.append(follower)
    if len(order) < len(open_waits):
        cycle = " waits for ".join(name_of_node(trace, key) for key in _find_cycle(waits, open_waits))
        raise TraceError(Problem(source, cycle, "break the cycle of dependencies, sends and receives"))
    sources_of_rank = [1 << rank for rank in range(len(trace.ranks))]
    for key, ranks in sources.items():
        sources_of_rank[key.rank] |= ranks
    return tuple(order), sources_of_rank


def _find_cycle(waits: Mapping[Key, Sequence[Key]], missing: Mapping[Key, int]) -> list[Key]:
    """Return a cycle of waiting nodes, each waiting for the next, with the first one repeated at the end.

    Of a cycle longer than `_CYCLE_SHOWN` only the beginning is returned.
    """
    seen: dict[Key, None] = {}
    node = next(key for key, count in missing.items() if count)
    while node not in seen:
        seen[node] = None
        node = next(dependency for dependency in waits[node] if missing[dependency])
    path = list(seen)
    cycle = path[path.index(node) :]
    return [*cycle[:_CYCLE_SHOWN], node] if len(cycle) <= _CYCLE_SHOWN else cycle[:_CYCLE_SHOWN]


def _check_result(
    collective: str, program: CustomProgram, messages: list[_Message], heard: list[int]
) -> list[Problem]:
    """Return the reasons why the program does not implement the collective."""
    ranks, size = program.ranks, program.recorded_bytes
    bytes_of_rank = [0] * ranks
    for message in messages:
        bytes_of_rank[message.dst.rank] += message.message_bytes
    problems = []
    for rank in range(ranks):
        needed_ranks, least_bytes = _needed_input(collective, rank, ranks, size)
        missing_ranks = needed_ranks & ~heard[rank]
        if missing_ranks:
            problem = f"rank {rank} receives no data of rank {missing_ranks.bit_length() - 1}"
            problems.append(Problem(program.source, problem, f"the {collective} needs the data of all"))
        elif bytes_of_rank[rank] < least_bytes:
            problem = f"rank {rank} receives {approximate_bytes(bytes_of_rank[rank])}"
            remedy = f"the {collective} of {approximate_bytes(size)} takes at least {approximate_bytes(least_bytes)}"
            problems.append(Problem(program.source, problem, remedy))
    return problems


def _needed_input(collective: str, rank: int, ranks: int, size: int) -> tuple[int, int]:
    """Return (bitmask of the ranks whose data the result of `rank` contains, least bytes that it must receive)."""
    all_ranks = (1 << ranks) - 1
    match collective:
        case "broadcast":
            return 1, size if rank else 0
        case "reduce":
            return (0, 0) if rank else (all_ranks, size)
        case "reduce-scatter":
            return all_ranks, size // ranks
        case _:
            return all_ranks, size - -(-size // ranks)


def _refuse(problems: list[Problem]) -> None:
    if problems:
        raise TraceError(*problems[:MOST_PROBLEMS])
