"""What a communicator is for, guessed from its shape: size, stride, which operations it carries and how many.

A trace says nothing of parallelism. Decides the guess only, and each guess comes with the reason for it; nothing in a
replay depends on it. What the guess rests on: experts are reached by all-to-all; tensor parallelism sums activations
several times in every layer, so it issues more operations than gradients need; sharded parameters are gathered before
the forward and again before the backward pass and reduced once; pipeline stages talk in pairs at a fixed distance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from etloop.workload.trace.trace import CollectiveKind

_FEW: Final = 4
"""Operations up to which a communicator of all ranks is taken for statistics, not for gradients."""


class Role(StrEnum):
    """Sort of parallelism that a group of ranks serves."""

    TENSOR = "TP"
    DATA = "DP"
    SHARDED_DATA = "FSDP"
    EXPERT = "EP"
    PIPELINE = "PP"
    EVERYONE = "all"
    ALONE = "alone"


@dataclass(frozen=True, slots=True)
class Shape:
    """What is known of one communicator."""

    members: tuple[int, ...]
    operations: Mapping[CollectiveKind, int]
    """How many operations of each kind."""

    @property
    def stride(self) -> int:
        """Distance of neighbours, 0 if it is not the same for all."""
        steps = {later - one for one, later in zip(self.members, self.members[1:], strict=False)}
        return steps.pop() if len(steps) == 1 else 0

    @property
    def count(self) -> int:
        return sum(self.operations.values())

    @property
    def exchanges(self) -> bool:
        """Whether all-to-all is a good part of what it does."""
        return 4 * self.operations.get(CollectiveKind.ALL_TO_ALL, 0) >= self.count > 0


@dataclass(frozen=True, slots=True)
class Guess:
    """A role and why."""

    role: Role
    reason: str


_Class = tuple[int, int, bool, bool]


def guess_roles(world: int, shapes: Sequence[Shape]) -> tuple[Guess, ...]:
    """A guess for every communicator of a job of `world` ranks; communicators alike in shape get the same one."""
    classes: dict[_Class, list[Shape]] = {}
    for shape in shapes:
        classes.setdefault(_class_of(world, shape), []).append(shape)
    per_class = {key: sum(one.count for one in members) / len(members) for key, members in classes.items()}
    reducing = [key for key in classes if key[-1]]
    busiest = max(reducing, key=lambda key: (per_class[key], -key[1]), default=None)
    guesses = {
        key: _guess(world, members, key == busiest and len(reducing) > 1) for key, members in classes.items()
    }
    return tuple(guesses[_class_of(world, shape)] for shape in shapes)


def _class_of(world: int, shape: Shape) -> _Class:
    return len(shape.members), shape.stride, shape.exchanges, _reduces(world, shape)


def _reduces(world: int, shape: Shape) -> bool:
    """Whether it may serve tensor or data parallelism."""
    statistics = len(shape.members) == world and shape.count <= _FEW
    return len(shape.members) > 1 and not shape.exchanges and not statistics


def _guess(world: int, alike: Sequence[Shape], is_busiest: bool) -> Guess:
    size = len(alike[0].members)
    gathers = sum(one.operations.get(CollectiveKind.ALL_GATHER, 0) for one in alike)
    scatters = sum(one.operations.get(CollectiveKind.REDUCE_SCATTER, 0) for one in alike)
    if size == 1:
        return Guess(Role.ALONE, "one rank, moves nothing")
    if alike[0].exchanges:
        return Guess(Role.EXPERT, "exchanges by all-to-all")
    if not _reduces(world, alike[0]):
        return Guess(Role.EVERYONE, "all ranks, a few operations")
    if is_busiest:
        return Guess(Role.TENSOR, "more operations than any other group that reduces")
    if scatters and gathers >= 2 * scatters:
        return Guess(Role.SHARDED_DATA, "gathers twice for each reduce-scatter")
    if scatters and gathers:
        return Guess(Role.DATA, "reduces and gathers, fewer operations than tensor parallelism")
    return Guess(Role.DATA, "reduces, as gradients are")


def guess_stages(world: int, distances: Mapping[int, int]) -> int:
    """Pipeline stages by the distances (receiver minus sender) of point-to-point messages and how many have it.

    1 if there are none, or if they are not those of stages of equal size.
    """
    steps = {abs(distance) for distance, count in distances.items() if count}
    if not steps:
        return 1
    # The way around, from the last stage to the first, is as long as all stages but one.
    stride = min(steps)
    if stride == 0 or world % stride or any(step % stride for step in steps):
        return 1
    return world // stride
