"""Finds why a lossless priority group dropped packets: its neighbour ignores pauses, or its headroom is too small.

Decides by what arrived after a pause. A sender that obeys stops after the bytes in flight, which its rate and the length of
its cable determine; one that goes on sends many times as much. A switch that received pauses and was never paused is a
direct proof.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.switch_presets import lossless_group
from etloop.contract.model.topology import SwitchPort
from etloop.results.diagnosis.configured import data_classes, settings_by_switch
from etloop.results.diagnosis.rule import Found
from etloop.results.schema.findings import (
    Examination,
    Examined,
    Fact,
    Finding,
    FindingKind,
    Place,
    PlaceKind,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.results.diagnosis.evidence import Evidence

    Floats = NDArray[np.float64]

_IGNORED: Final = FindingKind.PFC_IGNORED
_SMALL: Final = FindingKind.HEADROOM_SMALL
OBEYED_OVERRUN: Final = 3.0
"""Bytes after a pause over those in flight by rate and length of the cable, above which the sender did not stop."""


@dataclass(frozen=True, slots=True)
class _Overrun:
    """Drops of one lossless group."""

    port: int
    number: int
    dropped_packets: float
    dropped_bytes: float
    pauses: float
    """Pause frames that the port sent for the group's priority."""
    limit_bytes: float
    """Stated headroom; the most that was used where none is stated."""
    needed_bytes: float
    """In flight after a pause, by rate and length of the cable; NaN if the rate is not known."""

    @property
    def after_pause_bytes(self) -> float:
        """Return the bytes that arrived beyond the threshold, by pause frame."""
        return self.dropped_bytes / max(self.pauses, 1.0) + self.limit_bytes


def look(evidence: Evidence) -> Found:
    """Return the groups that dropped packets although they pause their senders, by cause."""
    lanes = evidence.lanes
    pauses, dropped = lanes.counter("pfc_tx"), lanes.counter("group_dropped_packets")
    is_judged = ~np.isnan(dropped) & ~np.isnan(pauses)
    if not is_judged.any():
        return _none(Examined.NO_EVIDENCE, "the device does not count drops of priority groups, or pauses")
    if not np.nansum(pauses) and not _lossless_drops(evidence):
        return _none(Examined.NOT_EXERCISED, "no port sent a pause")
    ignored, small = [], []
    for overrun in _lossless_drops(evidence):
        if _is_ignored(evidence, overrun):
            ignored.append(_ignored(evidence, overrun))
        else:
            small.append(_small(evidence, overrun))
    outcome = {
        kind: Examined.FOUND if findings else Examined.CLEAR
        for kind, findings in ((_IGNORED, ignored), (_SMALL, small))
    }
    return Found(
        (*ignored, *small), tuple(Examination(kind, result) for kind, result in outcome.items())
    )


def _none(outcome: Examined, why: str) -> Found:
    return Found((), tuple(Examination(kind, outcome, why) for kind in (_IGNORED, _SMALL)))


def _lossless_drops(evidence: Evidence) -> list[_Overrun]:
    lanes, ports = evidence.lanes, evidence.ports
    classes, settings = data_classes(evidence), settings_by_switch(evidence)
    dropped = np.nan_to_num(lanes.counter("group_dropped_packets"))
    pauses, most = (np.nan_to_num(lanes.counter(name)) for name in ("pfc_tx", "group_headroom_watermark_bytes"))
    octets = np.nan_to_num(lanes.counter("group_dropped_bytes"))
    overruns = []
    for lane in np.flatnonzero(dropped > 0).tolist():
        port, number = int(lanes.port[lane]), int(lanes.number[lane])
        name = ports.switch[port]
        configured = classes.get(name)
        priority = number
        limit = float(most[lane])
        if configured is not None:
            if not (configured.is_lossless and number == configured.group):
                continue
            limit = float(configured.settings.headroom_bytes)
            priority = settings[name].group_to_priority[number]
        lane_of_priority = np.flatnonzero((lanes.port == port) & (lanes.number == priority))
        sent = float(pauses[lane_of_priority].sum())
        if configured is None and not sent:
            continue
        overruns.append(
            _Overrun(
                port, number, float(dropped[lane]), float(octets[lane]), sent, limit, _needed_bytes(evidence, port)
            )
        )
    return sorted(overruns, key=lambda overrun: -overrun.dropped_packets)


def _needed_bytes(evidence: Evidence, port: int) -> float:
    """Return the headroom that a port needs by rate and delay of its cable (docs/device.md); NaN if they are not known."""
    name = evidence.ports.names[port]
    switch = settings_by_switch(evidence).get(evidence.ports.switch[port])
    for described in switch.ports if switch is not None else ():
        if f"{evidence.ports.switch[port]}/{described.name}" == name:
            return float(lossless_group((described,)).headroom_bytes)
    host = int(evidence.ports.host[port])
    rate = evidence.hosts.link_bps[host] if host >= 0 else evidence.ports.described_bps[port]
    if np.isnan(rate):
        return float("nan")
    # 100 ns are 20 m, a cable within a rack.
    return float(lossless_group((SwitchPort("", int(rate), 100),)).headroom_bytes)


def _is_ignored(evidence: Evidence, overrun: _Overrun) -> bool:
    """Return whether the neighbour went on sending while it was paused."""
    if overrun.pauses == 0:
        return False
    peer = int(evidence.ports.peer_row[overrun.port])
    if peer >= 0:
        lanes = evidence.lanes_of_port(peer)
        paused = evidence.lanes.counter("queue_paused_ns")[lanes]
        on_number = evidence.lanes.number[lanes] == _queue_of(evidence, peer)
        if on_number.any() and not np.isnan(paused[on_number]).all():
            return float(np.nansum(paused[on_number])) == 0
    return overrun.after_pause_bytes > OBEYED_OVERRUN * max(overrun.needed_bytes, overrun.limit_bytes)


def _queue_of(evidence: Evidence, port: int) -> int:
    configured = data_classes(evidence).get(evidence.ports.switch[port])
    return -1 if configured is None else configured.queue


def _place(evidence: Evidence, overrun: _Overrun) -> Place:
    ports = evidence.ports
    return Place(PlaceKind.PORT, ports.names[overrun.port], ports.peers[overrun.port])


def _facts(overrun: _Overrun) -> tuple[Fact, ...]:
    return (
        Fact("group_dropped_packets", overrun.dropped_packets, "packets", 0.0),
        Fact("pfc_tx", overrun.pauses, "frames"),
        Fact("bytes_after_pause", overrun.after_pause_bytes, "bytes", overrun.needed_bytes, int(overrun.pauses)),
        Fact("headroom_bytes", overrun.limit_bytes, "bytes", overrun.needed_bytes),
    )


def _ignored(evidence: Evidence, overrun: _Overrun) -> Finding:
    place = _place(evidence, overrun)
    sender = place.peer or f"the neighbour of {place.name}"
    sentence = (
        f"{sender} went on sending while {place.name} paused it ({overrun.pauses:,.0f} pauses), so that group "
        f"{overrun.number} dropped {overrun.dropped_packets:,.0f} packets"
    )
    remedy = f"enable PFC for the data's priority on {sender}, and check that both ends pause the same priority"
    places = (Place(PlaceKind.PORT, place.peer, place.name), place) if place.peer else (place,)
    host = int(evidence.ports.host[overrun.port])
    if host >= 0:
        places = (Place(PlaceKind.HOST, evidence.hosts.names[host], place.name),)
    return Finding(_IGNORED, places[:1], sentence, _facts(overrun), 1.0, remedy)


def _small(evidence: Evidence, overrun: _Overrun) -> Finding:
    place = _place(evidence, overrun)
    needed = overrun.needed_bytes
    more = overrun.limit_bytes + overrun.dropped_bytes / max(overrun.pauses, 1.0)
    if np.isnan(needed) or needed <= overrun.limit_bytes:
        needed = more
    sentence = (
        f"group {overrun.number} of {place} dropped {overrun.dropped_packets:,.0f} packets although it pauses its sender: "
        f"headroom of {overrun.limit_bytes:,.0f} B is full, and {needed:,.0f} B are needed"
    )
    remedy = f"give the group {needed:,.0f} B of headroom on {place.name}, by rate and length of its cable"
    return Finding(_SMALL, (place,), sentence, _facts(overrun), 1.0, remedy)
