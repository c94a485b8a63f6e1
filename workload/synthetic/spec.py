"""Parameters of a synthetic job: of a training step, and of a sweep of collectives.

Invalid parameters are refused by the modules that generate the job.
"""

from __future__ import annotations

from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.trace.trace import CollectiveKind

SWEPT: Final = tuple(kind for kind in CollectiveKind if kind is not CollectiveKind.REDUCE_SCATTER_BLOCK)
"""Kinds of collective that can be replayed, each once."""


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
    """Whether an all-to-all over the data-parallel ranks surrounds every feed-forward."""
    expert_skew_percent: int = 0
    """Imbalance of tokens over experts: 100 times the exponent of expert popularity; 0 is even."""
    seed: int = 0
    """Seed that selects the popular experts."""
    sharded_parameters: bool = False
    """FSDP: every data-parallel rank holds a part of each layer and gathers the rest when needed."""
    device_flops: int = 20_000_000_000_000
    """FLOP/s that a device sustains; determines the duration of COMP nodes."""
    device_memory_bytes_per_s: int = 1_000_000_000_000

    @property
    def world_size(self) -> int:
        """Return the number of ranks."""
        return self.tensor_parallel * self.data_parallel * self.pipeline_parallel


@dataclass(frozen=True, slots=True)
class SweepSpec:
    """Parameters of a sweep. Sizes double from the least to the most, both included."""

    kinds: tuple[CollectiveKind, ...]
    least_bytes: int = 1 << 10
    most_bytes: int = 64 << 20
    """Size that one rank puts in, as traces count: the own shard of an all-gather."""
    ranks: int = 8
    repeats: int = 1
    """Number of operations of each size, one after another."""

    def sizes(self) -> tuple[int, ...]:
        """Return every size in bytes, ascending."""
        sizes = []
        size = self.least_bytes
        while size < self.most_bytes:
            sizes.append(size)
            size *= 2
        return (*sizes, self.most_bytes)
