"""Builds communicator keys for a group file valid for all ranks: each key names one set of members, and one key names
all ranks.

Decides how groups that each rank recorded for itself become one table. PyTorch numbers groups per rank, so the same
key may mean other ranks elsewhere. A group file cannot express that, so one of the groups gets a new key.
"""

from __future__ import annotations

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.graph.dimensions import WORLD_KEYS, some_dimensions
from etloop.workload.trace.trace import NodeKind, RankTrace, Trace


@dataclass(frozen=True, slots=True)
class Keys:
    """The group table of the repaired trace, and the new keys of each rank's nodes."""

    groups: dict[str, tuple[int, ...]] | None
    """None if no collective of the trace needs a group file."""
    world_key: str
    """Key of all ranks."""
    renamed: tuple[tuple[int, str, str], ...]
    """(rank, old key, new key) for each key of a rank that changed."""
    known: frozenset[str]
    """Old keys that a group file or a rank defines."""
    _by_rank: dict[tuple[int, str], str]

    def new_key(self, rank: int, key: str) -> str:
        """Return the new key of a rank's `key`."""
        return self._by_rank.get((rank, key), key)

    def means_world(self, key: str) -> bool:
        """Decide whether a key means all ranks without being in a table."""
        return key in WORLD_KEYS and key not in self.known


def fixed_keys(trace: Trace, made: frozenset[str] = frozenset()) -> Keys:
    """Return one table for all ranks. Groups of a file come first and keep their keys; keys in `made` always get a new
    key."""
    groups = dict(trace.groups or {})
    known = set(groups)
    by_rank: dict[tuple[int, str], str] = {}
    renamed: list[tuple[int, str, str]] = []
    key_of: dict[tuple[str, tuple[int, ...]], str] = {}
    for rank in trace.ranks:
        for key, members in (rank.groups or {}).items():
            known.add(key)
            new_key = key_of.get((key, members))
            if new_key is None:
                keeps_key = key not in made and (key not in groups or groups[key] == members)
                new_key = key if keeps_key else _free_key(groups)
                key_of[key, members] = new_key
                groups[new_key] = members
            by_rank[rank.rank, key] = new_key
            if new_key != key and key not in made:
                renamed.append((rank.rank, key, new_key))
    all_ranks = tuple(range(len(trace.ranks)))
    used_keys = {by_rank.get((rank.rank, name), name) for rank in trace.ranks for name in rank.pg_names}
    # Each communicator orders its operations, so nodes without a name must not join one that is in use.
    candidates = (key for key, members in groups.items() if members == all_ranks and key not in used_keys)
    world_key = next((key for key in candidates if key not in WORLD_KEYS), "") or _free_key(groups)
    if _needs_world(trace.ranks, known):
        groups.setdefault(world_key, all_ranks)
    return Keys(groups or None, world_key, tuple(renamed), frozenset(known), by_rank)


def _needs_world(ranks: tuple[RankTrace, ...], known: set[str]) -> bool:
    """Decide whether some collective names no communicator, or one that only convention defines ("" or "0")."""
    for rank in ranks:
        unnamed = [
            -1,
            *(index for index, key in enumerate(rank.pg_names) if key in WORLD_KEYS and key not in known),
        ]
        is_collective = (rank.kind == NodeKind.COMM_COLL) & (rank.is_cpu_op != 1)
        is_collective &= ~some_dimensions(rank, frozenset(known))
        if (is_collective & np.isin(rank.pg_name, np.array(unnamed, dtype=np.int32))).any():
            return True
    return False


def _free_key(groups: dict[str, tuple[int, ...]]) -> str:
    """Return the least positive number that no group has as its key. Other readers require positive integers as keys."""
    number = 1
    while str(number) in groups:
        number += 1
    return str(number)
