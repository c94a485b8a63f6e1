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
)
from etloop.workload.trace.trace import LeftOut, NodeKind, RankTrace
from etloop.workload.trace.trace_names import printable_name

_NAMES_TOLD: Final = 6


def named_communication(ranks: Sequence[RankTrace], table: KernelTable) -> tuple[LeftOut, ...]:
    """Return the GPU operations that are compute in the trace and have a name of communication, as left out."""
    names: Counter[str] = Counter()
    where = ""
    functions: dict[bytes, str] = {}
    known: dict[tuple[int, int, int], Counter[str]] = {}
    for rank in ranks:
        # Ranks that run the same program share their columns.
        columns = id(rank.name_bytes), id(rank.kind), id(rank.is_cpu_op)
        if columns not in known:
            known[columns] = _names_of(rank, table, functions)
        names.update(known[columns])
        where = where or (rank.path if known[columns] else "")
    if not names:
        return ()
    listed_names = ", ".join(
        f"{count} {printable_name(name[:64])}" for name, count in names.most_common(_NAMES_TOLD)
    )
    problem = f"{names.total()} kernels have names of communication kernels, but are compute in the trace: {listed_names}"
    remedy = f"give the profiler's own files (host and Kineto traces); {STATE_THEM} there"
    return (LeftOut(Problem(where, problem, remedy), names.total()),)


def _names_of(rank: RankTrace, table: KernelTable, functions: dict[bytes, str]) -> Counter[str]:
    """Return how often each kernel of communication occurs, by its function.

    `functions`: name to function, "" if it does not communicate; extended by the names of this rank.
    """
    kernels = np.flatnonzero((rank.kind == NodeKind.COMP) & (rank.is_cpu_op == 0))
    starts, ends = rank.name_offsets[kernels].tolist(), rank.name_offsets[kernels + 1].tolist()
    text = rank.name_bytes
    names: Counter[str] = Counter()
    for name, count in Counter(text[start:end] for start, end in zip(starts, ends, strict=True)).items():
        if name not in functions:
            functions[name] = _function_if_communicating(name.decode(errors="replace"), table)
        if functions[name]:
            names[functions[name]] += count
    return names


def _function_if_communicating(name: str, table: KernelTable) -> str:
    entry = table.kernel(name)
    communicates = looks_communicating(name) if entry is None else entry.collective is not None
    return function_name(name) if communicates else ""
