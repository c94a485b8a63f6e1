"""Custom-collective traces as a schedule: per-rank Chakra files whose sends and receives make up one collective.

Decides how such files become lanes: one for each peer and direction, an entry a message, dependencies as waits. Nodes
that are neither send nor receive only order what stands around them. The files tell sizes and no places in a buffer, so
that what can be proved is that every send has its receive, nothing deadlocks, every rank hears, directly or not, of all
that its result is made of, and is sent no fewer bytes than that takes.
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
"""Nodes of a cycle that an error names."""


class Key(NamedTuple):
    """A node: rank and index in its file."""

    rank: int
    node: int


@dataclass(slots=True)
class _Message:
    src: Key
    dst: Key
    message_bytes: int
    number: int
    """Of its pair, in the order of sending."""


@dataclass(frozen=True, slots=True)
class CustomProgram:
    """A collective as its files tell it."""

    source: str
    ranks: int
    recorded_bytes: int
    """Size of the buffer that the files are for."""
    pieces: int
    """Equal pieces of the buffer that every message is a number of."""
    sends: dict[Key, tuple[int, int, int]] = field(default_factory=dict)
    """(peer, number among the messages to it, pieces)."""
    receives: dict[Key, tuple[int, int, int]] = field(default_factory=dict)
    order: tuple[Key, ...] = ()
    """All nodes in an order in which they can be executed."""
    before: dict[Key, tuple[Key, ...]] = field(default_factory=dict)
    """What a node waits for on its own rank."""


def read_custom(trace: Trace, source: str, recorded_bytes: int, collective: str) -> CustomProgram:
    """The program of a set of files that were made for a buffer of `recorded_bytes`.

    Raises `TraceError` with what does not fit together, or cannot do the collective.
    """
    if len(trace.ranks) > MOST_RANKS or sum(map(len, trace.ranks)) > MOST_MESSAGES:
        what = f"{len(trace.ranks)} ranks with {sum(map(len, trace.ranks))} nodes"
        raise TraceError(Problem(source, what, f"at most {MOST_RANKS} and {MOST_MESSAGES} are read"))
    problems: list[Problem] = []
    before = {key: found for rank in trace.ranks for key, found in _dependencies(rank, problems)}
    messages = list(_matched(trace, problems))
    _refuse(problems)
    unit = math.gcd(recorded_bytes, *(message.message_bytes for message in messages))
    pieces = recorded_bytes // unit
    if not messages or pieces > MOST_PIECES:
        what = (
            f"its messages are no simple share of {recorded_bytes} bytes"
            if messages
            else "it has no messages"
        )
        raise TraceError(
            Problem(source, what, "state the buffer's size that the files were made for (recorded)")
        )
    program = CustomProgram(source, len(trace.ranks), recorded_bytes, pieces, before=before)
    for message in messages:
        count = message.message_bytes // unit
        program.sends[message.src] = (message.dst.rank, message.number, count)
        program.receives[message.dst] = (message.src.rank, message.number, count)
    ordered, heard = _executed(trace, messages, before, source)
    _refuse(_lacking(collective, program, messages, heard))
    return replace(program, order=ordered)


def schedule_of_custom(
    request: Request, name: str, program: CustomProgram
) -> tuple[Schedule, dict[EntryKey, Key]]:
    """The schedule of a program, and the nodes that its entries come of.

    Messages have the same share of the buffer whatever its size.
    """
    assert request.size == program.ranks
    span = request.size if request.collective == "all-gather" else 1
    tables = [TableDraft() for _ in range(program.ranks)]
    lanes: dict[tuple[int, int, bool], LaneDraft] = {}
    over: dict[Key, tuple[Step, ...]] = {}
    nodes: dict[EntryKey, Key] = {}
    for key in program.order:
        after = tuple(dict.fromkeys(step for one in program.before[key] for step in over[one]))
        sends = key in program.sends
        if not sends and key not in program.receives:
            over[key] = after
            continue
        peer, number, count = (program.sends if sends else program.receives)[key]
        at = (key.rank, peer, sends)
        if at not in lanes:
            ends = (peer, -1) if sends else (-1, peer)
            lanes[at] = tables[key.rank].add(Lane(0, *ends, 0, 1, (), span=span))
        # Which data it is the files do not say; both ends count alike, so that sizes agree.
        moves = [Move((number * count + i) % program.pieces, 0) for i in range(count)]
        draft = lanes[at]
        begun = len(draft.entries)
        over[key] = (draft.add(SEND if sends else KEEP, moves, after),)
        nodes |= {(key.rank, draft.index, entry): key for entry in range(begun, len(draft.entries))}
    tables_of_all = tuple(table.lanes() for table in tables)
    return schedule_of(request, name, tables_of_all, blocks=program.pieces), nodes


def name_of_node(trace: Trace, key: Key) -> str:
    """How an error names a node."""
    rank = trace.ranks[key.rank]
    return f"{rank.path}: node {rank.node_id[key.node]}"


def _dependencies(rank: RankTrace, problems: list[Problem]) -> Iterator[tuple[Key, tuple[Key, ...]]]:
    index = {int(node): at for at, node in enumerate(rank.node_id.tolist())}
    for at in range(len(rank)):
        found = [
            *rank.data_deps[at].tolist(),
            *rank.ctrl_deps[at].tolist(),
        ]
        missing = [node for node in found if node not in index]
        if missing:
            what = f"node {rank.node_id[at]} waits for node {missing[0]}, which is not there"
            problems.append(Problem(rank.path, what, "let it wait for a node of the same file"))
        yield (
            Key(rank.rank, at),
            tuple(Key(rank.rank, index[node]) for node in dict.fromkeys(found) if node in index),
        )


def _matched(trace: Trace, problems: list[Problem]) -> Iterator[_Message]:
    """Sends with their receives, by pair and tag, the k-th with the k-th."""
    waiting: dict[tuple[int, int, int], deque[int]] = defaultdict(deque)
    ranks = len(trace.ranks)
    for rank in trace.ranks:
        for at in _of_kind(rank, NodeKind.COMM_RECV):
            source = int(rank.comm.src[at])
            if not 0 <= source < ranks or source == rank.rank:
                problems.append(_no_peer(rank, at, "receives from", source, ranks))
                continue
            waiting[source, rank.rank, int(rank.comm.tag[at])].append(at)
    for rank in trace.ranks:
        numbers: dict[int, int] = defaultdict(int)
        for at in _of_kind(rank, NodeKind.COMM_SEND):
            peer, size = int(rank.comm.dst[at]), int(rank.comm.size[at])
            if not 0 <= peer < ranks or peer == rank.rank:
                problems.append(_no_peer(rank, at, "sends to", peer, ranks))
                continue
            queue = waiting[rank.rank, peer, int(rank.comm.tag[at])]
            if not queue:
                problems.append(_alone(rank, at, f"sends to rank {peer}, which does not receive it"))
                continue
            other = queue.popleft()
            received = int(trace.ranks[peer].comm.size[other])
            if size != received or size <= 0:
                what = f"sends {size} bytes to rank {peer}, which receives {received}"
                problems.append(_alone(rank, at, what.replace(str(ABSENT), "unknown")))
                continue
            yield _Message(Key(rank.rank, at), Key(peer, other), size, numbers[peer])
            numbers[peer] += 1
    for (source, rank_number, _), queue in waiting.items():
        for at in queue:
            what = f"receives from rank {source}, which does not send it"
            problems.append(_alone(trace.ranks[rank_number], at, what))


def _of_kind(rank: RankTrace, kind: NodeKind) -> Iterable[int]:
    return (at for at, found in enumerate(rank.kind.tolist()) if found == kind)


def _no_peer(rank: RankTrace, at: int, verb: str, peer: int, ranks: int) -> Problem:
    named = "nobody" if peer == ABSENT else f"rank {peer}"
    what = f"node {rank.node_id[at]} {verb} {named}"
    return Problem(rank.path, what, f"name another rank from 0 to {ranks - 1}")


def _alone(rank: RankTrace, at: int, what: str) -> Problem:
    return Problem(
        rank.path, f"node {rank.node_id[at]} {what}", "give every send a receive of its tag and size"
    )


def _executed(
    trace: Trace, messages: list[_Message], before: dict[Key, tuple[Key, ...]], source: str
) -> tuple[tuple[Key, ...], list[int]]:
    """All nodes in executable order, and per rank whom it has heard of in the end (a bit a rank).

    The messages of a pair are taken in the order of sending, so that order is kept among sends and receives as well.
    """
    waits: dict[Key, list[Key]] = {key: list(found) for key, found in before.items()}
    latest: dict[tuple[int, int], _Message] = {}
    for message in messages:
        waits[message.dst].append(message.src)
        previous = latest.get((message.src.rank, message.dst.rank))
        if previous is not None:
            waits[message.src].append(previous.src)
            waits[message.dst].append(previous.dst)
        latest[message.src.rank, message.dst.rank] = message
    then: dict[Key, list[Key]] = defaultdict(list)
    for key, found in waits.items():
        for one in found:
            then[one].append(key)
    missing = {key: len(found) for key, found in waits.items()}
    ready = deque(key for key, count in missing.items() if count == 0)
    mask: dict[Key, int] = {}
    ordered: list[Key] = []
    while ready:
        key = ready.popleft()
        ordered.append(key)
        mask[key] = 1 << key.rank
        for one in waits[key]:
            mask[key] |= mask[one]
        for follower in then[key]:
            missing[follower] -= 1
            if missing[follower] == 0:
                ready.append(follower)
    if len(ordered) < len(missing):
        what = " waits for ".join(name_of_node(trace, key) for key in _cycle(waits, missing))
        raise TraceError(Problem(source, what, "break the cycle of dependencies, sends and receives"))
    heard = [1 << rank for rank in range(len(trace.ranks))]
    for key, known in mask.items():
        heard[key.rank] |= known
    return tuple(ordered), heard


def _cycle(waits: Mapping[Key, Sequence[Key]], missing: Mapping[Key, int]) -> list[Key]:
    """Nodes of which each waits for the next and the last for the first, which stands at both ends; of a long one the begin."""
    seen: dict[Key, None] = {}
    at = next(key for key, count in missing.items() if count)
    while at not in seen:
        seen[at] = None
        at = next(one for one in waits[at] if missing[one])
    way = list(seen)
    cycle = way[way.index(at) :]
    return [*cycle[:_CYCLE_SHOWN], at] if len(cycle) <= _CYCLE_SHOWN else cycle[:_CYCLE_SHOWN]


def _lacking(
    collective: str, program: CustomProgram, messages: list[_Message], heard: list[int]
) -> list[Problem]:
    """Why the program cannot do the collective."""
    ranks, size = program.ranks, program.recorded_bytes
    received = [0] * ranks
    for message in messages:
        received[message.dst.rank] += message.message_bytes
    problems = []
    for rank in range(ranks):
        needed, least = _needed(collective, rank, ranks, size)
        missing = needed & ~heard[rank]
        if missing:
            what = f"rank {rank} hears nothing of rank {missing.bit_length() - 1}"
            problems.append(Problem(program.source, what, f"the {collective} needs the data of all"))
        elif received[rank] < least:
            what = f"rank {rank} receives {approximate_bytes(received[rank])}"
            remedy = (
                f"the {collective} of {approximate_bytes(size)} takes at least {approximate_bytes(least)}"
            )
            problems.append(Problem(program.source, what, remedy))
    return problems


def _needed(collective: str, rank: int, ranks: int, size: int) -> tuple[int, int]:
    """(ranks whose data a rank's result is made of, least bytes that must come to it)."""
    everyone = (1 << ranks) - 1
    match collective:
        case "broadcast":
            return 1, size if rank else 0
        case "reduce":
            return (0, 0) if rank else (everyone, size)
        case "reduce-scatter":
            return everyone, size // ranks
        case _:
            return everyone, size - -(-size // ranks)


def _refuse(problems: list[Problem]) -> None:
    if problems:
        raise TraceError(*problems[:MOST_PROBLEMS])
