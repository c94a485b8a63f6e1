"""Frame times in the twin against the closed form: bytes on the line over its rate, whatever fraction of a nanosecond a
frame takes."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

import pytest

from etloop.traffic.simulation import SimulationSettings, simulate
from tests.support.traffic.twin_by_hand import (
    GBPS,
    LINE_BYTES,
    UNCONTROLLED,
    incast,
    pairs,
    star,
    through,
    two_tiers,
)

if TYPE_CHECKING:
    from etloop.contract.model.assignment import Assignment
    from etloop.contract.model.topology import Topology

TOLERANCE = 0.005
SIZES = (64 << 10, 512 << 10)
"""Of a message; a greater one would be cut into several, which wait for grants."""
MORE_BYTES = SIZES[1] - SIZES[0]
AROUND_BYTES = LINE_BYTES - 4096
"""Of a packet within a message on a line: headers, check sequence, preamble and gap."""
RATES_BPS = tuple(rate * GBPS for rate in (10, 25, 40, 50, 100, 200, 400, 800, 1600, 3200))
MTUS = (256, 512, 1024, 2048, 4096)


def line_ns(payload_bytes: int, mtu: int, rate_bps: int) -> Fraction:
    """Return what the full packets of so many bytes take on a line."""
    return Fraction(payload_bytes // mtu * (mtu + AROUND_BYTES) * 8 * GBPS, rate_bps)


def whole_ns(job: Assignment, topology: Topology) -> int:
    outcome = through(job, topology)
    assert outcome.failure == ""
    return int(outcome.ops["completed_ns"].max() - outcome.ops["issued_ns"].min())


def off_by(first_ns: int, second_ns: int, expected_ns: Fraction) -> float:
    """Return by what share the time that a greater message takes more differs from the closed form. Latencies cancel."""
    return float(abs((second_ns - first_ns) / expected_ns - 1))


@pytest.mark.parametrize("mtu", MTUS)
@pytest.mark.parametrize("rate_bps", RATES_BPS, ids=lambda rate: f"{rate // GBPS}G")
def test_an_incast_of_two_takes_the_time_of_its_line(rate_bps: int, mtu: int) -> None:
    transport = replace(UNCONTROLLED, path_mtu_bytes=mtu, window_packets=4096)
    topology = star(3, rate_bps)
    first, second = (whole_ns(incast(2, size, transport, link_bps=rate_bps), topology) for size in SIZES)
    assert off_by(first, second, line_ns(2 * MORE_BYTES, mtu, rate_bps)) < TOLERANCE


@pytest.mark.parametrize("senders", [1, 3, 8])
@pytest.mark.parametrize("mtu", [256, 1024])
@pytest.mark.parametrize("rate_bps", [40 * GBPS, 800 * GBPS, 3200 * GBPS, 123_456_789_012], ids=str)
def test_an_incast_of_any_number_takes_the_time_of_its_line(senders: int, rate_bps: int, mtu: int) -> None:
    transport = replace(UNCONTROLLED, path_mtu_bytes=mtu, window_packets=4096)
    topology = star(senders + 1, rate_bps)
    first, second = (
        whole_ns(incast(senders, size, transport, link_bps=rate_bps), topology) for size in SIZES
    )
    assert off_by(first, second, line_ns(senders * MORE_BYTES, mtu, rate_bps)) < TOLERANCE


@pytest.mark.parametrize("mtu", [256, 1024, 4096])
@pytest.mark.parametrize(
    "uplink_bps", [25 * GBPS, 400 * GBPS, 1600 * GBPS], ids=lambda rate: f"{rate // GBPS}G"
)
def test_two_flows_over_a_trunk_take_the_time_of_the_trunk(uplink_bps: int, mtu: int) -> None:
    """Hosts have lines of twice the trunk's rate, so that the trunk alone is full."""
    topology = two_tiers(2, 2, 1, uplink_bps)
    topology = replace(
        topology,
        switches=tuple(
            replace(
                switch,
                ports=tuple(
                    port
                    if port.name.startswith("up") or switch.name == "spine0"
                    else replace(port, rate_bps=2 * uplink_bps)
                    for port in switch.ports
                ),
            )
            for switch in topology.switches
        ),
    )
    transport = replace(UNCONTROLLED, path_mtu_bytes=mtu, window_packets=4096)
    first, second = (whole_ns(pairs(((0, 2), (1, 3)), size, transport), topology) for size in SIZES)
    assert off_by(first, second, line_ns(2 * MORE_BYTES, mtu, uplink_bps)) < TOLERANCE


@pytest.mark.parametrize("fair", [False, True])
@pytest.mark.parametrize("rate_bps", [400 * GBPS, 3200 * GBPS], ids=lambda rate: f"{rate // GBPS}G")
def test_links_of_the_simulation_take_the_time_of_their_line(rate_bps: int, fair: bool) -> None:
    transport = replace(UNCONTROLLED, path_mtu_bytes=256, window_packets=4096)
    settings = SimulationSettings(receiver_links=True, fair_links=fair)
    times = []
    for size in SIZES:
        outcome = simulate(incast(2, size, transport, link_bps=rate_bps), settings)
        assert outcome.failure == ""
        times.append(int(outcome.ops["completed_ns"].max()))
    assert off_by(times[0], times[1], line_ns(2 * MORE_BYTES, 256, rate_bps)) < TOLERANCE
