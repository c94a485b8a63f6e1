"""What a made-up job looks like, in numbers: of a training step, and of a sweep of collectives.

What cannot be is refused where the job is made.
"""

from __future__ import annotations

from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.trace.trace import CollectiveKind

SWEPT: Final = tuple(kind for kind in CollectiveKind if kind is not CollectiveKind.REDUCE_SCATTER_BLOCK)
"""Kinds that can be replayed, each once."""


@dataclass(frozen=True, slots=True)
class SyntheticSpec:
    """Shape of the job; the number of ranks is tensor x data x pipeline.

    Rank = tensor + tensor_parallel * (data + data_parallel * stage), so tensor-parallel peers are neighbours.
    The defaults make 8 ranks that move about 235 MB in one iteration, with a few milliseconds of compute.
    """

    tensor_parallel: int = 2
    data_parallel: int = 2
    pipeline_parallel: int = 2
    layers_per_stage: int = 2
    micro_batches: int = 2
    micro_batch_sequences: int = 1
    sequence_tokens: int = 1024
    hidden_size: int = 512
    element_bytes: int = 2
    experts: bool = True
    """All-to-all over the data-parallel ranks around every feed-forward."""
    expert_skew_percent: int = 0
    """How unevenly tokens spread over experts: 100 x the exponent of their popularity, 0 is even."""
    seed: int = 0
    """Which experts are popular."""
    sharded_parameters: bool = False
    """FSDP: every data-parallel rank holds a part of each layer and gathers the rest when it is needed."""
    device_flops: int = 20_000_000_000_000
    """FLOP/s that a device sustains; gives COMP nodes their duration."""
    device_memory_bytes_per_s: int = 1_000_000_000_000

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self.tensor_parallel * self.data_parallel * self.pipeline_parallel


@dataclass(frozen=True, slots=True)
class SweepSpec:
    """What is swept. Sizes double from the least to the most, both included."""

    kinds: tuple[CollectiveKind, ...]
    least_bytes: int = 1 << 10
    most_bytes: int = 64 << 20
    """What one rank puts in, as traces count: the own shard of an all-gather."""
    ranks: int = 8
    repeats: int = 1
    """Operations of each size, one after the other."""

    def sizes(self) -> tuple[int, ...]:
        """Every size, ascending."""
        sizes = []
        size = self.least_bytes
        while size < self.most_bytes:
            sizes.append(size)
            size *= 2
        return (*sizes, self.most_bytes)
