"""Turns the findings of all steps into named parts, and the figures of all steps into a row per port.

Pure. Decides which findings are the same part, and which are effects of a part that is named already: marks that are missing
where data use another queue, a rate that is low because packets are lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.results.schema.certificate import PortRecord
from etloop.results.schema.findings import Finding, FindingKind, Place, PlaceKind, Role
from etloop.results.schema.verdict import Result

if TYPE_CHECKING:
    from etloop.controller.inputs.rig import RigPort

_ORDER: Final = {kind: number for number, kind in enumerate(FindingKind)}
_ECN: Final = frozenset({FindingKind.ECN_OFF, FindingKind.ECN_EARLY, FindingKind.ECN_LATE})
_EFFECTS: Final[Mapping[FindingKind, frozenset[FindingKind]]] = {
    FindingKind.DATA_CLASS: _ECN
    | {FindingKind.CNP_CLASS, FindingKind.BUFFER_DROPS, FindingKind.HEADROOM_SMALL, FindingKind.PFC_IGNORED},
    FindingKind.DAMAGED_LINK: frozenset({FindingKind.SLOW_LINK, FindingKind.LOSSY_LINK}),
    FindingKind.LOSSY_LINK: frozenset({FindingKind.SLOW_LINK}),
    FindingKind.SLOW_LINK: _ECN,
}
"""Kind of a named part -> kinds that are its effects at the same place."""


@dataclass(frozen=True, slots=True)
class Named:
    """A finding, with the step that made it."""

    step: int
    finding: Finding


def parts_of(named: Iterable[Named]) -> tuple[Named, ...]:
    """Return one finding for each part, by precedence: no effects, and nothing twice."""
    parts: list[Named] = []
    for candidate in sorted(named, key=_precedence):
        finding = candidate.finding
        if finding.role is not Role.FAULT or finding.effect_of is not None:
            continue
        if any(_is_same(finding, part.finding) or _is_effect(finding, part.finding) for part in parts):
            continue
        parts.append(candidate)
    return tuple(parts)


def _precedence(named: Named) -> tuple[int, bool, int]:
    return _ORDER[named.finding.kind], named.finding.is_ambiguous, named.step


def _is_same(finding: Finding, part: Finding) -> bool:
    return finding.kind is part.kind and any(
        touches(place, named) for place in finding.places for named in part.places
    )


def _is_effect(finding: Finding, part: Finding) -> bool:
    return finding.kind in _EFFECTS.get(part.kind, ()) and any(
        touches(place, named) for place in finding.places for named in part.places
    )


def touches(place: Place, named: Place) -> bool:
    """Return whether two places share a switch as a whole, or an end of a cable."""
    ends, others = {place.name, place.peer} - {""}, {named.name, named.peer} - {""}
    if PlaceKind.SWITCH in (place.kind, named.kind):
        return bool(_switches(place) & _switches(named))
    return bool(ends & others)


def _switches(place: Place) -> set[str]:
    if place.kind is PlaceKind.SWITCH:
        return {place.name}
    return {end.rpartition("/")[0] for end in (place.name, place.peer) if "/" in end}


def hosts_behind(places: Iterable[Place], device_ports: Mapping[str, str]) -> frozenset[str]:
    """Return the rig ports on the cables of `places`, or on their switches. `device_ports`: by rig port, the device's."""
    hosts = set()
    for place in places:
        for host, port in device_ports.items():
            if place.kind is PlaceKind.SWITCH:
                if port.rpartition("/")[0] == place.name:
                    hosts.add(host)
            elif host in (place.name, place.peer):
                hosts.add(host)
    return frozenset(hosts)


def hosts_to_leave_out(
    places: Iterable[Place], device_ports: Mapping[str, str], ports: int
) -> frozenset[str]:
    """Return the rig ports behind `places`, the smallest places first, as long as more than half of the `ports` are left."""
    left_out: frozenset[str] = frozenset()
    for behind in sorted((hosts_behind([place], device_ports) for place in places), key=len):
        if 2 * len(left_out | behind) < ports:
            left_out |= behind
    return left_out


def port_records(
    ports: Mapping[str, RigPort],
    device_ports: Mapping[str, str],
    figures: Sequence[Mapping[str, Mapping[str, float]]],
    parts: Sequence[Named],
) -> tuple[PortRecord, ...]:
    """Return a row for each rig port from the figures of all steps: losses summed, of others the last."""
    bad = hosts_behind((place for part in parts for place in part.finding.places), device_ports)
    rows = []
    for name, port in ports.items():
        values: dict[str, float] = {}
        for of_step in figures:
            for figure, value in of_step.get(name, {}).items():
                summed = figure in ("lost_sent", "lost_received")
                values[figure] = values.get(figure, 0.0) + value if summed else value
        rows.append(
            PortRecord(
                name=name,
                device_port=device_ports.get(name, ""),
                stated_bps=port.link_bps,
                sends_bps=values.get("sends_bps"),
                receives_bps=values.get("receives_bps"),
                lost_sent=_whole(values.get("lost_sent")),
                lost_received=_whole(values.get("lost_received")),
                queue=_whole(values.get("queue")),
                kmin_bytes=values.get("kmin_bytes"),
                kmax_bytes=values.get("kmax_bytes"),
                pauses=_whole(values.get("pauses")),
                result=Result.FAIL if name in bad else Result.PASS,
            )
        )
    return tuple(rows)


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
