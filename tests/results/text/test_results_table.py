"""The printed table, word for word, and its shape for any figures."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etloop.contract.model.run import PlannedChoice, RunOutcome
from etloop.results.measure.summary import measure
from etloop.results.report.run import overlap_words
from etloop.results.schema.kinds import CONVENTIONS
from etloop.results.schema.summary import ConsistencyCheck, ConsistencyResult, KindSummary, Summary
from etloop.results.text.layout import WIDTH, label_text
from etloop.results.text.table import render
from tests.support.runs.records_by_hand import (
    aborted_by_hand,
    connection_rows_by_hand,
    outcome_by_hand,
    tables_by_hand,
)


def summary_of(outcome: RunOutcome) -> Summary:
    return measure(outcome, tables_by_hand(), connection_rows_by_hand()).summary


def test_long_path_stays_on_one_line() -> None:
    """It is there to be copied; only words go to the next line."""
    path = "/a/directory" * 12 + "/topology.yaml"
    lines = label_text("twin", f"{path}, packet by packet; {'0 packets dropped, ' * 8}0 trimmed")
    assert sum(path in line for line in lines) == 1
    assert [line for line in lines if len(line) > WIDTH] == [f"twin            {path},"]


DONE: Final = """\
run             r1, started 2026-01-02T03:04:05+00:00, done
workload        by hand: 4 ranks, 2 iterations, bytes x 1/1000, time x 1, dependencies data+communicator
edges           honoured 4 data; added 2 communicator

                                   total  S_fab  time (us)                           algbw   busbw
collective  algorithm  n  count        S  /sent        min     avg     p50     p99  (GB/s)  (GB/s)
all_reduce  ring       4      2  8.00 kB    50%     20.100  20.100  20.100  20.100   0.199   0.299
all_gather  ring       2      2  4.00 kB   100%     10.000  10.000  10.000  10.000   0.200   0.100
send_recv   p2p        2      2  1.00 kB   100%     20.000  20.000  20.000  20.000   0.025   0.025

job completion  140.0 us in all; per iteration min 40.000, avg 70.000, max 100.0 us
ops             16 of 16 completed
slip            p50 0.050, p99 0.200, max 0.200 us (lateness of the emulator)
payload         29.00 kB through the device under test (55% of what was sent), 24.00 kB kept local; 48 messages
retransmitted   1 of 120 packets; timeouts 0, NAKs 1, ECN marks 0, CNPs 0
clock error     at most 21.500 us between agents, none within one
dropped by us   2 of the datagrams received, by a rule of the scenario
degraded        b: receive buffer is 212992 bytes, 4194304 asked
note            2 compute nodes have no duration
consistency     9 checks pass, 0 fail
results         runs/one
"""

ABORTED_TAIL: Final = """\
Not in these figures: 3 of which only some members completed.

job completion  140.0 us until it stopped; per iteration min 40.000, avg 40.000, max 40.000 us
ops             12 of 16 completed
slip            p50 0.050, p99 0.200, max 0.200 us (lateness of the emulator)
payload         22.00 kB through the device under test (55% of what was sent), 18.00 kB kept local; 36 messages
retransmitted   1 of 60 packets; timeouts 0, NAKs 1, ECN marks 0, CNPs 0
clock error     at most 21.500 us between agents, none within one
dropped by us   1 of the datagrams received, by a rule of the scenario
degraded        b: receive buffer is 212992 bytes, 4194304 asked
note            2 compute nodes have no duration
consistency     5 checks pass, 0 fail, 4 skipped because the run was aborted
results         runs/one
"""


@pytest.mark.parametrize(
    ("second_start_ns", "slowest_ns", "said"),
    [(30_000, 90_000, True), (40_000, 90_000, False), (30_000, 40_000, False)],
)
def test_overlapping_iterations_are_explained(second_start_ns: int, slowest_ns: int, said: bool) -> None:
    summary = summary_of(outcome_by_hand())
    first, second = summary.job.per_iteration
    job = replace(summary.job, per_iteration=(first, replace(second, start_ns=second_start_ns)))
    kinds = tuple(replace(kind, time_max_ns=slowest_ns) for kind in summary.kinds)
    words = overlap_words(replace(summary, job=job, kinds=kinds))
    assert words.startswith("iterations overlap: a rank begins the next one") is said
    assert bool(words) is said
    assert ("so a collective takes up to 90.000 us, and an iteration 40.000 us" in words) is said


def test_report_of_completed_run() -> None:
    assert render(summary_of(outcome_by_hand()), "runs/one") == DONE


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        (("posted", "posted"), "each when posted"),
        (("posted", "acknowledged"), "each when posted or acknowledged"),
    ],
)
def test_ops_row_names_the_completion_rules(rules: tuple[str, ...], expected: str) -> None:
    summary = summary_of(outcome_by_hand())
    choices = tuple(
        PlannedChoice("all_reduce", 4, 2, 64, 64, "ring", "simple", rule, 1, 6, "pinned", {})
        for rule in rules
    )
    text = render(replace(summary, workload=replace(summary.workload, choices=choices)), "runs/one")
    assert f"\nops             16 of 16 completed, {expected}\n" in text


def test_report_of_aborted_run_has_reason_and_missing_ops() -> None:
    reason = "rank 3 waits for data from rank 2\nrank 2 waits for an acknowledgement from rank 0"
    text = render(summary_of(replace(aborted_by_hand(), reason=reason)), "runs/one")
    assert "\naborted         rank 3 waits for data from rank 2\n                rank 2 waits for" in text
    assert text.endswith(ABORTED_TAIL)


@pytest.mark.parametrize("nonce", [0, 1, 4_294_967_295])
def test_run_nonce_is_printed_unless_zero(nonce: int) -> None:
    """Those of 0 are the same in every run."""
    tables = replace(tables_by_hand(), run_nonce=nonce)
    lines = render(
        measure(outcome_by_hand(), tables, connection_rows_by_hand()).summary, "runs/1"
    ).splitlines()
    words = "queue pair numbers, keys and first PSNs were drawn from it"
    found = [line for line in lines if line.startswith("numbers")]
    assert found == ([f"numbers         transport.run_nonce {nonce}: {words}"] if nonce else [])


def test_failed_consistency_check_is_printed_with_examples() -> None:
    check = ConsistencyCheck(
        "op_bytes_as_planned", ConsistencyResult.FAIL, 16, 2, ("rank 0 sent 1, planned 0", "rank 1 too")
    )
    text = render(replace(summary_of(outcome_by_hand()), checks=(check,)), "runs/one")
    assert (
        "consistency     0 checks pass, 1 fail\n"
        "FAILED          op_bytes_as_planned: 2 of 16\n"
        "                rank 0 sent 1, planned 0\n"
        "                rank 1 too\n"
    ) in text


def test_run_without_records_has_a_report() -> None:
    text = render(summary_of(replace(aborted_by_hand(), agents=(), reason="")), "runs/one")
    assert "No collective completed." in text
    assert "aborted         no reason was given" in text
    assert "slip            no op completed" in text
    assert "job completion  - us until it stopped; per iteration min -, avg -, max - us" in text


def test_control_characters_do_not_reach_the_terminal() -> None:
    summary = replace(summary_of(outcome_by_hand()), degraded=("b: \x1b[2Jgone\ttabs",))
    assert "\ndegraded        b: ?[2Jgone tabs\n" in render(summary, "runs/one")


AMOUNTS: Final = (
    (999, "999 B"),
    (1_000, "1.00 kB"),
    (99_994, "99.99 kB"),
    (99_995, "100.0 kB"),
    (999_949, "999.9 kB"),
    (999_950, "1.00 MB"),
    (24_576_000_000, "24.58 GB"),
)


@pytest.mark.parametrize(("size_bytes", "shown"), AMOUNTS)
def test_bytes_have_four_digits(size_bytes: int, shown: str) -> None:
    summary = summary_of(outcome_by_hand())
    carried = replace(summary.bytes, wire_tx_bytes=size_bytes)
    text = render(replace(summary, bytes=carried), "runs/one")
    assert f"\npayload         {shown} through the device under test" in text


SHARES: Final = ((None, "-"), (0.0, "0%"), (0.001, "<1%"), (0.5, "50%"), (0.9999, ">99%"), (1.0, "100%"))


@pytest.mark.parametrize(("share", "shown"), SHARES)
def test_share_is_0_or_100_percent_only_if_exact(share: float | None, shown: str) -> None:
    summary = summary_of(outcome_by_hand())
    carried = replace(summary.bytes, fabric_share=share)
    assert f"the device under test ({shown} of what was sent)" in render(
        replace(summary, bytes=carried), "runs/one"
    )


times_ns = st.none() | st.integers(0, 2**62)
rates = st.none() | st.floats(0, 1e15)
kinds = st.builds(
    KindSummary,
    kind=st.sampled_from([convention.name for convention in CONVENTIONS]),
    algorithm=st.sampled_from(["ring", "p2p", "recursive_doubling"]),
    ranks=st.integers(1, 99_999),
    count=st.integers(0, 9_999_999),
    incomplete=st.integers(0, 10**6),
    size_bytes=st.integers(0, 2**63 - 1),
    sent_bytes=st.integers(0, 2**63 - 1),
    fabric_bytes=st.integers(0, 2**63 - 1),
    fabric_share=st.none() | st.floats(0, 1),
    messages=st.integers(0, 2**63 - 1),
    time_min_ns=times_ns,
    time_avg_ns=times_ns,
    time_p50_ns=times_ns,
    time_p99_ns=times_ns,
    time_max_ns=times_ns,
    skew_p50_ns=times_ns,
    skew_max_ns=times_ns,
    algbw_bytes_per_s=rates,
    busbw_bytes_per_s=rates,
    joined_busbw_bytes_per_s=rates,
)


@given(st.lists(kinds, max_size=5), st.text(max_size=400), st.lists(st.text(max_size=300), max_size=3))
def test_report_is_never_wider_than_118_columns(
    found: list[KindSummary], reason: str, notes: list[str]
) -> None:
    summary = summary_of(replace(aborted_by_hand(), reason=reason))
    text = render(replace(summary, kinds=tuple(found), notes=tuple(notes)), "runs/one")
    assert max(len(line) for line in text.split("\n")) <= WIDTH
