"""The first bad one of a list of versions: which to try next, and the result. Pure.

The first version is the reference and the last one the suspect; both are tried first. A version that stays unclear is
passed over as in `git bisect skip`, and the result then is a range.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from etloop.contract.base.late_dataclass import dataclass


class VersionState(StrEnum):
    """Result of one version."""

    GOOD = "good"
    BAD = "bad"
    UNCLEAR = "unclear"
    """Not installed, not run, or inconclusive."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One tried version."""

    version: str
    state: VersionState
    reasons: tuple[str, ...]
    directory: str
    """Directory of the runs; "" if the version could not be installed."""


@dataclass(frozen=True, slots=True)
class BisectRecord:
    """The content of bisect.json."""

    schema: str
    versions: tuple[str, ...]
    trials: tuple[Trial, ...]
    """In the order in which they were made."""
    last_good: str
    first_bad: str
    """"" if the last version is not worse than the first one, or one of the two stays unclear."""
    unclear: tuple[str, ...]
    """Versions between both that stay unclear: each of them may be the first bad one."""


def next_version(states: Mapping[int, VersionState], count: int) -> int | None:
    """Return the index of the version to try next; None when the search is over."""
    if 0 not in states:
        return 0
    if states[0] is not VersionState.GOOD:
        return None
    if count - 1 not in states:
        return count - 1
    low, high = good_and_bad(states)
    if high is None:
        return None
    middle = (low + high) / 2
    return min(
        (index for index in range(low + 1, high) if index not in states),
        key=lambda index: abs(index - middle),
        default=None,
    )


def good_and_bad(states: Mapping[int, VersionState]) -> tuple[int, int | None]:
    """Return the last good version before the first bad one, and that one; None if none is bad."""
    bad = [index for index, state in states.items() if state is VersionState.BAD]
    high = min(bad, default=None)
    good = [index for index, state in states.items() if state is VersionState.GOOD]
    return max((index for index in good if high is None or index < high), default=0), high
