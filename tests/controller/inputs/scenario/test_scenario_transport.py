"""Recovery, congestion notifications and faults as a scenario writes them: what is read, and what is said of mistakes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from etloop.contract.base.errors import ConfigError, PlanError
from etloop.contract.model.assignment import Path as Way
from etloop.contract.model.fault_rules import FaultAction, FaultDirection, FaultPackets, FaultRule
from etloop.contract.model.transport import (
    AS_DATA,
    CnpScope,
    CnpSettings,
    MarkSettings,
    RecoverySettings,
    TrimAnswer,
    TrimSettings,
)
from etloop.controller.inputs.scenario.faults import refuse_idle_faults
from etloop.controller.inputs.scenario.scenario import parse_scenario
from etloop.traffic.collectives.selection import CollectiveName
from tests.support.traffic.assignments_by_hand import HandOp, assignment

if TYPE_CHECKING:
    from etloop.controller.inputs.scenario.transport import Transport


def transport(text: str) -> Transport:
    return parse_scenario(
        f"workload: {{trace: j}}\nseed: 4\ntransport:\n{text}".encode(), "s.yaml", Path()
    ).transport


def mistakes(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        transport(text)
    return str(caught.value).splitlines()


def test_silence_means_what_nics_do() -> None:
    read = transport("  dscp: 26")
    assert read.recovery == RecoverySettings()
    assert read.cnp == CnpSettings(send=True, interval_ns=4_000, scope=CnpScope.QUEUE_PAIR, dscp=48, ecn=0)
    assert read.faults == ()
    assert read.timeout_ns == 640_000_000


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        (
            "timeout: 2ms",
            "transport.timeout 2ms x retries 7: a queue pair gives up after 14ms without an answer; ",
        ),
        (
            "timeout: 2ms\n  retries: 63",
            "transport.timeout 2ms x retries 63: a queue pair gives up after 126ms ",
        ),
        ("timeout: 40ms", ""),
        ("timeout_floor: 2ms", ""),
    ],
)
def test_patience_that_a_busy_machine_outlasts_is_remarked(text: str, reported: str) -> None:
    notes = "".join(transport(f"  {text}").notes)
    assert notes.startswith(reported)
    assert bool(notes) is bool(reported)


def test_every_key_is_read() -> None:
    read = transport("""
  timeout: 4ms
  timeout_floor: 100us
  adaptive_timeout: true
  retransmission: selective_repeat
  window_packets: 256
  out_of_order: accept
  reorder_packets: 12
  rnr_retry: 3
  min_rnr_timer: 20.48ms
  outstanding_reads: 4
  initial_psn: 16777215
  cnp: {interval: 50us, scope: port, dscp: 46}
""")
    assert read.recovery == RecoverySettings(
        adaptive_timeout=True,
        timeout_floor_ns=100_000,
        selective_repeat=True,
        accept_out_of_order=True,
        reorder_packets=12,
        rnr_retry_limit=3,
        min_rnr_timer_code=22,
        outstanding_reads=4,
        initial_psn=2**24 - 1,
    )
    assert read.cnp == CnpSettings(interval_ns=50_000, scope=CnpScope.PORT, dscp=46)


def test_a_fixed_timeout() -> None:
    assert not transport("  adaptive_timeout: false").recovery.adaptive_timeout


def test_kinds_of_packets_have_marks_of_their_own() -> None:
    """What a section leaves out is as of data; ECN of notifications is none."""
    read = transport("""
  dscp: 24
  vlan: {id: 5, pcp: 4}
  ack: {dscp: 26, pcp: 1}
  clear_to_send: {ecn: none}
  cnp: {dscp: 46, ecn: ect1}
""")
    assert read.ack == MarkSettings(26, 2, 1)
    assert read.clear_to_send == MarkSettings(24, 0, AS_DATA)
    assert (read.cnp.traffic_class, read.cnp.vlan_priority) == (46 << 2 | 1, 6)
    silent = transport("  dscp: 24")
    assert (silent.ack, silent.clear_to_send, silent.cnp.vlan_priority) == (
        MarkSettings(),
        MarkSettings(),
        AS_DATA,
    )
    assert transport("  ack: {pcp: 2}\n  vlan: {id: 0}").ack == MarkSettings(vlan_priority=2)


def test_no_notifications_at_all() -> None:
    assert not transport("  cnp: {send: false}").cnp.send


@pytest.mark.parametrize(
    ("sentence", "text", "expected"),
    [
        ("a cut packet is a damaged one", "  dscp: 26", TrimSettings()),
        ("going back N, a NAK answers", "  trimming: {dscp: [48, 3]}", TrimSettings((48, 3), TrimAnswer.NAK)),
        (
            "selective repeat asks for the packet",
            "  retransmission: selective_repeat\n  trimming: {dscp: 48}",
            TrimSettings((48,), TrimAnswer.SELECTIVE),
        ),
        ("off counts them", "  trimming: {dscp: 48, answer: off}", TrimSettings((48,), TrimAnswer.NONE)),
    ],
)
def test_trimming(sentence: str, text: str, expected: TrimSettings) -> None:
    assert transport(text).recovery.trimming == expected, sentence


def test_rules_in_the_order_of_the_file() -> None:
    read = transport("""
  faults:
    - {do: drop, which: 3, from: 0, to: 1, qp: 0}
    - {do: reorder, which: 10-20, behind: 4}
    - {do: delay, packets: ack, delay: 50us, every: 100}
    - {do: mark_ce, side: received, chance: 0.5%, seed: 8}
    - {do: send_cnp, which: 7-}
    - {do: corrupt_icrc, packets: any, which: all}
""")
    sent, received, data = FaultDirection.SENT, FaultDirection.RECEIVED, FaultPackets.DATA
    assert read.faults == (
        FaultRule(FaultAction.DROP, sent, data, 0, 1, 0, first=3, last=3, seed=4),
        FaultRule(
            FaultAction.REORDER, sent, data, first=10, last=20, delay_ns=1_000_000, behind_packets=4, seed=4
        ),
        FaultRule(FaultAction.DELAY, sent, FaultPackets.ACK, every=100, delay_ns=50_000, seed=4),
        FaultRule(FaultAction.MARK_CE, received, data, chance_per_million=5_000, seed=8),
        FaultRule(FaultAction.SEND_CNP, received, data, first=7, seed=4),
        FaultRule(FaultAction.CORRUPT_ICRC, sent, FaultPackets.ANY, seed=4),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "  retransmission: selective_repeat\n  window_packets: 512",
            (
                "s.yaml:5: transport.window_packets: selective repeat has a window of at most 256 packets; "
                "write at most 256, or retransmission: go_back_n"
            ),
        ),
        (
            "  tail_probe: 1ms",
            (
                "s.yaml:4: transport.tail_probe: only selective repeat with adaptive_timeout probes a silent end; "
                "leave it out, or write retransmission: selective_repeat"
            ),
        ),
        (
            "  trimming: {answer: nak}",
            (
                "s.yaml:4: transport.trimming.answer: answer needs the DSCP of trimmed packets; "
                "write dscp, such as dscp: [48]"
            ),
        ),
        (
            "  trimming: {dscp: [48], answer: selective}",
            (
                "s.yaml:4: transport.trimming.answer: with go-back-N a single packet cannot be requested; "
                "write answer: nak, or change transport.retransmission"
            ),
        ),
        (
            "  retransmission: selective_repeat\n  trimming: {dscp: 48, answer: nak}",
            (
                "s.yaml:5: transport.trimming.answer: with selective repeat a NAK would repeat packets that arrived; "
                "write answer: selective, or change transport.retransmission"
            ),
        ),
        (
            "  trimming: {dscp: [26]}",
            (
                "s.yaml:4: transport.trimming.dscp: data packets have the same DSCP; "
                "write the DSCP that switches set in trimmed packets"
            ),
        ),
        (
            "  trimming: {dscp: [48], last_hop: [48, 49]}",
            "s.yaml:4: transport.trimming.last_hop: 49 is not listed in dscp; list it in both",
        ),
        (
            "  trimming: {dscp: [64]}",
            "s.yaml:4: transport.trimming.dscp[0]: 64 is out of range; write a whole number from 0 to 63",
        ),
        (
            "  reorder_packets: 5",
            "s.yaml:4: transport.reorder_packets: packets out of order are not accepted; write out_of_order: accept",
        ),
        (
            "  timeout: 1ms\n  timeout_floor: 2ms",
            "s.yaml:5: transport.timeout_floor: timeout_floor is above timeout; lower it, or raise timeout",
        ),
        (
            "  cnp: {send: false, interval: 4us}",
            (
                "s.yaml:4: transport.cnp.interval: no notifications are sent; "
                "write send: true, or leave it out"
            ),
        ),
        (
            "  cnp: {send: false, scope: port}",
            "s.yaml:4: transport.cnp.scope: no notifications are sent; write send: true, or leave it out",
        ),
        (
            "  cnp: {pcp: 6}",
            (
                "s.yaml:4: transport.cnp.pcp: a priority needs VLAN-tagged frames; "
                "write transport.vlan: {id: 0}, or leave it out"
            ),
        ),
        (
            "  ack: {dscp: 64}",
            "s.yaml:4: transport.ack.dscp: 64 is out of range; write a whole number from 0 to 63",
        ),
        (
            "  cnp: {send: false, dscp: 40}",
            "s.yaml:4: transport.cnp.dscp: no notifications are sent; write send: true, or leave it out",
        ),
        (
            "  adaptive_timeout: false\n  timeout_floor: 5ms",
            (
                "s.yaml:5: transport.timeout_floor: every wait is the timeout, because adaptive_timeout is false; "
                "leave it out, or write adaptive_timeout: true"
            ),
        ),
        (
            "  faults: [{which: 3}]",
            (
                "s.yaml:4: transport.faults[0].do: is missing; write one of drop, duplicate, reorder, delay, "
                "corrupt_icrc, mark_ce, send_nak, send_rnr, send_cnp, trim, pause"
            ),
        ),
        (
            "  faults: [{do: drop}]",
            (
                "s.yaml:4: transport.faults[0].which: the rule selects every packet; "
                "write which, every or chance; which: all means it"
            ),
        ),
        (
            "  faults: [{do: drop, which: 9-3}]",
            (
                's.yaml:4: transport.faults[0].which: "9-3" is not a packet number; '
                "write a number from 1 such as 3, a range such as 3-10 or 3-, or all"
            ),
        ),
        (
            "  faults: [{do: send_nak, side: sent, which: 3}]",
            (
                "s.yaml:4: transport.faults[0].side: send_nak answers received packets; "
                "write side: received, or leave it out"
            ),
        ),
        (
            "  faults: [{do: corrupt_icrc, side: received, which: 3}]",
            (
                "s.yaml:4: transport.faults[0].side: only sent packets can get a wrong ICRC; "
                "write side: sent, or do: drop"
            ),
        ),
        (
            "  faults: [{do: drop, which: 3, delay: 5us}]",
            ("s.yaml:4: transport.faults[0].delay: drop has no delay; write do: delay, or leave it out"),
        ),
        (
            "  faults: [{do: delay, which: 3}]",
            "s.yaml:4: transport.faults[0].delay: is missing; write how long, such as 50us",
        ),
        (
            "  faults: [{do: delay, which: 3, delay: 5us, behind: 2}]",
            (
                "s.yaml:4: transport.faults[0].behind: delay does not reorder; "
                "write do: reorder, or leave it out"
            ),
        ),
    ],
)
def test_each_mistake_is_said_with_its_remedy(text: str, message: str) -> None:
    assert message in mistakes(text)


def test_a_wait_without_a_code_names_those_that_have_one() -> None:
    (printed,) = mistakes("  min_rnr_timer: 1ms")
    assert printed.startswith(
        's.yaml:4: transport.min_rnr_timer: "1ms" has no code in InfiniBand; write one of 10us, 20us, 30us,'
    )
    assert printed.endswith("327680us, 491520us, 655360us")


def test_all_mistakes_of_a_rule_together() -> None:
    printed = mistakes("  faults: [{do: delay, which: x, chance: 2, every: 0, qp: 64}]")
    assert len(printed) == 5


def test_a_rule_that_concerns_nobody_is_refused() -> None:
    columns = assignment(tuple((HandOp(CollectiveName.ALL_REDUCE, 1 << 20),) for _ in range(2))).connections
    rule = FaultRule(FaultAction.DROP, FaultDirection.SENT, FaultPackets.DATA)
    refuse_idle_faults((rule, replace(rule, src_rank=1, dst_rank=0, queue_pair=0)), columns)
    idle = (
        replace(rule, src_rank=7),
        replace(rule, queue_pair=1),
        replace(rule, src_rank=1, dst_rank=7),
        replace(rule, dst_rank=7),
        replace(rule, channel=9),
    )
    with pytest.raises(PlanError) as caught:
        refuse_idle_faults((rule, *idle), columns)
    nearest = (
        "rank 7 sends nothing; ranks 0, 1 do",
        "these ranks have channels 0 and queue pairs 0 to 0",
        "rank 1 sends through the device to ranks 0",
        "senders reach through the device to ranks 0, 1",
        "these ranks have channels 0 and queue pairs 0 to 0",
    )
    assert str(caught.value).splitlines() == [
        (
            f"transport.faults[{index}]: the rule matches no connection through the device under test; leave "
            f"from, to, qp, communicator and channel out, or correct them: {near}"
        )
        for index, near in enumerate(nearest, start=1)
    ]


def test_a_rule_for_ranks_that_talk_past_the_device_says_so() -> None:
    columns = assignment(tuple((HandOp(CollectiveName.ALL_REDUCE, 1 << 20),) for _ in range(3))).connections
    columns = replace(
        columns, path=np.array([Way.HAIRPIN, Way.WIRE, Way.WIRE], columns.path.dtype)
    )  # of the ring 0, 1, 2
    rule = FaultRule(FaultAction.DROP, FaultDirection.SENT, FaultPackets.DATA, src_rank=0)
    with pytest.raises(PlanError) as caught:
        refuse_idle_faults((rule, replace(rule, src_rank=-1, dst_rank=1)), columns)
    first, second = str(caught.value).splitlines()
    assert first.endswith("rank 0 sends nothing through the device; ranks 1, 2 do")
    assert second.endswith(
        "senders reach through the device to ranks 0, 2 (to rank 1 by other ways: one host or one port)"
    )


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("{ecn: none}", "transport.ecn is none, so no device marks packets, but dcqcn needs marks"),
        (
            "{ecn: none, cc: {algorithm: dctcp}}",
            "transport.ecn is none, so no device marks packets, but dctcp needs marks",
        ),
        (
            "{cnp: {send: false}}",
            "transport.cnp.send is false, but dcqcn reacts only to CNPs",
        ),
        ("{ecn: none, cnp: {send: false}, cc: {algorithm: swift}}", ""),
        ("{cnp: {send: false}, cc: {algorithm: dctcp}}", ""),
    ],
)
def test_congestion_control_that_cannot_hear_is_told(text: str, note: str) -> None:
    assert parse_scenario(
        f"workload: {{trace: j}}\ntransport: {text}".encode(), "s.yaml", Path()
    ).transport.notes == ((note,) if note else ())
