"""Resolves collectives that name their members by dimensions of a logical topology (`involved_dim`).

Decides the ranks by the topology that the user configures, as ASTRA-sim does: the first dimension varies fastest,
and the partners of a rank are the ranks that differ from it only in the involved dimensions. Without a topology the
members are unknown, and such collectives are refused. A communicator that a node names takes precedence.

Source: astra-sim:astra-sim/workload/Workload.cc `issue_comm`, system/topology/GeneralComplexTopology.cc.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.errors import Severity
from etloop.workload.trace.findings import Check, FindingLog, RankFindings, job_example
from etloop.workload.trace.shared_columns import columns_digest
from etloop.workload.trace.trace import (
    ABSENT,
    DIMENSION_COUNT_SHIFT,
    CommColumns,
    NodeKind,
    RankTrace,
    Trace,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

WORLD_KEYS: Final = ("", "0")
"""Communicator names that mean all ranks if neither the group file nor the rank defines them."""


def some_dimensions(rank: RankTrace, explained: frozenset[str]) -> NDArray[np.bool_]:
    """Return a mask [nodes] of the collectives over some dimensions only whose communicator name is not a key in
    `explained`."""
    dims = rank.comm.dims
    if dims is None:
        return np.zeros(len(rank), np.bool_)
    unnamed = [
        -1,
        *(index for index, key in enumerate(rank.pg_names) if key in WORLD_KEYS and key not in explained),
    ]
    flags = np.where(dims == ABSENT, 0, dims)
    all_flags = (np.int64(1) << (flags >> DIMENSION_COUNT_SHIFT)) - 1
    is_some = (flags & 0xFFFFFFFF) != all_flags
    on_device = (rank.kind == NodeKind.COMM_COLL) & (rank.is_cpu_op != 1)
    return np.asarray(is_some & on_device & np.isin(rank.pg_name, np.array(unnamed, np.int32)), np.bool_)


def obey_dimensions(trace: Trace, topology: tuple[int, ...], log: FindingLog) -> Trace:
    """Return the trace with a communicator named on each collective over some dimensions. `topology` is () if none is
    configured.

    Reports every collective whose members cannot be resolved and leaves it unchanged.
    """
    fits = not topology or prod(topology) == len(trace.ranks)
    if not fits:
        expected = f"a logical topology of {len(trace.ranks)} ranks, as the trace has"
        example = job_example(trace.source, expected, f"{_words(topology)} = {prod(topology)}")
        log.add(Check.INVOLVED_DIM, "correct workload.logical_topology (--logical-topology)", example)
    if all(rank.comm.dims is None for rank in trace.ranks):
        return trace
    cache: dict[bytes, tuple[NDArray[np.int32], tuple[int, ...]]] = {}
    ranks = []
    for rank in trace.ranks:
        explained = frozenset((*(trace.groups or ()), *(rank.groups or ())))
        unresolved = some_dimensions(rank, explained)
        if topology:
            unresolved = unresolved & _has_all_flags(rank, unresolved, topology, log)
        else:
            _refuse(rank, unresolved, log)
        if not fits or not topology or not unresolved.any():
            ranks.append(rank)
            continue
        ranks.append(_with_names(rank, unresolved, topology, explained, cache))
        _tell(rank, unresolved, topology, log)
    return replace(trace, ranks=tuple(ranks))


def _tell(rank: RankTrace, some: NDArray[np.bool_], topology: tuple[int, ...], log: FindingLog) -> None:
    remedy = f"members are derived from the logical topology {_words(topology)}"
    RankFindings(rank, log, Severity.INFO).add(
        Check.INVOLVED_DIM,
        remedy,
        np.flatnonzero(some),
        "a communicator's name",
        lambda node: _flag_words(rank.comm, node),
    )


def _refuse(rank: RankTrace, some: NDArray[np.bool_], log: FindingLog) -> None:
    remedy = (
        "state workload.logical_topology (--logical-topology), such as [2, 4], whose first dimension counts fastest, "
        "or name the communicators"
    )
    expected = "a logical topology, because only some dimensions are involved"
    RankFindings(rank, log).add(
        Check.INVOLVED_DIM, remedy, np.flatnonzero(some), expected, lambda node: _flag_words(rank.comm, node)
    )


def _has_all_flags(
    rank: RankTrace, some: NDArray[np.bool_], topology: tuple[int, ...], log: FindingLog
) -> NDArray[np.bool_]:
    """Return a mask of the collectives that have a flag for each dimension of the topology; report collectives with
    fewer."""
    assert rank.comm.dims is not None
    count = rank.comm.dims >> DIMENSION_COUNT_SHIFT
    short = some & (count < len(topology))
    remedy = "correct workload.logical_topology (--logical-topology), or the exporter"
    expected = f"a flag for each of the {len(topology)} dimensions of the logical topology {_words(topology)}"
    RankFindings(rank, log).add(
        Check.INVOLVED_DIM, remedy, np.flatnonzero(short), expected, lambda node: _flag_words(rank.comm, node)
    )
    return np.asarray(~short, np.bool_)


def _with_names(
    rank: RankTrace,
    some: NDArray[np.bool_],
    topology: tuple[int, ...],
    explained: frozenset[str],
    made: dict[bytes, tuple[NDArray[np.int32], tuple[int, ...]]],
) -> RankTrace:
    """Return the rank with communicator names on its collectives over some dimensions. `made` caches name columns and
    flags by the columns they derive from, so that ranks with equal columns share them."""
    dims = rank.comm.dims
    key = columns_digest((dims, rank.pg_name, some)) + len(rank.pg_names).to_bytes(8, "little")
    if key not in made:
        assert dims is not None
        flags, index = np.unique(dims[some] & ((1 << len(topology)) - 1), return_inverse=True)
        column = rank.pg_name.copy()
        column[some] = len(rank.pg_names) + index.reshape(-1)
        column.flags.writeable = False
        made[key] = column, tuple(flags.tolist())
    column, flags = made[key]
    groups = dict(rank.groups or {})
    names = []
    for flag_bits in flags:
        involved = tuple(dim for dim in range(len(topology)) if flag_bits >> dim & 1)
        members = partners(rank.rank, topology, involved)
        name = f"dim {'+'.join(map(str, involved)) or 'none'} from rank {members[0]}"
        while name in explained:
            name += "'"
        names.append(name)
        groups[name] = members
    return replace(rank, pg_name=column, pg_names=(*rank.pg_names, *names), groups=groups)


def partners(rank: int, topology: tuple[int, ...], involved: tuple[int, ...]) -> tuple[int, ...]:
    """Return the ranks, in order, that share `rank`'s position in all dimensions but the involved ones."""
    strides = tuple(prod(topology[:dim]) for dim in range(len(topology)))
    first = rank - sum(rank // strides[dim] % topology[dim] * strides[dim] for dim in involved)

    def offsets(left: tuple[int, ...]) -> Iterator[int]:
        if not left:
            yield 0
            return
        for coordinate in range(topology[left[-1]]):
            yield from (coordinate * strides[left[-1]] + inner for inner in offsets(left[:-1]))

    return tuple(first + offset for offset in offsets(involved))


def _flag_words(comm: CommColumns, node: int) -> str:
    assert comm.dims is not None
    value = int(comm.dims[node])
    flags = ("true" if value >> dim & 1 else "false" for dim in range(value >> DIMENSION_COUNT_SHIFT))
    return f"involved_dim [{', '.join(flags)}]"


def _words(topology: tuple[int, ...]) -> str:
    return " x ".join(map(str, topology))
