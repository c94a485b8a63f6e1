"""Builds the dependency graph of a recorded rank from its events.

The order is that of a GPU: operators of a stream run one after another; a communication operation starts after what its stream
had issued before it, and runs next to later operators; a wait joins it to the waiting stream; after a read on the host everything
issued later follows the value. Where a storage shows a dependency that these do not imply, it becomes an edge, too. The
operators between two such points are folded into one node. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import zip_longest

from etloop.workload.recording.device import OperatorTimes
from etloop.workload.recording.events import (
    HOST_STREAM,
    Communication,
    Compute,
    DeviceOnHost,
    Event,
    EventOnHost,
    EventRecord,
    EventWait,
    HostRead,
    RecordedRank,
    Storage,
    StreamWait,
    Wait,
)
from etloop.workload.recording.flows import DataFlow
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
    data_from: tuple[int, ...] = ()
    """Communication operations whose results reach the input of this one, without those before them."""


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

    def follow(self, moment: _Moment) -> None:
        """Note that the next operator follows a moment of another stream, and all that it followed."""
        self.operations |= moment.operations
        self.others[moment.stream] = max(self.others.get(moment.stream, -1), moment.tail)
        for known, node in moment.others.items():
            self.others[known] = max(self.others.get(known, -1), node)


@dataclass(frozen=True, slots=True)
class _Moment:
    """All that was issued to a stream until some time, and the nodes that it followed."""

    stream: int
    tail: int
    operations: int
    others: Mapping[int, int]


@dataclass(slots=True)
class _Access:
    """The nodes that last wrote a storage, or read it since. (stream, node) pairs; stream None is a communication operation."""

    writer: tuple[int | None, int] | None = None
    readers: dict[tuple[int | None, int], None] = field(default_factory=dict)


def build_graph(rank: RecordedRank, times: OperatorTimes) -> RankGraph:
    """Return the graph of a rank."""
    builder = _Builder(times)
    events = _of_the_device(rank.events)
    for event, following in zip_longest(events, events[1:]):
        builder.add(event, following)
    builder.close_all()
    return RankGraph(tuple(builder.nodes), builder.late_uses)


def _of_the_device(events: Sequence[Event]) -> Sequence[Event]:
    """Return the events without the operators of the host, which take no time, unless there is no device."""
    on_host = [event.stream == HOST_STREAM for event in events if isinstance(event, Compute)]
    if all(on_host) or not any(on_host):
        return events
    return [event for event in events if not isinstance(event, Compute) or event.stream != HOST_STREAM]


class _Builder:
    def __init__(self, times: OperatorTimes) -> None:
        self.nodes: list[GraphNode] = []
        self.late_uses = 0
        self._times = times
        self._flow = DataFlow()
        self._streams: dict[int, _Stream] = {}
        self._node_of: dict[int, int] = {}
        self._storages: dict[int, _Access] = {}
        self._recorded: dict[int, _Moment | None] = {}
        """Events of streams, by their numbers."""
        self._issued: dict[int, _Moment] = {}
        """Moments at which communication operations were issued, by their nodes."""
        self._pending: list[int] = []
        """Communication operations since the host last waited for the device."""
        self._host: list[_Moment | int] = []
        """Moments of streams, and communication operations, that everything issued later waits for, in the order of the waits."""

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
            self._join(self._moment(event.other), event.stream, stream)
        elif isinstance(event, EventRecord):
            self._recorded[event.event] = self._moment(event.stream)
        elif isinstance(event, EventWait):
            self._join(self._recorded.get(event.event), event.stream, stream)
        elif isinstance(event, EventOnHost):
            moment = self._recorded.get(event.event)
            if moment is not None:
                self._host.append(moment)
        elif isinstance(event, DeviceOnHost):
            self._wait_for_device()
        elif isinstance(event, Storage):
            self._store(event, stream)

    def close_all(self) -> None:
        for number, stream in self._streams.items():
            self._close(number, stream)

    def _compute(self, event: Compute, stream: _Stream) -> None:
        deps = self._follow_host(event.stream, stream)
        deps |= self._storage_deps(event.reads, event.writes, event.stream, stream)
        if deps:
            self._close(event.stream, stream)
            stream.open_deps |= deps
        stream.open.append(event)
        self._flow.compute(event.reads, event.writes)
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
        deps = self._host_deps(event.stream, known, stream.host_seen)
        deps |= self._storage_deps(event.reads, event.writes, event.stream, known)
        self._close(event.stream, stream)
        if stream.tail is not None:
            deps.add(stream.tail)
        kind = {"send": NodeKind.COMM_SEND, "recv": NodeKind.COMM_RECV}.get(event.type, NodeKind.COMM_COLL)
        index = len(self.nodes)
        name = f"{event.type} {event.module}".strip()
        flow = self._flow.operate(index, event.reads, event.writes)
        node = GraphNode(
            kind, name, tuple(sorted(deps)), event.stream, operation=event, is_async=is_async, data_from=flow
        )
        self.nodes.append(node)
        self._node_of[event.number] = index
        issued = self._moment(event.stream)
        if issued is not None:
            self._issued[index] = issued
        self._pending.append(index)
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
        deps = set(awaited) | self._follow_host(number, stream)
        self._close(number, stream)
        if stream.tail is not None:
            deps.add(stream.tail)
        for index in awaited:
            if self.nodes[index].operation is not None:
                stream.operations |= 1 << index
            if index in self._issued and self._issued[index].stream != number:
                stream.follow(self._issued[index])
        stream.tail = len(self.nodes)
        self.nodes.append(GraphNode(NodeKind.METADATA, name, tuple(sorted(deps)), number))

    def _moment(self, number: int) -> _Moment | None:
        """Return what was issued to a stream until now; None if it got no work."""
        stream = self._streams.setdefault(number, _Stream())
        self._close(number, stream)
        return (
            None
            if stream.tail is None
            else _Moment(number, stream.tail, stream.operations, dict(stream.others))
        )

    def _join(self, moment: _Moment | None, number: int, stream: _Stream) -> None:
        """Make a stream wait for a moment of another."""
        if moment is None or moment.stream == number or stream.others.get(moment.stream, -1) >= moment.tail:
            return
        self._join_nodes({moment.tail}, number, stream, f"wait for stream {moment.stream}")
        stream.follow(moment)

    def _wait_for_device(self) -> None:
        """Make everything issued later wait for everything issued before."""
        moments = [moment for number in tuple(self._streams) if (moment := self._moment(number)) is not None]
        known = 0
        for moment in moments:
            known |= moment.operations
        pending = [index for index in self._pending if not known >> index & 1]
        self._pending.clear()
        self._host += [*pending, *moments]

    def _read_on_host(self, event: HostRead, stream: _Stream) -> None:
        deps = self._storage_deps(event.reads, (), event.stream, stream)
        if deps:
            self._close(event.stream, stream)
            self._join_nodes(deps, event.stream, stream, "read on the host")
        if len(self._streams) > 1:
            moment = self._moment(event.stream)
            if moment is not None:
                self._host.append(moment)

    def _store(self, event: Storage, stream: _Stream) -> None:
        deps = self._follow_host(event.stream, stream)
        self._close(event.stream, stream)
        if stream.tail is not None:
            deps.add(stream.tail)
        stream.tail = len(self.nodes)
        self.nodes.append(
            GraphNode(
                NodeKind.STORAGE, event.name, tuple(sorted(deps)), event.stream, moved_bytes=event.moved_bytes
            )
        )
        moment = self._moment(event.stream)
        assert moment is not None
        self._host.append(moment)

    def _follow_host(self, number: int, stream: _Stream) -> set[int]:
        """Return the nodes that a stream has to follow because the host waited for them, and note that it does."""
        deps = self._host_deps(number, stream, stream.host_seen)
        stream.host_seen = len(self._host)
        return deps

    def _host_deps(self, number: int, stream: _Stream, first: int) -> set[int]:
        """Return the nodes among the host's waits from `first` on that a stream does not follow yet."""
        deps: set[int] = set()
        for waited in reversed(self._host[first:]):
            if isinstance(waited, int):
                if not stream.operations >> waited & 1:
                    stream.operations |= 1 << waited
                    deps.add(waited)
            elif waited.stream != number and stream.others.get(waited.stream, -1) < waited.tail:
                deps.add(waited.tail)
                stream.follow(waited)
        return deps

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
