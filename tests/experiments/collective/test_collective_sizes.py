"""What `etloop collective` may be asked: sizes and counts of nccl-tests, names, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etloop.cli.arguments.nccl import parse_names, parse_size
from etloop.contract.base.errors import ConfigError
from etloop.controller.inputs.collective_spec import Amount, BenchSpec, Variant, amount_of, check_spec
from etloop.results.schema.kinds import CONVENTIONS, SEND_RECV
from etloop.workload.trace.trace import CollectiveKind

AR, AG, RS, A2A, BC = (
    int(CollectiveKind.ALL_REDUCE),
    int(CollectiveKind.ALL_GATHER),
    int(CollectiveKind.REDUCE_SCATTER),
    int(CollectiveKind.ALL_TO_ALL),
    int(CollectiveKind.BROADCAST),
)
MIB = 1 << 20
SMALL = BenchSpec((AR,), ranks=4, least_bytes=1024, most_bytes=4096, factor=2, iterations=3)

# ---- sizes


@pytest.mark.parametrize(
    ("kind", "asked", "ranks", "element", "expected", "sentence"),
    [
        (AR, 1024, 8, 4, Amount(1024, 256, 1024), "the buffer"),
        (AR, 1023, 8, 4, Amount(1020, 255, 1020), "whole elements"),
        (AG, 1024, 8, 4, Amount(1024, 32, 128), "size counts all shards, count and message one"),
        (AG, 1000, 8, 4, Amount(896, 28, 112), "a shard is a multiple of 16 bytes"),
        (RS, 1024, 8, 4, Amount(1024, 32, 1024), "a rank puts in everything and keeps a shard"),
        (A2A, 1024, 6, 2, Amount(960, 80, 960), "equal parts for every rank, of 16-byte multiples"),
        (A2A, 64, 8, 4, Amount(0, 0, 0), "too little for 16 bytes each"),
        (BC, 4097, 3, 1, Amount(4097, 4097, 4097), "odd sizes of bytes"),
        (SEND_RECV, 64, 8, 8, Amount(64, 8, 64), "a message to the next rank"),
        (int(CollectiveKind.GATHER), 256, 4, 4, Amount(256, 16, 64), "a shard each, all of them at the root"),
        (int(CollectiveKind.SCATTER), 256, 4, 4, Amount(256, 16, 256), "all of them from the root"),
    ],
)
def test_amounts_are_those_of_nccl_tests(
    kind: int, asked: int, ranks: int, element: int, expected: Amount, sentence: str
) -> None:
    assert amount_of(kind, asked, ranks, element) == expected, sentence


@given(
    st.integers(0, len(CONVENTIONS) - 1),
    st.integers(1, 1 << 30),
    st.integers(2, 1024),
    st.sampled_from([1, 2, 4, 8]),
)
def test_no_amount_exceeds_what_was_asked_for(kind: int, asked: int, ranks: int, element: int) -> None:
    amount = amount_of(kind, asked, ranks, element)
    assert amount.message_bytes <= amount.size_bytes <= asked
    assert amount.size_bytes % element == 0
    assert asked - amount.size_bytes < 16 * ranks + element


def test_sizes_grow_by_a_factor_or_a_step() -> None:
    assert SMALL.sizes() == (1024, 2048, 4096)
    assert replace(SMALL, factor=3).sizes() == (1024, 3072)
    assert replace(SMALL, factor=1, step_bytes=1500).sizes() == (1024, 2524, 4024)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8", 8),
        ("128M", 128 * MIB),
        ("1g", 1 << 30),
        ("1.5M", 3 * MIB // 2),
        ("0.3", 0),
        ("64KiB", 65536),
        ("1kB", 1000),
    ],
)
def test_sizes_may_be_written_as_nccl_tests_has_them(text: str, expected: int) -> None:
    assert parse_size(text) == expected


def test_names_of_both_worlds_are_known() -> None:
    assert parse_names("all_to_all,alltoall, sendrecv") == (A2A, SEND_RECV)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ranks": 1}, "--ranks: got 1, expected 2 to 1024; choose another number"),
        (
            {"least_bytes": 4096, "most_bytes": 8},
            "-b, -e: sizes 4096 to 8 bytes, expected 1 to 1099511627776",
        ),
        (
            {"factor": 1, "step_bytes": 0},
            "-f, -i: sizes would not grow; write a factor of at least 2, or a step",
        ),
        ({"factor": 0}, "-f, -i: sizes would not grow"),
        ({"iterations": 0}, "-n: got 0 iterations; write at least 1"),
        (
            {"kinds": (A2A,), "ranks": 512},
            "-e: all_to_all over 512 ranks has nothing to send at 4096 bytes; ",
        ),
        ({"iterations": 10**6}, "operations of all ranks in one session, expected at most 8388608"),
        ({"factor": 1, "step_bytes": 1, "most_bytes": 1 << 40}, "-i: makes millions of sizes"),
        ({"variants": (Variant(),) * 300}, "sweep: got 300 combinations, expected at most 256"),
        ({"concurrent": True}, "--concurrent: names one collective; join two or more with +"),
        (
            {"concurrent": True, "kinds": (AR, SEND_RECV)},
            "--concurrent: send_recv has no communicator of its own",
        ),
    ],
)
def test_what_cannot_be_measured_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_spec(replace(SMALL, **changes))  # type: ignore[arg-type]
    assert message in str(caught.value)


def test_all_mistakes_come_together() -> None:
    with pytest.raises(ConfigError) as caught:
        check_spec(replace(SMALL, ranks=0, iterations=0, factor=0))
    assert [problem.where for problem in caught.value.problems] == ["--ranks", "-f, -i", "-n"]
