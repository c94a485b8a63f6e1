"""Judges which figures grew over a soak, from the samples after each job. Pure.

The first fifth of the jobs is warm-up. Afterwards a count (descriptors, threads, processes, files, retained topics) must not be
higher in the last quarter than it was before it, and bytes (resident memory, disk) must not grow by more than
`MOST_GROWTH_BYTES` a job, by the median of the slopes between all pairs of samples. That of the last half is shown with it. Of
fewer than `LEAST_FOR_BYTES` jobs bytes are shown and not judged, as allocators and caches still fill.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Final

from etloop.contract.base.late_dataclass import dataclass

MOST_GROWTH_BYTES: Final = 8 << 10
"""Growth per job below that of a leaked message or record batch, and above the drift of Python's and Arrow's allocators."""
LEAST_FOR_BYTES: Final = 100
LEAST_RUNS: Final = 5
_MOST_POINTS: Final = 2_000
"""Most points of a series, evenly spread: the pairs of more points take minutes."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Figures sampled after a job."""

    sizes_bytes: dict[str, int]
    counts: dict[str, int]


@dataclass(frozen=True, slots=True)
class Verdict:
    """One figure over the whole soak."""

    figure: str
    first: int
    last: int
    grows: bool
    detail: str


def slope(values: Sequence[int]) -> float:
    """Return the growth per job: the median of the slopes between all pairs (Theil, 1950; Sen, 1968), robust against
    outliers.
    """
    step = -(-len(values) // _MOST_POINTS)
    points = values[::step]
    pairs = ((points[j] - points[i]) / (j - i) for i in range(len(points)) for j in range(i + 1, len(points)))
    return statistics.median(pairs) / step


def soak_verdicts(samples: Sequence[Sample]) -> tuple[Verdict, ...]:
    """Return the verdict on every figure after the warm-up; needs at least five samples."""
    steady = samples[len(samples) // 5 :]
    verdicts = []
    for name in steady[0].sizes_bytes:
        values = [sample.sizes_bytes[name] for sample in steady]
        growth = slope(values)
        grows = len(samples) >= LEAST_FOR_BYTES and growth > MOST_GROWTH_BYTES
        late = slope(values[len(values) // 2 :])
        detail = f"{growth / 1024:+.2f} KiB a job, {late / 1024:+.2f} over the last half"
        verdicts.append(Verdict(f"{name} (bytes)", values[0], values[-1], grows, detail))
    last = max(1, len(steady) // 4)
    for name in steady[0].counts:
        values = [sample.counts[name] for sample in steady]
        before, after = max(values[:-last]), max(values[-last:])
        detail = f"at most {before} before, {after} at the end"
        verdicts.append(Verdict(name, values[0], values[-1], after > before, detail))
    return tuple(verdicts)
