"""Joins the graphs of recorded ranks to a job: nodes of all ranks, and the groups they name. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.chakra.encoder import EtAttribute, EtNode, ValueCase
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


class JobWriter:
    """Makes the nodes of every rank, and collects the groups that they name."""

    def __init__(self, job: RecordedJob) -> None:
        self._job = job
        self._families = {rank: families_of(recording.groups) for rank, recording in job.recordings.items()}
        self._keys: dict[tuple[FamilyName, Members], str] = {}
        self._counts: dict[str, int] = {}
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

    def nodes(self, rank: int) -> Iterator[EtNode]:
        """Yield the nodes of a rank in order of issue."""
        recorded = self._representatives[rank]
        families = self._families[recorded]
        for index, node in enumerate(self._job.graphs[recorded].nodes):
            yield EtNode(
                index,
                node.name,
                node.kind,
                node.deps,
                duration_us=-(-node.duration_ns // _NS_PER_US),
                attributes=_attributes(node)
                if node.operation is None
                else self._communication(node, node.operation, rank, families),
                moved_bytes=node.moved_bytes if node.kind is NodeKind.STORAGE else None,
            )

    def _communication(
        self, node: GraphNode, operation: Communication, rank: int, families: Families
    ) -> tuple[EtAttribute, ...]:
        family, own = families.by_key[operation.group]
        members = own if rank in own else families.by_rank[family][rank]
        text = (
            EtAttribute("module", ValueCase.STRING, operation.module),
            EtAttribute("script_line", ValueCase.STRING, operation.place),
            EtAttribute("operator", ValueCase.STRING, operation.operator),
            EtAttribute("data_type", ValueCase.STRING, operation.data_type),
            EtAttribute("group_description", ValueCase.STRING, family.description),
            EtAttribute("is_async", ValueCase.BOOL, node.is_async),
            *((EtAttribute("data_from", ValueCase.INT64, node.data_from),) if node.data_from else ()),
        )
        common = attributes_of(is_cpu_op=False, comm_size=operation.input_bytes, stream=node.stream)
        if operation.type in ("send", "recv"):
            assert operation.peer is not None
            peer = members[operation.peer]
            source, destination = (rank, peer) if operation.type == "send" else (peer, rank)
            tag = operation.tag & _MOST_INT32
            return (*common, *attributes_of(comm_src=source, comm_dst=destination, comm_tag=tag), *text)
        key = self._key(family, members, operation.root or 0)
        splits = attributes_of(**{SPLIT_ATTRIBUTE: operation.send_splits}) if operation.send_splits else ()
        kind = CollectiveKind[operation.type.upper()]
        return (*common, *attributes_of(comm_type=int(kind), pg_name=key), *splits, *text)

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
