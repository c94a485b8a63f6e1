"""Incasts on switches that trim: with answers to trimmed packets nobody waits for a timeout, and every cut packet is counted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from etloop.contract.model.congestion import CongestionSettings
from etloop.contract.model.topology import Trimming
from etloop.contract.model.transport import TrimAnswer, TrimSettings
from etloop.traffic.twin import TwinOutcome
from tests.support.traffic.twin_by_hand import (
    LINE_BYTES,
    RATE_BPS,
    UNCONTROLLED,
    changed,
    dropped,
    incast,
    star,
    through,
)

EACH_BYTES = 1 << 20
TRIMMED_DSCP = 50
ALGORITHMS = ("none", "dcqcn", "timely", "dctcp", "swift", "nscc")


def trimmed_incast(
    algorithm: str, senders: int, answer: TrimAnswer, dscps: tuple[int, ...] = (TRIMMED_DSCP,)
) -> TwinOutcome:
    recovery = replace(
        UNCONTROLLED.recovery,
        timeout_floor_ns=160_000,
        selective_repeat=answer is not TrimAnswer.NAK,
        trimming=TrimSettings(dscps, answer),
    )
    transport = replace(
        UNCONTROLLED,
        recovery=recovery,
        timeout_ns=640_000_000,
        ack_every_packets=256 if algorithm in {"none", "dcqcn"} else 1,
        congestion=CongestionSettings(algorithm=algorithm),
    )
    topology = star(senders + 1, lossless=False)
    classes = list(topology.switches[0].dscp_to_class)
    classes[TRIMMED_DSCP] = classes[48]
    switch = changed(
        topology,
        buffer_bytes=800_000,
        trimming=Trimming(128, TRIMMED_DSCP),
        dscp_to_class=tuple(classes),
    )
    return through(incast(senders, EACH_BYTES, transport), switch)


def total(outcome: TwinOutcome, counter: str) -> int:
    return int(outcome.flows[counter].sum())


@pytest.mark.parametrize("senders", [4, 15])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_is_asked_for_by_itself_needs_no_timeout(algorithm: str, senders: int) -> None:
    outcome = trimmed_incast(algorithm, senders, TrimAnswer.SELECTIVE)
    assert outcome.failure == ""
    ideal_ns = senders * (EACH_BYTES // 4096) * LINE_BYTES * 8 * 1_000_000_000 // RATE_BPS
    assert outcome.end_ns - outcome.start_ns < 2 * ideal_ns
    if dropped(outcome) == 0:
        assert total(outcome, "local_ack_timeout_err") == 0
    queues = outcome.switch_ports[0]["queues"]
    trimmed, sent, lost = (
        int(queues[name].sum()) for name in ("trimmed_packets", "trim_sent_packets", "trim_dropped_packets")
    )
    assert trimmed == sent + lost
    # Short packets, which go whole, are among what the switch calls trimmed.
    assert 0 <= sent - total(outcome, "trimmed_received") <= sent // 2 + 64
    assert total(outcome, "trimmed_received") >= total(outcome, "trimmed_answered")
    assert total(outcome, "trimmed_answered") >= total(outcome, "trimmed_resent")
    assert int(outcome.trimmed_packets.sum()) == total(outcome, "trimmed_received")
    assert outcome.bad_packets == 0


def test_a_nak_is_understood_by_a_sender_that_goes_back() -> None:
    outcome = trimmed_incast("dctcp", 8, TrimAnswer.NAK)
    assert outcome.failure == ""
    assert total(outcome, "trimmed_answered") > 0
    assert total(outcome, "trimmed_resent") == 0


@pytest.mark.parametrize(
    ("sentence", "answer", "dscps", "received"),
    [
        ("with the answer off they are counted", TrimAnswer.NONE, (TRIMMED_DSCP,), True),
        ("with another DSCP they are damaged packets", TrimAnswer.SELECTIVE, (51,), False),
        ("with none they are, too", TrimAnswer.NONE, (), False),
    ],
)
def test_without_an_answer_the_sender_finds_out_by_itself(
    sentence: str, answer: TrimAnswer, dscps: tuple[int, ...], received: bool
) -> None:
    outcome = trimmed_incast("dctcp", 8, answer, dscps)
    assert outcome.failure == "", sentence
    assert (total(outcome, "trimmed_received") > 0) == received, sentence
    assert (outcome.bad_packets > 0) != received, sentence
    assert total(outcome, "trimmed_answered") == 0, sentence


def test_the_same_seed_gives_the_same_bytes() -> None:
    first, again = (trimmed_incast("none", 4, TrimAnswer.SELECTIVE) for _ in range(2))
    assert first.flows.tobytes() == again.flows.tobytes()
    assert first.switch_ports[0].tobytes() == again.switch_ports[0].tobytes()
