"""Joins the graphs of recorded ranks to a job: nodes of all ranks, and the groups they name. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.chakra.encoder import (
    EtAttribute,
    EtNode,
    Framed,
    ValueCase,
    encode_node,
    encode_node_attributes,
    frame_message,
)
from etloop.workload.chakra.nodes import DURATION_ATTRIBUTE, SPLIT_ATTRIBUTE, attributes_of
from etloop.workload.recording.events import Communication, RecordedRank
from etloop.workload.recording.graph import GraphNode, RankGraph
from etloop.workload.recording.roles import Families, FamilyName, Members, Role, families_of
from etloop.workload.trace.trace import CollectiveKind, NodeKind

_NS_PER_US: Final = 1000
_MOST_INT32: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True, eq=False)
class RecordedJob:
    """Recorded ranks, their graphs, and the ranks that they represent."""

    recordings: Mapping[int, RecordedRank]
    graphs: Mapping[int, RankGraph]
    roles: tuple[Role, ...]

    def representative(self, rank: int) -> int:
        """Return the recorded rank whose graph a rank has."""
        if rank in self.graphs:
            return rank
        return next(role.ranks[0] for role in self.roles if rank in role.ranks)


@dataclass(frozen=True, slots=True)
class _Call:
    """A communication, encoded but for its group or peer, in which the ranks of a role differ."""

    operation: Communication
    head: bytes
    tail: bytes


class JobWriter:
    """Makes the messages of every rank's file, and collects the groups that they name.

    A recorded rank is encoded once for all ranks that it represents.
    """

    def __init__(self, job: RecordedJob) -> None:
        self._job = job
        self._families = {rank: families_of(recording.groups) for rank, recording in job.recordings.items()}
        self._keys: dict[tuple[FamilyName, Members], str] = {}
        self._counts: dict[str, int] = {}
        self._programs: dict[int, tuple[Framed | _Call, ...]] = {}
        """By recorded rank."""
        self.groups: dict[str, Members] = {}
        """Members by the key of `pg_name`, complete after all ranks were made."""
        self._representatives = self._all_representatives()

    @property
    def world_size(self) -> int:
        """Return the number of ranks."""
        return len(self._representatives)

    def _all_representatives(self) -> tuple[int, ...]:
        world_size = next(iter(self._job.recordings.values())).world_size
        by_rank = {rank: role.ranks[0] for role in self._job.roles for rank in role.ranks}
        return tuple(rank if rank in self._job.graphs else by_rank[rank] for rank in range(world_size))

    def messages(self, rank: int) -> Iterator[Framed]:
        """Yield the nodes of a rank in order of issue, encoded."""
        recorded = self._representatives[rank]
        families = self._families[recorded]
        program = self._programs.get(recorded)
        if program is None:
            program = self._programs[recorded] = tuple(_program(self._job.graphs[recorded], families))
        group_fields: dict[tuple[str, int], bytes] = {}
        for part in program:
            if not isinstance(part, _Call):
                yield part
                continue
            operation = part.operation
            if operation.is_message:
                middle = encode_node_attributes(_ends(operation, rank, _members(families, operation, rank)))
            else:
                group = (operation.group, operation.root or 0)
                if group not in group_fields:
                    family, _ = families.by_key[operation.group]
                    key = self._key(family, _members(families, operation, rank), group[1])
                    group_fields[group] = encode_node_attributes(attributes_of(pg_name=key))
                middle = group_fields[group]
            yield frame_message(part.head + middle + part.tail)

    def _key(self, family: FamilyName, members: Members, root: int) -> str:
        """Return the key of a group. The schema has no attribute for a root, which is the first member: other roots get a
        group of their own, rotated."""
        key = self._keys.get((family, members))
        if key is None:
            description = family.description or "group"
            count = self._counts.get(description, 0)
            self._counts[description] = count + 1
            key = self._keys[family, members] = (
                f"{description}.{count}" if description != "world" else "world"
            )
        if root:
            key = f"{key}.root{root}"
        self.groups.setdefault(key, members[root:] + members[:root])
        return key


def _program(graph: RankGraph, families: Families) -> Iterator[Framed | _Call]:
    """Yield the nodes of a recorded rank: runs of those that all ranks of its role share, and communications."""
    shared: list[bytes] = []
    for index, node in enumerate(graph.nodes):
        if node.operation is None:
            shared.append(frame_message(encode_node(_node(index, node, _attributes(node)))))
            continue
        if shared:
            yield Framed(b"".join(shared))
            shared.clear()
        family, _ = families.by_key[node.operation.group]
        yield _call(index, node, node.operation, family.description)
    if shared:
        yield Framed(b"".join(shared))


def _node(index: int, node: GraphNode, attributes: tuple[EtAttribute, ...]) -> EtNode:
    return EtNode(
        index,
        node.name,
        node.kind,
        node.deps,
        duration_us=-(-node.duration_ns // _NS_PER_US),
        attributes=attributes,
        moved_bytes=node.moved_bytes if node.kind is NodeKind.STORAGE else None,
    )


def _call(index: int, node: GraphNode, operation: Communication, group_description: str) -> _Call:
    common = attributes_of(is_cpu_op=False, comm_size=operation.input_bytes, stream=node.stream)
    splits: tuple[EtAttribute, ...] = ()
    if not operation.is_message:
        common += attributes_of(comm_type=int(CollectiveKind[operation.type.upper()]))
        if operation.send_splits:
            splits = attributes_of(**{SPLIT_ATTRIBUTE: operation.send_splits})
    text = (
        EtAttribute("module", ValueCase.STRING, operation.module),
        EtAttribute("script_line", ValueCase.STRING, operation.place),
        EtAttribute("operator", ValueCase.STRING, operation.operator),
        EtAttribute("data_type", ValueCase.STRING, operation.data_type),
        EtAttribute("group_description", ValueCase.STRING, group_description),
        EtAttribute("is_async", ValueCase.BOOL, node.is_async),
        *((EtAttribute("data_from", ValueCase.INT64, node.data_from),) if node.data_from else ()),
    )
    return _Call(operation, encode_node(_node(index, node, common)), encode_node_attributes((*splits, *text)))


def _members(families: Families, operation: Communication, rank: int) -> Members:
    """Return the group in which a rank calls an operation that was recorded on another rank of its role."""
    family, own = families.by_key[operation.group]
    return own if rank in own else families.by_rank[family][rank]


def _ends(operation: Communication, rank: int, members: Members) -> tuple[EtAttribute, ...]:
    assert operation.peer is not None
    peer = members[operation.peer]
    source, destination = (rank, peer) if operation.type == "send" else (peer, rank)
    return attributes_of(comm_src=source, comm_dst=destination, comm_tag=operation.tag & _MOST_INT32)


def _attributes(node: GraphNode) -> tuple[EtAttribute, ...]:
    if node.kind is not NodeKind.COMP:
        return attributes_of(stream=node.stream)
    work = attributes_of(
        is_cpu_op=False, num_ops=node.flops, tensor_size=node.moved_bytes, stream=node.stream
    )
    if node.duration_ns % _NS_PER_US == 0:
        return work
    return (*work, *attributes_of(**{DURATION_ATTRIBUTE: node.duration_ns}))


def metadata_of(recordings: Sequence[RecordedRank], facts: Mapping[str, str]) -> tuple[EtAttribute, ...]:
    """Return the attributes of the file's head: versions, and everything that was assumed."""
    notes = dict.fromkeys(note for recording in recordings for note in recording.notes)
    answers = dict.fromkeys(answer for recording in recordings for answer in recording.answers)
    missing = dict.fromkeys(name for recording in recordings for name in recording.missing)
    texts = {
        "recorded_with": f"etloop record, torch {recordings[0].torch}",
        **facts,
        "stand_ins": "\n".join(recordings[0].stand_ins),
        "notes": "\n".join(notes),
        "answered_values": "\n".join(answers),
        "operators_without_flops": "\n".join(missing),
    }
    return tuple(EtAttribute(name, ValueCase.STRING, text) for name, text in texts.items() if text)
