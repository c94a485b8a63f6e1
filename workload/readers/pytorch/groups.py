"""Resolves the communicator of each operation in a host trace, from everything that a rank recorded about its groups.

Decides between the records of the host trace, those of Kineto, and the data of the operation itself. A contradiction
between them is a fault, because the files are of two runs. Integers of older schemas name a group only within one
process. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from etloop.workload.readers.json_stream import JsonFault
from etloop.workload.readers.pytorch.comms import UNKNOWN_GROUP, CommOp, Role
from etloop.workload.readers.pytorch.process_groups import GroupRecord
from etloop.workload.trace.trace import CollectiveKind


@dataclass(slots=True)
class GroupBook:
    """The groups of one rank by key."""

    rank_count: int
    members: dict[str, tuple[int, ...]] = field(default_factory=dict)
    aliases: dict[int, str] = field(default_factory=dict)
    lone_pointer: bool = False
    """Whether all collectives use one integer that no record explains."""

    def add(self, records: Iterable[GroupRecord], source: str) -> None:
        """Add recorded groups. Raises `JsonFault` if one contradicts a known group."""
        for record in records:
            members = record.members(self.rank_count)
            existing = self.members.setdefault(record.key, members)
            if existing != members:
                raise JsonFault(
                    source,
                    f"group {record.key!a} has {len(members)} ranks ({_first_ranks(members)}), elsewhere {len(existing)} "
                    f"({_first_ranks(existing)}): the files are of different runs",
                )
            for alias in record.aliases:
                self.aliases[alias] = record.key

    def learn(self, ops: Iterable[tuple[CommOp, str]]) -> None:
        """Add groups that only operations (given with their places) describe. Raises `JsonFault` if two or more are
        known only as pointers."""
        place_by_pointer: dict[int, str] = {}
        for op, place in ops:
            if op.role in (Role.WAIT, Role.NOTHING):
                continue
            if isinstance(op.group, int) and op.group not in self.aliases:
                place_by_pointer.setdefault(op.group, place)
            elif isinstance(op.group, str) and op.group_ranks and op.group not in self.members:
                self.members[op.group] = op.group_ranks
        if len(place_by_pointer) > 1:
            first, second = list(place_by_pointer.values())[:2]
            raise JsonFault(
                first,
                f"its group is recorded only as a pointer inside this process, and {len(place_by_pointer)} groups are in use "
                "(another "
                f"at {second}): this schema does not record their ranks",
            )
        self.lone_pointer = bool(place_by_pointer)

    def key_of(self, op: CommOp) -> str | None:
        """Return the key of an operation's group; None means all ranks."""
        if isinstance(op.group, int):
            return self.aliases.get(op.group)
        if op.group != UNKNOWN_GROUP:
            return op.group
        if not self.members or list(self.members.values()) == [tuple(range(self.rank_count))]:
            return next(iter(self.members), None)
        size = _stated_size(op)
        keys_of_size = [key for key, members in self.members.items() if len(members) == size]
        return keys_of_size[0] if len(keys_of_size) == 1 else UNKNOWN_GROUP

    def global_rank(self, op: CommOp) -> int | None:
        """Return the global rank of the other end of a send or receive. If the group is unknown, `op.peer` counts as a
        global rank.

        Returns None for an operation without a peer, and `rank_count`, which is not a rank, for a peer outside the
        group.
        """
        if op.peer is None:
            return None
        key = self.key_of(op)
        members = self.members.get(key) if key is not None else None
        if members is None:
            return op.peer
        return members[op.peer] if 0 <= op.peer < len(members) else self.rank_count


def _stated_size(op: CommOp) -> int | None:
    """Return the group size that an operation's tensors and splits imply, None if they imply none."""
    if op.splits:
        return len(op.splits)
    small, large = sorted((op.size_bytes, op.output_bytes))
    is_sharded = op.collective in (
        CollectiveKind.ALL_GATHER,
        CollectiveKind.REDUCE_SCATTER,
        CollectiveKind.SCATTER,
    )
    return large // small if is_sharded and small and not large % small else None


def _first_ranks(ranks: tuple[int, ...]) -> str:
    return ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")
