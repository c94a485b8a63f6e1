"""How much counters of a device moved during a run: from samples to one row a series. Pure.

Decides what an increase is counted from and to, what a counter of few bits that began anew means, and when a counter was set
back, so that its increase is not known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from etloop.contract.model.counters import BY_OBJECT_AND_NAME, CounterNature
from etloop.contract.model.device_counts import CountedSource, CounterGap, SamplePhase

if TYPE_CHECKING:
    from numpy.typing import NDArray

NARROW_BITS: Final = 32


@dataclass(frozen=True, slots=True, eq=False)
class Increases:
    """One row a series of a source, in their order."""

    samples: NDArray[np.int64]
    increase: NDArray[np.int64]
    """Of the run, where it is `whole`; of what was seen, where not. Counters of amounts, not of moments, only."""
    whole: NDArray[np.bool_]
    """Read before the run and after it, and never set back."""
    last: NDArray[np.uint64]
    most: NDArray[np.uint64]
    """Greatest value that was read since the run began."""
    cumulative: NDArray[np.bool_]
    set_back: tuple[CounterGap, ...]


def increases_of(source: CountedSource) -> Increases:
    """Every series of a source; one without any sample does not exist."""
    count = len(source.series)
    order = np.argsort(source.row_series, kind="stable")
    number, value = source.row_series[order], source.row_value[order]
    phase, time_ns = source.row_phase[order], source.row_time_ns[order]
    samples = np.bincount(number, minlength=count).astype(np.int64)
    end = np.cumsum(samples)
    natures = [BY_OBJECT_AND_NAME[one.object.kind, one.counter].nature for one in source.series]
    cumulative = np.array([nature is CounterNature.CUMULATIVE for nature in natures], bool)
    narrow = np.array([one.width_bits == NARROW_BITS for one in source.series], bool)
    before, after = phase == SamplePhase.BEFORE, phase >= SamplePhase.AFTER
    has_before = np.bincount(number[before], minlength=count) > 0
    has_after = np.bincount(number[after], minlength=count) > 0
    # Step i leads from row i to row i + 1 of the same series, and counts unless both were before the run.
    same = number[1:] == number[:-1]
    counts = same & ~before[1:]
    step = (value[1:] - value[:-1]).view(np.int64)
    wrapped = (step < 0) & narrow[number[1:]] & (step + (1 << NARROW_BITS) < 1 << (NARROW_BITS - 1))
    step = np.where(wrapped, step + (1 << NARROW_BITS), step)
    back = counts & (step < 0) & cumulative[number[1:]]
    gained = np.where(counts, np.maximum(step, 0), 0)
    increase = np.zeros(count, np.int64)
    np.add.at(increase, number[1:], gained)
    was_set_back = np.bincount(number[1:][back], minlength=count) > 0
    most = np.zeros(count, np.uint64)
    np.maximum.at(most, number[~before], value[~before])
    return Increases(
        samples=samples,
        increase=np.where(cumulative, increase, 0),
        whole=has_before & has_after & ~was_set_back,
        last=value[end - 1] if count else np.empty(0, np.uint64),
        most=most,
        cumulative=cumulative,
        set_back=_set_back(source, number[1:][back], time_ns[:-1][back], time_ns[1:][back]),
    )


def _set_back(
    source: CountedSource, number: NDArray[np.int32], begin_ns: NDArray[np.int64], end_ns: NDArray[np.int64]
) -> tuple[CounterGap, ...]:
    """One gap for every moment at which counters went back, however many did."""
    found: dict[tuple[int, int], list[int]] = {}
    for one, begin, end in zip(number.tolist(), begin_ns.tolist(), end_ns.tolist(), strict=True):
        found.setdefault((begin, end), []).append(one)
    gaps = []
    for (begin, end), numbers in sorted(found.items()):
        first = source.series[numbers[0]]
        more = f" and {len(numbers) - 1} more" if len(numbers) > 1 else ""
        why = f"{first.object} {first.counter}{more} went back: the device was restarted, or its counters cleared"
        gaps.append(CounterGap(source.name, begin, end, why))
    return tuple(gaps)
