"""Chakra files as protocol buffers read them, and what a replay of them has to do, worked out without the product.

Shares nothing with `workload`: other code reads the bytes, and sizes, delays and peers follow from the documents alone
(docs/metrics.md, docs/running.md, the schema of Chakra). Compute durations and dependencies are honoured as `data` says.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import zstandard

from tests.support.traces.chakra_schema import OfficialNode

SEND: Final = 5
RECV: Final = 6
COLLECTIVE: Final = 7
COMPUTING: Final = frozenset({2, 3, 4, 8, 9})
"""Memory, compute, storage and data nodes: what takes time on a rank."""
BARRIER: Final = "barrier"
NAMES: Final = {
    0: "all_reduce",
    1: "reduce",
    2: "all_gather",
    5: "broadcast",
    6: "all_to_all",
    7: "reduce_scatter",
    8: "reduce_scatter",
    9: BARRIER,
}
SPLIT: Final = frozenset({"all_to_all", "reduce_scatter"})
BARRIER_BYTES: Final = 4
WINDOW_BYTES: Final = 1 << 27
US: Final = 1000


@dataclass(frozen=True, slots=True)
class Node:
    """One node of one rank."""

    node_id: int
    kind: int
    deps: tuple[int, ...]
    duration_us: int
    attributes: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reading:
    """How a scenario wants a trace to be read."""

    element_bytes: int = 1
    bytes_scale: Fraction = Fraction(1)
    time_scale: Fraction = Fraction(1)
    flops: int = 0
    """Of compute nodes without a duration; 0: they take no time."""
    ranks_per_host: int = 1


@dataclass(frozen=True, slots=True)
class Op:
    """One network operation of one rank."""

    rank: int
    node_id: int
    kind: str
    """Name of the collective, "send" or "receive"."""
    members: tuple[int, ...]
    """Ranks of the communicator in order; of a send or receive: source and destination."""
    communicator: str
    message_bytes: int
    trace_bytes: int
    ranks_per_host: int = 1


@dataclass(frozen=True, slots=True)
class Job:
    """All ranks of a trace."""

    ranks: tuple[tuple[Node, ...], ...]
    groups: dict[str, tuple[int, ...]]


def framed(raw: bytes) -> Iterator[bytes]:
    """The messages of a file: each behind its length as a varint."""
    at = 0
    while at < len(raw):
        length = shift = 0
        while True:
            byte = raw[at]
            at += 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        yield raw[at : at + length]
        at += length


def read_rank(raw: bytes) -> tuple[Node, ...]:
    """The nodes of one file; its first message is the metadata of the file."""
    messages = framed(raw)
    next(messages)
    return tuple(_node(OfficialNode.FromString(message)) for message in messages)


def _node(node: Any) -> Node:
    attributes = {
        attribute.name: getattr(attribute, case)
        for attribute in node.attr
        if (case := attribute.WhichOneof("value")) is not None and case.endswith("_val")
    }
    return Node(node.id, node.type, tuple(node.data_deps), node.duration_micros, attributes)


def read_job(source: Path) -> Job:
    """The job of a prefix, on disk or inside an archive (ARCHIVE/PREFIX)."""
    archive = next((path for path in source.parents if path.is_file()), None)
    if archive is None:
        found = {path.name: path.read_bytes() for path in source.parent.glob(f"{source.name}.*")}
        prefix = source.name
    else:
        prefix = str(source.relative_to(archive))
        found = _members(archive, prefix)
    files = {name: raw for name, raw in found.items() if name.endswith(".et")}
    ranks = tuple(read_rank(files[f"{prefix}.{rank}.et"]) for rank in range(len(files)))
    groups = json.loads(found.get(f"{prefix}.json", b"{}"))
    return Job(ranks, {key: tuple(members) for key, members in groups.items()})


def _members(archive: Path, prefix: str) -> dict[str, bytes]:
    decompressor = zstandard.ZstdDecompressor(max_window_size=WINDOW_BYTES)
    with archive.open("rb") as packed, decompressor.stream_reader(packed) as stream:
        raw = stream.read()
    with tarfile.open(fileobj=io.BytesIO(raw)) as tar:
        return {
            member.name: file.read()
            for member in tar
            if member.name.startswith(f"{prefix}.") and (file := tar.extractfile(member)) is not None
        }


def scaled(size_bytes: int, scale: Fraction, unit_bytes: int) -> int:
    """A size shrunk to whole units, never to nothing."""
    if scale == 1 or size_bytes == 0:
        return size_bytes
    return max(int(size_bytes * scale) // unit_bytes, 1) * unit_bytes


def delay_ns(node: Node, reading: Reading) -> int:
    """How long a node that is no network operation takes."""
    if node.kind not in COMPUTING:
        return 0
    exact_ns = Fraction(node.duration_us * US)
    if not node.duration_us and reading.flops:
        exact_ns = Fraction(int(node.attributes.get("num_ops", 0)) * 10**9, reading.flops)
    return int(exact_ns * reading.time_scale + Fraction(1, 2))


def network_ops(job: Job, reading: Reading) -> tuple[Op, ...]:
    """Every network operation of every rank; none for what only launches one, and for groups of one rank."""
    everyone = tuple(range(len(job.ranks)))
    found = []
    for rank, nodes in enumerate(job.ranks):
        for node in nodes:
            if node.kind in (SEND, RECV, COLLECTIVE) and not node.attributes.get("is_cpu_op", False):
                op = _op(rank, node, job, everyone, reading)
                if len(op.members) > 1:
                    found.append(op)
    return tuple(found)


def _op(rank: int, node: Node, job: Job, everyone: tuple[int, ...], reading: Reading) -> Op:
    attributes = node.attributes
    trace_bytes = int(attributes.get("comm_size", 0)) * reading.element_bytes
    if node.kind == COLLECTIVE:
        kind = NAMES[attributes["comm_type"]]
        name = str(attributes.get("pg_name", ""))
        members = job.groups.get(name, everyone)
        if kind == BARRIER:
            sizes = (BARRIER_BYTES, BARRIER_BYTES)
            return Op(rank, node.node_id, kind, members, name, *sizes, reading.ranks_per_host)
        unit_bytes = 4 * len(members) if kind in SPLIT else 4
    else:
        kind, name, unit_bytes = "send" if node.kind == SEND else "receive", "", 4
        members = (attributes.get("comm_src", rank), attributes.get("comm_dst", rank))
    message_bytes = scaled(trace_bytes, reading.bytes_scale, unit_bytes)
    sizes = (message_bytes, trace_bytes)
    return Op(rank, node.node_id, kind, members, name, *sizes, reading.ranks_per_host)


def written(nodes: Iterable[Node]) -> bytes:
    """The file of these nodes: what `read_rank` reads."""
    messages = [b""]
    for node in nodes:
        made = OfficialNode(
            id=node.node_id, type=node.kind, data_deps=node.deps, duration_micros=node.duration_us
        )
        for name, value in node.attributes.items():
            attribute = made.attr.add(name=name)
            case = {bool: "bool_val", int: "int64_val", str: "string_val"}[type(value)]
            setattr(attribute, case, value)
        messages.append(made.SerializeToString())
    return b"".join(_varint(len(message)) + message for message in messages)


def _varint(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])
