"""Computes the rates at which ports send, and at which they drain a backlog, from readings of their queues.

A port whose queues held more at a reading than it sent until the next one was never idle in between: its rate there is the
rate of the link, whatever the job does. Queues that a pause held do not count. Frames occupy the link for 20 bytes more than
counters show: preamble and gap (IEEE 802.3, 4.4.2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.late_dataclass import dataclass

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.results.diagnosis.evidence import Evidence

    Floats = NDArray[np.float64]
    Rows = NDArray[np.int64]
    Flags = NDArray[np.bool_]

GAP_BITS: Final = 160
"""Preamble and gap of a frame."""
_LEAST_STEPS: Final = 3
_LEAST_FRAMES: Final = 30
"""Readings and frames that a rate needs: the error of two frames is then below 7 %, and shrinks with more."""
_WINDOW_FRAMES: Final = 100
_WAITING_FRAMES: Final = 4
"""Frames of a queue that is busy: fewer are the packet being sent, and packets that two senders interleave."""


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """Times between two successive readings of a port, one row each, sorted by (port, time)."""

    port: Rows
    """Row in `Ports`."""
    start_ns: Rows
    gap_ns: Floats
    bits: Floats
    """Sent on the link, with preambles and gaps."""
    sent_bytes: Floats
    open_bytes: Floats
    """Queued at the first reading, in queues that no pause held until the second."""
    open_bytes_after: Floats
    """Queued at the second reading, the same."""
    is_paused: Flags
    """Whether a pause held any of its queues for a part of the time."""

    @property
    def is_backlogged(self) -> Flags:
        """Return whether the port cannot have been idle (bool per step)."""
        return (self.sent_bytes > 0) & (self.sent_bytes < self.open_bytes)

    def is_busy(self, least_bytes: float) -> Flags:
        """Return whether that many bytes that no pause held waited at both readings (bool per step); the queue may have been
        empty in between."""
        return np.minimum(self.open_bytes, self.open_bytes_after) >= least_bytes

    @property
    def bps(self) -> Floats:
        """Return the rate of each step in bit/s (float64)."""
        return self.bits * 1e9 / self.gap_ns


@dataclass(frozen=True, slots=True, eq=False)
class Envelope:
    """Greatest rates of ports, one row per row of `Ports`."""

    best_bps: Floats
    """Greatest rate over successive readings with 100 frames or more; NaN without. The link is at least as fast."""
    plateau: Floats
    """Share of `windows` with a rate within 3 % of `best_bps`."""
    windows: Rows
    """Number of such times that begin at different readings and at all of whose readings a few packets waited."""
    busy_ns: Floats
    """Time with a few packets waiting at both readings."""


@dataclass(frozen=True, slots=True, eq=False)
class Drain:
    """Rates of ports, one row per row of `Ports`."""

    bps: Floats
    """Rate while it cannot have been idle; NaN: there was no such time, or too little of it."""
    error_bps: Floats
    """Bound of its error: frames cut by readings, and the spread of the readings."""
    steps: Rows
    """Number of readings behind it."""
    envelope: Envelope


def port_steps(evidence: Evidence) -> Steps:
    """Return what each port did between successive readings of any of its queues."""
    samples, lanes = evidence.samples, evidence.lanes
    port_of_row = lanes.port[samples.lane]
    order = np.lexsort((samples.time_ns, port_of_row))
    port, time_ns = port_of_row[order], samples.time_ns[order]
    is_first = np.r_[True, (port[1:] != port[:-1]) | (time_ns[1:] != time_ns[:-1])][: len(order)]
    row_of_sample = np.empty(len(order), np.int64)
    row_of_sample[order] = np.cumsum(is_first) - 1
    port, time_ns = port[is_first], time_ns[is_first]
    same_port = port[1:] == port[:-1]
    totals = {name: np.zeros(len(port)) for name in ("tx_bytes", "tx_packets")}
    before, after = np.zeros(len(same_port)), np.zeros(len(same_port))
    paused_any = np.zeros(len(same_port), bool)
    number_of_sample = lanes.number[samples.lane]
    for number in np.unique(number_of_sample).tolist():
        chosen = number_of_sample == number
        columns = {
            name: _spread(samples.value(name)[chosen], row_of_sample[chosen], port)
            for name in ("tx_bytes", "tx_packets", "queued_bytes", "paused_ns")
        }
        totals = {name: total + columns[name] for name, total in totals.items()}
        paused = np.diff(columns["paused_ns"]) > 0
        before += np.where(paused, 0, columns["queued_bytes"][:-1])
        after += np.where(paused, 0, columns["queued_bytes"][1:])
        paused_any |= paused
    sent_bytes, packets = np.diff(totals["tx_bytes"]), np.diff(totals["tx_packets"])
    rows = np.flatnonzero(same_port)
    return Steps(
        port=port[rows],
        start_ns=time_ns[rows],
        gap_ns=(time_ns[rows + 1] - time_ns[rows]).astype(np.float64),
        bits=(sent_bytes * 8 + packets * GAP_BITS)[rows],
        sent_bytes=sent_bytes[rows],
        open_bytes=before[rows],
        open_bytes_after=after[rows],
        is_paused=paused_any[rows],
    )


def _spread(values: Floats, rows: Rows, port: Rows) -> Floats:
    """Return the readings of one lane number at all moments of its ports: the last one before, or 0."""
    column = np.full(len(port), np.nan)
    column[rows] = values
    index = np.arange(len(port))
    last = np.maximum.accumulate(np.where(np.isnan(column), -1, index)) if len(port) else index
    starts = np.flatnonzero(np.r_[True, port[1:] != port[:-1]]) if len(port) else index
    start_of = np.repeat(starts, np.diff(np.r_[starts, len(port)]))
    return np.where(last >= start_of, column[np.maximum(last, 0)], 0.0)


def drain_of(evidence: Evidence, steps: Steps) -> Drain:
    """Return the rates of all ports."""
    ports = len(evidence.ports.names)
    frame_bits = (evidence.needs.path_mtu_bytes + 128) * 8 + GAP_BITS
    envelope = _envelope(steps, ports, frame_bits)
    bps, error_bps = np.full(ports, np.nan), np.full(ports, np.nan)
    count = np.zeros(ports, np.int64)
    # As much waits as the port sends at its greatest rate: a bound by the bytes sent alone would select steps with few frames.
    most_bits = np.nan_to_num(envelope.best_bps[steps.port]) * steps.gap_ns / 1e9 + frame_bits
    backlogged = np.flatnonzero(steps.is_backlogged & (steps.open_bytes * 8 >= most_bits))
    rate, gap_ns, port = steps.bps[backlogged], steps.gap_ns[backlogged], steps.port[backlogged]
    middle = _medians(rate, gap_ns, port, ports)
    # Without steps in which the link was down. Readings cut up to two frames.
    kept = np.abs(rate - middle[port]) <= 0.5 * middle[port] + 2e9 * frame_bits / gap_ns
    backlogged, port, gap_ns, rate = backlogged[kept], port[kept], gap_ns[kept], rate[kept]
    bits = np.bincount(port, steps.bits[backlogged], ports)
    time_ns = np.bincount(port, gap_ns, ports)
    count[:] = np.bincount(port, minlength=ports)
    ends = np.bincount(port[np.r_[True, np.diff(backlogged) > 1][: len(port)]], minlength=ports)
    enough = (count >= _LEAST_STEPS) & (bits >= _LEAST_FRAMES * frame_bits)
    bps[enough] = bits[enough] * 1e9 / time_ns[enough]
    frames_bps = 2e9 * frame_bits * np.sqrt(ends[enough]) / time_ns[enough]
    # Frames cut by readings are a part of the spread; the rest is the error of the times of readings.
    excess = gap_ns * np.maximum((rate - bps[port]) ** 2 - (2e9 * frame_bits / gap_ns) ** 2, 0.0)
    spread = np.bincount(port, excess, ports)[enough] / time_ns[enough]
    error_bps[enough] = np.maximum(frames_bps, 2 * np.sqrt(spread / count[enough]))
    return Drain(bps, error_bps, np.where(enough, count, 0), envelope)


def _medians(values: Floats, weights: Floats, group: Rows, groups: int) -> Floats:
    """Return the weighted median of each group; NaN of an empty one."""
    medians = np.full(groups, np.nan)
    if not len(values):
        return medians
    order = np.lexsort((values, group))
    sums = np.cumsum(weights[order])
    first = np.flatnonzero(np.r_[True, np.diff(group[order]) > 0])
    last = np.r_[first[1:], len(order)] - 1
    below = np.where(first > 0, sums[first - 1], 0.0)
    half = np.searchsorted(sums, below + (sums[last] - below) / 2)
    medians[group[order][first]] = values[order][np.minimum(half, last)]
    return medians


def _envelope(steps: Steps, ports: int, frame_bits: int) -> Envelope:
    """Return what ports sent at most."""
    rows = len(steps.port)
    if not rows:
        return Envelope(np.full(ports, np.nan), np.zeros(ports), np.zeros(ports, np.int64), np.zeros(ports))
    # As many steps together as hold enough frames for the two that readings cut to be less than 2 %.
    sums_bits, sums_ns = np.r_[0.0, np.cumsum(steps.bits)], np.r_[0.0, np.cumsum(steps.gap_ns)]
    end = np.searchsorted(sums_bits, sums_bits[:-1] + _WINDOW_FRAMES * frame_bits)
    whole = end <= np.searchsorted(steps.port, steps.port, side="right")
    end = np.minimum(end, rows)
    rate = (sums_bits[end] - sums_bits[:-1]) * 1e9 / np.maximum(sums_ns[end] - sums_ns[:-1], 1)
    best = np.zeros(ports)
    np.maximum.at(best, steps.port[whole], rate[whole])
    is_busy = steps.is_busy(_WAITING_FRAMES * frame_bits / 8)
    sums_busy = np.r_[0, np.cumsum(is_busy)]
    busy_window = whole & (sums_busy[end] - sums_busy[:-1] == end - np.arange(rows))
    windows = np.bincount(steps.port[busy_window], minlength=ports).astype(np.int64)
    near = np.bincount(steps.port[busy_window & (rate >= 0.97 * best[steps.port])], minlength=ports)
    return Envelope(
        np.where(best > 0, best, np.nan),
        near.astype(np.float64) / np.maximum(windows, 1),
        windows,
        np.bincount(steps.port[is_busy], steps.gap_ns[is_busy], ports).astype(np.float64),
    )
