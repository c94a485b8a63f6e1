"""Builds the dependency graph of a recorded rank from its events.

The order is that of a GPU: operators of a stream run one after another; a communication operation starts after what its stream
had issued before it, and runs next to later operators; a wait joins it to the waiting stream; after a read on the host everything
issued later follows the value. Where a storage shows a dependency that these do not imply, it becomes an edge, too. The
operators between two such points are folded into one node. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from etloop.workload.recording.device import OperatorTimes
from etloop.workload.recording.events import (
    Communication,
    Compute,
    Event,
    HostRead,
    RecordedRank,
    Storage,
    StreamWait,
    Wait,
)
from etloop.workload.trace.trace import NodeKind


@dataclass(slots=True)
class GraphNode:
    """A node of a rank, by its index, which is its id too."""

    kind: NodeKind
    name: str
    deps: tuple[int, ...]
    stream: int
    duration_ns: int = 0
    flops: int = 0
    moved_bytes: int = 0
    operation: Communication | None = None
    is_async: bool = False


@dataclass(frozen=True, slots=True)
class RankGraph:
    """The nodes of one rank, in order of issue."""

    nodes: tuple[GraphNode, ...]
    late_uses: int
    """Uses of a storage that an operation still reads or writes, without a wait: an edge was added for each."""


@dataclass(slots=True)
class _Stream:
    """Nodes known to have ended before the next operator of a stream."""

    tail: int | None = None
    operations: int = 0
    """Bits of node indices of communication operations."""
    others: dict[int, int] = field(default_factory=dict)
    """Latest node of each other stream."""
    host_seen: int = 0
    open: list[Compute] = field(default_factory=list)
    open_deps: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _Access:
    """The nodes that last wrote a storage, or read it since. (stream, node) pairs; stream None is a communication operation."""

    writer: tuple[int | None, int] | None = None
    readers: dict[tuple[int | None, int], None] = field(default_factory=dict)


def build_graph(rank: RecordedRank, times: OperatorTimes) -> RankGraph:
    """Return the graph of a rank."""
    builder = _Builder(times)
    for index, event in enumerate(rank.events):
        builder.add(event, rank.events[index + 1] if index + 1 < len(rank.events) else None)
    builder.close_all()
    return RankGraph(tuple(builder.nodes), builder.late_uses)


class _Builder:
    def __init__(self, times: OperatorTimes) -> None:
        self.nodes: list[GraphNode] = []
        self.late_uses = 0
        self._times = times
        self._streams: dict[int, _Stream] = {}
        self._node_of: dict[int, int] = {}
        self._storages: dict[int, _Access] = {}
        self._host: list[int] = []
        """Nodes that everything issued later waits for, in the order in which the host waited."""

    def add(self, event: Event, following: Event | None) -> None:
        stream = self._streams.setdefault(event.stream, _Stream())
        if isinstance(event, Compute):
            self._compute(event, stream)
        elif isinstance(event, Communication):
            is_sync = isinstance(following, Wait) and event.number in following.operations
            self._communicate(event, stream, is_async=not is_sync)
        elif isinstance(event, Wait):
            self._wait(event, stream)
        elif isinstance(event, HostRead):
            self._read_on_host(event, stream)
        elif isinstance(event, StreamWait):
            self._join(event, stream)
        elif isinstance(event, Storage):
            self._store(event, stream)

    def close_all(self) -> None:
        for number, stream in self._streams.items():
            self._close(number, stream)

    def _compute(self, event: Compute, stream: _Stream) -> None:
        deps = self._storage_deps(event.reads, event.writes, event.stream, stream)
        host = self._host_deps(stream)
        if deps or host:
            self._close(event.stream, stream)
            stream.open_deps |= deps | host
        stream.open.append(event)
        # The node of an open segment is the next one; it is closed before any other node is made.
        self._touch(event.reads, event.writes, (event.stream, self._segment_index(event.stream)))

    def _segment_index(self, stream: int) -> int:
        """Return a placeholder for the segment that is open on a stream: it becomes a node when it is closed."""
        return -1 - stream

    def _close(self, number: int, stream: _Stream) -> None:
        if not stream.open:
            return
        duration = sum((self._times.of(event) for event in stream.open), Fraction(0))
        deps = set(stream.open_deps)
        if stream.tail is not None:
            deps.add(stream.tail)
        index = len(self.nodes)
        self.nodes.append(
            GraphNode(
                NodeKind.COMP,
                _common_module([event.module for event in stream.open]),
                tuple(sorted(deps)),
                number,
                max(1, round(duration)),
                sum(event.flops for event in stream.open),
                sum(event.moved_bytes for event in stream.open),
            )
        )
        placeholder = (number, self._segment_index(number))
        for event in stream.open:
            for storage in (*event.reads, *event.writes):
                access = self._storages[storage]
                if access.writer == placeholder:
                    access.writer = (number, index)
                if placeholder in access.readers:
                    del access.readers[placeholder]
                    access.readers[number, index] = None
        stream.tail, stream.open, stream.open_deps = index, [], set()

    def _communicate(self, event: Communication, stream: _Stream, *, is_async: bool) -> None:
        # The operation's dependencies do not hold its stream.
        known = _Stream(operations=stream.operations, others=dict(stream.others))
        deps = self._storage_deps(event.reads, event.writes, event.stream, known)
        deps |= set(self._host[stream.host_seen :])
        self._close(event.stream, stream)
        if stream.tail is not None:
            deps.add(stream.tail)
        kind = {"send": NodeKind.COMM_SEND, "recv": NodeKind.COMM_RECV}.get(event.type, NodeKind.COMM_COLL)
        index = len(self.nodes)
        name = f"{event.type} {event.module}".strip()
        node = GraphNode(kind, name, tuple(sorted(deps)), event.stream, operation=event, is_async=is_async)
        self.nodes.append(node)
        self._node_of[event.number] = index
        self._touch(event.reads, event.writes, (None, index))

    def _wait(self, event: Wait, stream: _Stream) -> None:
        nodes = {self._node_of[number] for number in event.operations if number in self._node_of}
        unknown = {index for index in nodes if not stream.operations >> index & 1}
        if not unknown:
            return
        words = " ".join(dict.fromkeys(self.nodes[index].name for index in sorted(unknown)))
        self._join_nodes(unknown, event.stream, stream, f"wait {words}"[:200])

    def _join_nodes(self, awaited: set[int], number: int, stream: _Stream, name: str) -> None:
        """Add a node without duration on a stream that waits for others."""
        deps = set(awaited) | self._host_deps(stream)
        self._close(number, stream)
        if stream.tail is not None:
            deps.add(stream.tail)
        for index in awaited:
            if self.nodes[index].operation is not None:
                stream.operations |= 1 << index
        stream.tail = len(self.nodes)
        self.nodes.append(GraphNode(NodeKind.METADATA, name, tuple(sorted(deps)), number))

    def _join(self, event: StreamWait, stream: _Stream) -> None:
        other = self._streams.setdefault(event.other, _Stream())
        self._close(event.other, other)
        if (
            other.tail is None
            or stream.others.get(event.other, -1) >= other.tail
            or event.other == event.stream
        ):
            return
        self._join_nodes({other.tail}, event.stream, stream, f"wait for stream {event.other}")
        stream.operations |= other.operations
        stream.others[event.other] = other.tail
        for known, node in other.others.items():
            stream.others[known] = max(stream.others.get(known, -1), node)

    def _read_on_host(self, event: HostRead, stream: _Stream) -> None:
        deps = self._storage_deps(event.reads, (), event.stream, stream)
        if len(self._streams) > 1 or deps:
            self._close(event.stream, stream)
        if deps:
            self._join_nodes(deps, event.stream, stream, "read on the host")
        if len(self._streams) > 1 and stream.tail is not None:
            self._host.append(stream.tail)
            stream.host_seen = len(self._host)

    def _store(self, event: Storage, stream: _Stream) -> None:
        deps = self._host_deps(stream)
        self._close(event.stream, stream)
        if stream.tail is not None:
            deps.add(stream.tail)
        stream.tail = len(self.nodes)
        self.nodes.append(
            GraphNode(
                NodeKind.STORAGE, event.name, tuple(sorted(deps)), event.stream, moved_bytes=event.moved_bytes
            )
        )
        self._host.append(stream.tail)

    def _host_deps(self, stream: _Stream) -> set[int]:
        """Return the latest nodes that the host waited for and that the stream does not follow yet."""
        new = set(self._host[stream.host_seen :]) - {stream.tail}
        stream.host_seen = len(self._host)
        return new

    def _storage_deps(
        self, reads: Iterable[int], writes: Iterable[int], number: int, stream: _Stream
    ) -> set[int]:
        """Return the nodes that a use of storages must follow, and that the order of streams and waits does not imply."""
        deps: set[int] = set()
        for storage in reads:
            access = self._storages.get(storage)
            if access is not None and access.writer is not None:
                self._add_unknown(access.writer, number, stream, deps)
        for storage in writes:
            access = self._storages.get(storage)
            if access is not None:
                for user in (*access.readers, *([access.writer] if access.writer else ())):
                    self._add_unknown(user, number, stream, deps)
        return deps

    def _add_unknown(
        self, user: tuple[int | None, int], number: int, stream: _Stream, deps: set[int]
    ) -> None:
        user_stream, index = user
        if user_stream == number:
            return
        if user_stream is not None:
            if index < 0:
                other = self._streams[user_stream]
                self._close(user_stream, other)
                assert other.tail is not None
                index = other.tail
            if stream.others.get(user_stream, -1) >= index:
                return
            stream.others[user_stream] = index
        elif stream.operations >> index & 1:
            return
        else:
            stream.operations |= 1 << index
        self.late_uses += 1
        deps.add(index)

    def _touch(self, reads: Sequence[int], writes: Sequence[int], user: tuple[int | None, int]) -> None:
        for storage in reads:
            self._storages.setdefault(storage, _Access()).readers[user] = None
        for storage in writes:
            self._storages[storage] = _Access(user)


def _common_module(modules: Sequence[str]) -> str:
    """Return the module that all operators of a segment are in: their common name, or the first and the last."""
    names = list(dict.fromkeys(name for name in modules if name))
    if not names:
        return "compute"
    if len(names) == 1:
        return names[0]
    parts = [name.split(" ")[0].split(".") for name in names]
    common = 0
    while all(len(part) > common and part[common] == parts[0][common] for part in parts):
        common += 1
    is_backward = all(name.endswith(" backward") for name in names)
    if common:
        return ".".join(parts[0][:common]) + (" backward" if is_backward else "")
    return f"{names[0]} to {names[-1]}"
