"""Generates a sweep as a Chakra job: the same collectives repeatedly, size by size, on all ranks, without compute
between them.

Decides order and sizes. It is the trace counterpart of NCCL's benchmarks on GPUs: replaying it gives time and bus
bandwidth by size.
"""

from __future__ import annotations

from typing import Final

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.units import format_bytes
from etloop.workload.chakra.encoder import EtNode
from etloop.workload.chakra.nodes import attributes_of
from etloop.workload.synthetic.spec import SWEPT, SweepSpec
from etloop.workload.synthetic.training_step import MAX_NODES, SyntheticJob
from etloop.workload.trace.trace import CollectiveKind, NodeKind

_MOST_BYTES: Final = 1 << 40
_MOST_RANKS: Final = 65_536
_GROUP: Final = "1"


def sweep(spec: SweepSpec) -> SyntheticJob:
    """Return the job of `spec`, in which every operation waits for the one before. Raises `ConfigError` with every
    invalid value."""
    if problems := _problems(spec):
        raise ConfigError(*problems)
    nodes: list[EtNode] = []
    for kind in spec.kinds:
        sizes = (0,) if kind is CollectiveKind.BARRIER else spec.sizes()
        for size in sizes:
            for _ in range(spec.repeats):
                nodes.append(_operation(kind, size, len(nodes)))
    return SyntheticJob((tuple(nodes),) * spec.ranks, {_GROUP: tuple(range(spec.ranks))})


def _operation(kind: CollectiveKind, size_bytes: int, before: int) -> EtNode:
    attributes = attributes_of(is_cpu_op=False, comm_type=int(kind), comm_size=size_bytes, pg_name=_GROUP)
    name = f"{kind.name.lower()}.{format_bytes(size_bytes)}"
    deps = (before,) if before else ()
    return EtNode(before + 1, name, NodeKind.COMM_COLL, deps, attributes=attributes)


def _problems(spec: SweepSpec) -> list[Problem]:
    problems = []
    known_kinds = ", ".join(kind.name.lower() for kind in SWEPT)
    if not spec.kinds or set(spec.kinds) - set(SWEPT):
        wrong_kinds = ", ".join(kind.name.lower() for kind in spec.kinds if kind not in SWEPT) or "nothing"
        problems.append(Problem("sweep", f"{wrong_kinds} cannot be swept", f"choose from {known_kinds}"))
    if not 1 <= spec.least_bytes <= spec.most_bytes <= _MOST_BYTES:
        fault = f"sizes {spec.least_bytes} to {spec.most_bytes} bytes, expected 1 to {_MOST_BYTES} in ascending order"
        problems.append(Problem("sweep: sizes", fault, "write the smaller one first, such as 1KiB-64MiB"))
    if not 2 <= spec.ranks <= _MOST_RANKS:
        problems.append(
            Problem("sweep: ranks", f"{spec.ranks}, expected 2 to {_MOST_RANKS}", "choose another number")
        )
    elif not problems:
        nodes = spec.ranks * spec.repeats * len(spec.kinds) * len(spec.sizes())
        if not spec.repeats or nodes > MAX_NODES:
            fault = f"would have {nodes} nodes, expected 1 to {MAX_NODES}"
            problems.append(Problem("sweep", fault, "change ranks, repeats or sizes"))
    return problems
