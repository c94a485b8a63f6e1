"""MSCCL++ execution plans (JSON) as custom-collective traces: which rank moves which chunks to which, and after what.

A plan is one-sided: thread blocks put to, and read from, buffers of other ranks, and order them by signals and waits. It
is executed here once; each remote read or write becomes a send and its receive, with the receives that it had to follow
as dependencies. Signals carry no data and are not sent. The iterations of a `pipeline` run as one. Multicast of NVLink
switches is refused, because it does not leave a host.

Format: microsoft/mscclpp:src/executor/execution_plan.cc.
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Any, Final

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.traffic.collectives.msccl.reader import COLLECTIVES
from etloop.workload.readers.node_rows import NodeRow, rank_trace
from etloop.workload.trace.trace import NodeKind, Trace

CHUNK_BYTES: Final = 5040
"""Bytes of a chunk in the traces; thread block groups of up to ten divide it."""
_MOST_OPS: Final = 1 << 18
_MOST_GPUS: Final = 1024
_MOST_INDEX: Final = 1 << 14
_ADVICE: Final = "write the plan with MSCCL++'s DSL of 0.7 or later"

_SIGNALS: Final = frozenset(("signal", "rlxsignal"))
_WAITS: Final = frozenset(("wait", "rlxwait"))
_NO_DATA: Final = frozenset(("nop", "flush"))
_PUTS: Final = frozenset(("put", "pws", "pwsf", "ppkt", "rppkt"))
_SIGNALLING: Final = frozenset(("pws", "pwsf"))
_DATA: Final = _PUTS | frozenset("get copy re res rre rres respkt cpkt upkt repkt recpkt recspkt".split())
_PACKET_READS: Final = frozenset("rppkt respkt cpkt upkt repkt recpkt recspkt".split())
"""Operations that wait for packets in the scratch buffers that they read."""
_PACKET_COPIES: Final = frozenset(("cpkt", "recpkt", "recspkt"))
"""Operations that leave packets in the scratch buffers of their own GPU."""
_MULTICAST: Final = frozenset(("glres", "gstore", "gstorepkt"))


class _Fault(Exception):
    """A mistake of the plan, with its place."""

    def __init__(self, place: str, problem: str, remedy: str = _ADVICE) -> None:
        super().__init__(problem)
        self.place = place
        self.what = problem
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class Plan:
    """An execution plan as traces of its ranks."""

    name: str
    collective: str
    """As `Schedule.collective`."""
    is_packets: bool
    """Whether data travels with flags (LL), at twice its size."""
    recorded_bytes: int
    least_bytes: int
    most_bytes: int
    trace: Trace


@dataclass(slots=True)
class _Known:
    """The past of a thread block: nodes of its rank, receives on other ranks that its puts end in, and nodes of
    other ranks that precede data it may read."""

    after: set[int] = field(default_factory=set)
    delivered: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    readable: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))

    def add(self, other: _Known) -> None:
        """Add what another thread block of the rank has waited for."""
        self.after |= other.after
        for mine, theirs in ((self.delivered, other.delivered), (self.readable, other.readable)):
            for rank, nodes in theirs.items():
                mine[rank] |= nodes

    def copy(self) -> _Known:
        """Return an independent copy."""
        copy = _Known()
        copy.add(self)
        return copy


@dataclass(slots=True)
class _Block:
    gpu: int
    number: int
    ops: list[dict[str, Any]]
    channels: dict[str, list[int]]
    buffers: dict[str, list[int]]
    at: int = 0
    known: _Known = field(default_factory=_Known)
    arrived: bool = False


_Channel = tuple[int, int, str, int]
"""(from rank, to rank, type, index among the channels of this type between them)."""


@dataclass(slots=True)
class _Execution:
    """The state of one execution of all thread blocks."""

    source: str
    is_in_place: bool
    peers: list[dict[str, list[int]]]
    """By rank and type: the rank that each channel is connected to."""
    remote: list[list[tuple[int, str]]]
    """By rank: owner and kind of each remote buffer."""
    rows: list[list[NodeRow]]
    writer: dict[tuple[int, str, int], int] = field(default_factory=dict)
    """The node that wrote a chunk of a rank's buffer last."""
    packets: set[tuple[int, str, int]] = field(default_factory=set)
    """Chunks that packets have arrived in; reading leaves them there."""
    tokens: dict[_Channel, deque[_Known]] = field(default_factory=lambda: defaultdict(deque))
    waiting: dict[tuple[int, int], list[_Block]] = field(default_factory=lambda: defaultdict(list))
    semaphores: dict[tuple[int, int], deque[_Known]] = field(default_factory=lambda: defaultdict(deque))
    tags: dict[tuple[int, int], int] = field(default_factory=lambda: defaultdict(int))

    def run(self, blocks: Sequence[_Block]) -> None:
        """Execute all operations. Raises `_Fault` if some can never run."""
        progressed = True
        while progressed:
            progressed = False
            for block in blocks:
                while block.at < len(block.ops) and self._step(block):
                    block.at += 1
                    progressed = True
        stuck = next((block for block in blocks if block.at < len(block.ops)), None)
        if stuck is not None:
            operation = stuck.ops[stuck.at].get("name")
            raise _Fault(_place(stuck), f"{operation} waits for a signal, packet or block that never comes")

    def _step(self, block: _Block) -> bool:
        """Execute the next operation of a block; return False if it must wait."""
        op = block.ops[block.at]
        name = op.get("name")
        if name in _NO_DATA:
            return True
        if name in _SIGNALS:
            self._signal(block, op)
            return True
        if name in _WAITS:
            return self._wait(block, op)
        if name == "barrier":
            return self._barrier(block, op)
        if name == "sem_release":
            for semaphore in _numbers(op, "semaphore_ids", block):
                self.semaphores[block.gpu, semaphore].append(block.known.copy())
            return True
        if name == "sem_acquire":
            queues = [self.semaphores[block.gpu, number] for number in _numbers(op, "semaphore_ids", block)]
            if not all(queues):
                return False
            for queue in queues:
                block.known.add(queue.popleft())
            return True
        if name in _MULTICAST or op.get("channel_type") == "switch":
            problem = (
                f"has {str(name)[:24]!a} on a switch channel: NVLink multicast, which does not leave a host"
            )
            raise _Fault(_place(block), problem, "give a plan without switch channels")
        if name not in _DATA:
            problem = f"has the operation {str(name)[:24]!a}, which is not supported"
            raise _Fault(_place(block), problem)
        return self._move(block, op, str(name))

    def _channels(self, block: _Block, op: dict[str, Any]) -> Iterable[_Channel]:
        """Yield the channels of an operation as its own rank names them."""
        kind = op.get("channel_type")
        own, peers = block.channels.get(str(kind), []), self.peers[block.gpu].get(str(kind), [])
        for index in _numbers(op, "channel_ids", block):
            if index >= len(own) or own[index] >= len(peers):
                raise _Fault(_place(block), f"has no {kind} channel {index}")
            peer = peers[own[index]]
            yield block.gpu, peer, str(kind), peers[: own[index]].count(peer)

    def _signal(self, block: _Block, op: dict[str, Any]) -> None:
        for channel in self._channels(block, op):
            token = _Known(set(block.known.after))
            token.delivered[channel[1]] = block.known.delivered.pop(channel[1], set())
            self.tokens[channel].append(token)

    def _wait(self, block: _Block, op: dict[str, Any]) -> bool:
        channels = [(peer, own, kind, index) for own, peer, kind, index in self._channels(block, op)]
        if not all(self.tokens[channel] for channel in channels):
            return False
        for channel in channels:
            token = self.tokens[channel].popleft()
            block.known.readable[channel[0]] = token.after
            block.known.after |= token.delivered.get(block.gpu, set())
        return True

    def _barrier(self, block: _Block, op: dict[str, Any]) -> bool:
        if block.arrived:
            # The last block to arrive has released it.
            released = block not in self.waiting[block.gpu, self._barrier_number(block, op)]
            block.arrived = not released
            return released
        number, count = self._barrier_number(block, op), op.get("num_threadblocks")
        if type(count) is not int or not 1 <= count <= _MOST_INDEX:
            raise _Fault(_place(block), "states no num_threadblocks")
        waiting = self.waiting[block.gpu, number]
        if len(waiting) + 1 < count:
            waiting.append(block)
            block.arrived = True
            return False
        merged = block.known
        for other in waiting:
            merged.add(other.known)
        for other in waiting:
            other.known = merged.copy()
        waiting.clear()
        return True

    def _barrier_number(self, block: _Block, op: dict[str, Any]) -> int:
        number = op.get("barrier_id")
        if type(number) is not int:
            raise _Fault(_place(block), "states no barrier_id")
        return number

    def _move(self, block: _Block, op: dict[str, Any], name: str) -> bool:
        sources, targets = _buffers(op, "src_buff", block), _buffers(op, "dst_buff", block)
        if name in _PACKET_READS:
            places = [
                place
                for source in sources
                if source.get("type") == "s"
                for place in self._places(block.gpu, "s", source, block)
            ]
            if not self.packets.issuperset(places):
                return False
        after = set(block.known.after)
        for source in sources:
            if "buffer_id" in source:
                after.add(self._read(block, op, source))
            else:
                kind = str(source.get("type"))
                written = (self.writer.get(place) for place in self._places(block.gpu, kind, source, block))
                after.update(node for node in written if node is not None)
        if name not in _PUTS:
            after = {self._add(block.gpu, NodeKind.COMP, f"{name} of {_place(block)}", after)}
            block.known.after = set(after)
        for target in targets:
            if "buffer_id" in target:
                self._write(block, op, target, after, is_packet="pkt" in name)
            else:
                for place in self._places(block.gpu, str(target.get("type")), target, block):
                    self.writer[place] = next(iter(after))
                    if name in _PACKET_COPIES:
                        self.packets.add(place)
        if name in _SIGNALLING:
            self._signal(block, op)
        return True

    def _remote(self, block: _Block, op: dict[str, Any], buffer: dict[str, Any]) -> tuple[int, str]:
        """Return owner and kind of a remote buffer."""
        refs = block.buffers.get(str(op.get("channel_type")), [])
        index = buffer["buffer_id"]
        remote = self.remote[block.gpu]
        if type(index) is not int or not 0 <= index < len(refs) or refs[index] >= len(remote):
            raise _Fault(_place(block), f"has no remote buffer {index!a:.12}")
        return remote[refs[index]]

    def _read(self, block: _Block, op: dict[str, Any], buffer: dict[str, Any]) -> int:
        """Add the transfer of a read and return its receive."""
        owner, kind = self._remote(block, op, buffer)
        ready = set(block.known.readable.get(owner, set()))
        written = (self.writer.get(place) for place in self._places(owner, kind, buffer, block))
        ready.update(node for node in written if node is not None)
        return self._transfer(owner, block.gpu, _size(op, buffer, block), ready, block.known.after)

    def _write(
        self, block: _Block, op: dict[str, Any], buffer: dict[str, Any], after: set[int], *, is_packet: bool
    ) -> None:
        """Add the transfer of a put."""
        owner, kind = self._remote(block, op, buffer)
        received = self._transfer(block.gpu, owner, _size(op, buffer, block), after, ())
        for place in self._places(owner, kind, buffer, block):
            self.writer[place] = received
            if is_packet:
                self.packets.add(place)
        block.known.delivered[owner].add(received)

    def _places(
        self, gpu: int, kind: str, buffer: dict[str, Any], block: _Block
    ) -> list[tuple[int, str, int]]:
        first, count = buffer.get("index"), buffer.get("size", 1)
        if type(first) is not int or type(count) is not int or not 0 <= first <= first + count <= _MOST_INDEX:
            raise _Fault(_place(block), f"has a buffer without index and size up to {_MOST_INDEX}")
        if kind not in ("i", "o", "s"):
            raise _Fault(_place(block), f"has a buffer of the type {kind[:8]!a}, expected i, o or s")
        alias = "i" if kind == "o" and self.is_in_place else kind
        return [(gpu, alias, first + index) for index in range(count)]

    def _transfer(
        self, src: int, dst: int, size_bytes: int, src_after: Iterable[int], dst_after: Iterable[int]
    ) -> int:
        """Add a send and its receive, and return the receive."""
        tag = self.tags[src, dst]
        self.tags[src, dst] += 1
        for rank, kind, after in (
            (src, NodeKind.COMM_SEND, src_after),
            (dst, NodeKind.COMM_RECV, dst_after),
        ):
            node = self._add(rank, kind, f"{src} to {dst}, {tag}", after)
            row = self.rows[rank][node - 1]
            row.comm_src, row.comm_dst, row.comm_size, row.comm_tag = src, dst, size_bytes, tag
        return len(self.rows[dst])

    def _add(self, rank: int, kind: NodeKind, name: str, after: Iterable[int]) -> int:
        rows = self.rows[rank]
        if len(rows) >= _MOST_OPS:
            raise _Fault(f"GPU {rank}", f"has more than {_MOST_OPS} operations")
        rows.append(NodeRow(len(rows) + 1, name, kind, sorted(after), is_cpu_op=0))
        return len(rows)


def read_plan(text: bytes, source: str) -> Plan:
    """Parse and execute a plan. Raises `ConfigError`."""
    try:
        return _plan(text, source)
    except _Fault as fault:
        where = f"{source}: {fault.place}" if fault.place else source
        raise ConfigError(Problem(where, fault.what, fault.remedy)) from None


def _plan(text: bytes, source: str) -> Plan:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _Fault("", f"is no JSON: {str(error)[:80]}") from None
    gpus = document.get("gpus") if isinstance(document, dict) else None
    if not isinstance(gpus, list) or not 2 <= len(gpus) <= _MOST_GPUS:
        raise _Fault("", f"has no list of 2 to {_MOST_GPUS} gpus")
    collective = COLLECTIVES.get(str(document.get("collective")))
    if collective is None:
        stated = str(document.get("collective"))[:24]
        raise _Fault("", f"is for the collective {stated!a}, expected one of {', '.join(COLLECTIVES)}")
    parts = [_object(gpu, f"GPU {index}") for index, gpu in enumerate(gpus)]
    key = "output_chunks" if collective == "all-gather" else "input_chunks"
    chunks = {gpu.get(key) for gpu in parts}
    (count,) = chunks if len(chunks) == 1 else (None,)
    if type(count) is not int or not 1 <= count <= _MOST_INDEX:
        raise _Fault("", f"states no equal {key} for all GPUs")
    execution = _Execution(
        source,
        document.get("inplace") is True and collective == "all-reduce",
        [_peers(gpu, len(parts)) for gpu in parts],
        [_remote_buffers(gpu, len(parts)) for gpu in parts],
        [[] for _ in parts],
    )
    for index, gpu in enumerate(parts):
        for number, semaphore in enumerate(_list(gpu, "semaphores")):
            value = _object(semaphore, f"GPU {index}, semaphore {number}").get("init_value", 0)
            if type(value) is not int or not 0 <= value <= _MOST_INDEX:
                raise _Fault(f"GPU {index}, semaphore {number}", f"has the init_value {value!a:.12}")
            execution.semaphores[index, number].extend(_Known() for _ in range(value))
    execution.run([block for index, gpu in enumerate(parts) for block in _blocks(gpu, index)])
    ranks = tuple(
        rank_trace(rows, rank, f"{source}: GPU {rank}", "MSCCL++", None)
        for rank, rows in enumerate(execution.rows)
    )
    least, most = document.get("min_message_size", 0), document.get("max_message_size", 0)
    return Plan(
        str(document.get("name", ""))[:64],
        collective,
        document.get("protocol") == "LL",
        count * CHUNK_BYTES,
        least if type(least) is int and least > 0 else 0,
        most if type(most) is int and 0 < most < 1 << 62 else 0,
        Trace(source, ranks, None),
    )


def _peers(gpu: dict[str, Any], count: int) -> dict[str, list[int]]:
    peers: dict[str, list[int]] = defaultdict(list)
    for channel in _list(gpu, "channels"):
        entry = _object(channel, "a channel")
        for peer in _list(entry, "connected_to"):
            if type(peer) is not int or not 0 <= peer < count:
                raise _Fault("a channel", f"is connected to {peer!a:.12}, expected a GPU below {count}")
            peers[str(entry.get("channel_type", entry.get("type")))].append(peer)
    return peers


def _remote_buffers(gpu: dict[str, Any], count: int) -> list[tuple[int, str]]:
    buffers = []
    for buffer in _list(gpu, "remote_buffers"):
        entry = _object(buffer, "a remote buffer")
        rank = entry.get("rank")
        if type(rank) is not int or not 0 <= rank < count:
            raise _Fault("a remote buffer", f"is of GPU {rank!a:.12}, expected one below {count}")
        buffers.append((rank, str(entry.get("type"))))
    return buffers


def _blocks(gpu: dict[str, Any], index: int) -> list[_Block]:
    blocks = []
    for number, value in enumerate(_list(gpu, "threadblocks")):
        entry = _object(value, f"GPU {index}, thread block {number}")
        channels: dict[str, list[int]] = defaultdict(list)
        buffers: dict[str, list[int]] = defaultdict(list)
        block = _Block(index, number, [], channels, buffers)
        for channel in _list(entry, "channels"):
            part = _object(channel, _place(block))
            channels[str(part.get("channel_type"))] += _numbers(part, "channel_ids", block)
        for reference in _list(entry, "remote_buffer_refs"):
            part = _object(reference, _place(block))
            buffers[str(part.get("access_channel_type"))] += _numbers(part, "remote_buffer_ids", block)
        for operation in _list(entry, "ops"):
            part = _object(operation, _place(block))
            inner = _list(part, "ops") if part.get("name") == "pipeline" else [part]
            block.ops += [_object(op, _place(block)) for op in inner]
        blocks.append(block)
    return blocks


def _place(block: _Block) -> str:
    return f"GPU {block.gpu}, thread block {block.number}, operation {block.at}"


def _object(value: object, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _Fault(place, "is not an object")
    return value


def _list(entry: dict[str, Any], key: str) -> list[Any]:
    value = entry.get(key, [])
    if not isinstance(value, list) or len(value) > _MOST_OPS:
        raise _Fault(key, "is not a list")
    return value


def _numbers(entry: dict[str, Any], key: str, block: _Block) -> list[int]:
    values = _list(entry, key)
    if not all(type(value) is int and 0 <= value < _MOST_OPS for value in values):
        raise _Fault(_place(block), f"has {key} that are not whole numbers")
    return values


def _buffers(op: dict[str, Any], key: str, block: _Block) -> list[dict[str, Any]]:
    return [_object(value, _place(block)) for value in _list(op, key)]


def _size(op: dict[str, Any], buffer: dict[str, Any], block: _Block) -> int:
    """Return the bytes of a transfer: those of its chunks, or a thread block's part of them."""
    chunk_bytes = buffer.get("size", 1) * CHUNK_BYTES
    group = op.get("tbg_info")
    if isinstance(group, dict):
        index, count = group.get("tb_id"), group.get("tbg_size")
        if type(index) is not int or type(count) is not int or not 0 <= index < count <= _MOST_INDEX:
            raise _Fault(_place(block), "has a tbg_info without tb_id below tbg_size")
        return int(chunk_bytes * (index + 1) // count - chunk_bytes * index // count)
    return int(chunk_bytes)
