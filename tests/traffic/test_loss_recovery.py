"""Incasts on switches that drop: what is lost is repaired by what arrives, or by a probe, and not by a timeout."""

from __future__ import annotations

from dataclasses import replace

import pytest

from etloop.contract.model.congestion import CongestionSettings
from etloop.contract.model.transport import CnpSettings
from etloop.traffic.twin import TwinOutcome
from tests.support.traffic.sprayed_by_hand import lossy
from tests.support.traffic.twin_by_hand import (
    LINE_BYTES,
    RATE_BPS,
    UNCONTROLLED,
    changed,
    dropped,
    incast,
    star,
    through,
    two_tiers,
)

EACH_BYTES = 1 << 20
ALGORITHMS = ("none", "dcqcn", "timely", "dctcp", "swift", "nscc")
LEARN_FROM_ACKNOWLEDGEMENTS = ("timely", "dctcp", "swift", "nscc")


def recovered(algorithm: str, senders: int, buffer_bytes: int, *, selective: bool) -> TwinOutcome:
    """An incast whose cards wait as long as the buffer takes, there and back."""
    floor_ns = 2 * buffer_bytes * 8 * 1_000_000_000 * 5 // (4 * RATE_BPS)
    recovery = replace(UNCONTROLLED.recovery, timeout_floor_ns=floor_ns, selective_repeat=selective)
    transport = replace(
        UNCONTROLLED,
        recovery=recovery,
        timeout_ns=640_000_000,
        ack_every_packets=1 if algorithm in LEARN_FROM_ACKNOWLEDGEMENTS else 256,
        congestion=CongestionSettings(algorithm=algorithm),
        cnp=CnpSettings(),
    )
    switch = changed(star(senders + 1, lossless=False), buffer_bytes=buffer_bytes)
    return through(incast(senders, EACH_BYTES, transport), switch)


def times_ideal(outcome: TwinOutcome, senders: int) -> float:
    ideal_ns = senders * (EACH_BYTES // 4096) * LINE_BYTES * 8 * 1_000_000_000 // RATE_BPS
    return float((outcome.end_ns - outcome.start_ns) / ideal_ns)


@pytest.mark.parametrize("buffer_bytes", [200_000, 800_000])
@pytest.mark.parametrize("senders", [4, 15])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_selective_repeat_ends_an_incast_within_twice_the_ideal(
    algorithm: str, senders: int, buffer_bytes: int
) -> None:
    outcome = recovered(algorithm, senders, buffer_bytes, selective=True)
    assert outcome.failure == ""
    assert times_ideal(outcome, senders) < 2
    again = int(outcome.flows["retransmitted_packets"].sum())
    assert again <= 1.1 * dropped(outcome) + 200, "what arrived is not sent again, but for probes"


def test_a_rate_that_fell_to_its_least_one_comes_back_while_losses_are_repaired() -> None:
    """TIMELY over two tiers: of some hundred lost packets each is alone under way, and tells of its round trip."""
    each_bytes, senders, buffer_bytes = 10 << 20, 15, 800_000
    recovery = replace(
        UNCONTROLLED.recovery,
        timeout_floor_ns=2 * buffer_bytes * 8 * 1_000_000_000 * 5 // (4 * RATE_BPS),
        selective_repeat=True,
    )
    transport = replace(
        UNCONTROLLED,
        recovery=recovery,
        timeout_ns=640_000_000,
        ack_every_packets=1,
        congestion=CongestionSettings(algorithm="timely"),
        cnp=CnpSettings(),
    )
    fabric = changed(lossy(two_tiers(4, 4, 4)), buffer_bytes=buffer_bytes)
    outcome = through(incast(senders, each_bytes, transport), fabric)
    assert outcome.failure == ""
    ideal_ns = senders * (each_bytes // 4096) * LINE_BYTES * 8 * 1_000_000_000 // RATE_BPS
    assert outcome.end_ns - outcome.start_ns < 2 * ideal_ns


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_go_back_n_is_not_locked_out_for_seconds(algorithm: str) -> None:
    outcome = recovered(algorithm, 15, 800_000, selective=False)
    assert outcome.failure == ""
    assert times_ideal(outcome, 15) < 20
