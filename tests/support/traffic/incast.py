"""Incast in virtual time for tests of congestion control: n senders through one egress queue to one receiver."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from etloop.contract.model.congestion import (
    CongestionParameter,
    CongestionSettings,
    PacingSettings,
    SeriesSettings,
)
from etloop.contract.model.transport import CnpSettings
from etloop.traffic.simulation import SimulationOutcome, SimulationSettings, simulate
from tests.support.traffic.assignments_by_hand import TRANSPORT, HandOp, assignment

PACKET_OF_PAYLOAD = (4096 + 16 + 66) / 4096
"""Bytes on the link for a byte of payload, in full packets over IPv4."""


@dataclass(frozen=True, slots=True)
class Incast:
    """One experiment. ECN thresholds in bytes; `last_ns` is about how long it takes at the full rate."""

    senders: int
    algorithm: str
    profile: str = ""
    parameters: dict[str, float] = field(default_factory=dict)
    link_bps: int = 25_000_000_000
    last_ns: int = 200_000_000
    stagger_ns: int = 0
    """Time over which the senders begin one after the other."""
    window_packets: int = 64
    ack_every: int = 1
    cnp_interval_ns: int = 4_000
    mark_from_bytes: int = 0
    mark_all_bytes: int = 0
    mark_per_million: int = 0
    latency_ns: int = 8_000
    telemetry: bool = False
    library: str = ""
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Steady:
    """The second half of what all senders were busy: rates in shares of the link, or of the fair share."""

    utilisation: float
    least: float
    most: float
    queue_mean_bytes: float
    queue_max_bytes: int
    rtt_mean_ns: float


def run_incast(setup: Incast) -> SimulationOutcome:
    """The whole engine through the experiment."""
    each = setup.last_ns * setup.link_bps // 8_000_000_000 // setup.senders
    receiver = setup.senders
    sends = tuple(
        (
            HandOp("delay", 1 + rank * setup.stagger_ns // setup.senders),
            HandOp("send", each, (0,), peer=receiver, sequence=0),
        )
        for rank in range(setup.senders)
    )
    receives = tuple(HandOp("recv", each, peer=rank, sequence=0) for rank in range(setup.senders))
    congestion = CongestionSettings(
        algorithm=setup.algorithm,
        profile=setup.profile,
        parameters=tuple(CongestionParameter(*each) for each in setup.parameters.items()),
        pacing=PacingSettings(burst_bytes=1),
        series=SeriesSettings(interval_ns=100_000),
    )
    transport = replace(
        TRANSPORT,
        window_packets=setup.window_packets,
        ack_every_packets=setup.ack_every,
        timeout_ns=200_000_000,
        congestion=congestion,
        cnp=CnpSettings(interval_ns=setup.cnp_interval_ns),
    )
    return simulate(
        assignment((*sends, receives), transport=transport, link_bps=setup.link_bps),
        SimulationSettings(
            seed=setup.seed,
            latency_ns=setup.latency_ns,
            queue_capacity_bytes=64 << 20,
            mark_from_bytes=setup.mark_from_bytes,
            mark_all_bytes=setup.mark_all_bytes,
            mark_per_million=setup.mark_per_million,
            telemetry=setup.telemetry,
            sampled_port=receiver,
            sample_interval_ns=10_000,
            probe_first=True,
            cc_library=setup.library,
        ),
    )


def steady(setup: Incast, outcome: SimulationOutcome) -> Steady:
    """What the experiment came to, after everybody has begun and before anybody has ended."""
    assert outcome.failure == ""
    rates, queue = outcome.rates, outcome.queue
    begin = int(outcome.ops["issued_ns"].min()) + setup.stagger_ns
    end = int(outcome.ops["completed_ns"].min())
    middle = begin + (end - begin) // 2
    shares, rtts = [], []
    for number in np.unique(rates["local_qpn"]):
        mine = rates[
            (rates["local_qpn"] == number) & (rates["time_ns"] >= middle) & (rates["time_ns"] <= end)
        ]
        spent_ns = mine["time_ns"][-1] - mine["time_ns"][0]
        acked = mine["acked_bytes"][-1] - mine["acked_bytes"][0]
        shares.append(float(acked) * 8e9 / float(spent_ns) * PACKET_OF_PAYLOAD / setup.link_bps)
        rtts.append(float(mine["rtt_ns"][mine["rtt_ns"] >= 0].mean()))
    queue = queue[(queue["time_ns"] >= middle) & (queue["time_ns"] <= end)]
    return Steady(
        utilisation=sum(shares),
        least=min(shares) * setup.senders,
        most=max(shares) * setup.senders,
        queue_mean_bytes=float(queue["queued_bytes"].mean()),
        queue_max_bytes=int(queue["queued_bytes"].max()),
        rtt_mean_ns=float(np.mean(rtts)),
    )
