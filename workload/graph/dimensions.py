"""Who takes part in a collective that says so by dimensions of a logical topology (`involved_dim`).

Decides the ranks by the topology that the user states, as ASTRA-sim does: the first dimension counts fastest, and the
ranks that differ from a rank in the involved dimensions alone are its partners. Without a topology nobody can tell,
and such collectives are refused. A communicator that a node names goes first.
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
"""Names that mean all ranks where no table has them."""


def some_dimensions(rank: RankTrace, explained: frozenset[str]) -> NDArray[np.bool_]:
    """Which nodes are collectives of some dimensions only, and of no communicator that a key in `explained` tells."""
    dims = rank.comm.dims
    if dims is None:
        return np.zeros(len(rank), np.bool_)
    unnamed = [
        -1,
        *(at for at, key in enumerate(rank.pg_names) if key in WORLD_KEYS and key not in explained),
    ]
    stated = np.where(dims == ABSENT, 0, dims)
    every = (np.int64(1) << (stated >> DIMENSION_COUNT_SHIFT)) - 1
    is_some = (stated & 0xFFFFFFFF) != every
    on_device = (rank.kind == NodeKind.COMM_COLL) & (rank.is_cpu_op != 1)
    return np.asarray(is_some & on_device & np.isin(rank.pg_name, np.array(unnamed, np.int32)), np.bool_)


def obey_dimensions(trace: Trace, topology: tuple[int, ...], log: FindingLog) -> Trace:
    """The trace with a communicator named on each collective of some dimensions; () is a topology that nobody stated.

    Notes every collective whose ranks cannot be told so, which stays as it is.
    """
    fits = not topology or prod(topology) == len(trace.ranks)
    if not fits:
        expected = f"a logical topology of {len(trace.ranks)} ranks, as the trace has"
        example = job_example(trace.source, expected, f"{_words(topology)} = {prod(topology)}")
        log.add(Check.INVOLVED_DIM, "correct workload.logical_topology (--logical-topology)", example)
    if all(rank.comm.dims is None for rank in trace.ranks):
        return trace
    made: dict[bytes, tuple[NDArray[np.int32], tuple[int, ...]]] = {}
    ranks = []
    for rank in trace.ranks:
        explained = frozenset((*(trace.groups or ()), *(rank.groups or ())))
        some = some_dimensions(rank, explained)
        if topology:
            some = some & _flagged(rank, some, topology, log)
        else:
            _refuse(rank, some, log)
        if not fits or not topology or not some.any():
            ranks.append(rank)
            continue
        ranks.append(_named(rank, some, topology, explained, made))
        _tell(rank, some, topology, log)
    return replace(trace, ranks=tuple(ranks))


def _tell(rank: RankTrace, some: NDArray[np.bool_], topology: tuple[int, ...], log: FindingLog) -> None:
    remedy = f"the logical topology {_words(topology)} says who takes part"
    RankFindings(rank, log, Severity.INFO).add(
        Check.INVOLVED_DIM,
        remedy,
        np.flatnonzero(some),
        "a communicator's name",
        lambda node: _stated(rank.comm, node),
    )


def _refuse(rank: RankTrace, some: NDArray[np.bool_], log: FindingLog) -> None:
    remedy = (
        "state workload.logical_topology (--logical-topology), such as [2, 4], whose first dimension counts fastest, "
        "or name the communicators"
    )
    expected = "a logical topology, as only some of its dimensions take part"
    RankFindings(rank, log).add(
        Check.INVOLVED_DIM, remedy, np.flatnonzero(some), expected, lambda node: _stated(rank.comm, node)
    )


def _flagged(
    rank: RankTrace, some: NDArray[np.bool_], topology: tuple[int, ...], log: FindingLog
) -> NDArray[np.bool_]:
    """Which collectives have a flag for each dimension of the topology; the others are noted."""
    assert rank.comm.dims is not None
    count = rank.comm.dims >> DIMENSION_COUNT_SHIFT
    short = some & (count < len(topology))
    remedy = "correct workload.logical_topology (--logical-topology), or the exporter"
    expected = f"a flag for each of the {len(topology)} dimensions of the logical topology {_words(topology)}"
    RankFindings(rank, log).add(
        Check.INVOLVED_DIM, remedy, np.flatnonzero(short), expected, lambda node: _stated(rank.comm, node)
    )
    return np.asarray(~short, np.bool_)


def _named(
    rank: RankTrace,
    some: NDArray[np.bool_],
    topology: tuple[int, ...],
    explained: frozenset[str],
    made: dict[bytes, tuple[NDArray[np.int32], tuple[int, ...]]],
) -> RankTrace:
    """The rank with names on its collectives of some dimensions. `made`: columns of names and their flags, by what they
    follow from, for ranks that are alike."""
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
    for one in flags:
        involved = tuple(at for at in range(len(topology)) if one >> at & 1)
        members = partners(rank.rank, topology, involved)
        name = f"dim {'+'.join(map(str, involved)) or 'none'} from rank {members[0]}"
        while name in explained:
            name += "'"
        names.append(name)
        groups[name] = members
    return replace(rank, pg_name=column, pg_names=(*rank.pg_names, *names), groups=groups)


def partners(rank: int, topology: tuple[int, ...], involved: tuple[int, ...]) -> tuple[int, ...]:
    """Return the ranks, in order, that lie where `rank` lies in all dimensions but the involved ones."""
    strides = tuple(prod(topology[:at]) for at in range(len(topology)))
    first = rank - sum(rank // strides[at] % topology[at] * strides[at] for at in involved)

    def offsets(left: tuple[int, ...]) -> Iterator[int]:
        if not left:
            yield 0
            return
        for one in range(topology[left[-1]]):
            yield from (one * strides[left[-1]] + rest for rest in offsets(left[:-1]))

    return tuple(first + one for one in offsets(involved))


def _stated(comm: CommColumns, node: int) -> str:
    assert comm.dims is not None
    value = int(comm.dims[node])
    flags = ("true" if value >> at & 1 else "false" for at in range(value >> DIMENSION_COUNT_SHIFT))
    return f"involved_dim [{', '.join(flags)}]"


def _words(topology: tuple[int, ...]) -> str:
    return " x ".join(map(str, topology))
