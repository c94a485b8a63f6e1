"""When each operation of a rank could begin at the earliest, from its trace and the completions that were measured.

Walks the dependencies of the whole trace, compute nodes included, and replays them in exact integers: a node is ready
when the last node it depends on has ended; a compute node ends its delay later, an operation when it was measured to
complete. Communicator order is added as the run states it. A rank begins an iteration when it has ended the one before.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tests.support.first_light.trace_oracle import Node, Reading, delay_ns


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured of one operation in one iteration."""

    node_id: int
    chain: str
    """Operations of one chain begin one after another: a communicator, or "" for none."""
    place: int
    """In its chain."""
    intended_ns: int
    issued_ns: int
    completed_ns: int


@dataclass(frozen=True, slots=True)
class Replay:
    """One rank and iteration: when each operation was ready, and when the last node ended."""

    ready_ns: dict[int, int]
    end_ns: int


def replay(
    nodes: Sequence[Node], measured: Mapping[int, Measured], begin_ns: int, reading: Reading
) -> Replay:
    """Replays the nodes of a rank; `measured` is by node."""
    after_chain = {op.node_id: before.node_id for before, op in _neighbours(measured.values())}
    by_id = {node.node_id: node for node in nodes}
    ready_ns: dict[int, int] = {}
    end_ns: dict[int, int] = {}
    for node_id in _in_order(by_id, after_chain):
        deps = [*by_id[node_id].deps, *_one(after_chain, node_id)]
        ready_ns[node_id] = max((end_ns[dep] for dep in deps if dep in by_id), default=begin_ns)
        op = measured.get(node_id)
        end_ns[node_id] = op.completed_ns if op else ready_ns[node_id] + delay_ns(by_id[node_id], reading)
    return Replay(
        {node_id: ready_ns[node_id] for node_id in measured}, max(end_ns.values(), default=begin_ns)
    )


def _neighbours(measured: Iterable[Measured]) -> list[tuple[Measured, Measured]]:
    chained = sorted((op for op in measured if op.chain), key=lambda op: (op.chain, op.place))
    return [(first, second) for first, second in itertools.pairwise(chained) if first.chain == second.chain]


def _one(after_chain: Mapping[int, int], node_id: int) -> tuple[int, ...]:
    return (after_chain[node_id],) if node_id in after_chain else ()


def _in_order(by_id: Mapping[int, Node], after_chain: Mapping[int, int]) -> list[int]:
    """Node ids so that whatever a node waits for comes before it."""
    ordered: dict[int, None] = {}
    for start in by_id:
        path = [start]
        while path:
            node_id = path[-1]
            deps = (*by_id[node_id].deps, *_one(after_chain, node_id))
            unmet = next((dep for dep in deps if dep in by_id and dep not in ordered), None)
            if unmet is None:
                ordered[path.pop()] = None
            else:
                assert len(path) <= len(by_id), "a cycle"
                path.append(unmet)
    return list(ordered)


def order_mistakes(
    rank: int, nodes: Sequence[Node], iterations: Sequence[Mapping[int, Measured]], reading: Reading
) -> list[str]:
    """What was begun before it could, or was not said to be due when it could; empty if all is well."""
    begin_ns, mistakes = 0, []
    for iteration, measured in enumerate(iterations):
        due = replay(nodes, measured, begin_ns, reading)
        begin_ns = due.end_ns
        for op in measured.values():
            ready_ns, where = due.ready_ns[op.node_id], f"rank {rank} node {op.node_id} iteration {iteration}"
            if op.issued_ns < ready_ns:
                mistakes.append(f"{where}: issued at {op.issued_ns}, its dependencies ended at {ready_ns}")
            if op.intended_ns != ready_ns:
                mistakes.append(f"{where}: due at {op.intended_ns}, its dependencies ended at {ready_ns}")
            if op.completed_ns < op.issued_ns:
                mistakes.append(f"{where}: completed at {op.completed_ns}, issued at {op.issued_ns}")
    return mistakes
