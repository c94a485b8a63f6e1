"""`transport:` of a scenario: how the messages of every queue pair are carried.

Decides the keys, limits and defaults of the transport, each with its reason. What the rest of a scenario may say is
decided by `scenario`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import (
    NS_PER_S,
    QuantityError,
    format_duration,
    parse_bytes,
    parse_duration_ns,
)
from etloop.contract.base.value_form import SIZE, ValueForm, either, formed
from etloop.contract.base.yaml_reader import Section, bounded, integer, one_of, yes_or_no
from etloop.contract.model.congestion import CongestionSettings
from etloop.contract.model.transport import CnpSettings, FaultRule, RecoverySettings, TrimAnswer
from etloop.controller.inputs.scenario.capture import Capture, read_capture
from etloop.controller.inputs.scenario.congestion import DefaultControl, PluginReader, read_congestion
from etloop.controller.inputs.scenario.faults import read_faults
from etloop.controller.inputs.scenario.marks import ECN_BITS, AnswerMarks, dscp_value, read_answer_marks
from etloop.controller.inputs.scenario.multipath import Multipath, read_multipath, with_control
from etloop.controller.inputs.scenario.pauses import PortPause
from etloop.controller.inputs.scenario.recovery import read_cnp, read_recovery, read_trimming
from etloop.controller.inputs.scenario.source_ports import SourcePorts, read_source_ports

PATH_MTUS: Final = (256, 512, 1024, 2048, 4096)
"""InfiniBand's path MTUs in payload bytes; 4096 needs Ethernet frames of 4158 bytes (jumbo)."""
_MTUS: Final = ", ".join(map(str, PATH_MTUS))
SILENCE_NS: Final = 200_000_000
"""What an agent of ours may be silent for where its engine has no processor of its own: some turns of the scheduler."""


@dataclass(frozen=True, slots=True)
class WireNumbers:
    """Which queue pair numbers, keys and first sequence numbers a run has."""

    run_nonce: int | None = None
    """None: every run has its own."""
    psn_stated: bool = False
    """Whether the file states `initial_psn`."""


@dataclass(frozen=True, slots=True)
class OpenWaits:
    """Which waits a file leaves open: a plan may lengthen them."""

    timeout: bool = False
    floor: bool = False


@dataclass(frozen=True, slots=True)
class Transport:
    """Settings of every queue pair. Fields are those of `contract.assignment.TransportSettings`."""

    path_mtu_bytes: int
    traffic_class: int
    qps_per_connection: int
    split_data_on_qps: bool
    window_packets: int
    ack_every_packets: int
    """At most so many packets between two requests for an acknowledgement; there are at least two in a window."""
    timeout_ns: int
    retry_limit: int
    congestion: CongestionSettings
    recovery: RecoverySettings
    cnp: CnpSettings
    faults: tuple[FaultRule, ...]
    notes: tuple[str, ...]
    """What is allowed and remarkable."""
    vlan_id: int = -1
    """802.1Q tag of every frame; -1: none; 0: a tag for the priority alone."""
    vlan_priority: int = 0
    marks: AnswerMarks = AnswerMarks()
    fault_communicators: tuple[str, ...] = ()
    """Of each of `faults`: the name of a communicator, "p2p" for the point-to-point connections, "" for any."""
    pauses: tuple[PortPause, ...] = ()
    source_ports: SourcePorts = SourcePorts()
    capture: Capture = Capture()
    open_waits: OpenWaits = OpenWaits()
    numbers: WireNumbers = WireNumbers()
    order_meant: bool = False
    """Whether the file itself says what becomes of packets out of order."""
    lossless: bool = True
    """Whether it is meant for a class without loss; what devices under test are held against, nothing else."""
    multipath: Multipath = Multipath()
    """What carries messages, and how their packets find their paths."""


def read_transport(section: Section, directory: Path, read_plugin: PluginReader, seed: int) -> Transport:
    """The settings of a `transport:` section, whose paths are relative to `directory`; mistakes go to its file."""
    dscp = section.optional("dscp", dscp_value, 26)  # what most RoCE guides map to the lossless class
    ecn = section.optional("ecn", one_of(ECN_BITS), ECN_BITS["ect0"])
    timeout = bounded(parse_duration_ns, 100_000, 60 * NS_PER_S, format_duration)
    window_packets = section.optional("window_packets", integer(0, 65536), 0)
    multipath = read_multipath(section, window_packets)
    recovery = read_recovery(section, window_packets, probes=multipath.sprays)
    recovery = replace(recovery, trimming=read_trimming(section.section("trimming"), recovery, dscp))
    congestion = read_congestion(
        section.section("cc"),
        directory,
        read_plugin,
        section.section("pacing"),
        section.optional("ack_every", integer(1, 65536), None),
        default=_default_control(multipath, recovery),
    )
    multipath = with_control(multipath, congestion.needs, section.section("cc"))
    vlan = section.section("vlan")
    tagged = section.has("vlan")
    timeout_ns = section.optional("timeout", timeout, 640_000_000)
    if section.has("timeout_floor") and recovery.timeout_floor_ns > timeout_ns:
        section.mistake("timeout_floor", "it is above the timeout", "lower it, or raise timeout")
    retry_limit = section.optional("retries", integer(0, 63), 7)
    faults = read_faults(section, seed, multipath)
    cnp = read_cnp(section.section("cnp"), tagged=tagged)
    if multipath.sprays:
        cnp = replace(cnp, interval_ns=-1)
    ignored = congestion.ignored_signals(marks=ecn != ECN_BITS["none"], notifications=cnp.interval_ns >= 0)
    transport = Transport(
        path_mtu_bytes=section.optional("path_mtu", _path_mtu, 4096),
        traffic_class=dscp << 2 | ecn,
        qps_per_connection=section.optional("qps_per_connection", integer(1, 64), 1),
        split_data_on_qps=section.optional("split_data_on_qps", yes_or_no, False),
        window_packets=window_packets,
        ack_every_packets=congestion.ack_every_packets,
        timeout_ns=timeout_ns,
        retry_limit=retry_limit,
        congestion=congestion.settings,
        recovery=recovery,
        cnp=cnp,
        faults=faults.rules,
        notes=(*congestion.notes, *ignored, *_short_patience(timeout_ns, retry_limit)),
        vlan_id=vlan.optional("id", integer(0, 4094), 0 if tagged else -1),
        vlan_priority=vlan.optional("pcp", integer(0, 7), 3),
        marks=read_answer_marks(section, dscp << 2 | ecn, tagged=tagged),
        fault_communicators=faults.communicators,
        pauses=faults.pauses,
        source_ports=read_source_ports(section),
        capture=read_capture(section),
        open_waits=OpenWaits(not section.has("timeout"), not section.has("timeout_floor")),
        numbers=WireNumbers(
            section.optional("run_nonce", integer(0, 2**32 - 1), None), section.has("initial_psn")
        ),
        order_meant=section.has("out_of_order"),
        # Going back N for every loss is bearable only where there is next to none.
        lossless=section.optional("lossless", yes_or_no, not (recovery.selective_repeat or multipath.sprays)),
        multipath=multipath,
    )
    vlan.close()
    section.close()
    return transport


def _default_control(multipath: Multipath, recovery: RecoverySettings) -> DefaultControl:
    """Return what the reference of Ultra Ethernet has: it aims at longer queues where no switch trims."""
    if not multipath.sprays:
        return DefaultControl()
    trimmed = recovery.trimming.answer is not TrimAnswer.NONE
    return DefaultControl("nscc", multipath.name if trimmed else "untrimmed")


def _short_patience(timeout_ns: int, retry_limit: int) -> tuple[str, ...]:
    if timeout_ns * retry_limit >= SILENCE_NS:
        return ()
    patience = format_duration(timeout_ns * retry_limit)
    note = (
        f"transport.timeout {format_duration(timeout_ns)} x retries {retry_limit}: a queue pair gives up after {patience} "
        "without an answer; an end that shares its processor with others can be silent for longer with nothing lost"
    )
    return (note,)


@formed(either(ValueForm("one of", {"enum": list(PATH_MTUS)}, _MTUS), SIZE, "one of, or as a size"))
def _path_mtu(text: str) -> int:
    # The one size that the field writes as a bare number: it is an enumeration, not a quantity.
    mtu = int(text) if re.fullmatch(r"[0-9]{1,6}", text) else parse_bytes(text)
    if mtu not in PATH_MTUS:
        raise QuantityError(f'"{text}" is not a path MTU', f"write one of {_MTUS}")
    return mtu
