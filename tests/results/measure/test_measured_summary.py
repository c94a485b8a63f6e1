"""Figures of a run worked out on paper, and what happens to records that are wrong, foreign, late or absent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from etloop.contract.model.records import OP_RECORD
from etloop.contract.model.run import AgentRecords, PlanTables, RunEnd, RunOutcome
from etloop.results.measure.collectives import group_ops
from etloop.results.measure.distribution import nearest_rank
from etloop.results.measure.summary import measure
from etloop.results.schema.kinds import CONVENTIONS, OP_NAMES, SEND_RECV, OpCode, bus_factor
from etloop.results.schema.summary import ConsistencyCheck, ConsistencyResult, KindSummary, Summary
from etloop.workload.trace.program import OpKind
from etloop.workload.trace.trace import CollectiveKind
from tests.support.runs.records_by_hand import (
    aborted_by_hand,
    connection_rows_by_hand,
    outcome_by_hand,
    tables_by_hand,
    with_agent,
)


def summary_of(outcome: RunOutcome, tables: PlanTables | None = None) -> Summary:
    return measure(outcome, tables or tables_by_hand(), connection_rows_by_hand()).summary


def kind_of(summary: Summary, name: str) -> KindSummary:
    (found,) = (kind for kind in summary.kinds if kind.kind == name)
    return found


def check_of(summary: Summary, name: str) -> ConsistencyCheck:
    (found,) = (check for check in summary.checks if check.name == name)
    return found


def failed(summary: Summary) -> list[str]:
    return [check.name for check in summary.checks if check.result is ConsistencyResult.FAIL]


Change = Callable[[NDArray[np.void]], Any]


def with_ops(change: Change, agent: str = "a") -> RunOutcome:
    """The run by hand with one agent's op records changed in place, or replaced by what `change` returns."""

    def apply(records: AgentRecords) -> AgentRecords:
        ops = records.ops.copy()
        changed = change(ops)
        return replace(records, ops=ops if changed is None else changed)

    return with_agent(outcome_by_hand(), agent, apply)


def with_flows(change: Change, agent: str = "a") -> RunOutcome:
    def apply(records: AgentRecords) -> AgentRecords:
        flows = records.flows.copy()
        changed = change(flows)
        return replace(records, flows=flows if changed is None else changed)

    return with_agent(outcome_by_hand(), agent, apply)


def put(column: str, row: int, value: int) -> Change:
    def change(records: NDArray[np.void]) -> None:
        records[column][row] = value

    return change


# The numbers of kinds are agreed with the workload without importing it.


def test_kinds_are_numbered_as_in_the_workload() -> None:
    assert [convention.name for convention in CONVENTIONS[:SEND_RECV]] == [
        kind.name.lower() for kind in CollectiveKind
    ]
    assert [int(code) for code in OpCode] == [OpKind.COLLECTIVE, OpKind.SEND, OpKind.RECV]
    assert set(OP_NAMES) == set(OpCode)


# Figures.


def test_all_reduce_over_four_ranks() -> None:
    kind = kind_of(summary_of(outcome_by_hand()), "all_reduce")
    assert (kind.algorithm, kind.ranks, kind.count, kind.incomplete) == ("ring", 4, 2, 0)
    assert (kind.size_bytes, kind.fabric_bytes) == (2 * 4000, 2 * 12_000)
    assert (kind.sent_bytes, kind.fabric_share) == (2 * 24_000, 0.5)
    assert kind.messages == 2 * 4 * 3
    # First issue 0 on rank 1, last issue 2100 on rank 2, last completion 20100 on rank 1.
    assert (kind.time_min_ns, kind.time_p50_ns, kind.time_p99_ns, kind.time_max_ns) == (20_100,) * 4
    assert kind.skew_p50_ns == 2_100
    assert kind.algbw_bytes_per_s == pytest.approx(4000 / 20_100e-9)
    assert kind.busbw_bytes_per_s == pytest.approx(1.5 * 4000 / 20_100e-9)
    assert kind.joined_busbw_bytes_per_s == pytest.approx(1.5 * 4000 / 18_000e-9)


def test_all_gather_counts_all_shards() -> None:
    kind = kind_of(summary_of(outcome_by_hand()), "all_gather")
    assert (kind.ranks, kind.size_bytes) == (2, 2 * 2000)
    assert kind.algbw_bytes_per_s == pytest.approx(2000 / 10e-6)
    assert kind.busbw_bytes_per_s == pytest.approx(1000 / 10e-6)


def test_a_send_and_its_receive_are_one_that_begins_with_the_send() -> None:
    """The receive is posted 1 us ahead."""
    kind = kind_of(summary_of(outcome_by_hand()), "send_recv")
    assert (kind.algorithm, kind.ranks, kind.count, kind.size_bytes) == ("p2p", 2, 2, 1000)
    assert (kind.time_min_ns, kind.skew_max_ns) == (20_000, 0)


def test_the_times_of_iterations_are_from_end_to_end_and_add_up_to_that_of_the_job() -> None:
    summary = summary_of(outcome_by_hand())
    assert (summary.job.start_ns, summary.job.end_ns, summary.job.jct_ns) == (0, 140_000, 140_000)
    assert [(found.start_ns, found.end_ns) for found in summary.job.per_iteration] == [
        (0, 40_000),
        (100_000, 140_000),
    ]
    assert [found.jct_ns for found in summary.job.per_iteration] == [40_000, 100_000]
    assert summary.job.iteration_jct_avg_ns == (40_000 + 100_000) // 2
    assert summary.job.complete


def test_slip_bytes_counters_and_clock() -> None:
    summary = summary_of(outcome_by_hand())
    assert summary.slip is not None
    # 0, 0, 0, 50, 100, 100, 100, 200 ns, twice.
    assert (summary.slip.p50_ns, summary.slip.p99_ns, summary.slip.max_ns) == (50, 200, 200)
    assert (summary.bytes.wire_tx_bytes, summary.bytes.local_tx_bytes) == (29_000, 24_000)
    assert summary.bytes.trace_bytes == 1000 * summary.bytes.message_bytes
    counts = summary.transport
    assert (counts["tx_packets"], counts["retransmitted_packets"], counts["injected_drops"]) == (120, 1, 2)
    assert (summary.clock.error_max_ns, summary.clock.between_agents_error_ns) == (20_000, 21_500)
    assert summary.degraded == ("b: receive buffer is 212992 bytes, 4194304 asked",)


def test_one_agent_has_no_error_between_agents() -> None:
    outcome = outcome_by_hand()
    alone = summary_of(replace(outcome, agents=outcome.agents[:1]))
    assert (alone.clock.error_max_ns, alone.clock.between_agents_error_ns) == (1_500, 0)


def test_records_in_any_order_give_the_same_figures() -> None:
    expected = summary_of(outcome_by_hand())
    assert summary_of(with_ops(lambda ops: ops[::-1])) == expected


def test_a_barrier_has_a_time_and_no_bandwidth() -> None:
    tables = tables_by_hand()
    collective = np.where(tables.ops.collective == CollectiveKind.ALL_GATHER, CollectiveKind.BARRIER, 0)
    ops = replace(tables.ops, collective=collective.astype(np.int8))
    kind = kind_of(summary_of(outcome_by_hand(), replace(tables, ops=ops)), "barrier")
    assert (kind.time_p50_ns, kind.size_bytes) == (10_000, 0)
    assert kind.algbw_bytes_per_s is kind.busbw_bytes_per_s is kind.joined_busbw_bytes_per_s is None


FACTORS: Final = (
    ("all_reduce", 8, Fraction(7, 4), "the worked example: 100 GB/s make 175 GB/s"),
    ("all_reduce", 1, Fraction(0), "alone, nothing travels"),
    ("all_gather", 4, Fraction(3, 4), "everything but the own shard"),
    ("reduce_scatter", 4, Fraction(3, 4), "likewise"),
    ("all_to_all", 2, Fraction(1, 2), "half stays"),
    ("broadcast", 16, Fraction(1), "each rank receives it once"),
    ("send_recv", 2, Fraction(1), "a link's speed as it is"),
)


@pytest.mark.parametrize(("name", "ranks", "factor", "sentence"), FACTORS)
def test_bus_factor(name: str, ranks: int, factor: Fraction, sentence: str) -> None:
    kind = [convention.name for convention in CONVENTIONS].index(name)
    assert bus_factor(np.array([kind]), np.array([ranks]))[0] == pytest.approx(float(factor)), sentence


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=300), st.integers(1, 100))
def test_nearest_rank_is_the_least_value_that_covers_enough(values: list[int], percent: int) -> None:
    found = nearest_rank(np.sort(np.array(values)), percent)
    covered = sum(value <= found for value in values)
    below = sum(value < found for value in values)
    assert found in values
    assert below * 100 < len(values) * percent <= covered * 100


# Checks.


def test_a_good_run_passes_every_check() -> None:
    summary = summary_of(outcome_by_hand())
    assert {check.result for check in summary.checks} == {ConsistencyResult.PASS}
    assert all(check.checked > 0 for check in summary.checks)
    assert summary.is_consistent


WRONG_OPS: Final = (
    ("a byte more was sent than planned", put("wire_tx_bytes", 2, 6001), ["op_bytes_as_planned"]),
    ("a byte went missing locally", put("local_rx_bytes", 0, -1), ["op_bytes_as_planned"]),
    ("issued before intended", put("intended_ns", 0, 1 << 60), ["times_in_order"]),
    ("a rank of the other agent", put("rank", 0, 2), ["all_ops_completed", "op_records_known"]),
    ("a rank that does not exist", put("rank", 0, 4), ["all_ops_completed", "op_records_known"]),
    ("a negative rank", put("rank", 0, -1), ["all_ops_completed", "op_records_known"]),
    ("an op that is not planned (a delay)", put("op", 1, 1), ["all_ops_completed", "op_records_known"]),
    ("an op far outside", put("op", 0, 2**31 - 1), ["all_ops_completed", "op_records_known"]),
    ("an iteration too many", put("iteration", 0, 2), ["all_ops_completed", "op_records_known"]),
    ("a time before the clock began", put("issued_ns", 0, -5), ["all_ops_completed", "op_records_known"]),
    ("a time after its end", put("completed_ns", 0, 2**63 - 1), ["all_ops_completed", "op_records_known"]),
    ("the same op twice", lambda ops: np.concatenate([ops, ops[:1]]), ["op_records_known"]),
    ("an op that never completed", lambda ops: ops[1:], ["all_ops_completed"]),
    ("no record at all", lambda ops: ops[:0], ["all_ops_completed"]),
)


@pytest.mark.parametrize(("sentence", "change", "names"), WRONG_OPS)
def test_a_wrong_op_record_fails_its_check(sentence: str, change: Change, names: list[str]) -> None:
    assert failed(summary_of(with_ops(change))) == names, sentence


WRONG_FLOWS: Final = (
    ("the sender counted less", put("tx_payload_bytes", 0, 5999), ["connection_bytes_as_planned"]),
    (
        "a queue pair of another connection",
        put("connection", 0, 4),
        ["flow_records_known", "connection_bytes_as_planned"],
    ),
    (
        "a connection outside the agent's",
        put("connection", 0, 99),
        ["flow_records_known", "connection_bytes_as_planned"],
    ),
    (
        "the other end's number",
        put("local_qpn", 0, 0x201),
        ["flow_records_known", "connection_bytes_as_planned"],
    ),
    (
        "neither sender nor receiver",
        put("sends_data", 0, 2),
        ["flow_records_known", "connection_bytes_as_planned"],
    ),
    ("counted twice", lambda flows: np.concatenate([flows, flows[:1]]), ["flow_records_known"]),
    ("no counter came", lambda flows: flows[:0], ["connection_bytes_as_planned"]),
)


@pytest.mark.parametrize(("sentence", "change", "names"), WRONG_FLOWS)
def test_a_wrong_flow_counter_fails_its_check(sentence: str, change: Change, names: list[str]) -> None:
    assert failed(summary_of(with_flows(change))) == names, sentence


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        *(("rx_packets", "data packets"), ("acks_rx", "acknowledgements"), ("naks_rx", "NAKs")),
        *(("rp_cnp_handled", "CNPs"), ("rp_cnp_ignored", "CNPs")),
    ],
)
def test_what_no_peer_sent_fails_its_check(column: str, kind: str) -> None:
    summary = summary_of(with_flows(put(column, 0, 100_200)))
    check = check_of(summary, "received_was_sent")
    assert failed(summary) == ["received_was_sent"]
    assert check.mismatches > 0
    assert check.examples[0].endswith(f"received {check.mismatches} {kind} that its peer did not send")
    assert check_of(summary_of(with_flows(put(column, 0, 0))), "received_was_sent").mismatches == 0


def test_a_mismatch_is_told_in_words() -> None:
    summary = summary_of(with_ops(put("wire_tx_bytes", 2, 6001)))
    op = 'rank 1 all_reduce #0 of communicator world (node 20 "mb0.layer0.gradients") in iteration 0'
    examples = check_of(summary, "op_bytes_as_planned").examples
    assert examples == (f"{op}: wire_tx_bytes 6001, planned 6000",)
    summary = summary_of(with_flows(put("tx_payload_bytes", 0, 5999)))
    assert check_of(summary, "connection_bytes_as_planned").examples == (
        "rank 1 -> rank 2 (communicator world): sent 11999, received 12000, planned 12000 bytes",
    )
    summary = summary_of(with_ops(lambda ops: ops[ops["op"] != 2]))
    assert check_of(summary, "all_ops_completed").examples == (
        "rank 0 send #0 to rank 3 (node 12) in iteration 0 left no record",
        "rank 0 send #0 to rank 3 (node 12) in iteration 1 left no record",
    )


def test_a_plan_that_counts_bytes_two_ways_is_found() -> None:
    tables = tables_by_hand()
    payload_bytes = tables.connections.payload_bytes.copy()
    payload_bytes[1] += 1
    changed = replace(tables, connections=replace(tables.connections, payload_bytes=payload_bytes))
    check = check_of(summary_of(outcome_by_hand(), changed), "plan_consistent")
    assert check.result is ConsistencyResult.FAIL
    assert check.examples == (
        "one iteration sends 14500 bytes and receives 14500 by its ops, carries 14501 by its connections",
    )


# Runs that ended early.


def test_an_aborted_run_keeps_its_figures_and_is_not_judged_on_what_never_came() -> None:
    summary = summary_of(aborted_by_hand())
    assert (summary.ops.planned, summary.ops.recorded, summary.ops.missing) == (16, 12, 4)
    assert failed(summary) == []
    not_checked = [check.name for check in summary.checks if check.result is ConsistencyResult.NOT_CHECKED]
    assert not_checked == [
        *("agents_complete", "all_ops_completed", "connection_bytes_as_planned", "received_was_sent")
    ]
    assert [found.complete for found in summary.job.per_iteration] == [True, False]
    assert not summary.job.complete
    reduced = kind_of(summary, "all_reduce")
    assert (reduced.count, reduced.incomplete, reduced.size_bytes) == (1, 1, 4000)


def test_a_wrong_byte_fails_an_aborted_run_too() -> None:
    def corrupt(agent: AgentRecords) -> AgentRecords:
        ops = agent.ops.copy()
        ops["wire_rx_bytes"][0] = 1
        return replace(agent, ops=ops)

    assert failed(summary_of(with_agent(aborted_by_hand(), "a", corrupt))) == ["op_bytes_as_planned"]


def test_a_run_without_any_record_has_no_figures() -> None:
    empty = replace(outcome_by_hand(), state=RunEnd.ABORTED, agents=())
    summary = summary_of(empty)
    assert summary.ops.recorded == 0
    assert summary.job.jct_ns is None
    assert summary.slip is None
    assert summary.kinds == ()
    assert summary.job.per_iteration == ()


def test_the_same_collective_in_two_iterations_is_two() -> None:
    tables = tables_by_hand()
    assert len(group_ops(tables).kind) == 3
    rows = measure(outcome_by_hand(), tables, connection_rows_by_hand()).collectives
    assert rows.iteration.tolist() == [0, 0, 0, 1, 1, 1]


@given(st.binary(max_size=OP_RECORD.itemsize * 4))
def test_arbitrary_records_are_refused_or_kept_and_never_raise(noise: bytes) -> None:
    whole = len(noise) // OP_RECORD.itemsize * OP_RECORD.itemsize
    hostile = np.frombuffer(noise[:whole], OP_RECORD)
    summary = summary_of(with_ops(lambda ops: np.concatenate([ops, hostile])))
    assert summary.ops.recorded == 16
    assert check_of(summary, "op_records_known").mismatches == len(hostile)
