"""What must hold of every run: all planned ops completed, every byte went where the plan says, no record is a stranger.

Decides pass or fail and words the first mismatches; says nothing about speed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
from etloop.contract.model.assignment import Path
from etloop.contract.model.run import PlanTables, RunEnd, RunOutcome
from etloop.results.measure.job_shares import background_ranks
from etloop.results.measure.joined import MeasuredFlows, MeasuredOps
from etloop.results.schema.kinds import CONVENTIONS, OpCode
from etloop.results.schema.summary import Check, CheckResult
from numpy.typing import NDArray

EXAMPLE_LIMIT: Final = 5

BYTE_COLUMNS: Final = ("wire_tx_bytes", "wire_rx_bytes", "local_tx_bytes", "local_rx_bytes")


_REFUSED_OPS: Final = (
    "records are not of the plan, not of their agent, or have impossible times",
    "records repeat an op of an iteration that had been recorded",
)
_REFUSED_FLOWS: Final = (
    "counters are of no queue pair in the plan or not of their agent",
    "counters repeat a queue pair end that had been counted",
)


def check_run(
    outcome: RunOutcome, tables: PlanTables, ops: MeasuredOps, flows: MeasuredFlows
) -> tuple[Check, ...]:
    """All checks, in the order in which a reader should look at them."""
    ended = outcome.state is RunEnd.DONE
    return (
        _agents_complete(outcome, ended),
        _all_ops_completed(tables, ops, ended),
        _known("op_records_known", len(ops), ops.unknown, ops.repeated, _REFUSED_OPS),
        _times_in_order(tables, ops),
        _op_bytes(tables, ops),
        _plan_consistent(tables),
        _known("flow_records_known", len(flows.records), flows.unknown, flows.repeated, _REFUSED_FLOWS),
        _connection_bytes(tables, flows, ended),
    )


def _check(name: str, checked: int, mismatches: int, examples: Iterable[str], ended: bool = True) -> Check:
    failed = CheckResult.FAIL if mismatches else CheckResult.PASS
    return Check(
        name=name,
        result=failed if ended else CheckResult.NOT_CHECKED,
        checked=checked,
        mismatches=mismatches,
        examples=tuple(examples),
    )


def op_words(tables: PlanTables, plan_row: int, iteration: int) -> str:
    """An op as a reader knows it: rank, place in its communicator or pair, iteration and trace node."""
    ops = tables.ops
    rank, sequence = int(ops.rank[plan_row]), int(ops.sequence[plan_row])
    peer = int(ops.peer[plan_row])
    if ops.kind[plan_row] == OpCode.COLLECTIVE:
        kind = CONVENTIONS[int(ops.collective[plan_row])].name
        communicator = tables.communicators[int(ops.communicator[plan_row])][0]
        what = f"{kind} #{sequence} of communicator {communicator}"
    elif ops.kind[plan_row] == OpCode.SEND:
        what = f"send #{sequence} to rank {peer}"
    else:
        what = f"receive #{sequence} from rank {peer}"
    return f"rank {rank} {what} (node {int(ops.node_id[plan_row])}) in iteration {iteration}"


def _agents_complete(outcome: RunOutcome, ended: bool) -> Check:
    silent = [agent.agent for agent in outcome.agents if not agent.complete]
    return _check(
        "agents_complete",
        len(outcome.agents),
        len(silent),
        [f"agent {name} did not finish and send its counters" for name in silent[:EXAMPLE_LIMIT]],
        ended,
    )


def _all_ops_completed(tables: PlanTables, ops: MeasuredOps, ended: bool) -> Check:
    # Background ends with the jobs, wherever it is then.
    awaited = ~background_ranks(tables)[tables.ops.rank]
    planned = int(awaited.sum()) * tables.iterations
    missing = planned - int(awaited[ops.plan_row].sum())
    examples: list[str] = []
    if missing:
        for iteration in range(tables.iterations):
            seen = ~awaited
            seen[ops.plan_row[ops.records["iteration"] == iteration]] = True
            absent = np.flatnonzero(~seen)[: EXAMPLE_LIMIT - len(examples)]
            examples += [f"{op_words(tables, int(row), iteration)} left no record" for row in absent]
            if len(examples) == EXAMPLE_LIMIT:
                break
    return _check("all_ops_completed", planned, missing, examples, ended)


def _known(name: str, kept: int, unknown: int, repeated: int, words: tuple[str, str]) -> Check:
    """That no record was refused; `words` are of unknown and of repeated ones."""
    counts = (unknown, repeated)
    examples = [f"{count} {word}" for count, word in zip(counts, words, strict=True) if count]
    return _check(name, kept + sum(counts), sum(counts), examples)


def _times_in_order(tables: PlanTables, ops: MeasuredOps) -> Check:
    records = ops.records
    wrong = (records["intended_ns"] > records["issued_ns"]) | (records["issued_ns"] > records["completed_ns"])
    first_tx_ns = records["first_tx_ns"]
    wrong |= ops.has_first_tx & (
        (first_tx_ns < records["issued_ns"]) | (first_tx_ns > records["completed_ns"])
    )
    rows = np.flatnonzero(wrong)
    examples = []
    for row in rows[:EXAMPLE_LIMIT]:
        record = records[row]
        first_tx = f"{int(record['first_tx_ns'])}" if ops.has_first_tx[row] else "none"
        examples.append(
            f"{op_words(tables, int(ops.plan_row[row]), int(record['iteration']))}: "
            f"intended {int(record['intended_ns'])}, issued {int(record['issued_ns'])}, "
            f"first sent {first_tx}, completed {int(record['completed_ns'])} ns"
        )
    return _check("times_in_order", len(ops), len(rows), examples)


def _op_bytes(tables: PlanTables, ops: MeasuredOps) -> Check:
    planned = {name: getattr(tables.ops, name)[ops.plan_row] for name in BYTE_COLUMNS}
    wrong = np.zeros(len(ops), np.bool_)
    for name in BYTE_COLUMNS:
        wrong |= ops.records[name] != planned[name]
    rows = np.flatnonzero(wrong)
    examples = []
    for row in rows[:EXAMPLE_LIMIT]:
        record = ops.records[row]
        differing = ", ".join(
            f"{name} {int(record[name])}, planned {int(planned[name][row])}"
            for name in BYTE_COLUMNS
            if record[name] != planned[name][row]
        )
        examples.append(f"{op_words(tables, int(ops.plan_row[row]), int(record['iteration']))}: {differing}")
    return _check("op_bytes_as_planned", len(ops), len(rows), examples)


def _plan_consistent(tables: PlanTables) -> Check:
    """The plan counts bytes twice, by op and by connection; three sums of it must agree."""
    plan = tables.connections
    by_connection = int(plan.payload_bytes[plan.path == Path.WIRE].sum())
    sent, received = int(tables.ops.wire_tx_bytes.sum()), int(tables.ops.wire_rx_bytes.sum())
    agrees = by_connection == sent == received
    example = (
        f"one iteration sends {sent} bytes and receives {received} by its ops, "
        f"carries {by_connection} by its connections"
    )
    return _check("plan_consistent", 1, int(not agrees), [] if agrees else [example])


def connection_payload(
    flows: MeasuredFlows, connection_count: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Bytes that each connection's sender sent first and its receiver received in order, over all queue pairs.

    Clear-to-send writes, which travel the other way, are not in either.
    """
    sent = np.zeros(connection_count, np.int64)
    received = np.zeros(connection_count, np.int64)
    sends = flows.records["sends_data"] == 1
    np.add.at(sent, flows.connection[sends], flows.records["tx_payload_bytes"][sends])
    np.add.at(received, flows.connection[~sends], flows.records["rx_payload_bytes"][~sends])
    return sent, received


def _connection_bytes(tables: PlanTables, flows: MeasuredFlows, ended: bool) -> Check:
    plan = tables.connections
    planned = plan.payload_bytes * tables.iterations
    sent, received = connection_payload(flows, len(plan.src_rank))
    on_wire = (plan.path == Path.WIRE) & ~background_ranks(tables)[plan.src_rank]
    rows = np.flatnonzero(on_wire & ((sent != planned) | (received != planned)))
    examples = []
    for row in rows[:EXAMPLE_LIMIT]:
        communicator = int(plan.communicator[row])
        name = "sends" if communicator < 0 else f"communicator {tables.communicators[communicator][0]}"
        examples.append(
            f"rank {int(plan.src_rank[row])} -> rank {int(plan.dst_rank[row])} ({name}): sent {int(sent[row])}, "
            f"received {int(received[row])}, planned {int(planned[row])} bytes"
        )
    return _check("connection_bytes_as_planned", int(on_wire.sum()), len(rows), examples, ended)
