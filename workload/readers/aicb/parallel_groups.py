"""Derives the groups of every rank from degrees of parallelism, for a job description that lists no ranks.

Ranks are numbered in the order of AICB, SimAI and Megatron: tensor-parallel peers first, then experts, then data,
then pipeline stages. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.trace.settings import MAX_REPLICAS
from etloop.workload.trace.trace import Parallelism


class GroupRole(StrEnum):
    """Kind of parallelism that the members of a group share; the value is the communicator's name."""

    TENSOR = "tp"
    DATA = "dp"
    EXPERT = "ep"
    DATA_EXPERT = "dp_ep"
    """Ranks that hold the same experts."""
    TENSOR_EXPERT = "tp_ep"
    """All tensor-parallel ranks of an expert group."""
    PIPELINE = "pp"


PARALLELISM: Final = {
    GroupRole.TENSOR.value: Parallelism.TENSOR,
    GroupRole.DATA.value: Parallelism.DATA,
    GroupRole.EXPERT.value: Parallelism.EXPERT,
    GroupRole.DATA_EXPERT.value: Parallelism.EXPERT_DATA,
    GroupRole.TENSOR_EXPERT.value: Parallelism.TENSOR_EXPERT,
    GroupRole.PIPELINE.value: Parallelism.PIPELINE,
}
"""Communicator's name -> kind of parallelism that the workload states for it."""


@dataclass(frozen=True, slots=True)
class Degrees:
    """Degrees of parallelism of a job."""

    tensor: int = 1
    data: int = 1
    pipeline: int = 1
    expert: int = 1

    @property
    def world_size(self) -> int:
        """Return the number of ranks."""
        return self.tensor * self.data * self.pipeline

    def problem(self) -> str:
        """Return why no job can have these degrees, "" if one can."""
        if self.data % self.expert:
            return f"{self.data} data-parallel ranks cannot be divided into groups of {self.expert} experts"
        if self.world_size > MAX_REPLICAS:
            return f"{self.world_size} ranks are over the limit of {MAX_REPLICAS}"
        return ""

    def group_size(self, role: GroupRole) -> int:
        """Return the number of members of each group of a role."""
        return len(self.members(role, 0))

    def groups(self, roles: frozenset[GroupRole]) -> Iterator[dict[str, tuple[int, ...]]]:
        """Yield the groups of each rank in order, by name. The ranks of a group share one tuple."""
        cache: dict[tuple[GroupRole, int], tuple[int, ...]] = {}
        for rank in range(self.world_size):
            own_groups = {}
            for role in sorted(roles):
                if (role, rank) not in cache:
                    members = tuple(self.members(role, rank))
                    cache |= dict.fromkeys(((role, member) for member in members), members)
                own_groups[role.value] = cache[role, rank]
            yield own_groups

    def members(self, role: GroupRole, rank: int) -> range:
        """Return the ranks of the group that `rank` is in."""
        stage = self.tensor * self.data
        first_of_stage = rank - rank % stage
        tensor_rank, expert_span = rank % self.tensor, self.tensor * self.expert
        first_of_span = rank - rank % expert_span
        match role:
            case GroupRole.TENSOR:
                return range(rank - tensor_rank, rank - tensor_rank + self.tensor)
            case GroupRole.DATA:
                return range(first_of_stage + tensor_rank, first_of_stage + stage, self.tensor)
            case GroupRole.EXPERT:
                return range(first_of_span + tensor_rank, first_of_span + expert_span, self.tensor)
            case GroupRole.TENSOR_EXPERT:
                return range(first_of_span, first_of_span + expert_span)
            case GroupRole.DATA_EXPERT:
                return range(first_of_stage + rank % expert_span, first_of_stage + stage, expert_span)
            case GroupRole.PIPELINE:
                return range(rank % stage, self.world_size, stage)
