"""Crossings of small collectives, and the line that compares them with a measured round trip."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import pytest

from etloop.contract.model.records import PROBE_RECORD
from etloop.contract.model.run import PlannedChoice
from etloop.experiments.collective.bare_model import crossing_ns, crossings_of, render_bare_model
from tests.support.runs.records_by_hand import outcome_by_hand

CHOICE: Final = PlannedChoice("all_reduce", 4, 1, 64, 64, "ring", "simple", "posted", 1, 6, "pinned", {})


@pytest.mark.parametrize(
    ("collective", "algorithm", "ranks", "crossings"),
    [
        ("all_reduce", "ring", 2, 2),
        ("all_reduce", "ring", 4, 6),
        ("all_gather", "ring", 4, 3),
        ("all_reduce", "recursive_doubling", 2, 1),
        ("all_reduce", "recursive_doubling", 8, 3),
        ("all_reduce", "recursive_doubling", 6, 0),
        ("all_reduce", "halving_doubling", 4, 4),
        ("all_reduce", "tree", 4, 0),
    ],
)
def test_crossings_follow_from_the_algorithm(
    collective: str, algorithm: str, ranks: int, crossings: int
) -> None:
    choice = replace(CHOICE, collective=collective, algorithm=algorithm, ranks=ranks)
    assert crossings_of(choice) == crossings
    assert crossings_of(replace(choice, ranks_per_host=2)) == 0


def test_bare_model_is_printed_with_and_without_the_acknowledgement() -> None:
    expected = (
        "# bare model: ring, 4 ranks: 6 x 6.1 us (half of the least round trip before the load) = 36.6 us; "
        "42.7 us with an awaited ACK\n"
    )
    assert render_bare_model([CHOICE, replace(CHOICE, algorithm="tree")], 6100) == expected
    assert render_bare_model([CHOICE], 0) == ""


def test_crossing_is_half_of_the_median_round_trip() -> None:
    first, second = outcome_by_hand().agents[:2]
    probes = np.array([(0, 12_000), (1, 12_400), (2, 90_000), (3, -1)], PROBE_RECORD)
    assert crossing_ns([replace(first, round_trips=probes), second]) == 6200
    assert crossing_ns([second]) == 0
