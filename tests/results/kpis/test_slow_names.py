"""Which names lost most: worked out on paper for the run by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from etloop.results.artifacts import add_verdict
from etloop.results.report.collectives import slow_names_table
from etloop.results.schema.kpis import KpiBasis
from etloop.results.schema.slow_ops import SlowName, SlowNames
from etloop.results.text.layout import table_lines
from etloop.results.verdict.verdict import Conditions
from tests.support.runs.records_by_hand import run_by_hand, tables_by_hand

BASIS = KpiBasis({"a/p0": 10**9, "b/p0": 10**9}, (1000, 2000, 0, 0), 4096)


def found(**names: object) -> SlowNames | None:
    tables = tables_by_hand()
    run = run_by_hand(tables=replace(tables, **names))  # type: ignore[arg-type]
    return add_verdict(run, BASIS, Conditions()).summary.slow_names


def test_what_a_name_lost_is_time_with_all_members_less_its_bytes_at_line_rate() -> None:
    """The all-reduce: rank 2 joins last at 2.1 us and rank 1 ends at 20.1 us, so 18 us; a port carries 6000 bytes each way at
    1 Gbit/s, 48 us: they were on their way before it came, and nothing is lost. The all-gather: 10 us, of which 1000 bytes
    take 8: 2 us are lost."""
    assert found() == SlowNames(
        2,
        (
            SlowName("mb0.layer0.weights", "all_gather", 2, 10_000, 8_000, 4_000, 0, 2_000),
            SlowName("mb0.layer0.gradients", "all_reduce", 2, 18_000, 48_000, 0, 0, 0),
        ),
    )


def test_a_job_without_names_has_no_such_table() -> None:
    ops = tables_by_hand().ops
    nameless = replace(ops, name=np.full(len(ops.rank), -1, np.int32))
    assert found(ops=nameless, op_names=()) is None


def test_table_of_slow_names_cuts_long_names_at_the_front() -> None:
    slow = found(op_names=("mb0.layer0.gradients", "the-" * 12 + "weights"))
    assert slow is not None
    heads, words, first, second = table_lines(slow_names_table(slow))
    assert heads.split() == ["joined", "(us)", "line", "rate", "(us)", "lost", "(us)"]
    assert words.split() == "slowest by name collective count avg avg in all worst in".split()
    assert first.split() == [
        "..." + ("the-" * 12 + "weights")[-41:],
        *"all_gather 2 10.000 8.000 4.000 iteration 0".split(),
    ]
    assert second.split() == "mb0.layer0.gradients all_reduce 2 18.000 48.000 0.000 iteration 0".split()
