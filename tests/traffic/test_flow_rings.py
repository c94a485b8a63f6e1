"""Rings of several channels take as long by flows as by packets, where latency matters as well."""

from __future__ import annotations

import pytest

from etloop.workload.trace.trace import CollectiveKind
from tests.measure.flow_error import BAR, Case, as_nccl, both_levels, ring

JOBS = (
    ("one channel, which waits out every latency", ring(8, 1024, 1)),
    ("two channels: while one waits the other sends", ring(8, 1024, 2)),
    ("three, of which two could stay together", ring(8, 1024, 3)),
    ("messages of eight packets", ring(16, 1024, 2)),
    ("messages of a packet or two", ring(32, 1024, 8)),
    ("a number of channels that is no power of two", ring(16, 1024, 6)),
    ("bandwidth alone", ring(8, 16384, 8)),
    ("what NCCL chooses for a megabyte", as_nccl(CollectiveKind.ALL_REDUCE, 8, 1024)),
    ("what NCCL chooses for four", as_nccl(CollectiveKind.ALL_REDUCE, 16, 4096)),
    ("an all-gather", as_nccl(CollectiveKind.ALL_GATHER, 8, 4096)),
    ("an all-to-all", as_nccl(CollectiveKind.ALL_TO_ALL, 8, 4096)),
)


@pytest.mark.parametrize(("sentence", "case"), JOBS, ids=[job[0] for job in JOBS])
def test_flows_take_as_long_as_packets(sentence: str, case: Case) -> None:
    times = both_levels(case)
    assert abs(times.difference) <= BAR, f"{sentence}: {times}"
