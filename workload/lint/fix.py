"""Repairs a trace by named rules, limited to defects that can be corrected without guessing the exporter's intent.

Decides the rules and the columns of the repaired ranks. Raises no exception for the content of a trace. Edges are
fixed by fix_edges.py and nodes written by chakra/nodes.py; defects that no rule covers are reported by a lint of the
result. Values that no rule covers stay unchanged, even those that no check reads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.workload.graph.compute import COMPUTES, delays_ns
from etloop.workload.graph.dimensions import obey_dimensions, some_dimensions
from etloop.workload.lint.fix_edges import FixedEdges, fix_edges
from etloop.workload.lint.fix_groups import Keys, fixed_keys
from etloop.workload.trace.findings import Example, FindingLog, node_example
from etloop.workload.trace.settings import STAGE_SCHEMA, SizeUnit, WorkloadSettings
from etloop.workload.trace.shared_columns import columns_digest
from etloop.workload.trace.trace import ABSENT, NodeKind, RankTrace, Trace

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NS_PER_US: Final = 1000


class Rule(StrEnum):
    """All rules; the value is the stable name in reports. docs/lint.md describes the purpose of each."""

    DROP_SELF = "drop-self-dependency"
    DROP_DANGLING = "drop-dangling-dependency"
    MERGE_DUPLICATE = "merge-duplicate-dependency"
    DROP_CYCLIC_CTRL = "drop-cyclic-ctrl-dependency"
    FILL_OWN_END = "fill-own-end"
    FILL_GROUP = "fill-communicator"
    NAME_DIMENSIONS = "name-dimensions"
    RENAME_GROUP = "rename-communicator"
    SIZES_TO_BYTES = "sizes-to-bytes"
    MARK_LAUNCHER = "mark-cpu-launcher"
    STATE_DEVICE_OP = "state-device-operation"
    CLEAR_UNKNOWN_KIND = "clear-unknown-node-type"
    FILL_DURATION = "fill-duration"


SENTENCES: Final = {
    Rule.DROP_SELF: "a dependency of a node on itself is removed",
    Rule.DROP_DANGLING: "a dependency on a node that the rank does not have is removed",
    Rule.MERGE_DUPLICATE: "duplicates of a dependency are removed",
    Rule.DROP_CYCLIC_CTRL: "control dependencies that close a cycle are removed",
    Rule.FILL_OWN_END: "comm_src of a SEND and comm_dst of a RECV become the rank of the file",
    Rule.FILL_GROUP: "a collective without a communicator gets the communicator of all ranks",
    Rule.NAME_DIMENSIONS: "a collective of some dimensions of the logical topology gets the communicator of its ranks",
    Rule.RENAME_GROUP: "a communicator key with different members on different ranks becomes one key per member list",
    Rule.SIZES_TO_BYTES: "comm_size and tensor_size are multiplied by the stated size of an element",
    Rule.MARK_LAUNCHER: "a collective without type and size is marked is_cpu_op: it launches one that has its own node",
    Rule.STATE_DEVICE_OP: "is_cpu_op false is written on operations without it: older readers default to true",
    Rule.CLEAR_UNKNOWN_KIND: "a node type that the schema does not define becomes INVALID, as readers treat it",
    Rule.FILL_DURATION: "duration_micros is derived from the stated compute speed; the exact value is added in ns",
}


@dataclass(frozen=True, slots=True)
class Repair:
    """The effect of one rule. `count` is in nodes, in edges, or in communicator keys."""

    rule: Rule
    count: int
    example: Example
    """The first place; `found` is the old content, `expected` the new one."""

    def sentence(self) -> str:
        """Describe the repair in one sentence for a report."""
        count_words = f" ({self.count} times)" if self.count > 1 else ""
        example = self.example
        change = f"{example.found} -> {example.expected}"
        return f"{self.rule}{count_words}: {SENTENCES[self.rule]}; first at {example.where}: {change}"


@dataclass(frozen=True, slots=True)
class FixedTrace:
    """A trace after all rules, ready to be written."""

    trace: Trace
    repairs: tuple[Repair, ...]
    in_bytes: bool
    """False if sizes still count elements, because the settings give no element size."""


@dataclass(slots=True)
class _Log:
    counts: dict[Rule, int] = field(default_factory=dict)
    examples: dict[Rule, Example] = field(default_factory=dict)

    def add(self, rule: Rule, count: int, example: Callable[[], Example]) -> None:
        if count:
            self.counts[rule] = self.counts.get(rule, 0) + count
            if rule not in self.examples:
                self.examples[rule] = example()

    def repairs(self) -> tuple[Repair, ...]:
        return tuple(
            Repair(rule, self.counts[rule], self.examples[rule]) for rule in Rule if rule in self.counts
        )


def fix(trace: Trace, settings: WorkloadSettings) -> FixedTrace:
    """Apply every rule to every rank. `settings` give the unit of sizes and the compute speed."""
    log = _Log()
    original_trace = trace
    # Unresolvable collectives stay unchanged, and the lint of the repaired trace reports them again.
    trace = obey_dimensions(original_trace, settings.logical_topology, FindingLog())
    dimension_keys = frozenset(
        key for pair in zip(original_trace.ranks, trace.ranks, strict=True) for key in _added_keys(*pair)
    )
    counts_elements = _counts_elements(trace, settings)
    unit_bytes = settings.element_bytes if counts_elements else 1
    keys = fixed_keys(trace, dimension_keys)
    for rename in keys.renamed:
        log.add(Rule.RENAME_GROUP, 1, lambda at=rename: _rename_example(trace, at))  # type: ignore[misc]
    edge_cache: dict[bytes, FixedEdges] = {}
    ranks = []
    for original, rank in zip(original_trace.ranks, trace.ranks, strict=True):
        named_nodes = np.flatnonzero(original.pg_name != rank.pg_name)
        log.add(
            Rule.NAME_DIMENSIONS,
            len(named_nodes),
            _at(rank, named_nodes, "a communicator", "involved_dim and no name"),
        )
        fixed = _with_edges(rank, edge_cache, log)
        fixed = _with_kinds(fixed, log)
        fixed = _with_places(fixed, log)
        fixed = _with_ends(fixed, log)
        fixed = _with_groups(fixed, keys, log)
        fixed = _with_durations(fixed, settings, unit_bytes or 1, log)
        if unit_bytes is not None:
            fixed = _with_bytes(fixed, unit_bytes, log)
        ranks.append(fixed)
    return FixedTrace(
        replace(trace, ranks=tuple(ranks), groups=keys.groups), log.repairs(), unit_bytes is not None
    )


def _added_keys(before: RankTrace, after: RankTrace) -> tuple[str, ...]:
    """Return the group keys that `after` has in addition to those of `before`."""
    return tuple(key for key in after.groups or () if key not in (before.groups or ()))


def _counts_elements(trace: Trace, settings: WorkloadSettings) -> bool:
    if settings.size_unit is SizeUnit.AUTO:
        return any(rank.schema == STAGE_SCHEMA for rank in trace.ranks)
    return settings.size_unit is SizeUnit.ELEMENTS


def _with_edges(rank: RankTrace, known: dict[bytes, FixedEdges], log: _Log) -> RankTrace:
    if len(np.unique(rank.node_id)) < len(rank):
        return rank  # with repeated ids the target of an edge is ambiguous, so no edge can be called wrong
    edges_of = (rank.data_deps.offsets, rank.data_deps.values, rank.ctrl_deps.offsets, rank.ctrl_deps.values)
    key = columns_digest((rank.node_id, *edges_of))
    if key not in known:
        known[key] = fix_edges(rank)
    edges = known[key]
    for rule, rows, old_words in (
        (Rule.DROP_SELF, edges.on_self, "a dependency on itself"),
        (Rule.DROP_DANGLING, edges.dangling, "a dependency on a node that the rank does not have"),
        (Rule.MERGE_DUPLICATE, edges.repeated, "a duplicate dependency"),
        (Rule.DROP_CYCLIC_CTRL, edges.cyclic_ctrl, "a control dependency that closes a cycle"),
    ):
        new_words = "once" if rule is Rule.MERGE_DUPLICATE else "none"
        log.add(rule, len(rows), _at(rank, rows, new_words, old_words))
    if not edges.dropped:
        return rank
    return replace(rank, data_deps=edges.data, ctrl_deps=edges.ctrl)


def _at(rank: RankTrace, nodes: NDArray[np.int64], now: str, was: str) -> Callable[[], Example]:
    return lambda: node_example(rank, int(nodes[0]), now, was)


def _is_comm(rank: RankTrace) -> NDArray[np.bool_]:
    kinds = (NodeKind.COMM_COLL, NodeKind.COMM_SEND, NodeKind.COMM_RECV)
    return np.isin(rank.kind, np.array(kinds, dtype=rank.kind.dtype))


def _with_kinds(rank: RankTrace, log: _Log) -> RankTrace:
    unknown = np.flatnonzero(rank.kind > max(NodeKind))
    log.add(Rule.CLEAR_UNKNOWN_KIND, len(unknown), _at(rank, unknown, "type 0", "a type above 9"))
    if not len(unknown):
        return rank
    kind = rank.kind.copy()
    kind[unknown] = NodeKind.INVALID
    return replace(rank, kind=kind)


def _with_places(rank: RankTrace, log: _Log) -> RankTrace:
    """Return the rank with is_cpu_op stated on every communication node."""
    unstated = _is_comm(rank) & (rank.is_cpu_op == ABSENT)
    is_launcher = (
        unstated & (rank.kind == NodeKind.COMM_COLL) & (rank.comm.type == ABSENT) & (rank.comm.size == ABSENT)
    )
    # If no collective of the rank has a type, the untyped ones are the job's operations: an error, not launchers.
    has_type = (rank.kind == NodeKind.COMM_COLL) & (rank.comm.type != ABSENT)
    is_launcher &= bool(has_type.any())
    launchers, device_ops = np.flatnonzero(is_launcher), np.flatnonzero(unstated & ~is_launcher)
    if not len(launchers) + len(device_ops):
        return rank
    log.add(
        Rule.MARK_LAUNCHER,
        len(launchers),
        _at(rank, launchers, "is_cpu_op true", "no is_cpu_op, no comm_type"),
    )
    log.add(
        Rule.STATE_DEVICE_OP,
        len(device_ops),
        _at(rank, device_ops, "is_cpu_op false", "no is_cpu_op"),
    )
    is_cpu_op = rank.is_cpu_op.copy()
    is_cpu_op[launchers], is_cpu_op[device_ops] = 1, 0
    return replace(rank, is_cpu_op=is_cpu_op)


def _with_ends(rank: RankTrace, log: _Log) -> RankTrace:
    no_src = np.flatnonzero((rank.kind == NodeKind.COMM_SEND) & (rank.comm.src == ABSENT))
    no_dst = np.flatnonzero((rank.kind == NodeKind.COMM_RECV) & (rank.comm.dst == ABSENT))
    log.add(Rule.FILL_OWN_END, len(no_src), _at(rank, no_src, f"comm_src {rank.rank}", "no comm_src"))
    log.add(Rule.FILL_OWN_END, len(no_dst), _at(rank, no_dst, f"comm_dst {rank.rank}", "no comm_dst"))
    if not len(no_src) + len(no_dst):
        return rank
    src, dst = rank.comm.src.copy(), rank.comm.dst.copy()
    src[no_src] = dst[no_dst] = rank.rank
    return replace(rank, comm=replace(rank.comm, stated_src=src, stated_dst=dst, ends_from=0))


def _with_groups(rank: RankTrace, keys: Keys, log: _Log) -> RankTrace:
    """Return the rank with its collectives named by the keys of the new group file."""
    names = [keys.new_key(rank.rank, name) for name in rank.pg_names]
    column = rank.pg_name
    collective = (rank.kind == NodeKind.COMM_COLL) & (rank.is_cpu_op == 0)
    unnamed = [index for index, name in enumerate(rank.pg_names) if keys.means_world(name)]
    # A collective over some dimensions does not involve all ranks.
    collective &= ~some_dimensions(rank, keys.known)
    nodes = np.flatnonzero(collective & ((column < 0) | np.isin(column, np.array(unnamed, dtype=np.int32))))
    if len(nodes):
        new_words = f'pg_name "{keys.world_key}" of all ranks'
        log.add(Rule.FILL_GROUP, len(nodes), _at(rank, nodes, new_words, "no communicator"))
        if keys.world_key not in names:
            names.append(keys.world_key)
        column = column.copy()
        column[nodes] = names.index(keys.world_key)
    if column is rank.pg_name and tuple(names) == rank.pg_names and rank.groups is None:
        return rank
    return replace(rank, pg_name=column, pg_names=tuple(names), groups=None)


def _rename_example(trace: Trace, renamed: tuple[int, str, str]) -> Example:
    rank, old_key, new_key = renamed
    return Example(trace.ranks[rank].path, rank, None, "", f'communicator "{new_key}"', f'"{old_key}"')


def _with_durations(rank: RankTrace, settings: WorkloadSettings, unit_bytes: int, log: _Log) -> RankTrace:
    rates = (settings.flops, settings.memory_bandwidth_bytes_per_s, settings.storage_bandwidth_bytes_per_s)
    if all(rate is None for rate in rates):
        return rank
    # The time scale belongs to one run, so it must not be written into a trace.
    delay_ns = delays_ns(rank, replace(settings, time_scale=WorkloadSettings().time_scale), unit_bytes)
    recorded = rank.duration_us > 0
    if rank.duration_ns is not None:
        recorded = np.where(rank.duration_ns == ABSENT, recorded, rank.duration_ns > 0)
    unknown = np.flatnonzero(np.isin(rank.kind, COMPUTES) & ~recorded & (delay_ns > 0))
    if not len(unknown):
        return rank
    duration_us = rank.duration_us.copy()
    duration_us[unknown] = -(-delay_ns[unknown] // _NS_PER_US)
    duration_ns = np.full(len(rank), ABSENT) if rank.duration_ns is None else rank.duration_ns.copy()
    duration_ns[unknown] = delay_ns[unknown]
    new_words = f"duration_micros {duration_us[unknown[0]]}"
    log.add(Rule.FILL_DURATION, len(unknown), _at(rank, unknown, new_words, "no duration_micros"))
    return replace(rank, duration_us=duration_us, duration_ns=duration_ns)


def _with_bytes(rank: RankTrace, unit_bytes: int, log: _Log) -> RankTrace:
    """Return the rank with sizes in bytes and without the schema that marks sizes as elements."""
    schema = "" if rank.schema == STAGE_SCHEMA else rank.schema
    limit = np.iinfo(np.int64).max // unit_bytes
    nodes = np.flatnonzero(
        ((rank.comm.size > 0) & (rank.comm.size <= limit))
        | ((rank.tensor_size > 0) & (rank.tensor_size <= limit))
    )
    if rank.schema != STAGE_SCHEMA and unit_bytes == 1:
        return rank
    if unit_bytes > 1:
        log.add(
            Rule.SIZES_TO_BYTES,
            len(nodes),
            _at(rank, nodes, f"bytes ({unit_bytes} an element)", "elements"),
        )
    return replace(
        rank,
        schema=schema,
        comm=replace(rank.comm, size=_scale_column(rank.comm.size, unit_bytes, int(limit))),
        tensor_size=_scale_column(rank.tensor_size, unit_bytes, int(limit)),
    )


def _scale_column(column: NDArray[np.int64], factor: int, limit: int) -> NDArray[np.int64]:
    return np.where((column > 0) & (column <= limit), column * factor, column)
