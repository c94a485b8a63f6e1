"""How queue pairs of a scenario recover from loss, and when they tell of congestion: keys of `transport:`.

Decides the keys, limits and defaults, each with its reason; docs/transport.md says what they do.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from etloop.contract.base.units import NS_PER_S, QuantityError, format_duration, parse_duration_ns
from etloop.contract.base.value_form import DURATION, formed
from etloop.contract.base.yaml_reader import Section, bounded, integer, one_of, yes_or_no
from etloop.contract.model.transport import CnpScope, CnpSettings, RecoverySettings, TrimAnswer, TrimSettings
from etloop.controller.inputs.scenario.marks import ECN_BITS, dscp_value, read_priority

WINDOW_OF_SELECTIVE_REPEAT: Final = 256
"""Packets that a selective NAK can speak of."""
_CNP_PRIORITY: Final = 6
"""mlx5's cnp_802p_prio."""
_US: Final = 1000
RNR_TIMERS_NS: Final = tuple(
    10 * _US * hundredths
    for hundredths in (
        *(65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192),
        *(256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152),
    )
)
"""Receiver-not-ready waits by code (InfiniBand Architecture Specification vol. 1, table 45)."""


def _rnr_text(code: int) -> str:
    return format_duration(RNR_TIMERS_NS[code])


def read_recovery(section: Section, window_packets: int, *, probes: bool = False) -> RecoverySettings:
    """Keys of retransmission in a `transport:` section; `window_packets` is what the same section says.

    `probes`: its kind of transport probes a silent end in any case.
    """
    floor = bounded(parse_duration_ns, 0, 60 * NS_PER_S, format_duration)
    repeats = {"go_back_n": False, "selective_repeat": True}
    selective = section.optional("retransmission", one_of(repeats), False)
    if selective and window_packets > WINDOW_OF_SELECTIVE_REPEAT:
        section.mistake(
            "window_packets",
            f"selective repeat speaks of {WINDOW_OF_SELECTIVE_REPEAT} packets at a time",
            f"write at most {WINDOW_OF_SELECTIVE_REPEAT}, or retransmission: go_back_n",
        )
    accept = section.optional("out_of_order", one_of({"nak": False, "accept": True}), False)
    if section.has("reorder_packets") and not (accept or probes):
        section.mistake(
            "reorder_packets", "packets out of order are not accepted", "write out_of_order: accept"
        )
    adaptive = section.optional("adaptive_timeout", yes_or_no, True)
    if section.has("timeout_floor") and not adaptive:
        section.mistake(
            "timeout_floor",
            "every wait is the timeout, because adaptive_timeout is false",
            "leave it out, or write adaptive_timeout: true",
        )
    if section.has("tail_probe") and not ((selective or probes) and adaptive):
        section.mistake(
            "tail_probe",
            "only selective repeat with adaptive_timeout probes a silent end",
            "leave it out, or write retransmission: selective_repeat",
        )
    return RecoverySettings(
        adaptive_timeout=adaptive,
        # Above the pauses of a loaded host without a spare core, so that a clean run retransmits nothing.
        timeout_floor_ns=section.optional("timeout_floor", floor, 20_000_000),
        selective_repeat=selective,
        # As the floor of the timeout lets it, where nobody says how long: a host without a spare core is silent for as long.
        tail_probe_ns=section.optional("tail_probe", floor, -1),
        accept_out_of_order=accept,
        reorder_packets=section.optional("reorder_packets", integer(1, 256), 64),
        rnr_retry_limit=section.optional("rnr_retry", integer(0, 7), 7),
        min_rnr_timer_code=section.optional("min_rnr_timer", _rnr_timer, 12),
        outstanding_reads=section.optional("outstanding_reads", integer(1, 128), 16),
        initial_psn=section.optional("initial_psn", integer(0, 2**24 - 1), 0),
    )


def read_trimming(section: Section, recovery: RecoverySettings, data_dscp: int) -> TrimSettings:
    """The `trimming:` section of a transport that recovers in this way; a whole packet of data has `data_dscp`."""
    names = {"off": TrimAnswer.NONE, "nak": TrimAnswer.NAK, "selective": TrimAnswer.SELECTIVE}
    fitting = TrimAnswer.SELECTIVE if recovery.selective_repeat else TrimAnswer.NAK
    dscps = section.texts("dscp", dscp_value, 0)
    if data_dscp in dscps:
        section.mistake("dscp", "packets of data have it, too", "write what switches give to trimmed packets")
    answer = section.optional("answer", one_of(names), fitting if dscps else TrimAnswer.NONE)
    if answer is not TrimAnswer.NONE and not dscps:
        section.mistake("answer", "nothing says which packets are trimmed", "write dscp, such as dscp: [48]")
    elif answer not in {TrimAnswer.NONE, fitting}:
        section.mistake(
            "answer",
            "with selective repeat a NAK would send again what has arrived"
            if recovery.selective_repeat
            else "going back N, a single packet cannot be asked for",
            f"write answer: {fitting.name.lower()}, or change transport.retransmission",
        )
    last_hop = section.texts("last_hop", dscp_value, 0)
    if others := sorted(set(last_hop) - set(dscps)):
        section.mistake("last_hop", f"{others[0]} is not among those of dscp", "list it in both")
    section.close()
    return TrimSettings(dscps, answer, last_hop)


def read_cnp(section: Section, *, tagged: bool) -> CnpSettings:
    """The `cnp:` section of a transport, whose frames are `tagged` or not."""
    interval = bounded(parse_duration_ns, 0, NS_PER_S, format_duration)
    scopes = {"qp": CnpScope.QUEUE_PAIR, "port": CnpScope.PORT}
    send = section.optional("send", yes_or_no, True)
    settings = CnpSettings(
        # ConnectX: MIN_TIME_BETWEEN_CNPS 4 us, DSCP 48.
        interval_ns=section.optional("interval", interval, 4 * _US) if send else -1,
        scope=section.optional("scope", one_of(scopes), CnpScope.QUEUE_PAIR),
        # Not ECN-capable: nobody should mark what tells of marks.
        traffic_class=section.optional("dscp", dscp_value, 48) << 2
        | section.optional("ecn", one_of(ECN_BITS), ECN_BITS["none"]),
        vlan_priority=read_priority(section, _CNP_PRIORITY, tagged=tagged),
    )
    for key in ("interval", "scope", "dscp", "ecn", "pcp"):
        if not send and section.has(key):
            section.mistake(key, "no notifications are sent", "write send: true, or leave it out")
    section.close()
    return settings


@formed(replace(DURATION, limits="10us to 655.36ms, as InfiniBand has codes for", write=_rnr_text))
def _rnr_timer(text: str) -> int:
    wait_ns = parse_duration_ns(text)
    if wait_ns not in RNR_TIMERS_NS:
        known = ", ".join(format_duration(timer_ns) for timer_ns in sorted(RNR_TIMERS_NS))
        raise QuantityError(f'"{text}" has no code in InfiniBand', f"write one of {known}")
    return RNR_TIMERS_NS.index(wait_ns)
