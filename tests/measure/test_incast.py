"""Incasts as a user runs them, on a switch that drops or trims, under every congestion control that RoCEv2 has.

At small sizes; with ETLOOP_FULL=1 at all of the bench's.
"""

from __future__ import annotations

import os
from typing import Final

import pytest

from tests.measure.jobs.incast import ALGORITHMS, WAYS, Incast, main, outcome_of

FULL: Final = os.environ.get("ETLOOP_FULL") == "1"
SIZES_KIB: Final = (256, 512, 1024, 4096) if FULL else (512,)
SELECTIVE: Final = ("selective", "trimmed, asked")
HEAR_OF_NO_TRIM: Final = ("none", "dcqcn")
"""Whose senders go on at line rate: what is left of cut packets takes 0.4 of the link, and all is sent again."""
INCASTS: Final = [
    Incast(senders, size_kib, buffer)
    for size_kib in SIZES_KIB
    for senders in (4, 15)
    for buffer in ("200KB", "800KB")
    if FULL or senders == 15 or buffer == "200KB"
]


@pytest.mark.parametrize(
    "incast", INCASTS, ids=lambda one: f"{one.senders}-{one.message_kib}KiB-{one.buffer}"
)
@pytest.mark.parametrize("way", SELECTIVE)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_selective_repeat_ends_within_twice_the_time_of_the_link(
    algorithm: str, way: str, incast: Incast
) -> None:
    outcome = outcome_of(algorithm, incast, way)
    assert outcome.failure == ""
    heedless = way != "selective" and algorithm in HEAR_OF_NO_TRIM and incast.message_kib > 1024
    assert 1 <= outcome.times_ideal < (2.05 if heedless else 2)
    if way != "selective":
        assert outcome.timeouts == 0, "what a switch trims is asked for, and nobody waits"


def test_the_table_has_a_line_for_each_control_and_a_column_for_each_way(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--senders", "2", "--buffers", "800KB", "--size", "64"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert all(way in head for way in WAYS)
    assert [line.split()[2] for line in lines[:-1]] == list(ALGORITHMS)
    assert all("fails" not in line for line in lines)
