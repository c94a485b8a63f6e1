"""DTensor: the operators on whole shapes by which it finds out the shape of a result belong to no step, and are not recorded."""

from __future__ import annotations

from typing import Any

from torch.distributed.tensor._sharding_prop import ShardingPropagator

from ..recorder import Record

_NAMES = ("_propagate_tensor_meta_non_cached", "propagate_op_sharding_non_cached")


def install(record: Record) -> None:
    """Suspend the record while shardings are worked out."""
    for name in _NAMES:
        original = getattr(ShardingPropagator, name)

        def propagate(self: Any, *args: Any, _original: Any = original, **kwargs: Any) -> Any:
            with record.suspend():
                return _original(self, *args, **kwargs)

        setattr(ShardingPropagator, name, propagate)
