"""Guesses the role of a communicator from its shape: size, stride, kinds and number of its operations.

Most traces do not describe parallelism; a role that a source states is used as it is. This module decides the guess
only, and gives a reason for each; no part of a replay depends on it. The evidence: experts are reached by all-to-all;
tensor parallelism reduces activations several times per layer, so it issues more operations than gradients need;
sharded parameters are gathered before the forward and again before the backward pass and reduced once; pipeline
stages exchange messages in pairs at a fixed distance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from etloop.workload.trace.trace import CollectiveKind, Parallelism

STATED: Final = "stated by the source"
"""Reason of a role that is not guessed."""
_FEW: Final = 4
"""A communicator of all ranks with at most this many operations is assumed to carry statistics, not gradients."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Size, spacing and operations of one communicator."""

    members: tuple[int, ...]
    operations: Mapping[CollectiveKind, int]
    """Number of operations of each kind."""
    stated: Parallelism | None = None
    """Parallelism that the source states, None if it states none."""

    @property
    def stride(self) -> int:
        """Return the distance between consecutive members, 0 if it varies or there is only one member."""
        steps = {later - earlier for earlier, later in zip(self.members, self.members[1:], strict=False)}
        return steps.pop() if len(steps) == 1 else 0

    @property
    def count(self) -> int:
        """Return the number of operations."""
        return sum(self.operations.values())

    @property
    def exchanges(self) -> bool:
        """Decide whether at least a quarter of the operations are all-to-alls."""
        return 4 * self.operations.get(CollectiveKind.ALL_TO_ALL, 0) >= self.count > 0


@dataclass(frozen=True, slots=True)
class Guess:
    """A role and the reason for it."""

    role: Parallelism
    reason: str


_Class = tuple[int, int, bool, bool, Parallelism | None]


def guess_roles(world: int, shapes: Sequence[Shape]) -> tuple[Guess, ...]:
    """Return a guess for every communicator of a job of `world` ranks. Communicators of the same shape class get the
    same guess."""
    classes: dict[_Class, list[Shape]] = {}
    for shape in shapes:
        classes.setdefault(_class_of(world, shape), []).append(shape)
    mean_operations = {
        key: sum(shape.count for shape in members) / len(members) for key, members in classes.items()
    }
    reducing = [key for key in classes if key[3] and key[4] is None]
    busiest = max(reducing, key=lambda key: (mean_operations[key], -key[1]), default=None)
    guesses = {
        key: _guess(world, members, key == busiest and len(reducing) > 1) for key, members in classes.items()
    }
    return tuple(guesses[_class_of(world, shape)] for shape in shapes)


def _class_of(world: int, shape: Shape) -> _Class:
    return len(shape.members), shape.stride, shape.exchanges, _reduces(world, shape), shape.stated


def _reduces(world: int, shape: Shape) -> bool:
    """Decide whether the communicator may serve tensor or data parallelism."""
    is_statistics = len(shape.members) == world and shape.count <= _FEW
    return len(shape.members) > 1 and not shape.exchanges and not is_statistics


def _guess(world: int, alike: Sequence[Shape], is_busiest: bool) -> Guess:
    size = len(alike[0].members)
    gathers = sum(shape.operations.get(CollectiveKind.ALL_GATHER, 0) for shape in alike)
    scatters = sum(shape.operations.get(CollectiveKind.REDUCE_SCATTER, 0) for shape in alike)
    if size == 1:
        return Guess(Parallelism.ALONE, "one rank, moves no bytes")
    if (stated := alike[0].stated) is not None:
        return Guess(stated, STATED)
    if alike[0].exchanges:
        return Guess(Parallelism.EXPERT, "uses all-to-all")
    if not _reduces(world, alike[0]):
        return Guess(Parallelism.EVERYONE, "all ranks, a few operations")
    if is_busiest:
        return Guess(Parallelism.TENSOR, "most operations of all groups that reduce")
    if scatters and gathers >= 2 * scatters:
        return Guess(Parallelism.SHARDED_DATA, "gathers twice for each reduce-scatter")
    if scatters and gathers:
        return Guess(Parallelism.DATA, "reduces and gathers, fewer operations than tensor parallelism")
    return Guess(Parallelism.DATA, "all-reduces, as gradients need")


def guess_stages(world: int, distances: Mapping[int, int]) -> int:
    """Return the number of pipeline stages, from point-to-point messages counted by distance (receiver minus sender).

    Returns 1 if there are no messages, or if the distances do not fit stages of equal size.
    """
    steps = {abs(distance) for distance, count in distances.items() if count}
    if not steps:
        return 1
    # A message from the last stage to the first spans all stages but one, so it is a multiple of the stride too.
    stride = min(steps)
    if stride == 0 or world % stride or any(step % stride for step in steps):
        return 1
    return world // stride
