"""Communicator keys for a group file that holds for all ranks: one key, one set of members, and one key for everybody.

Decides how groups that each rank recorded for itself become one table. PyTorch counts its groups on each rank, so the
same key may mean other ranks elsewhere; a group file has no room for that, and one of them gets another key.
"""

from __future__ import annotations

import numpy as np
from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.graph.dimensions import WORLD_KEYS, some_dimensions
from etloop.workload.trace.trace import NodeKind, RankTrace, Trace


@dataclass(frozen=True, slots=True)
class Keys:
    """The table of the repaired trace, and how the keys of a rank's nodes change."""

    groups: dict[str, tuple[int, ...]] | None
    """None where no collective of the trace needs a group file."""
    world_key: str
    """Key of all ranks."""
    renamed: tuple[tuple[int, str, str], ...]
    """(rank, key before, key now) for each key of a rank that changed."""
    known: frozenset[str]
    """Keys before that a group file or a rank explains."""
    _by_rank: dict[tuple[int, str], str]

    def new_key(self, rank: int, key: str) -> str:
        """What a key of a rank's nodes is called now."""
        return self._by_rank.get((rank, key), key)

    def means_world(self, key: str) -> bool:
        """Whether a key stands for all ranks without being in a table."""
        return key in WORLD_KEYS and key not in self.known


def fixed_keys(trace: Trace, made: frozenset[str] = frozenset()) -> Keys:
    """One table for all ranks. Groups of a file come first and keep their keys; those in `made` never had one."""
    groups = dict(trace.groups or {})
    known = set(groups)
    by_rank: dict[tuple[int, str], str] = {}
    renamed: list[tuple[int, str, str]] = []
    key_of: dict[tuple[str, tuple[int, ...]], str] = {}
    for rank in trace.ranks:
        for key, members in (rank.groups or {}).items():
            known.add(key)
            new = key_of.get((key, members))
            if new is None:
                kept = key not in made and (key not in groups or groups[key] == members)
                new = key if kept else _free_key(groups)
                key_of[key, members] = new
                groups[new] = members
            by_rank[rank.rank, key] = new
            if new != key and key not in made:
                renamed.append((rank.rank, key, new))
    everyone = tuple(range(len(trace.ranks)))
    used = {by_rank.get((rank.rank, name), name) for rank in trace.ranks for name in rank.pg_names}
    # A key in use has an order of its own: nodes that named nobody must not be slipped into it.
    spare = (key for key, members in groups.items() if members == everyone and key not in used)
    world_key = next((key for key in spare if key not in WORLD_KEYS), "") or _free_key(groups)
    if _needs_world(trace.ranks, known):
        groups.setdefault(world_key, everyone)
    return Keys(groups or None, world_key, tuple(renamed), frozenset(known), by_rank)


def _needs_world(ranks: tuple[RankTrace, ...], known: set[str]) -> bool:
    """Whether some collective names no communicator, or one that only habit explains."""
    for rank in ranks:
        unnamed = [
            -1,
            *(at for at, key in enumerate(rank.pg_names) if key in WORLD_KEYS and key not in known),
        ]
        asks = (rank.kind == NodeKind.COMM_COLL) & (rank.is_cpu_op != 1)
        asks &= ~some_dimensions(rank, frozenset(known))
        if (asks & np.isin(rank.pg_name, np.array(unnamed, dtype=np.int32))).any():
            return True
    return False


def _free_key(groups: dict[str, tuple[int, ...]]) -> str:
    """The least positive number that no group has: other readers take keys for integers above 0."""
    number = 1
    while str(number) in groups:
        number += 1
    return str(number)
