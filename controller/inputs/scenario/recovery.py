"""Rules on how queue pairs recover from loss and answer congestion: keys of `transport:` that go together or do not."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from etloop.contract.base.yaml_reader import Section
from etloop.contract.model.transport import AS_DATA, CnpSettings, RecoverySettings, TrimAnswer, TrimSettings
from etloop.controller.inputs.scenario.marks import refuse_untagged_priority

WINDOW_OF_SELECTIVE_REPEAT: Final = 256
"""Packets that a selective NAK can speak of."""
_CNP_PRIORITY: Final = 6
"""mlx5's cnp_802p_prio."""


def check_recovery(
    section: Section, recovery: RecoverySettings, window_packets: int, *, sprays: bool
) -> None:
    """Report keys of retransmission that contradict each other. `sprays`: MRC and UET keep what overtakes, and probe."""
    selective, adaptive = recovery.selective_repeat, recovery.adaptive_timeout
    if selective and window_packets > WINDOW_OF_SELECTIVE_REPEAT:
        section.mistake(
            "window_packets",
            f"selective repeat has a window of at most {WINDOW_OF_SELECTIVE_REPEAT} packets",
            f"write at most {WINDOW_OF_SELECTIVE_REPEAT}, or retransmission: go_back_n",
        )
    if section.has("reorder_packets") and not (recovery.accept_out_of_order or sprays):
        section.mistake(
            "reorder_packets", "packets out of order are not accepted", "write out_of_order: accept"
        )
    if section.has("timeout_floor") and not adaptive:
        section.mistake(
            "timeout_floor",
            "every wait is the timeout, because adaptive_timeout is false",
            "leave it out, or write adaptive_timeout: true",
        )
    if section.has("tail_probe") and not ((selective or sprays) and adaptive):
        section.mistake(
            "tail_probe",
            "only selective repeat with adaptive_timeout probes a silent end",
            "leave it out, or write retransmission: selective_repeat",
        )


def completed_trimming(
    section: Section, trimming: TrimSettings, recovery: RecoverySettings, data_dscp: int
) -> TrimSettings:
    """Return `trimming:` with the answer that fits the retransmission where none is stated; report what does not fit.

    `data_dscp`: DSCP of whole packets of data.
    """
    fitting = TrimAnswer.SELECTIVE if recovery.selective_repeat else TrimAnswer.NAK
    dscps = trimming.dscps
    if data_dscp in dscps:
        section.mistake(
            "dscp", "data packets have the same DSCP", "write the DSCP that switches set in trimmed packets"
        )
    answer = trimming.answer if section.has("answer") or not dscps else fitting
    if answer is not TrimAnswer.NONE and not dscps:
        section.mistake(
            "answer", "answer needs the DSCP of trimmed packets", "write dscp, such as dscp: [48]"
        )
    elif answer not in {TrimAnswer.NONE, fitting}:
        section.mistake(
            "answer",
            "with selective repeat a NAK would repeat packets that arrived"
            if recovery.selective_repeat
            else "with go-back-N a single packet cannot be requested",
            f"write answer: {fitting.name.lower()}, or change transport.retransmission",
        )
    if others := sorted(set(trimming.last_hop_dscps) - set(dscps)):
        section.mistake("last_hop", f"{others[0]} is not listed in dscp", "list it in both")
    return replace(trimming, answer=answer)


def completed_cnp(section: Section, cnp: CnpSettings, *, tagged: bool) -> CnpSettings:
    """Return `cnp:` with the priority of tagged frames; report keys of notifications that are not sent."""
    refuse_untagged_priority(section, tagged=tagged)
    for key in ("interval", "scope", "dscp", "ecn", "pcp"):
        if not cnp.send and section.has(key):
            section.mistake(key, "no notifications are sent", "write send: true, or leave it out")
    priority = cnp.vlan_priority if section.has("pcp") else _CNP_PRIORITY
    return replace(cnp, vlan_priority=priority if tagged else AS_DATA)
