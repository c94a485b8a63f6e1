"""Collectives that nothing waits for: the commonest defect of converted traces, as their network times delay nothing.

Decides when that is the end of an iteration and when it is a defect, and which dependency policy would restore the wait.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from etloop.contract.base.errors import Severity
from etloop.workload.graph.dependencies import RankGraph
from etloop.workload.graph.network_ops import RankOps
from etloop.workload.graph.recorded import recorded_start_ns
from etloop.workload.trace.findings import Check, FindingLog, node_example
from etloop.workload.trace.program import OpKind
from etloop.workload.trace.settings import DependencyPolicy
from etloop.workload.trace.streams import has_streams
from etloop.workload.trace.trace import RankTrace


def report_leaves(
    rank: RankTrace, graph: RankGraph, ops: RankOps, policy: DependencyPolicy, log: FindingLog
) -> None:
    """Notes the collectives of a rank that no node waits for under the policy, communicator order left aside.

    A warning if no collective at all is waited for while the rank has other work: an iteration may end with some.
    """
    collectives = ops.node[ops.kind == OpKind.COLLECTIVE]
    if len(collectives) < 2 or len(collectives) == len(rank):
        return
    awaited = np.zeros(len(rank), dtype=np.bool_)
    awaited[graph.awaited] = True
    leaves = collectives[~awaited[collectives]]
    if not len(leaves):
        return
    none_awaited = len(leaves) == len(collectives)
    severity, remedy = Severity.INFO, "an iteration may end with these; their times delay no other node"
    if none_awaited:
        severity, remedy = Severity.WARNING, _remedy(rank, policy)
    found = f"none: {len(leaves)} of {len(collectives)} collectives of the rank are waited for by nothing"
    example = node_example(rank, int(leaves[0]), "a node that waits for this collective", found)
    log.add(Check.NOTHING_WAITS, remedy, example, count=len(leaves), severity=severity)


def _remedy(rank: RankTrace, policy: DependencyPolicy) -> str:
    """What restores the wait, given what the trace has."""
    better = []
    if has_streams(rank) and not policy.stream:
        better.append(str(replace(policy, stream=True)))
    if recorded_start_ns(rank) is not None and not policy.recorded:
        better.append(str(replace(policy, recorded=True)))
    if better:
        return f"their times delay no other node; honour the order of the GPU: dependencies {' or '.join(better)}"
    if policy.communicator:
        return "their times delay only the next operation of their communicator; collect the trace with GPU streams"
    return f"their times delay nothing; honour their order at least: dependencies {replace(policy, communicator=True)}"
