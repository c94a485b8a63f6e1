"""Finds why a lossless priority group dropped packets: its neighbour ignores pauses, or its headroom is too small.

Decides by the bytes that arrived after a pause. A sender that stops does so after the bytes in flight, which its
rate and the length of its cable determine. So headroom for these bytes that overflows shows a sender that went on; where
headroom is not stated, so do several times as many bytes. A switch that received pauses and was never paused is a direct proof.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.switch_presets import lossless_group
from etloop.contract.model.topology import SwitchPort
from etloop.results.diagnosis.configured import data_class_at, settings_by_switch
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
LEAST_PAUSES: Final = 3.0
"""Pause frames below which a sender may not have had the time to react."""
OBEYED_OVERRUN: Final = 3.0
"""Bytes after a pause over those in flight by rate and length of the cable, above which the sender did not stop."""


FULL: Final = 0.8
"""Share of the headroom that was used at least when it overflowed; a common pool may end before."""
MOST_PLACES: Final = 4


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
    used_bytes: float
    """The most headroom that was used."""
    needed_bytes: float
    """In flight after a pause, by rate and length of the cable; NaN if the rate is not known."""

    @property
    def after_pause_bytes(self) -> float:
        """Return the bytes that arrived beyond the threshold, by pause frame."""
        return self.dropped_bytes / max(self.pauses, 1.0) + self.limit_bytes


def look(evidence: Evidence) -> Found:
    """Return the groups that dropped packets although they pause their senders, and senders that no pause stops."""
    lanes = evidence.lanes
    pauses, dropped = lanes.counter("pfc_tx"), lanes.counter("group_dropped_packets")
    if np.isnan(dropped).all() or np.isnan(pauses).all():
        return _none(Examined.NO_EVIDENCE, "the device does not count drops of priority groups, or pauses")
    overruns = _overruns(evidence)
    if not np.nansum(pauses) and not overruns:
        return _none(Examined.NOT_EXERCISED, "no port sent a pause")
    ignored = [
        _finding_of_ignored(evidence, overrun) for overrun in overruns if _is_ignored(evidence, overrun)
    ]
    small: dict[str, list[_Overrun]] = {}
    for overrun in overruns:
        if overrun.dropped_packets and not _is_ignored(evidence, overrun):
            small.setdefault(evidence.ports.switch[overrun.port], []).append(overrun)
    findings = (*ignored, *(_small(evidence, name, ports) for name, ports in small.items()))
    outcomes = ((_IGNORED, bool(ignored)), (_SMALL, bool(small)))
    return Found(
        findings,
        tuple(
            Examination(kind, Examined.FOUND if is_found else Examined.CLEAR) for kind, is_found in outcomes
        ),
    )


def _none(outcome: Examined, why: str) -> Found:
    return Found((), tuple(Examination(kind, outcome, why) for kind in (_IGNORED, _SMALL)))


def _overruns(evidence: Evidence) -> list[_Overrun]:
    """Return the lossless groups that dropped packets or sent pauses, those with most drops first."""
    lanes, ports = evidence.lanes, evidence.ports
    settings = settings_by_switch(evidence)
    dropped, pauses, most, octets = (
        np.nan_to_num(lanes.counter(name))
        for name in (
            "group_dropped_packets",
            "pfc_tx",
            "group_headroom_watermark_bytes",
            "group_dropped_bytes",
        )
    )
    overruns = []
    for lane in np.flatnonzero((dropped > 0) | (pauses >= LEAST_PAUSES)).tolist():
        port, number = int(lanes.port[lane]), int(lanes.number[lane])
        name = ports.switch[port]
        configured = data_class_at(evidence, port)
        priority, limit = number, float(most[lane])
        if configured is not None:
            if not configured.is_lossless or number != configured.group:
                continue
            limit = float(configured.settings.headroom_bytes)
            priority = settings[name].group_to_priority[number]
        sent = float(pauses[(lanes.port == port) & (lanes.number == priority)].sum())
        if configured is None and not sent:
            continue
        needed = _needed_bytes(evidence, port)
        overruns.append(
            _Overrun(
                port,
                number,
                float(dropped[lane]),
                float(octets[lane]),
                sent,
                limit,
                float(most[lane]),
                needed,
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
    if overrun.pauses < LEAST_PAUSES:
        return False
    peer = int(evidence.ports.peer_row[overrun.port])
    if peer >= 0:
        rows = evidence.lanes_of_port(peer)
        rows = rows[evidence.lanes.number[rows] == _queue_of(evidence, peer)]
        paused_ns = evidence.lanes.counter("queue_paused_ns")[rows]
        if len(rows) and not np.isnan(paused_ns).all():
            sent = np.nansum(evidence.lanes.counter("queue_packets")[rows])
            return bool(np.nansum(paused_ns) == 0 and sent > 0)
    if not overrun.dropped_packets or overrun.used_bytes < FULL * overrun.limit_bytes:
        return False
    is_stated = evidence.ports.switch[overrun.port] in settings_by_switch(evidence)
    if is_stated and overrun.limit_bytes >= overrun.needed_bytes:
        return True
    return overrun.after_pause_bytes > OBEYED_OVERRUN * max(overrun.needed_bytes, overrun.limit_bytes)


def _queue_of(evidence: Evidence, port: int) -> int:
    configured = data_class_at(evidence, port)
    return -1 if configured is None else configured.queue


def _place(evidence: Evidence, overrun: _Overrun) -> Place:
    ports = evidence.ports
    return Place(PlaceKind.PORT, ports.names[overrun.port], ports.peers[overrun.port])


def _facts(overrun: _Overrun) -> tuple[Fact, ...]:
    needed = None if np.isnan(overrun.needed_bytes) else overrun.needed_bytes
    return (
        Fact("group_dropped_packets", overrun.dropped_packets, "packets", 0.0),
        Fact("pfc_tx", overrun.pauses, "frames"),
        Fact("bytes_after_pause", overrun.after_pause_bytes, "bytes", needed, int(overrun.pauses)),
        Fact("headroom_bytes", overrun.limit_bytes, "bytes", needed),
    )


def _finding_of_ignored(evidence: Evidence, overrun: _Overrun) -> Finding:
    place = _place(evidence, overrun)
    host = int(evidence.ports.host[overrun.port])
    sender = (
        Place(PlaceKind.HOST if host >= 0 else PlaceKind.PORT, place.peer, place.name)
        if place.peer
        else place
    )
    words = place.peer or f"the neighbour of {place.name}"
    sentence = f"{words} went on sending while {place.name} paused it ({overrun.pauses:,.0f} pause frames)"
    if overrun.dropped_packets:
        sentence += f", so that group {overrun.number} dropped {overrun.dropped_packets:,.0f} packets"
    remedy = (
        f"enable PFC for the data's priority on {words}, and check that both ends pause the same priority"
    )
    return Finding(_IGNORED, (sender,), sentence, _facts(overrun), 1.0, remedy)


def _small(evidence: Evidence, name: str, overruns: list[_Overrun]) -> Finding:
    """Return the finding of a switch. `overruns`: its groups, the one with most drops first."""
    worst = overruns[0]
    dropped = sum(overrun.dropped_packets for overrun in overruns)
    needed = max(
        (overrun.needed_bytes for overrun in overruns if overrun.needed_bytes > overrun.limit_bytes),
        default=max(overrun.after_pause_bytes for overrun in overruns),
    )
    places = tuple(_place(evidence, overrun) for overrun in overruns)
    sentence = (
        f"group {worst.number} of {places[0]} dropped {worst.dropped_packets:,.0f} packets although it pauses its sender: "
        f"its headroom of {worst.limit_bytes:,.0f} B is too small, {needed:,.0f} B are needed"
    )
    if len(overruns) > 1:
        sentence += f"; {len(overruns)} ports of {name} dropped {dropped:,.0f} packets"
    remedy = (
        f"give group {worst.number} on {name} {needed:,.0f} B of headroom, by rate and length of the cables"
    )
    return Finding(_SMALL, places[:MOST_PLACES], sentence, _facts(worst), 1.0, remedy)
