"""`transport:` of a scenario: how the messages of every queue pair are carried.

Reads the keys that `TransportSettings` declares, and those that a plan alone needs; decides the rules between keys. `scenario`
decides the other sections.
"""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.setting import setting
from etloop.contract.base.settings_reader import read_settings
from etloop.contract.base.units import format_duration
from etloop.contract.base.value_parsers import integer, yes_or_no
from etloop.contract.base.yaml_reader import Section
from etloop.contract.model.transport import ECN_BITS, TransportSettings, TrimAnswer, TrimSettings
from etloop.controller.inputs.scenario.capture import Capture, read_capture
from etloop.controller.inputs.scenario.congestion import DefaultControl, PluginReader, read_congestion
from etloop.controller.inputs.scenario.faults import read_faults
from etloop.controller.inputs.scenario.marks import completed_marks, refuse_untagged_priority
from etloop.controller.inputs.scenario.multipath import SprayEndpoint, read_multipath, with_control
from etloop.controller.inputs.scenario.pauses import PortPause
from etloop.controller.inputs.scenario.recovery import check_recovery, completed_cnp, completed_trimming
from etloop.controller.inputs.scenario.source_ports import SourcePorts, read_source_ports

SILENCE_NS: Final = 200_000_000
"""How long an agent without a core of its own may be silent: some turns of the scheduler."""


@dataclass(frozen=True, slots=True)
class OpenTimeouts:
    """Timeouts that the scenario leaves at their default; the planner may raise them."""

    timeout: bool = False
    floor: bool = False


@dataclass(frozen=True, slots=True)
class Transport(TransportSettings):
    """A scenario's transport: the settings that travel in assignments, and those that a plan alone needs."""

    qps_per_connection: int = setting("qps_per_connection", integer(1, 64), 1)
    """Queue pairs of a connection."""
    run_nonce: int | None = setting("run_nonce", integer(0, 2**32 - 1), None)
    """Seed of queue pair numbers, keys and first sequence number; drawn for every run if left out."""
    # Going back N for every loss is bearable only where there is next to none.
    lossless: bool = setting("lossless", yes_or_no, True)
    """Whether the traffic class must be lossless; checked against the device's profile. Left out, true unless `retransmission`
    is selective_repeat."""
    endpoint: SprayEndpoint = SprayEndpoint()
    """Where packets of MRC and UET go to."""
    fault_communicators: tuple[str, ...] = ()
    """By entry of `faults`: the name of a communicator, "p2p" for the point-to-point connections, "" for any."""
    pauses: tuple[PortPause, ...] = ()
    source_ports: SourcePorts = SourcePorts()
    capture: Capture = Capture()
    open_timeouts: OpenTimeouts = OpenTimeouts()
    psn_stated: bool = False
    """Whether the file states `initial_psn`."""
    order_stated: bool = False
    """Whether the file states `out_of_order`."""
    notes: tuple[str, ...] = ()
    """Remarks on allowed but unusual settings."""

    def settings(self, **others: Any) -> TransportSettings:
        """Return what travels in an assignment, with `others` in place of its own fields."""
        own = {field.name: getattr(self, field.name) for field in fields(TransportSettings)}
        return TransportSettings(**(own | others))


def read_transport(section: Section, directory: Path, read_plugin: PluginReader, seed: int) -> Transport:
    """Return the settings of a `transport:` section, whose paths are relative to `directory`; mistakes go to its file."""
    read = read_settings(Transport, section)
    read = _with_vlan(read, section)
    settings, endpoint = read_multipath(section, read.kind, read.window_packets)
    check_recovery(section, read.recovery, read.window_packets, sprays=read.sprays)
    trimming = _trimming(read, section)
    read = replace(
        read, multipath=settings, endpoint=endpoint, recovery=replace(read.recovery, trimming=trimming)
    )
    if section.has("timeout_floor") and read.recovery.timeout_floor_ns > read.timeout_ns:
        section.mistake("timeout_floor", "timeout_floor is above timeout", "lower it, or raise timeout")
    read = _with_control(read, section, directory, read_plugin)
    faults = read_faults(section, seed, read)
    read = replace(
        read,
        lossless=read.lossless
        if section.has("lossless")
        else not (read.recovery.selective_repeat or read.sprays),
        faults=faults.rules,
        fault_communicators=faults.communicators,
        pauses=faults.pauses,
        source_ports=read_source_ports(section),
        capture=read_capture(section),
        open_timeouts=OpenTimeouts(not section.has("timeout"), not section.has("timeout_floor")),
        psn_stated=section.has("initial_psn"),
        order_stated=section.has("out_of_order"),
        notes=(*read.notes, *_short_timeout_note(read.timeout_ns, read.retry_limit)),
    )
    section.close()
    return read


def _with_vlan(read: Transport, section: Section) -> Transport:
    """Return the transport with its VLAN tag, and with the marks of packets that depend on it and on those of data."""
    tagged, vlan = section.has("vlan"), section.section("vlan", "Tag every frame.")
    vlan_id = vlan.optional("id", integer(0, 4094), 0 if tagged else -1, "VLAN; 0 tags the priority alone.")
    priority = vlan.optional("pcp", integer(0, 7), 3, "Priority of data.")
    vlan.close()
    for key in ("ack", "clear_to_send"):
        refuse_untagged_priority(section.section(key), tagged=tagged)
    cnp = completed_cnp(section.section("cnp"), read.cnp, tagged=tagged)
    return replace(
        read,
        vlan_id=vlan_id,
        vlan_priority=priority,
        ack=completed_marks(read.ack, read.dscp, read.ecn),
        clear_to_send=completed_marks(read.clear_to_send, read.dscp, read.ecn),
        cnp=replace(cnp, send=cnp.send and not read.sprays),
    )


def _trimming(read: Transport, section: Section) -> TrimSettings:
    below = section.section(
        "trimming",
        "Packets that switches trim instead of dropping them; RoCEv2 has no standard reply to them.",
    )
    trimming = completed_trimming(below, read_settings(TrimSettings, below), read.recovery, read.dscp)
    below.close()
    return trimming


def _with_control(read: Transport, section: Section, directory: Path, read_plugin: PluginReader) -> Transport:
    """Return the transport with its congestion control, and its consequences for ACKs, credit and notes."""
    congestion = read_congestion(
        section.section(
            "cc", "Congestion control; the parameters of each algorithm are in docs/congestion_control.md."
        ),
        directory,
        read_plugin,
        section.section("pacing", "Departures of packets at queue pairs below the line rate."),
        read.ack_every_packets or None,
        default=_default_control(read),
    )
    ignored = congestion.ignored_signals(marks=read.ecn != ECN_BITS["none"], notifications=read.cnp.send)
    return replace(
        read,
        multipath=with_control(read.multipath, read.kind, congestion.needs, section.section("cc")),
        congestion=congestion.settings,
        ack_every_packets=congestion.ack_every_packets,
        notes=(*congestion.notes, *ignored),
    )


def _default_control(read: Transport) -> DefaultControl:
    """Return Ultra Ethernet's reference control for MRC and UET; its target queue is longer where no switch trims."""
    if not read.sprays:
        return DefaultControl()
    trimmed = read.recovery.trimming.answer is not TrimAnswer.NONE
    return DefaultControl("nscc", read.kind_name if trimmed else "untrimmed")


def _short_timeout_note(timeout_ns: int, retry_limit: int) -> tuple[str, ...]:
    if timeout_ns * retry_limit >= SILENCE_NS:
        return ()
    patience = format_duration(timeout_ns * retry_limit)
    note = (
        f"transport.timeout {format_duration(timeout_ns)} x retries {retry_limit}: a queue pair gives up after {patience} "
        "without an answer; an endpoint on a shared CPU can be silent for longer without a loss"
    )
    return (note,)
