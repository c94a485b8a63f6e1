"""Replacements for parts of PyTorch that read data, wait for other ranks or run where no dispatch mode sees them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

from .. import futures
from ..channel import Channel
from ..recorder import Record
from . import (
    attention,
    compiler,
    context_parallel,
    data_parallel,
    dtensor,
    fully_sharded,
    initialization,
    loading,
    modules,
    objects,
    pipeline,
    saving,
    scaling,
)

_TESTED: Final = ("2.13", "2.14")
"""Versions of PyTorch with which a replacement was tried: 2.13 on the CPU, 2.14 with CUDA 13."""


def install(record: Record, order: dict[str, Any]) -> None:
    """Install all replacements, and write their names to the record."""
    channel = Channel(order["channel"], order["rank"], order["timeout_s"], record.events.flush)
    version = ".".join(torch.__version__.split(".")[:2])
    replacements: tuple[tuple[str, tuple[str, ...], Callable[[], None]], ...] = (
        ("moves of modules", _TESTED, modules.install),
        ("futures of operations", _TESTED, lambda: futures.install(record)),
        ("reducer of DistributedDataParallel", _TESTED, data_parallel.install),
        ("shapes of DTensor's results", _TESTED, lambda: dtensor.install(record)),
        ("moves and storages of FSDP", _TESTED, lambda: fully_sharded.install(record)),
        ("shapes of pipeline stages", _TESTED, lambda: pipeline.install(record, channel)),
        ("object collectives", _TESTED, lambda: objects.install(record, channel, order["rank"])),
        ("saving and loading", _TESTED, lambda: saving.install(record)),
        ("data loaders", _TESTED, lambda: loading.install(record)),
        ("truncated normal initialization", _TESTED, lambda: initialization.install(record)),
        ("GradScaler", _TESTED, lambda: scaling.install(record)),
        ("torch.compile", _TESTED, lambda: compiler.install(record)),
        ("score functions of flex_attention", _TESTED, lambda: attention.install(record)),
        ("context parallelism", _TESTED, lambda: context_parallel.install(record)),
    )
    for name, tested, install_it in replacements:
        install_it()
        record.events.write(kind="replaced", name=name, tested=tested)
        if version not in tested:
            record.note(f"{name}: torch {version} was not tried (tried: {', '.join(tested)})")
