"""A job of collectives, as both proposals of OTG for them describe one. Pure values.

Neither proposal is merged (open-traffic-generator/models, pull requests 490 and 491), so that their fields may change.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.trace.trace import CollectiveKind

MOST_STEPS: Final = 256
MOST_RANKS: Final = 256
"""Ranks of all operations of a step."""
MOST_ITERATIONS: Final = 10_000
MOST_SIZE_BYTES: Final = 1 << 40
PATH_MTUS: Final = (256, 512, 1024, 2048, 4096)


class Proposal(StrEnum):
    """The proposal that a job was written in. Values are their keys of a configuration."""

    CCL = "ccl"
    """Pull request 490."""
    COMMUNICATIONS = "collective_communications"
    """Pull request 491."""


@dataclass(frozen=True, slots=True)
class Operation:
    """A collective among ranks of its own, repeated."""

    name: str
    """Name of the communicator in `CCL`, of the algorithm in `COMMUNICATIONS`."""
    kind: CollectiveKind
    algorithm: str
    """Algorithm of `collectives` in a scenario."""
    ports: tuple[str, ...]
    """OTG port of each rank, in the order of ranks."""
    size_bytes: int
    """The larger of a rank's send and receive buffers, as in nccl-tests."""
    gap_ns: int
    """Time before each iteration, after the last one."""
    compute_ns: int
    """The part of `gap_ns` that counts as computing."""


@dataclass(frozen=True, slots=True)
class StepTransport:
    """Transport of all queue pairs of a step."""

    path_mtu_bytes: int
    queue_pairs: int
    """Queue pairs between two ranks."""
    dscp: int
    ecn: int
    """ECN field as two bits."""
    source_port: int
    """UDP source port of the first queue pair."""


@dataclass(frozen=True, slots=True)
class Step:
    """Operations at the same time; a job's steps follow each other."""

    stage: int
    """Index of the stage, or of the data size."""
    name: str
    operations: tuple[Operation, ...]
    iterations: int
    transport: StepTransport


@dataclass(frozen=True, slots=True)
class CollectiveJob:
    """All steps of a job."""

    proposal: Proposal
    steps: tuple[Step, ...]
    addresses: dict[str, str]
    """Address of each OTG port with ranks."""
