"""ECN marking of a switch's data queue: what it marked, what a marking curve would have marked, and the curve that fits.

Decides how many marks queue lengths prove. Between two readings only the ends of a queue are known, so bounds are used:
a queue that was as long as its watermark drained through every shorter length, which bounds the marks from below; in an
interval the queue was at most its length at the end plus the bytes that left, which bounds the lengths from above.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.results.diagnosis.evidence import expand

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.contract.model.topology import Marking
    from etloop.results.diagnosis.evidence import Evidence

    Floats = NDArray[np.float64]
    Rows = NDArray[np.int64]

PACKET_OVERHEAD_BYTES: Final = 62
"""Headers and checksums of a RoCEv2 packet over IPv4, in the length of a queue."""
_BINS: Final = 128
_BLUR: Final = (0.9, 0.95, 1.0, 1.05, 1.1)
"""Queue lengths around the one read, as shares of it: marks and lengths are read at different times."""
_KMIN_STEPS: Final = 32
_KMAX_STEPS: Final = 32
_PMAX_STEPS: Final = 16
_WITHIN: Final = 4.5
"""Fall of the log likelihood at three standard errors."""


@dataclass(frozen=True, slots=True)
class MarkingCurve:
    """WRED-ECN: no mark below Kmin, a share that rises to Pmax at Kmax, every packet from Kmax on."""

    kmin_bytes: float
    kmax_bytes: float
    pmax: float
    """0 to 1."""

    @classmethod
    def of(cls, marking: Marking) -> MarkingCurve:
        """Return the curve of a queue's settings."""
        return cls(marking.kmin_bytes, marking.kmax_bytes, marking.pmax_per_million / 1e6)

    def share(self, queued_bytes: Floats) -> Floats:
        """Return the share of packets that is marked at these lengths of the queue (float64, 0 to 1)."""
        span = max(self.kmax_bytes - self.kmin_bytes, 1.0)
        below = np.clip((queued_bytes - self.kmin_bytes) / span, 0.0, 1.0) * self.pmax
        return np.where(queued_bytes >= self.kmax_bytes, 1.0, below)

    def marks_of_drain(self, queued_bytes: Floats, frame_bytes: int) -> Floats:
        """Return the marks while a queue drains once from these lengths to 0: the integral of the curve, in frames."""
        ramp = np.clip(queued_bytes, self.kmin_bytes, self.kmax_bytes) - self.kmin_bytes
        span = max(self.kmax_bytes - self.kmin_bytes, 1.0)
        above = np.maximum(queued_bytes - self.kmax_bytes, 0.0)
        return (self.pmax * ramp * ramp / (2 * span) + above) / frame_bytes


@dataclass(frozen=True, slots=True)
class EstimatedCurve:
    """The curve that explains the marks of a queue best."""

    curve: MarkingCurve
    least_kmin_bytes: float
    most_kmin_bytes: float
    """Kmin within three standard errors."""
    packets: int
    marks: int


@dataclass(frozen=True, slots=True, eq=False)
class MarkedIntervals:
    """Intervals between two readings of a lane in which packets left, one row each, by ascending lane."""

    lane: Rows
    packets: Floats
    marks: Floats
    begin_bytes: Floats
    """Length of the queue."""
    end_bytes: Floats
    sent_bytes: Floats

    def of_lanes(self, lanes: Rows) -> MarkedIntervals:
        """Return the intervals of some lanes."""
        ordered = np.sort(lanes)
        first, end = (np.searchsorted(self.lane, ordered, side) for side in ("left", "right"))
        rows = expand(first, end - first)
        return MarkedIntervals(
            self.lane[rows],
            self.packets[rows],
            self.marks[rows],
            self.begin_bytes[rows],
            self.end_bytes[rows],
            self.sent_bytes[rows],
        )

    @property
    def most_bytes(self) -> Floats:
        """Return an upper bound of the queue's length in each interval: all arrivals before all departures."""
        return self.end_bytes + self.sent_bytes


def marked_intervals(evidence: Evidence) -> MarkedIntervals:
    """Return the intervals of all lanes; none if marks or lengths of queues were not read."""
    samples = evidence.samples
    queued, packets, marks, sent = (
        samples.value(name) for name in ("queued_bytes", "tx_packets", "marked_packets", "tx_bytes")
    )
    if len(samples.lane) < 2:
        nothing = np.empty(0, np.float64)
        return MarkedIntervals(np.empty(0, np.int64), nothing, nothing, nothing, nothing, nothing)
    moved = packets[1:] - packets[:-1]
    usable = (samples.lane[1:] == samples.lane[:-1]) & (moved > 0)
    usable &= ~np.isnan(marks[1:] - marks[:-1] + queued[1:] + queued[:-1])
    rows = np.flatnonzero(usable)
    return MarkedIntervals(
        samples.lane[rows],
        moved[rows],
        marks[rows + 1] - marks[rows],
        queued[rows],
        queued[rows + 1],
        np.nan_to_num(sent[rows + 1] - sent[rows]),
    )


def expected_marks(
    intervals: MarkedIntervals, lanes: Rows, watermark_bytes: Floats, curve: MarkingCurve, frame_bytes: int
) -> Floats:
    """Return a lower estimate of the marks that a curve makes at each of `lanes` (float64).

    `watermark_bytes`: greatest length of the queue of each lane, NaN if not known.
    """
    shortest = np.minimum(intervals.begin_bytes, intervals.end_bytes)
    place = np.full(int(lanes.max(initial=0)) + 1, -1, np.int64)
    place[lanes] = np.arange(len(lanes))
    inside = (intervals.lane < len(place)) & (place[np.minimum(intervals.lane, len(place) - 1)] >= 0)
    sums = np.bincount(
        place[intervals.lane[inside]],
        (intervals.packets * curve.share(shortest))[inside],
        len(lanes),
    )
    return np.maximum(sums, np.nan_to_num(curve.marks_of_drain(watermark_bytes, frame_bytes)))


def estimate_curve(intervals: MarkedIntervals, frame_bytes: int) -> EstimatedCurve | None:
    """Return the curve of greatest likelihood; None with fewer than 10 marks.

    Marks of a bin of queue lengths are Poisson, overdispersed by as much as the best curve leaves unexplained.
    """
    marks = int(intervals.marks.sum())
    if marks < 10:
        return None
    middle = (intervals.begin_bytes + intervals.end_bytes) / 2
    edges = np.unique(np.quantile(middle, np.linspace(0, 1, _BINS + 1)))
    bins = np.clip(np.searchsorted(edges, middle, "right") - 1, 0, max(len(edges) - 2, 0))
    count = np.bincount(bins)
    used = np.flatnonzero(count)
    queued = (np.bincount(bins, middle) / np.maximum(count, 1))[used]
    packets, marked = (np.bincount(bins, column)[used] for column in (intervals.packets, intervals.marks))
    most = float(max(intervals.begin_bytes.max(), intervals.end_bytes.max(), frame_bytes * 2))
    spread = queued[:, None] * np.array(_BLUR)
    lengths = np.geomspace(frame_bytes, most * 1.5, _KMAX_STEPS)
    pmaxes = np.geomspace(0.002, 1.0, _PMAX_STEPS)
    best: tuple[float, MarkingCurve] | None = None
    by_kmin: dict[float, float] = {}
    for kmin in np.r_[0.0, np.geomspace(frame_bytes, most, _KMIN_STEPS - 1)].tolist():
        for kmax in lengths[lengths >= max(kmin, 1.0)].tolist():
            full = (spread >= kmax).mean(axis=1)
            ramp = np.where(spread < kmax, np.clip((spread - kmin) / max(kmax - kmin, 1.0), 0, 1), 0).mean(1)
            rate = packets * np.clip(full + pmaxes[:, None] * ramp, 1e-6, 1.0)
            likelihood = (marked * np.log(rate) - rate).sum(axis=1)
            row = int(likelihood.argmax())
            by_kmin[kmin] = max(by_kmin.get(kmin, -np.inf), float(likelihood[row]))
            if best is None or likelihood[row] > best[0]:
                best = float(likelihood[row]), MarkingCurve(kmin, kmax, float(pmaxes[row]))
    assert best is not None
    expected = packets * np.clip(best[1].share(queued), 1e-6, 1.0)
    dispersion = max(1.0, float(((marked - expected) ** 2 / np.maximum(expected, 1.0)).mean()))
    near = [kmin for kmin, value in by_kmin.items() if best[0] - value <= _WITHIN * dispersion]
    return EstimatedCurve(best[1], min(near), max(near), int(intervals.packets.sum()), marks)
