"""Finds hashes that use few of their links, and distinguishes them from jobs with too few flows to spread.

Decides what uneven links mean. A load that a fair hash gives with a probability below `FAULT` after correction for the number
of groups is a fault of the hash, and so is a group in which links depend on fewer header fields than the streams differ in. The
second tier is polarised if the same fields spread the streams well at the first. All else is chance: the job has few streams,
which is worth a finding only if the busiest link needs longer for its bytes than any port of the job and than an even load.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.units import approximate_duration
from etloop.contract.model.topology import LoadBalancing
from etloop.results.diagnosis.chi_square import chi_square_beyond
from etloop.results.diagnosis.rule import Found
from etloop.results.diagnosis.spread import Load, chance_of_function, spread_probability
from etloop.results.schema.findings import Examination, Examined, Fact, Finding, FindingKind, Place, PlaceKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.results.diagnosis.evidence import Choice, Evidence

    Floats = NDArray[np.float64]
    Rows = NDArray[np.int64]

KINDS: Final = (FindingKind.HASH_COLLAPSE, FindingKind.HASH_POLARISED, FindingKind.UNEVEN_LINKS)
FAULT: Final = 1e-4
"""Probability of a healthy run below which its hash is at fault."""
_PERHAPS: Final = 0.05
"""Probability below which a group is named where all groups together are at fault."""
_LEAST_CHANCE: Final = 1e-300
"""A smaller one, or 0 where it is too small to be a number, counts as this."""
_COSTS: Final = 0.1
"""Share of the job's time from which on uneven links are worth a finding."""
_KEYS: Final[tuple[tuple[str, ...], ...]] = (
    (),
    ("src_address",),
    ("dst_address",),
    ("source_port",),
    ("queue_pair",),
    ("src_address", "dst_address"),
)
_WORDS: Final = {
    "src_address": "source address",
    "dst_address": "destination address",
    "source_port": "source port",
    "queue_pair": "queue pair",
}


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Links among which a switch chooses, with their load."""

    switch: str
    ports: Rows
    load: Load
    chance: float
    """Probability that a fair hash is as uneven."""
    keys: dict[tuple[str, ...], float]
    """Sets of header fields that determine the link of every stream, each with the probability that it is by chance."""
    feeders: frozenset[str] = frozenset()
    """Switches that chose before, by a hash, for the streams of this group."""


@dataclass(frozen=True, slots=True, eq=False)
class Suspect:
    """A group whose hash is at fault."""

    group: Group
    key: tuple[str, ...] | None
    """Header fields that the link depends on; None: not known."""
    chance: float
    """Probability of the fault in a healthy run, corrected for the tests made."""


def look(evidence: Evidence) -> Found:
    """Return collapsed and polarised hashes, and the links that chance made uneven at the cost of the job's time."""
    if not evidence.ports.names or not len(evidence.streams.ports):
        return _outcome(Examined.NO_EVIDENCE, "no counters of the device")
    groups = _groups(evidence)
    if not groups:
        why = "no switch chose links by a hash for two streams or more whose ways are known"
        return _outcome(Examined.NOT_EXERCISED, why)
    suspects = [
        suspect
        for is_fed in (False, True)
        for suspect in _suspects([group for group in groups if bool(group.feeders) is is_fed], len(groups))
    ]
    names = {suspect.group.switch for suspect in suspects}
    polarised = [suspect for suspect in suspects if _is_polarised(evidence, suspect.group, names)]
    faulty = {id(suspect.group) for suspect in suspects}
    findings = (
        *_collapses(evidence, [suspect for suspect in suspects if suspect not in polarised]),
        *_polarisation(evidence, polarised),
        *_chance(evidence, [group for group in groups if id(group) not in faulty]),
    )
    outcomes = (
        Examination(kind, Examined.FOUND if any(f.kind is kind for f in findings) else Examined.CLEAR)
        for kind in KINDS
    )
    return Found(findings, tuple(outcomes))


def _suspects(groups: list[Group], tests: int) -> list[Suspect]:
    """Return the groups of one tier whose hash is at fault: by the test of all together, or by their own."""
    if not groups:
        return []
    keys = len(_KEYS)
    for key in _KEYS:
        chance = float(np.prod([group.keys.get(key, 1.0) for group in groups])) * keys
        if chance < FAULT and all(key in group.keys for group in groups):
            return [Suspect(group, key, chance) for group in groups]
    suspects = []
    for group in groups:
        smallest = next((key for key in _KEYS if group.keys.get(key, 1.0) * keys * tests < FAULT), None)
        by_key = 1.0 if smallest is None else group.keys[smallest] * keys
        chance = min(by_key, group.chance) * tests
        if chance < FAULT:
            suspects.append(Suspect(group, smallest, chance))
    # Fisher's method: chance dies out over many groups, a fault of all does not.
    together = chi_square_beyond(
        2 * len(groups), -2 * sum(np.log(max(group.chance, _LEAST_CHANCE)) for group in groups)
    )
    if not suspects and together < FAULT:
        return [Suspect(group, None, together) for group in groups if group.chance < _PERHAPS]
    return suspects


def _outcome(outcome: Examined, why: str) -> Found:
    return Found((), tuple(Examination(kind, outcome, why) for kind in KINDS))


def _groups(evidence: Evidence) -> list[Group]:
    """Return the groups of links that a hash spreads two streams or more over."""
    if not evidence.choices:
        loads = _counted_loads(evidence)
        return [Group(switch, ports, load, spread_probability(load), {}) for switch, ports, load in loads]
    streams = evidence.streams
    owner = streams.way_stream
    order = np.argsort(streams.way_choice, kind="stable")
    bounds = np.searchsorted(streams.way_choice[order], np.arange(len(evidence.choices) + 1))
    groups = []
    for number, choice in enumerate(evidence.choices):
        rows = order[bounds[number] : bounds[number + 1]]
        if choice.is_hashed and (choice.ports >= 0).all():
            group = _group_of(evidence, choice, rows, owner)
            if group is not None:
                groups.append(group)
    return groups


def _group_of(evidence: Evidence, choice: Choice, rows: Rows, owner: Rows) -> Group | None:
    """Return a group from its rows of the ways of streams, which belong to the streams `owner`."""
    streams = evidence.streams
    row_bytes = streams.payload_bytes[owner[rows]] * streams.way_share[rows]
    place = np.full(len(evidence.ports.names), -1)
    place[choice.ports] = np.arange(len(choice.ports))
    link = place[streams.way_port[rows]]
    members, row = np.unique(owner[rows], return_inverse=True)
    reach = np.bincount(row, streams.way_share[rows], len(members))
    counts = np.maximum(np.rint(reach * streams.ports[members]), 1).astype(np.int64)
    sends = streams.payload_bytes[members] > 0
    load = Load(
        np.bincount(link, row_bytes, len(choice.ports)).astype(np.float64),
        choice.weights,
        (streams.payload_bytes[members] / streams.ports[members])[sends],
        counts[sends],
    )
    if load.streams < 2:
        return None
    keys: dict[tuple[str, ...], float] = {}
    if (np.bincount(row, minlength=len(members)) == 1).all() and _is_ecmp(evidence, choice.switch):
        link_of = np.zeros(len(members), np.int64)
        link_of[row] = link
        keys = _keys_of(evidence, members, link_of, counts, choice.weights)
    feeders = _feeders(evidence, rows, owner)
    return Group(choice.switch, choice.ports, load, spread_probability(load), keys, feeders)


def _feeders(evidence: Evidence, rows: Rows, owner: Rows) -> frozenset[str]:
    streams = evidence.streams
    before = rows - 1
    inside = before[(before >= streams.way_first[owner[rows]])]
    chosen = np.unique(streams.way_choice[inside])
    return frozenset(
        evidence.choices[number].switch
        for number in chosen.tolist()
        if number >= 0 and evidence.choices[number].is_hashed
    )


def _keys_of(
    evidence: Evidence, members: Rows, link: Rows, counts: Rows, weights: Floats
) -> dict[tuple[str, ...], float]:
    """Return the sets of header fields that determine the link of the streams `members`, with the probability that they do
    so by chance."""
    sprays = bool((evidence.streams.ports[members] > 1).any())
    keys: dict[tuple[str, ...], float] = {}
    for fields in _KEYS:
        if sprays and ("source_port" in fields or "queue_pair" in fields):
            continue  # a row has several of them
        number = np.zeros(len(members), np.int64)
        for name in fields:
            column = getattr(evidence.streams, name)[members]
            number = np.unique(number * (int(column.max(initial=0)) + 2) + column + 1, return_inverse=True)[1]
        chance = chance_of_function(number.reshape(-1), link, counts, weights)
        if chance is not None:
            keys[fields] = chance
    return keys


def _counted_loads(evidence: Evidence) -> list[tuple[str, Rows, Load]]:
    """Return the uplinks of every switch with hosts, by the bytes that the device counted; their streams by the plan."""
    ports, streams, hosts = evidence.ports, evidence.streams, evidence.hosts
    if evidence.needs.sprays or evidence.is_virtual:
        return []
    switch_names, switch = np.unique(np.array(ports.switch, object), return_inverse=True)
    port_of = np.concatenate([hosts.port, [-1]])
    home = np.where(port_of >= 0, switch[np.maximum(port_of, 0)], -1)
    src, dst = home[streams.src_host], home[streams.dst_host]
    tx, rx = ports.counter("tx_bytes"), ports.counter("rx_bytes")
    loads = []
    for number in np.unique(src[src >= 0]).tolist():
        if not _hashes(evidence, str(switch_names[number])):
            continue
        links = np.flatnonzero((switch == number) & (ports.peer_row >= 0))
        silent = (np.nan_to_num(tx[links]) == 0) & (np.nan_to_num(rx[links]) == 0)
        if 0 < silent.sum() < len(links) / 2:  # down
            links = links[~silent]
        leaves = (src == number) & (dst != number) & (streams.payload_bytes > 0)
        link_bytes = np.nan_to_num(tx[links])
        if len(links) < 2 or leaves.sum() < 2 or not link_bytes.sum():
            continue
        payload = streams.payload_bytes[leaves]
        scaled = link_bytes * payload.sum() / link_bytes.sum()
        weights = np.full(len(links), 1 / len(links))
        load = Load(scaled, weights, payload, np.ones(len(payload), np.int64))
        loads.append((str(switch_names[number]), links, load))
    return loads


def _hashes(evidence: Evidence, switch: str) -> bool:
    """Return whether a switch chooses links by headers, as far as the topology describes it."""
    if evidence.topology is None:
        return True
    balancing = {settings.name: settings.balancing for settings in evidence.topology.switches}
    return not balancing.get(switch, LoadBalancing.ECMP).reorders


def _is_ecmp(evidence: Evidence, switch: str) -> bool:
    """Return whether a switch chooses links by a hash, and not by bits of the source port."""
    settings = evidence.topology.switches if evidence.topology is not None else ()
    return any(entry.name == switch and entry.balancing is LoadBalancing.ECMP for entry in settings)


def _fields(evidence: Evidence, switch: str) -> frozenset[str]:
    topology = evidence.topology
    if topology is None:
        return frozenset()
    return frozenset(
        str(field)
        for settings in topology.switches
        if settings.name == switch
        for field in settings.hash_fields
    )


def _is_polarised(evidence: Evidence, group: Group, faulty: set[str]) -> bool:
    """Return whether the switches that chose before hash the same fields, and spread their streams well."""
    own = _fields(evidence, group.switch)
    return bool(group.feeders) and all(
        name not in faulty and _fields(evidence, name) == own for name in group.feeders
    )


def _collapses(evidence: Evidence, suspects: list[Suspect]) -> list[Finding]:
    """Return one finding for each set of fields that hashes are reduced to."""
    by_key: dict[tuple[str, ...] | None, list[Suspect]] = {}
    for suspect in suspects:
        by_key.setdefault(suspect.key, []).append(suspect)
    findings = []
    for key, members in by_key.items():
        reason = (
            "no single field explains it"
            if key is None
            else f"its link depends on the {' and '.join(_WORDS[name] for name in key)} alone"
            if key
            else "no header field changes its link"
        )
        findings.append(_fault(evidence, FindingKind.HASH_COLLAPSE, members, (reason, _remedy(key))))
    return findings


def _remedy(key: tuple[str, ...] | None) -> str:
    if key is None:
        return "compare the hash fields and the members of the link group with those of other switches"
    missing = [_WORDS[name] for name in _WORDS if name not in key and name != "queue_pair"]
    return f"add to the switch's hash: {', '.join(missing)}"


def _polarisation(evidence: Evidence, suspects: list[Suspect]) -> list[Finding]:
    if not suspects:
        return []
    feeders = sorted({name for suspect in suspects for name in suspect.group.feeders})
    reason = f"{_join_names(feeders)} chose by the same hash before"
    remedy = "give the switches of each tier another hash seed, or other hash fields"
    return [_fault(evidence, FindingKind.HASH_POLARISED, suspects, (reason, remedy))]


def _fault(evidence: Evidence, kind: FindingKind, suspects: list[Suspect], words: tuple[str, str]) -> Finding:
    """Return the finding of groups with the same fault; `words`: reason and remedy."""
    reason, remedy = words
    groups = [suspect.group for suspect in suspects]
    worst = min(groups, key=lambda group: group.load.effective_links / len(group.ports))
    load, links = worst.load, len(worst.ports)
    names = list(dict.fromkeys(group.switch for group in groups))
    others = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
    used = int((load.link_bytes > 0).sum())
    chance = min(suspect.chance for suspect in suspects)
    sentence = (
        f"{worst.switch}{others} spreads {load.streams} streams over {used} of {links} links, as unevenly as over "
        f"{load.effective_links:.2f}: {reason}"
    )
    facts = (
        Fact("effective_links", load.effective_links, "links", float(links), load.streams),
        Fact("busiest_link_to_mean", load.max_to_mean, "ratio", 1.0, links),
        Fact("chance_of_fair_hash", chance, "probability", None, len(groups)),
    )
    host_ns = _busiest_host_ns(evidence)
    share = _share(evidence, max(_lost_ns(evidence, group, host_ns)[0] for group in groups))
    places = tuple(Place(PlaceKind.SWITCH, name) for name in names)
    return Finding(kind, places, sentence, facts, 1 - chance, remedy, share=share)


def _busiest_host_ns(evidence: Evidence) -> float:
    """Return how long the busiest port of the rig needs for its bytes; 0 if no rate is known."""
    hosts, streams = evidence.hosts, evidence.streams
    busiest_ns = 0.0
    for end in (streams.src_host, streams.dst_host):
        known = end >= 0
        if known.any():
            host_bytes = np.bincount(end[known], streams.payload_bytes[known], len(hosts.names))
            busiest_ns = max(busiest_ns, float(np.nanmax(host_bytes * 8e9 / hosts.link_bps)))
    return busiest_ns


def _lost_ns(evidence: Evidence, group: Group, host_ns: float) -> tuple[float, float]:
    """Return by how much longer the busiest link of a group needs for its bytes than an even load and than any port of the
    rig, and how long it needs."""
    ports, hosts = evidence.ports, evidence.hosts
    rates = ports.described_bps[group.ports]
    if not np.isfinite(rates).all():
        rates = np.full(len(rates), np.nanmax(hosts.link_bps, initial=0) or np.nan)
    busiest_ns = float((group.load.link_bytes * 8e9 / rates).max())
    even_ns = float(group.load.link_bytes.sum() * 8e9 / rates.sum())
    lost = busiest_ns - max(even_ns, host_ns)
    return (lost if np.isfinite(lost) else 0.0), busiest_ns


def _share(evidence: Evidence, lost_ns: float) -> float | None:
    if not evidence.duration_ns:
        return None
    return float(np.clip(lost_ns / evidence.duration_ns, 0, 1))


def _chance(evidence: Evidence, groups: list[Group]) -> list[Finding]:
    """Return the links that chance loads most, if they cost time."""
    if not groups or not evidence.duration_ns:
        return []
    host_ns = _busiest_host_ns(evidence)
    lost = [_lost_ns(evidence, group, host_ns) for group in groups]
    worst = int(np.argmax([lost_ns for lost_ns, _ in lost]))
    lost_ns, busiest_ns = lost[worst]
    if lost_ns < _COSTS * evidence.duration_ns:
        return []
    group = groups[worst]
    load = group.load
    port = int(group.ports[int(load.link_bytes.argmax())])
    place = Place(PlaceKind.PORT, evidence.ports.names[port], evidence.ports.peers[port])
    chance = 1 - (1 - group.chance) ** len(groups)
    sentence = (
        f"{place} carries {load.max_to_mean:.2f} x the mean of {len(group.ports)} links of {group.switch}, "
        f"{approximate_duration(round(busiest_ns))} of bytes at line rate: {load.streams} streams are too few to spread, and "
        f"a fair hash does as badly in {chance * 100:.2g} % of runs"
    )
    facts = (
        Fact("busiest_link_to_mean", load.max_to_mean, "ratio", 1.0, load.streams),
        Fact("effective_links", load.effective_links, "links", float(len(group.ports)), load.streams),
        Fact("chance_of_fair_hash", chance, "probability", None, len(groups)),
    )
    remedy = "use more queue pairs per connection (transport.qps_per_connection), or spray packets"
    share = _share(evidence, lost_ns)
    return [Finding(FindingKind.UNEVEN_LINKS, (place,), sentence, facts, 1.0, remedy, share=share)]


def _join_names(names: list[str]) -> str:
    """Join names, at most three."""
    shown = names[:3] + ([f"{len(names) - 3} more"] if len(names) > 3 else [])
    return " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))
