"""Measures how much a requester sends on many queue pairs at once, and its rate of small messages."""

from __future__ import annotations

from typing import Final

from etloop.contract.base.clock import NS_PER_S
from etloop.experiments.nic.battery.experiment import Experiment
from etloop.experiments.nic.link.figures import Curve, Figure, Finding, unseen
from etloop.experiments.nic.link.probe import QUIET_NS, Connection, NicError, Probe, is_data

COUNTS: Final = (1, 4, 16, 64, 256, 1024, 4096, 10_000)
PACKETS: Final = 2048
"""Packets of all queue pairs together."""
MOST_MESSAGES: Final = 128
"""Most messages of one queue pair, one packet each."""
SMALL_BYTES: Final = 64
_SMALL_PAIRS: Final = 4
_FULL: Final = 0.9
"""Share of the best rate that still counts as the full rate."""


def run(probe: Probe) -> tuple[Finding, ...]:
    """Post writes of one packet on 1, 4, 16, ... queue pairs as close together as the card's host can, and answer none."""
    rates: dict[int, Figure] = {}
    for pairs in [count for count in COUNTS if count <= probe.most_pairs]:
        figure = _rate(probe, pairs, 1024, "bit/s")
        if figure.value is not None:
            rates[pairs] = figure
    small = _rate(probe, min(_SMALL_PAIRS, probe.most_pairs), SMALL_BYTES, "1/s")
    if not rates:
        return unseen(
            "pairs_at_full_rate", "queue pairs", "no burst lasted long enough to be measured"
        ), small
    curve = Curve(
        "queue_pairs",
        "Rate over queue pairs",
        "queue pairs (count)",
        "payload (Gbit/s)",
        tuple(map(float, rates)),
        tuple((rate.value or 0.0) / 1e9 for rate in rates.values()),
        is_log=True,
    )
    return *_rate_figures(rates), small, curve


def _rate_figures(rates: dict[int, Figure]) -> tuple[Figure, ...]:
    """Return the rates of the fewest and the most queue pairs, and the largest number of them at full rate.

    Few queue pairs may not fill the link, so only numbers from that with the best rate on are compared.
    """
    full = max(rates, key=lambda pairs: rates[pairs].value or 0.0)
    best_low = rates[full].low
    assert best_low is not None
    for pairs, rate in rates.items():
        assert rate.high is not None
        if pairs > full and rate.high < _FULL * best_low:
            break
        full = max(full, pairs)
    fewest, most = min(rates), max(rates)
    remark = "the most that were tried" if full == most else f"{most} were tried"
    pairs_at_full_rate = Figure("pairs_at_full_rate", "queue pairs", full, full, full, remark, len(rates))
    return (
        pairs_at_full_rate,
        _rename(rates[fewest], "rate_of_fewest_pairs"),
        _rename(rates[most], "rate_of_most_pairs"),
    )


def _rename(figure: Figure, name: str) -> Figure:
    return Figure(name, figure.unit, figure.value, figure.low, figure.high, figure.word, figure.samples)


def _rate(probe: Probe, pairs: int, size_bytes: int, unit: str) -> Figure:
    """Return the rate of a burst: payload in bit/s, or messages per second."""
    connections = [probe.connect() for _ in range(pairs)]
    probe.wire.take_drop_count()
    probe.nic.write_on_all(min(max(PACKETS // pairs, 1), MOST_MESSAGES), size_bytes)
    times_ns = _first_arrivals(probe, connections)
    missed_frames = probe.wire.take_drop_count()
    for connection in connections:
        connection.close()
    if missed_frames:
        raise NicError(f"the local socket dropped {missed_frames} frames of {pairs} queue pairs; try fewer")
    name = "message_rate" if unit == "1/s" else f"rate_of_{pairs}"
    error_ns = 2 * probe.wire.resolution_ns
    lasted_ns = times_ns[-1] - times_ns[0] if times_ns else 0
    if lasted_ns <= 2 * error_ns:
        why = f"a burst of {len(times_ns)} packets lasted {lasted_ns} ns, local timestamps may be {error_ns // 2} ns late"
        return unseen(name, unit, why)
    amount = (len(times_ns) - 1) * (1 if unit == "1/s" else 8 * size_bytes) * NS_PER_S
    low, high = amount / (lasted_ns + error_ns), amount / (lasted_ns - error_ns)
    return Figure(name, unit, amount / lasted_ns, low, high, f"{pairs} queue pairs", len(times_ns))


def _first_arrivals(probe: Probe, connections: list[Connection]) -> list[int]:
    """Return the time in ns of the first arrival of each packet of these connections, sorted."""
    own_qpns = {connection.our_qpn for connection in connections}
    first_ns: dict[tuple[int, int], int] = {}
    while (arrival := probe.wire.receive(probe.wire.now_ns() + QUIET_NS)) is not None:
        if is_data(arrival) and arrival.packet.dest_qpn in own_qpns:
            first_ns.setdefault((arrival.packet.dest_qpn, arrival.packet.psn), arrival.at_ns)
    return sorted(first_ns.values())


EXPERIMENT: Final = Experiment(
    name="queue_pairs",
    provokes="writes of one packet on 1, 4, 16, ... queue pairs (--most-pairs), posted one after the other and never answered;"
    f" then messages of {SMALL_BYTES} bytes on {_SMALL_PAIRS}",
    reads="payload per second from the first packet to the last, and the number of queue pairs, from the best on, up to which"
    " it is at least 0.9 of the best",
    clause="Kong et al., NSDI 2022 (Collie): caches of queue pair state; no standard sets a bound",
    figures={
        "pairs_at_full_rate": "queue pairs",
        "rate_of_fewest_pairs": "bit/s",
        "rate_of_most_pairs": "bit/s",
        "message_rate": "1/s",
    },
    run=run,
)
