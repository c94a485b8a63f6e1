"""Data loaders: samplers compute with real numbers, and items are loaded by the process itself, without pinned memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.utils import data
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.data import dataloader, distributed, sampler

from ..recorder import Record

_WORKER_OPTIONS = {
    "num_workers": 0,
    "pin_memory": False,
    "persistent_workers": False,
    "prefetch_factor": None,
}


def install(record: Record) -> None:
    """Replace the iteration of samplers, and the options of loaders."""
    for kind in (
        sampler.RandomSampler,
        distributed.DistributedSampler,
        sampler.WeightedRandomSampler,
        sampler.SubsetRandomSampler,
    ):
        _iterate_outside(kind)
    original_init = data.DataLoader.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        if kwargs.get("num_workers") or kwargs.get("pin_memory"):
            record.note("data loaders run without workers and pinned memory: host-side loading takes no time")
        kwargs.update({name: value for name, value in _WORKER_OPTIONS.items() if name in kwargs})
        original_init(self, *args, **kwargs)

    data.DataLoader.__init__ = init
    base = dataloader._BaseDataLoaderIter
    original_iterator = base.__init__

    def start(self: Any, loader: Any) -> None:
        with _disable_current_modes():
            original_iterator(self, loader)

    base.__init__ = start


def _iterate_outside(kind: Any) -> None:
    original = kind.__iter__

    def iterate(self: Any) -> Iterator[int]:
        with _disable_current_modes():
            indices = list(original(self))
        return iter(indices)

    kind.__iter__ = iterate
