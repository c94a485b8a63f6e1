"""Consistency checks of a run: all planned ops completed, every byte took its planned path, every record belongs to
the plan.

Decides pass or fail and words the first mismatches; does not evaluate speed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

import numpy as np
from numpy.typing import NDArray

from etloop.contract.model.assignment import Path
from etloop.contract.model.run import PlanTables, RunEnd, RunOutcome
from etloop.results.measure.job_shares import background_ranks
from etloop.results.measure.joined import NO_OPS, MeasuredFlows, MeasuredOps, OpBlock
from etloop.results.measure.never_sent import never_sent
from etloop.results.schema.kinds import CONVENTIONS, OpCode
from etloop.results.schema.losses import NEVER_SENT
from etloop.results.schema.summary import ConsistencyCheck, ConsistencyResult

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


@dataclass(slots=True)
class _Mismatches:
    """Mismatches of one check so far."""

    checked: int = 0
    count: int = 0
    examples: list[str] = field(default_factory=list)

    def take(self, checked: int, count: int, examples: Iterable[str]) -> None:
        """Add the mismatches of a block; at most `EXAMPLE_LIMIT` examples are kept, the first ones."""
        self.checked += checked
        self.count += count
        self.examples += islice(examples, EXAMPLE_LIMIT - len(self.examples))


class ConsistencyTally:
    """Checks of a run, accumulated over blocks of iterations in their order."""

    def __init__(self, outcome: RunOutcome, tables: PlanTables) -> None:
        self._outcome = outcome
        self._tables = tables
        # Background stops when the jobs end, so its ops need not complete.
        self._awaited = ~background_ranks(tables)[tables.ops.rank]
        self._recorded = self._unknown = self._repeated = 0
        self._absent = _Mismatches()
        self._times = _Mismatches()
        self._bytes = _Mismatches()
        self._iterations = 0

    def take(self, block: OpBlock) -> None:
        """ConsistencyCheck the ops of a block."""
        ops = block.ops
        self._recorded += len(ops)
        self._unknown += ops.unknown
        self._repeated += ops.repeated
        self._look_for_absent(ops, block.iterations)
        self._times.take(*_times_in_order(self._tables, ops))
        self._bytes.take(*_op_bytes(self._tables, ops))

    def checks(self, flows: MeasuredFlows) -> tuple[ConsistencyCheck, ...]:
        """Return all checks, in the order in which a reader should read them."""
        outcome, tables, ended = self._outcome, self._tables, self._outcome.state is RunEnd.DONE
        self._look_for_absent(NO_OPS, range(self._iterations, tables.iterations))
        unknown = self._unknown + (0 if outcome.kept_ops is None else outcome.kept_ops.outside)
        times, sizes, absent = self._times, self._bytes, self._absent
        return (
            _agents_complete(outcome, ended),
            _check("all_ops_completed", absent.checked, absent.count, absent.examples, ended),
            _acceptance_check("op_records_known", self._recorded, unknown, self._repeated, _REFUSED_OPS),
            _check("times_in_order", times.checked, times.count, times.examples),
            _check("op_bytes_as_planned", sizes.checked, sizes.count, sizes.examples),
            _plan_consistent(tables),
            _acceptance_check(
                "flow_records_known", len(flows.records), flows.unknown, flows.repeated, _REFUSED_FLOWS
            ),
            _connection_bytes(tables, flows, ended),
            _received_was_sent(outcome, tables, flows, ended),
        )

    def _look_for_absent(self, ops: MeasuredOps, iterations: range) -> None:
        self._iterations = iterations.stop
        planned = int(self._awaited.sum()) * len(iterations)
        missing = planned - int(self._awaited[ops.plan_row].sum())
        examples = self._absent_ops(ops, iterations) if missing else ()
        self._absent.take(planned, missing, examples)

    def _absent_ops(self, ops: MeasuredOps, iterations: range) -> Iterator[str]:
        for iteration in iterations:
            is_recorded = ~self._awaited
            is_recorded[ops.plan_row[ops.records["iteration"] == iteration]] = True
            for row in np.flatnonzero(~is_recorded)[:EXAMPLE_LIMIT]:
                yield f"{op_words(self._tables, int(row), iteration)} left no record"


def _check(
    name: str, checked: int, mismatches: int, examples: Iterable[str], ended: bool = True
) -> ConsistencyCheck:
    """Return a check; not `ended` makes it `NOT_CHECKED`."""
    failed = ConsistencyResult.FAIL if mismatches else ConsistencyResult.PASS
    return ConsistencyCheck(
        name=name,
        result=failed if ended else ConsistencyResult.NOT_CHECKED,
        checked=checked,
        mismatches=mismatches,
        examples=tuple(examples),
    )


def op_words(tables: PlanTables, plan_row: int, iteration: int) -> str:
    """Describe an op for a reader: rank, position in its communicator or pair, iteration and trace node."""
    ops = tables.ops
    rank, sequence = int(ops.rank[plan_row]), int(ops.sequence[plan_row])
    peer = int(ops.peer[plan_row])
    if ops.kind[plan_row] == OpCode.COLLECTIVE:
        kind = CONVENTIONS[int(ops.collective[plan_row])].name
        communicator = tables.communicators[int(ops.communicator[plan_row])][0]
        op_text = f"{kind} #{sequence} of communicator {communicator}"
    elif ops.kind[plan_row] == OpCode.SEND:
        op_text = f"send #{sequence} to rank {peer}"
    else:
        op_text = f"receive #{sequence} from rank {peer}"
    return f"rank {rank} {op_text} ({tables.node_words(plan_row)}) in iteration {iteration}"


def _agents_complete(outcome: RunOutcome, ended: bool) -> ConsistencyCheck:
    """Return the check that every agent finished and sent its counters."""
    silent = [agent.agent for agent in outcome.agents if not agent.complete]
    return _check(
        "agents_complete",
        len(outcome.agents),
        len(silent),
        [f"agent {name} did not finish and send its counters" for name in silent[:EXAMPLE_LIMIT]],
        ended,
    )


def _acceptance_check(
    name: str, kept: int, unknown: int, repeated: int, words: tuple[str, str]
) -> ConsistencyCheck:
    """Return the check that no record was refused; `words` describe unknown and repeated records."""
    counts = (unknown, repeated)
    examples = [f"{count} {word}" for count, word in zip(counts, words, strict=True) if count]
    return _check(name, kept + sum(counts), sum(counts), examples)


def _times_in_order(tables: PlanTables, ops: MeasuredOps) -> tuple[int, int, list[str]]:
    """Return how many ops were checked, how many have times out of order, and the first of them in words."""
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
    return len(ops), len(rows), examples


def _op_bytes(tables: PlanTables, ops: MeasuredOps) -> tuple[int, int, list[str]]:
    """Return how many ops were checked, how many have bytes other than planned, and the first of them in words."""
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
    return len(ops), len(rows), examples


def _plan_consistent(tables: PlanTables) -> ConsistencyCheck:
    """Return the check that the plan's bytes agree: sent by ops, received by ops, and carried by connections."""
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
    """Return the payload bytes of each connection over all its queue pairs: first transmissions sent, and bytes received
    in order.

    Both are int64 of length `connection_count`. Clear-to-send writes, which travel in the other direction, are in
    neither.
    """
    sent = np.zeros(connection_count, np.int64)
    received = np.zeros(connection_count, np.int64)
    sends = flows.records["sends_data"] == 1
    np.add.at(sent, flows.connection[sends], flows.records["tx_payload_bytes"][sends])
    np.add.at(received, flows.connection[~sends], flows.records["rx_payload_bytes"][~sends])
    return sent, received


def _connection_bytes(tables: PlanTables, flows: MeasuredFlows, ended: bool) -> ConsistencyCheck:
    """Return the check that every connection on the wire sent and received its planned bytes."""
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


def _received_was_sent(
    outcome: RunOutcome, tables: PlanTables, flows: MeasuredFlows, ended: bool
) -> ConsistencyCheck:
    """Return the check that no packet was received that its peer did not send."""
    beyond = never_sent(outcome, tables, flows)
    return _check(NEVER_SENT, beyond.received, beyond.packets, beyond.examples, ended)
