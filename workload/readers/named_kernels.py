"""Reports the kernels of a converted trace whose names are those of communication, which the converter left as compute.

Converters of PyTorch's recordings know NCCL's kernels alone. Others keep their recorded time, are counted by name, and
never become compute in silence. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np

from etloop.contract.base.errors import Problem
from etloop.workload.readers.pytorch.kernel_table import (
    STATE_THEM,
    KernelTable,
    function_name,
    looks_communicating,
    word_places,
)
from etloop.workload.trace.trace import LeftOut, NodeKind, RankTrace
from etloop.workload.trace.trace_names import shown

_NAMES_TOLD: Final = 6


def named_communication(ranks: Sequence[RankTrace], table: KernelTable) -> tuple[LeftOut, ...]:
    """Return the GPU operations that are compute in the trace and have a name of communication, as left out."""
    names: Counter[str] = Counter()
    where = ""
    known: dict[tuple[int, int, int], Counter[str]] = {}
    for rank in ranks:
        # Ranks that run the same program share their columns.
        columns = id(rank.name_bytes), id(rank.kind), id(rank.is_cpu_op)
        if columns not in known:
            known[columns] = _names_of(rank, table)
        names.update(known[columns])
        where = where or (rank.path if known[columns] else "")
    if not names:
        return ()
    listed_names = ", ".join(f"{count} {shown(name[:64])}" for name, count in names.most_common(_NAMES_TOLD))
    problem = f"{names.total()} kernels have names of communication kernels, but are compute in the trace: {listed_names}"
    remedy = f"give the profiler's own files (host and Kineto traces); {STATE_THEM} there"
    return (LeftOut(Problem(where, problem, remedy), names.total()),)


def _names_of(rank: RankTrace, table: KernelTable) -> Counter[str]:
    """Return how often each kernel of communication occurs, by its function."""
    places = np.array(word_places(rank.name_bytes), np.uint64)
    nodes = np.unique(np.searchsorted(rank.name_offsets, places, side="right") - 1)
    kernels = nodes[(rank.kind[nodes] == NodeKind.COMP) & (rank.is_cpu_op[nodes] == 0)]
    names: Counter[str] = Counter()
    for name, count in Counter(rank.name(node) for node in kernels.tolist()).items():
        entry = table.kernel(name)
        if (entry is not None and entry.collective is not None) or (
            entry is None and looks_communicating(name)
        ):
            names[function_name(name)] += count
    return names
