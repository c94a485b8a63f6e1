"""Replacements for parts of PyTorch that read data, wait for other ranks or run where no dispatch mode sees them."""

from __future__ import annotations

from typing import Any, Final

import torch

from ..channel import Channel
from ..recorder import Record
from . import (
    compiler,
    context_parallel,
    data_parallel,
    fully_sharded,
    loading,
    modules,
    objects,
    pipeline,
    saving,
    scaling,
)

TESTED: Final = ("2.13",)
"""Versions of PyTorch with which every replacement was tried."""


def install(record: Record, order: dict[str, Any]) -> None:
    """Install all replacements, and write their names to the record."""
    channel = Channel(order["channel"], order["rank"], order["timeout_s"], record.events.flush)
    modules.install(record)
    data_parallel.install()
    fully_sharded.install()
    pipeline.install(record, channel)
    objects.install(record, channel, order["rank"])
    saving.install(record)
    loading.install(record)
    scaling.install(record)
    compiler.install(record)
    context_parallel.install()
    version = ".".join(torch.__version__.split(".")[:2])
    if version not in TESTED:
        record.note(f"torch {version} was not tried with this version of ETLoop (tried: {', '.join(TESTED)})")
