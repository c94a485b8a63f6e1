"""`kind: mrc` as a scenario writes it: what is read, what is refused by name, and what a plan makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from etloop.contract.base.errors import ConfigError
from etloop.contract.model.transport import (
    CreditSettings,
    DeliveryOrder,
    EntropyChoice,
    MultipathSettings,
    UetSettings,
)
from etloop.contract.model.transport_kinds import TransportKind
from etloop.controller.inputs.scenario.multipath import SprayEndpoint
from etloop.controller.inputs.scenario.scenario import parse_scenario

if TYPE_CHECKING:
    from etloop.controller.inputs.scenario.transport import Transport


def transport(text: str) -> Transport:
    return parse_scenario(f"workload: {{trace: j}}\ntransport:\n{text}".encode(), "s.yaml", Path()).transport


def mistakes(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        transport(text)
    return str(caught.value).splitlines()


def test_silence_means_rocev2() -> None:
    read = transport("  dscp: 26")
    assert (read.kind, read.multipath, read.endpoint) == (
        TransportKind.ROCE,
        MultipathSettings(),
        SprayEndpoint(),
    )


def test_mrc_alone_means_its_defaults() -> None:
    read = transport("  kind: mrc")
    assert (read.kind, read.multipath, read.endpoint.udp_port) == (
        TransportKind.MRC,
        MultipathSettings(),
        4971,
    )
    assert (read.congestion.algorithm, read.congestion.profile) == ("nscc", "untrimmed")
    assert not read.cnp.send, "SACKs tell of marks"
    assert not read.lossless


@pytest.mark.parametrize(
    ("trimming", "presets"),
    [
        ("dscp: [48]", ("mrc", "uet")),
        ("dscp: [48], answer: off", ("untrimmed", "untrimmed")),
    ],
    ids=["who asks for trimmed packets aims at shorter queues", "who counts them only sees losses"],
)
def test_the_usual_preset_is_by_what_becomes_of_trimmed_packets(
    trimming: str, presets: tuple[str, str]
) -> None:
    read = [
        transport(f"  kind: {kind}\n  trimming: {{{trimming}}}").congestion.profile for kind in ("mrc", "uet")
    ]
    assert tuple(read) == presets


def test_every_key_of_mrc_is_read() -> None:
    text = (
        "  kind: mrc\n  tail_probe: 30us\n  reorder_packets: 128\n  window_packets: 512\n  cc: {algorithm: swift}\n"
        "  mrc: {entropy: recycled, entropy_values: 256, least_active: 16, sack_bytes: 4KiB, udp_port: 4791}"
    )
    read = transport(text)
    settings = MultipathSettings(EntropyChoice.RECYCLED, 256, 16, 4096)
    assert (read.multipath, read.endpoint.udp_port) == (settings, 4791)
    assert (read.recovery.tail_probe_ns, read.recovery.reorder_packets) == (30_000, 128)
    assert (read.congestion.algorithm, read.congestion.profile) == ("swift", "htsim")
    assert read.window_packets == 512


def test_uet_alone_means_its_defaults() -> None:
    read = transport("  kind: uet")
    assert (read.kind, read.multipath, read.endpoint.udp_port) == (
        TransportKind.UET,
        MultipathSettings(),
        4793,
    )
    assert read.multipath.uet.close_after_ns == 10_000_000
    assert (read.congestion.algorithm, read.congestion.profile) == ("nscc", "untrimmed")
    assert not read.cnp.send, "ACKs tell of marks"
    assert not read.lossless


def test_every_key_of_uet_is_read() -> None:
    text = (
        "  kind: uet\n  uet: {entropy: penalties, entropy_values: 64, least_active: 4, sack_bytes: 32KiB, udp_port: 49150, "
        "close_after: 0ns}"
    )
    settings = MultipathSettings(EntropyChoice.PENALTIES, 64, 4, 32_768, UetSettings(close_after_ns=0))
    read = transport(text)
    assert (read.multipath, read.endpoint.udp_port) == (settings, 49_150)


def test_credit_is_granted_by_rccc_alone_or_beside_another_control() -> None:
    alone = transport("  kind: uet\n  cc: {algorithm: rccc}").multipath.uet.credit
    assert alone == CreditSettings(granted=True, alone=True)
    beside = transport(
        "  kind: uet\n  uet: {credit: true, credit_window: 2, credit_quantum: 8, credit_share: 98%}"
    ).multipath.uet.credit
    assert beside == CreditSettings(
        granted=True, window_percent=200, quantum_packets=8, share_per_million=980_000
    )
    assert not transport("  kind: uet").multipath.uet.credit.granted


def test_ordered_delivery_keeps_to_one_path() -> None:
    read = transport("  kind: uet\n  uet: {delivery: rod, messages: send}")
    assert (read.multipath.uet.order, read.multipath.uet.sends) == (DeliveryOrder.SENT, True)
    assert (read.multipath.entropy_values, read.multipath.least_active) == (1, 1)
    assert not read.takes_any_order
    assert transport("  kind: uet\n  uet: {delivery: rud, messages: write}").takes_any_order


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "  kind: ib",
            's.yaml:3: transport.kind: "ib" is not one of the choices; write rocev2 or mrc or uet',
        ),
        (
            "  kind: uet\n  mrc: {entropy_values: 4}",
            "s.yaml:4: transport.mrc: the transport is uet; write kind: mrc, or leave it out",
        ),
        (
            "  kind: uet\n  cnp: {send: true}",
            "s.yaml:4: transport.cnp: UET does not have this setting: its ACKs report marks; leave it out, or write kind: rocev2",
        ),
        (
            "  kind: uet\n  window_packets: 2000",
            "s.yaml:4: transport.window_packets: a UET queue pair has at most 1024 packets in flight; write at most 1024",
        ),
        ("  kind: uet\n  uet: {close_after: soon}", "s.yaml:4: transport.uet.close_after: "),
        (
            "  kind: uet\n  uet: {delivery: uud}",
            "s.yaml:4: transport.uet.delivery: uud carries no job: it repeats nothing, and a collective would wait ",
        ),
        ("  kind: uet\n  uet: {delivery: rudi}", "s.yaml:4: transport.uet.delivery: rudi carries no job: "),
        ("  kind: uet\n  uet: {delivery: any}", "s.yaml:4: transport.uet.delivery: "),
        (
            "  kind: uet\n  uet: {delivery: rod, entropy_values: 8}",
            "s.yaml:4: transport.uet.entropy_values: ordered delivery (rod) uses one path per queue pair; leave it out, ",
        ),
        (
            "  kind: mrc\n  cc: {algorithm: rccc}",
            "s.yaml:4: transport.cc.algorithm: rccc needs credits, which only UET receivers grant; write kind: uet",
        ),
        ("  kind: uet\n  uet: {credit_window: 0.01}", "s.yaml:4: transport.uet.credit_window: "),
        ("  kind: uet\n  uet: {messages: atomic}", "s.yaml:4: transport.uet.messages: "),
        ("  kind: mrc\n  mrc: {delivery: rod}", "s.yaml:4: transport.mrc.delivery: "),
        ("  kind: uet\n  uet: {mode: rod}", "s.yaml:4: transport.uet.mode: "),
        (
            "  mrc: {entropy_values: 4}",
            "s.yaml:3: transport.mrc: the transport is rocev2; write kind: mrc, or leave it out",
        ),
        (
            "  kind: mrc\n  retransmission: go_back_n",
            "s.yaml:4: transport.retransmission: MRC does not have this setting: it always retransmits only missing packets",
        ),
        (
            "  kind: mrc\n  cnp: {send: true}",
            "s.yaml:4: transport.cnp: MRC does not have this setting: its ACKs report marks; leave it out, or write kind: rocev2",
        ),
        (
            "  kind: mrc\n  outstanding_reads: 2",
            (
                "s.yaml:4: transport.outstanding_reads: MRC does not have this setting: it has no READs; "
                "leave it out, or write kind: rocev2"
            ),
        ),
        (
            "  kind: mrc\n  window_packets: 2000",
            "s.yaml:4: transport.window_packets: an MRC queue pair has at most 1024 packets in flight; write at most 1024",
        ),
        (
            "  kind: mrc\n  mrc: {entropy_values: 4, least_active: 5}",
            "s.yaml:4: transport.mrc.least_active: is above entropy_values, 4; write at most entropy_values",
        ),
        ("  kind: mrc\n  mrc: {entropy_values: 0}", "s.yaml:4: transport.mrc.entropy_values: "),
        ("  kind: mrc\n  mrc: {entropy: best}", "s.yaml:4: transport.mrc.entropy: "),
        ("  kind: mrc\n  mrc: {planes: 8}", "s.yaml:4: transport.mrc.planes: "),
        (
            "  kind: uet\n  faults: [{do: send_nak, which: 3}]",
            "s.yaml:4: transport.faults[0].do: UET has no such reply; leave the rule out, or write kind: rocev2",
        ),
        (
            "  kind: uet\n  faults: [{do: corrupt_icrc, which: 3}]",
            "s.yaml:4: transport.faults[0].do: UET has no ICRC; write do: drop",
        ),
        (
            "  kind: mrc\n  faults: [{do: drop, packets: cnp, which: 3}]",
            "s.yaml:4: transport.faults[0].packets: MRC has no CNPs; write ack: its ACKs report marks",
        ),
        (
            "  kind: mrc\n  faults: [{do: trim, packets: ack, which: 3}]",
            "s.yaml:4: transport.faults[0].packets: only trimmed requests are answered; write data or clear_to_send",
        ),
        (
            "  kind: mrc\n  faults: [{do: trim, side: sent, which: 3}]",
            "s.yaml:4: transport.faults[0].side: trim cuts received packets; write side: received, or leave it out",
        ),
        (
            "  kind: mrc\n  faults: [{do: drop, entropy_value: 128, which: all}]",
            "s.yaml:4: transport.faults[0].entropy_value: expected 0 to 127; write a value from 0 to 127",
        ),
        (
            "  kind: mrc\n  faults: [{do: drop, entropy_value: 1, side: received, which: all}]",
            (
                "s.yaml:4: transport.faults[0].entropy_value: only the sender knows the entropy value; "
                "write side: sent, or leave it out"
            ),
        ),
        (
            "  faults: [{do: trim, which: 3}]",
            "s.yaml:3: transport.faults[0].do: only multipath transports have trim rules and ",
        ),
    ],
    ids=lambda value: value.strip().replace("\n", " ") if value.startswith("  ") else "",
)
def test_what_has_no_meaning_is_refused_by_name(text: str, said: str) -> None:
    found = mistakes(text)
    assert any(line.startswith(said) for line in found), found
