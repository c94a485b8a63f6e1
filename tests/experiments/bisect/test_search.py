"""The first bad version is found in few trials, and what stays unclear widens the result and nothing else."""

from __future__ import annotations

import math

import pytest

from etloop.experiments.bisect.search import VersionState, good_and_bad, next_version

GOOD, BAD, UNCLEAR = VersionState.GOOD, VersionState.BAD, VersionState.UNCLEAR


def search(versions: list[VersionState]) -> tuple[dict[int, VersionState], int, int | None]:
    states: dict[int, VersionState] = {}
    while (index := next_version(states, len(versions))) is not None:
        assert index not in states
        states[index] = versions[index]
    return states, *good_and_bad(states)


@pytest.mark.parametrize("count", [2, 3, 10, 57])
def test_every_first_bad_version_is_found(count: int) -> None:
    for first in range(1, count):
        states, low, high = search([GOOD] * first + [BAD] * (count - first))
        assert (low, high) == (first - 1, first)
        assert len(states) <= 2 + math.ceil(math.log2(max(count - 1, 1)))


def test_versions_that_cannot_be_judged_are_passed_over() -> None:
    states, low, high = search([GOOD, GOOD, UNCLEAR, UNCLEAR, BAD, BAD])
    assert (low, high) == (1, 4)
    assert high is not None
    assert {index for index in states if low < index < high} == {2, 3}


@pytest.mark.parametrize(
    "versions", [[GOOD] * 5, [BAD, GOOD, BAD], [UNCLEAR, GOOD, BAD], [GOOD, BAD, UNCLEAR]]
)
def test_without_a_good_first_and_a_bad_last_version_nothing_is_searched(
    versions: list[VersionState],
) -> None:
    states, *_ = search(versions)
    assert len(states) <= 2
