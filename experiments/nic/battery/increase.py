"""Measures how a requester's rate increases after many congestion notifications: DCQCN's additive and hyper increase.

Decides by a fit. A series of notifications cuts the rate far below the line rate. Then it increases undisturbed: towards the
rate before the cut in a few raises, then by small steps, and perhaps by large ones. Interval and share of a raise are those
measured after a single notification; the begin and size of the steps are fitted to the packets' times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.clock import NS_PER_S, NS_PER_US
from etloop.contract.base.late_dataclass import dataclass
from etloop.experiments.nic.battery import rate_cut
from etloop.experiments.nic.battery.experiment import Experiment
from etloop.experiments.nic.link.endless import acknowledge_packets
from etloop.experiments.nic.link.figures import Curve, Figure, Finding, unseen
from etloop.experiments.nic.link.wire import PairSettings

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.experiments.nic.link.probe import Connection, Probe

PATH_MTUS: Final = (256, 512, 1024, 2048, 4096)
AT_EACH_RAISE: Final = 8
"""Packets that should leave between two raises at the lowest rate, so that steps are visible."""
AROUND_BYTES: Final = 98
"""Ethernet with preamble, gap and FCS, IPv4, UDP, BTH and ICRC of a packet: rates count bytes on the wire."""
SPACING_NS: Final = 20 * NS_PER_US
"""Time between notifications: longer than cards ignore further ones, shorter than their first raise takes."""
MOST_NOTIFICATIONS: Final = 64
DEPTH: Final = 32
"""Divisor of the rate before the cut, down to which it is slowed."""
LEAST_DEPTH: Final = 4
RAISES: Final = 45
"""Raises that are observed."""
MOST_PACKETS: Final = 30_000
NEAR_LINE: Final = 0.5
"""Share of the rate before the cut above which the observation ends."""
FULL: Final = 0.98
"""Share of a rate that counts as the full rate."""
MOST_FAST: Final = 6
"""Most raises towards the rate before the cut: DCQCN has 5, cards fewer."""
LEAST_SEEN: Final = 4
"""Raises of a kind that are needed to detect its steps."""
INTERVALS: Final = 25
"""Number of intervals tried between the bounds of the measured interval."""
AS_GOOD: Final = 4.0
"""Ratio of a fit's mean square error to the least one up to which the fit is not excluded."""
LARGER: Final = 1.5
"""Ratio of step sizes above which the larger steps are a second kind."""
LEAST_GROWTH: Final = 0.05
"""Share of the rate by which it must grow during the observation to count as growing."""
ERROR: Final = 0.08
"""Relative error of the steps in the best fit, because raises vary."""


@dataclass(frozen=True, slots=True)
class _Climb:
    """Packet times observed while the rate increases."""

    left_ns: int
    """Departure of the last notification."""
    times_ns: NDArray[np.float64]
    """Arrival times of the packets since, shape (packets,)."""
    packet_bits: int
    most_bps: float
    """Rate up to which the increase is evaluated."""

    def rates_bps(self, interval_ns: float) -> NDArray[np.float64]:
        """Return the rates in bit/s between successive raises, shape (raises,); the first is that before any raise."""
        last_ns = self.times_ns[-1] - self.left_ns if len(self.times_ns) else 0.0
        edges = self.left_ns + interval_ns * np.arange(int(last_ns / interval_ns) + 1)
        crossed = np.interp(edges, self.times_ns, np.arange(len(self.times_ns), dtype=np.float64))
        # A raise without any packet counts as one: fits weigh by the rate.
        packets = np.maximum(np.diff(crossed), 1)
        rates: NDArray[np.float64] = packets * self.packet_bits * NS_PER_S / interval_ns
        near = np.flatnonzero(rates > self.most_bps)
        return rates[: near[0]] if len(near) else rates


@dataclass(frozen=True, slots=True)
class _Fit:
    """One fitted course of the increase."""

    interval_ns: float
    fast: int
    additive: int
    """Raises by small steps; 0: all of them."""
    small_bps: float
    large_bps: float
    grows: float
    """Share of the last rate that all steps make up together."""
    error: float
    """Mean square of the residuals, relative to the rate."""


def run(probe: Probe) -> tuple[Finding, ...]:
    """Notify a card once to measure its interval, and then until it is slow; observe the increase of its rate."""
    line_bps, interval, share = _single(probe)
    if interval.value is None or share.value is None:
        return _nothing(interval.word if interval.value is None else share.word)
    climb = _climb(probe, line_bps, interval.value)
    if isinstance(climb, str):
        return _nothing(climb)
    return *_figures(_fits(climb, interval, share.value)), *_curve(climb, interval.value)


def _nothing(why: str) -> tuple[Finding, ...]:
    return tuple(unseen(name, unit, why) for name, unit in EXPERIMENT.figures.items())


def _single(probe: Probe) -> tuple[float, Figure, Figure]:
    """Return the line rate, and the interval and share of a raise, by the smallest packets that the card sends at full
    rate.
    """
    line_bps, smallest = 0.0, PATH_MTUS[-1]
    for size in reversed(PATH_MTUS):
        connection = _writing(probe, size, rate_cut.BASE_PACKETS)
        rate_bps = _rate_bps(connection, acknowledge_packets(connection, rate_cut.BASE_PACKETS, None))
        connection.close()
        line_bps = max(line_bps, rate_bps)
        if rate_bps < FULL * line_bps:
            break
        smallest = size
    connection = _writing(probe, smallest, MOST_PACKETS)
    before = acknowledge_packets(connection, rate_cut.BASE_PACKETS, None)
    left_ns = connection.notify()
    after = acknowledge_packets(connection, MOST_PACKETS - len(before), left_ns + rate_cut.WATCHED_NS)
    connection.close()
    cut, interval = rate_cut.first_cut(before, after, probe.wire.resolution_ns)
    return line_bps, interval, rate_cut.climb_share(before, after, cut, interval)


def _climb(probe: Probe, line_bps: float, interval_ns: float) -> _Climb | str:
    """Slow the card and observe its increase; return the reason if it cannot be observed."""
    largest_bytes = line_bps / DEPTH * interval_ns / NS_PER_S / 8 / AT_EACH_RAISE - AROUND_BYTES
    connection = _writing(
        probe, max((size for size in PATH_MTUS if size <= largest_bytes), default=PATH_MTUS[0]), MOST_PACKETS
    )
    initial_bps = _rate_bps(connection, acknowledge_packets(connection, rate_cut.BASE_PACKETS, None))
    left_ns = _slow_down(connection, min(line_bps, initial_bps))
    times_ns: list[int] = []
    if left_ns is not None:
        end_ns = left_ns + round(RAISES * interval_ns)
        while len(times_ns) < MOST_PACKETS // 2:
            arrivals = acknowledge_packets(connection, 64, end_ns)
            times_ns += arrivals
            if len(arrivals) < 64 or _rate_bps(connection, arrivals) > NEAR_LINE * initial_bps:
                break
    connection.close()
    if left_ns is None:
        return f"{MOST_NOTIFICATIONS} notifications leave more than 1/{LEAST_DEPTH} of its rate"
    bits = _packet_bits(connection)
    return _Climb(left_ns, np.asarray(times_ns, dtype=np.float64), bits, NEAR_LINE * initial_bps)


def _writing(probe: Probe, path_mtu: int, packets: int) -> Connection:
    connection = probe.connect(PairSettings(path_mtu=path_mtu))
    connection.nic.write(connection.end, packets * path_mtu)
    return connection


def _packet_bits(connection: Connection) -> int:
    return 8 * (connection.settings.path_mtu + AROUND_BYTES)


def _rate_bps(connection: Connection, times_ns: list[int]) -> float:
    """Return the average rate over these packets, in bits per second on the wire; 0 if it cannot be computed."""
    lasted_ns = times_ns[-1] - times_ns[0] if times_ns else 0
    return (len(times_ns) - 1) * _packet_bits(connection) * NS_PER_S / lasted_ns if lasted_ns else 0.0


def _slow_down(connection: Connection, usual_bps: float) -> int | None:
    """Notify until packets are slow; return the departure time of the last notification, or None if they do not become
    slow.
    """
    bits = _packet_bits(connection)
    now_bps = usual_bps
    left_ns = 0
    for _ in range(MOST_NOTIFICATIONS):
        left_ns = connection.notify()
        now_bps = (
            len(acknowledge_packets(connection, MOST_PACKETS, left_ns + SPACING_NS))
            * bits
            * NS_PER_S
            / SPACING_NS
        )
        if now_bps < usual_bps / DEPTH:
            break
    return left_ns if now_bps < usual_bps / LEAST_DEPTH else None


def _fits(seen: _Climb, interval: Figure, share: float) -> list[_Fit]:
    """Return all fits that explain the packets about as well as the best one, the best first."""
    assert interval.low is not None
    assert interval.high is not None
    fits: list[_Fit] = []
    for interval_ns in np.linspace(max(interval.low, interval.high / 10), interval.high, INTERVALS):
        rates_bps = seen.rates_bps(float(interval_ns))
        for fast, additive in _beginnings(len(rates_bps)):
            fit = _fit(rates_bps, float(interval_ns), share, fast, additive)
            if fit.small_bps > 0 and (not additive or fit.large_bps > LARGER * fit.small_bps):
                fits.append(fit)
    least = min((fit.error for fit in fits), default=0.0)
    near = [fit for fit in fits if fit.error <= AS_GOOD * least]
    # If steps of one kind explain it about as well, no second kind is assumed.
    plain = [fit for fit in near if not fit.additive]
    return sorted(plain or near, key=lambda fit: fit.error)


def _beginnings(raises: int) -> list[tuple[int, int]]:
    """Return the possible numbers of raises of the first two kinds, for this number of raises."""
    return [
        (fast, additive)
        for fast in range(min(MOST_FAST, raises - LEAST_SEEN) + 1)
        for additive in (0, *range(LEAST_SEEN, raises - fast - LEAST_SEEN))
    ]


def _fit(rates_bps: NDArray[np.float64], interval_ns: float, share: float, fast: int, additive: int) -> _Fit:
    """Return the fit with the best steps for given begins: rates depend on the steps linearly."""
    count = len(rates_bps)
    # Coefficients of each raise's rate: initial rate, target rate, small step, large step.
    columns = np.zeros((count, 4))
    columns[0, 0] = 1
    aim = np.array([0.0, 1, 0, 0])
    for raised in range(1, count):
        if raised > fast:
            aim[3 if 0 < additive < raised - fast else 2] += 1
        columns[raised] = columns[raised - 1] + share * (aim - columns[raised - 1])
    design = (columns if additive else columns[:, :3]) / rates_bps[:, None]
    solution, *_ = np.linalg.lstsq(design, np.ones(count), rcond=None)
    error = float(np.mean((design @ solution - 1) ** 2))
    small_bps, large_bps = float(solution[2]), float(solution[3]) if additive else 0.0
    grows = float(aim[2] * small_bps + aim[3] * large_bps) / float(rates_bps[-1])
    return _Fit(interval_ns, fast, additive, small_bps, large_bps, grows, error)


def _figures(fits: list[_Fit]) -> tuple[Finding, ...]:
    """Return the figures of all fits that are not excluded; the best fit gives the value."""
    if not fits or fits[0].grows < LEAST_GROWTH:
        return _nothing(
            "the rate does not exceed the rate before the CNPs, or not for long enough to be measured"
        )
    raises = [float(fit.fast) for fit in fits]
    figures = (
        _raise_count("fast_recovery_raises", raises),
        _spread("additive_increase", "bit/s", [fit.small_bps for fit in fits], ERROR),
    )
    if not fits[0].additive:
        why = "all observed steps have one size within the resolution"
        return *figures, unseen("additive_raises", "count", why), unseen("hyper_increase", "bit/s", why)
    return (
        *figures,
        _raise_count("additive_raises", [float(fit.additive) for fit in fits]),
        _spread("hyper_increase", "bit/s", [fit.large_bps for fit in fits], ERROR),
    )


def _spread(name: str, unit: str, values: list[float], error: float) -> Figure:
    low, high = min(values) * (1 - error), max(values) * (1 + error)
    return Figure(name, unit, values[0], low, high, "", 1)


def _raise_count(name: str, values: list[float]) -> Figure:
    """Return a number of raises with an error of one: the begin of a kind shows only in the next raises."""
    return Figure(name, "count", values[0], max(min(values) - 1, 0.0), max(values) + 1, "", 1)


def _curve(seen: _Climb, interval_ns: float) -> tuple[Curve, ...]:
    rates_bps = seen.rates_bps(interval_ns)
    if len(rates_bps) < LEAST_SEEN:
        return ()
    times_us = tuple((number + 0.5) * interval_ns / 1e3 for number in range(len(rates_bps)))
    x_label, y_label = "time since the last notification (us)", "on the wire (Gbit/s)"
    return (
        Curve(
            "increase", "Rate after many notifications", x_label, y_label, times_us, tuple(rates_bps / 1e9)
        ),
    )


EXPERIMENT: Final = Experiment(
    name="increase",
    provokes=f"one congestion notification in an endless write, then up to {MOST_NOTIFICATIONS}, {SPACING_NS // NS_PER_US} us"
    " apart, until the rate is low; then none",
    reads=f"the rate after each of {RAISES} raises; fitted: number of raises up to the rate before the CNPs, the step of each"
    " further one, and the number after which the step grows",
    clause="Zhu et al., SIGCOMM 2015 (DCQCN), 5.1; NVIDIA DOCA, DCQCN parameters: rpg_threshold, rpg_ai_rate, rpg_hai_rate",
    figures={
        "fast_recovery_raises": "count",
        "additive_increase": "bit/s",
        "additive_raises": "count",
        "hyper_increase": "bit/s",
    },
    run=run,
)
