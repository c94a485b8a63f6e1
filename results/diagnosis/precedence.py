"""Decides which findings are effects of others, the order of all, and how many are kept.

A late emulator explains earlier than any fault, but is listed after the faults that counters prove: they are certain.

A finding is an effect if an earlier one (by `FindingKind`) lies at the same place: the same port, the other end of its cable,
or the same switch where one of the two is a switch. `AT_A_DISTANCE` lists what a cause explains elsewhere: at the ports of
flows that cross its place. Plain facts of configuration are effects of a wrong class alone. Symptoms explain nothing at their
own place, and may be effects of later kinds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.results.diagnosis.evidence import distinct
from etloop.results.diagnosis.share import with_shares
from etloop.results.schema.findings import ROLES, Finding, FindingKind, Place, PlaceKind, Role

if TYPE_CHECKING:
    from etloop.results.diagnosis.evidence import Evidence

MOST_FINDINGS: Final = 24
"""Findings that are kept as they are; the rest of each kind becomes one finding."""
MOST_NAMED: Final = 4
"""Places that such a finding names in its sentence."""
_Kind = FindingKind
_Kinds = frozenset[FindingKind]
ORDER: Final = {kind: number for number, kind in enumerate(FindingKind)}
OF_CONFIGURATION: Final = frozenset(
    {_Kind.CNP_CLASS, _Kind.ECN_OFF, _Kind.HASH_COLLAPSE, _Kind.HASH_POLARISED, _Kind.PLACEMENT}
)
"""Kinds that a fault of a link or port cannot cause."""
SYMPTOMS: Final[Mapping[FindingKind, _Kinds]] = {
    _Kind.BUFFER_DROPS: frozenset(
        {
            _Kind.PFC_IGNORED,
            _Kind.SLOW_LINK,
            _Kind.ECN_OFF,
            _Kind.ECN_LATE,
            _Kind.HEADROOM_SMALL,
            _Kind.BUFFER_SHARE_SMALL,
            _Kind.HASH_COLLAPSE,
            _Kind.HASH_POLARISED,
        }
    ),
    _Kind.PFC_WATCHDOG: frozenset({_Kind.SLOW_LINK}),
    _Kind.CNP_LATE: frozenset(),
    _Kind.REORDERING: frozenset(),
    _Kind.VICTIM: frozenset({_Kind.JOB_INCAST}),
    _Kind.UNEVEN_LINKS: frozenset(),
    _Kind.STRAGGLER: frozenset(),
    _Kind.PLACEMENT: frozenset(),
    _Kind.JOB_INCAST: frozenset(),
}
"""Kinds that explain nothing, each with the later kinds that explain it at the same place."""
MADE_BY_LATENESS: Final = frozenset(
    {_Kind.PFC_STORM, _Kind.SLOW_LINK, _Kind.CNP_LATE}
    | {kind for kind, role in ROLES.items() if role is Role.JOB}
)
"""Kinds that rest on times, which a late emulator changes; it is listed before them, and after what counters prove."""
_OF_JOB: Final = frozenset(kind for kind, role in ROLES.items() if role is Role.JOB)
_OF_PAUSES: Final = frozenset(
    {
        _Kind.LOSSY_LINK,
        _Kind.BUFFER_DROPS,
        _Kind.PFC_WATCHDOG,
        _Kind.SLOW_LINK,
        _Kind.ECN_LATE,
        _Kind.VICTIM,
        _Kind.STRAGGLER,
        _Kind.JOB_INCAST,
    }
)
AT_A_DISTANCE: Final[Mapping[FindingKind, _Kinds]] = {
    _Kind.EMULATOR_LATE: frozenset({_Kind.CNP_LATE, _Kind.VICTIM, _Kind.STRAGGLER}),
    _Kind.LINK_FLAP: _OF_PAUSES | {_Kind.REORDERING, _Kind.UNEVEN_LINKS, _Kind.PFC_STORM},
    _Kind.DATA_CLASS: frozenset({_Kind.VICTIM, _Kind.STRAGGLER, _Kind.HEADROOM_SMALL, _Kind.PFC_IGNORED}),
    _Kind.CNP_CLASS: frozenset({_Kind.CNP_LATE}),
    _Kind.MTU: frozenset({_Kind.LOSSY_LINK, _Kind.STRAGGLER}),
    _Kind.DAMAGED_LINK: frozenset({_Kind.LOSSY_LINK, _Kind.REORDERING, _Kind.STRAGGLER}),
    _Kind.LOSSY_LINK: frozenset({_Kind.REORDERING, _Kind.STRAGGLER}),
    _Kind.PFC_IGNORED: frozenset({_Kind.VICTIM}),
    _Kind.PFC_DEADLOCK: _OF_PAUSES | {_Kind.PFC_STORM, _Kind.UNEVEN_LINKS},
    _Kind.PFC_STORM: _OF_PAUSES,
    _Kind.SLOW_LINK: frozenset({_Kind.PFC_WATCHDOG, _Kind.VICTIM, _Kind.STRAGGLER}),
    _Kind.ECN_OFF: frozenset({_Kind.VICTIM}),
    _Kind.ECN_LATE: frozenset({_Kind.VICTIM}),
    _Kind.HASH_COLLAPSE: frozenset({_Kind.VICTIM, _Kind.UNEVEN_LINKS, _Kind.HASH_POLARISED}),
    _Kind.HASH_POLARISED: frozenset({_Kind.VICTIM, _Kind.UNEVEN_LINKS}),
    _Kind.PLACEMENT: frozenset({_Kind.UNEVEN_LINKS, _Kind.JOB_INCAST, _Kind.VICTIM}),
    _Kind.JOB_INCAST: frozenset({_Kind.VICTIM}),
}
"""Kinds that a cause explains at the ports of flows that cross its place; placement: at the ports between switches."""


def mark_effects(findings: tuple[Finding, ...], evidence: Evidence) -> tuple[Finding, ...]:
    """Return the findings with `share` and `effect_of`: causes by precedence and share, then effects in the order of their
    causes. Those beyond `MOST_FINDINGS` are merged by kind.
    """
    ordered = sorted(with_shares(findings, evidence), key=_precedence)
    roots = _roots(ordered, _Zones(evidence))
    is_late = any(finding.kind is _Kind.EMULATOR_LATE for finding in ordered)
    places = [(_listing(finding) if is_late else 0, row) for row, finding in enumerate(ordered)]
    rows = sorted(range(len(ordered)), key=lambda row: (roots[row] != row, places[roots[row]], row))
    groups = _bound(rows, [(ordered[row].kind, roots[row] == row) for row in range(len(ordered))])
    group_of = {row: number for number, group in enumerate(groups) for row in group}
    return tuple(
        replace(
            _merge([ordered[row] for row in group]),
            effect_of=None if roots[group[0]] == group[0] else group_of[roots[group[0]]],
        )
        for group in groups
    )


def _precedence(finding: Finding) -> tuple[int, float, int]:
    """Return the key by which findings are sorted: faults by kind, then share; then those of the job by share alone."""
    rank = len(ORDER) if finding.kind in _OF_JOB else ORDER[finding.kind]
    return rank, -(finding.share or 0.0), ORDER[finding.kind]


def _listing(finding: Finding) -> int:
    """Return 0 for a fact that counters prove, 1 for the emulator, 2 for an effect that its lateness may have."""
    if finding.kind is _Kind.EMULATOR_LATE:
        return 1
    is_drained = any(fact.name == "drain_bps" for fact in finding.evidence)  # the device's own rate
    return 2 if finding.kind in MADE_BY_LATENESS and not is_drained else 0


def explains_there(cause: FindingKind, effect: FindingKind) -> bool:
    """Return whether a finding of kind `cause` explains one of kind `effect` at the same place."""
    if cause in AT_A_DISTANCE.get(effect, frozenset()):
        return False
    if cause is FindingKind.EMULATOR_LATE and effect not in MADE_BY_LATENESS:
        return False
    is_config = effect in OF_CONFIGURATION and cause is not FindingKind.DATA_CLASS
    if cause in SYMPTOMS or is_config:
        return effect in AT_A_DISTANCE.get(cause, frozenset())
    return ORDER[cause] < ORDER[effect] or cause in SYMPTOMS.get(effect, frozenset())


class _Zones:
    """Names of the ports and hosts that findings are about."""

    def __init__(self, evidence: Evidence) -> None:
        ports, hosts = evidence.ports, evidence.hosts
        self._flows = evidence.flows
        self._ports = ports
        self._hosts = hosts
        self._row_of_port = {name: row for row, name in enumerate(ports.names)}
        self._row_of_host = {name: row for row, name in enumerate(hosts.names)}
        self._peer = {name: peer for name, peer in zip(ports.names, ports.peers, strict=True) if peer}
        self._peer |= {peer: name for name, peer in self._peer.items()}
        self._host_of_rank = evidence.run.plan.port_names
        self._ports_of_switch = defaultdict[str, list[str]](list)
        for name, switch in zip(ports.names, ports.switch, strict=True):
            self._ports_of_switch[switch].append(name)

    def at(self, finding: Finding) -> frozenset[str]:
        """Return the ports and hosts at the places of a finding, with both ends of each cable."""
        names = {name for place in finding.places for name in self._names_of(place)}
        return frozenset(names | {self._peer[name] for name in names if name in self._peer})

    def _names_of(self, place: Place) -> list[str]:
        match place.kind:
            case PlaceKind.SWITCH:
                return [place.name, *self._ports_of_switch[place.name]]
            case PlaceKind.RANK | PlaceKind.FLOW:
                ranks = [int(text) for text in (place.name, place.peer) if text.isdigit()]
                return [self._host_of_rank[rank] for rank in ranks if rank < len(self._host_of_rank)]
            case PlaceKind.JOB:
                return []
            case _:
                return [name for name in (place.name, place.peer) if name]

    def reach(self, cause: Finding, names: frozenset[str]) -> frozenset[str] | None:
        """Return the ports and hosts at which a cause at `names` has effects elsewhere; None: anywhere."""
        if cause.kind is FindingKind.PLACEMENT:
            rows = np.flatnonzero(self._ports.peer_row >= 0).tolist()
            return frozenset(self._ports.names[row] for row in rows)
        if cause.kind is FindingKind.EMULATOR_LATE or not names:
            return None
        return self._ports_crossing(names)

    def _ports_crossing(self, names: frozenset[str]) -> frozenset[str] | None:
        """Return the ports and hosts of all flows that cross `names`; None: any, as ways are not known."""
        flows = self._flows
        hosts = np.array([self._row_of_host[name] for name in names if name in self._row_of_host], np.int64)
        ports = np.array([self._row_of_port[name] for name in names if name in self._row_of_port], np.int64)
        if not flows.has_ways and not len(hosts):
            return None
        at_hosts = flows.of_src_host.rows_of(hosts), flows.of_dst_host.rows_of(hosts)
        rows = distinct(np.concatenate([*at_hosts, flows.of_port.rows_of(ports)]))
        ends = distinct(np.r_[flows.src_host[rows], flows.dst_host[rows]]).tolist()
        crossed = {self._ports.names[row] for row in flows.ports_of(rows).tolist() if row >= 0}
        crossed |= {self._hosts.names[row] for row in ends if row >= 0}
        return frozenset(crossed | {self._peer[name] for name in crossed if name in self._peer})


def _roots(findings: Sequence[Finding], zones: _Zones) -> list[int]:
    """Return for each finding the row of its first cause that is not an effect itself; its own row: it is a cause."""
    places = [zones.at(finding) for finding in findings]
    rows_at = defaultdict[str, list[int]](list)
    for row, names in enumerate(places):
        for name in names:
            rows_at[name].append(row)
    causes: list[int | None] = [None] * len(findings)
    far: dict[int, frozenset[str] | None] = {}
    for row, finding in enumerate(findings):
        near = {other for name in places[row] for other in rows_at[name] if other != row}
        explaining = [other for other in near if explains_there(findings[other].kind, finding.kind)]
        for other, cause in enumerate(findings):
            if other == row or finding.kind not in AT_A_DISTANCE.get(cause.kind, frozenset()):
                continue
            if other not in far:
                far[other] = zones.reach(cause, places[other])
            reach = far[other]
            if reach is None or not places[row] or reach & places[row]:
                explaining.append(other)
        causes[row] = min(explaining, default=None)
    return [_root(row, causes) for row in range(len(findings))]


def _root(row: int, causes: Sequence[int | None]) -> int:
    """Follow causes to one without a cause: symptoms explain nothing that explains them, so there is no cycle."""
    while (cause := causes[row]) is not None:
        row = cause
    return row


def _bound(rows: Sequence[int], group_of_row: Sequence[tuple[FindingKind, bool]]) -> list[list[int]]:
    """Return rows as groups of one, and the rest of each kind as one group after those of its kind.

    The first of every kind are kept before the second of any.
    """
    count_of_group = defaultdict[tuple[FindingKind, bool], int](int)
    ranks = {}
    for row in rows:
        ranks[row] = count_of_group[group_of_row[row]]
        count_of_group[group_of_row[row]] += 1
    position = {row: number for number, row in enumerate(rows)}
    kept = set(sorted(rows, key=lambda row: (ranks[row], position[row]))[:MOST_FINDINGS])
    groups: list[list[int]] = []
    rest: dict[tuple[FindingKind, bool], list[int]] = {}
    for row in rows:
        if row in kept:
            groups.append([row])
        elif group_of_row[row] in rest:
            rest[group_of_row[row]].append(row)
        else:
            groups.append(rest.setdefault(group_of_row[row], [row]))
    return groups


def _merge(findings: Sequence[Finding]) -> Finding:
    """Return one finding for the rest of a kind."""
    first = findings[0]
    if len(findings) == 1:
        return first
    places = tuple(dict.fromkeys(place for finding in findings for place in finding.places))
    names = ", ".join(str(place) for place in places[:MOST_NAMED])
    more = len(places) - MOST_NAMED
    words = f"{names} and {more} more" if more > 0 else names
    return replace(
        first,
        places=places,
        sentence=f"{len(findings)} more findings of {first.kind}: {words}",
        evidence=(),
        confidence=min(finding.confidence for finding in findings),
        share=None,
    )
