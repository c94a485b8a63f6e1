"""The ranks of a job that states degrees of parallelism and no ranks: who is in which group.

Ranks count in the order that AICB, SimAI and Megatron use: tensor-parallel peers first, then experts, then data, then pipeline
stages. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.trace.settings import MAX_REPLICAS


class GroupRole(StrEnum):
    """What the members of a group share; the value is the communicator's name."""

    TENSOR = "tp"
    DATA = "dp"
    EXPERT = "ep"
    DATA_EXPERT = "dp_ep"
    """The ranks that hold the same experts."""
    TENSOR_EXPERT = "tp_ep"
    """The tensor-parallel ranks of an expert group together."""
    PIPELINE = "pp"


@dataclass(frozen=True, slots=True)
class Degrees:
    """How a job is divided."""

    tensor: int = 1
    data: int = 1
    pipeline: int = 1
    expert: int = 1

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self.tensor * self.data * self.pipeline

    def problem(self) -> str:
        """Return why there is no such job, "" if there is."""
        if self.data % self.expert:
            return f"{self.data} data-parallel ranks do not divide into groups of {self.expert} experts"
        if self.world_size > MAX_REPLICAS:
            return f"{self.world_size} ranks are over the limit of {MAX_REPLICAS}"
        return ""

    def group_size(self, role: GroupRole) -> int:
        """Return how many members each group of a role has."""
        return len(self.members(role, 0))

    def groups(self, roles: frozenset[GroupRole]) -> Iterator[dict[str, tuple[int, ...]]]:
        """Yield the groups of each rank in order, by their names. Ranks of one group share its tuple."""
        known: dict[tuple[GroupRole, int], tuple[int, ...]] = {}
        for rank in range(self.world_size):
            mine = {}
            for role in sorted(roles):
                if (role, rank) not in known:
                    members = tuple(self.members(role, rank))
                    known |= dict.fromkeys(((role, member) for member in members), members)
                mine[role.value] = known[role, rank]
            yield mine

    def members(self, role: GroupRole, rank: int) -> range:
        """Return the ranks of the group that `rank` is in."""
        stage = self.tensor * self.data
        first = rank - rank % stage
        place, wide = rank % self.tensor, self.tensor * self.expert
        experts = rank - rank % wide
        match role:
            case GroupRole.TENSOR:
                return range(rank - place, rank - place + self.tensor)
            case GroupRole.DATA:
                return range(first + place, first + stage, self.tensor)
            case GroupRole.EXPERT:
                return range(experts + place, experts + wide, self.tensor)
            case GroupRole.TENSOR_EXPERT:
                return range(experts, experts + wide)
            case GroupRole.DATA_EXPERT:
                return range(first + rank % wide, first + stage, wide)
            case GroupRole.PIPELINE:
                return range(rank % stage, self.world_size, stage)
