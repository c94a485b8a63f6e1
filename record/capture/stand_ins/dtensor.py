"""DTensor: what it computes to find out its shards belongs to no step, and needs numbers that fake tensors do not have.

The operators on whole shapes that give the shape of a result are not recorded. Sizes and offsets of shards are computed from
real indices on the host.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.distributed.tensor import _utils
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.distributed.tensor.placement_types import _StridedShard

from ..recorder import Record

_NAMES = ("_propagate_tensor_meta_non_cached", "propagate_op_sharding_non_cached")


def install(record: Record) -> None:
    """Suspend the record while shardings are worked out, and compute with real indices."""
    for name in _NAMES:
        original = getattr(ShardingPropagator, name)

        def propagate(self: Any, *args: Any, _original: Any = original, **kwargs: Any) -> Any:
            with record.suspend():
                return _original(self, *args, **kwargs)

        setattr(ShardingPropagator, name, propagate)
    for owner, name in (
        (_StridedShard, "local_shard_size_and_offset"),
        (_utils, "_compute_local_shape_and_global_offset"),
    ):
        setattr(owner, name, _with_real_indices(getattr(owner, name)))


def _with_real_indices(function: Callable[..., Any]) -> Callable[..., Any]:
    def compute(*args: Any, **kwargs: Any) -> Any:
        with unset_fake_temporarily(), torch.device("cpu"):
            return function(*args, **kwargs)

    return compute
