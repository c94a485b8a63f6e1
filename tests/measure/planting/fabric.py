"""Draws the network of a case: switches, their cables and the rig, without any fault.

Decides the shapes, sizes and rates of healthy fabrics. `plants` changes one value of a fabric; nothing here is planted.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Final

from etloop.contract.base.late_dataclass import dataclass

RATES_MBPS: Final = (25_000, 50_000, 100_000, 200_000, 400_000)
MIB: Final = 1 << 20
SHAPES: Final = ("single", "leaf_spine", "dumbbell", "rail")
DATA_QUEUE: Final = 3
"""Queue, group and priority of the preset's lossless class."""


@dataclass(frozen=True, slots=True)
class Size:
    """What the machine that runs cases can carry."""

    rates_mbps: tuple[int, ...]
    most_ranks: int
    run_bytes: int
    """Payload that a job sends in all, about."""
    time_factor: int
    """How much longer than in the twin a job takes."""


IN_TWIN: Final = Size(RATES_MBPS, 32, 384 * MIB, 1)
"""Jobs of 100,000 packets."""
IN_LAB: Final = Size((100, 200), 6, 48 * MIB, 500)


class Draw(random.Random):
    """A source of random choices for cases of one size."""

    size: Size = IN_TWIN


@dataclass(frozen=True, slots=True)
class Cable:
    """A cable from a port of a switch to another switch, or to a port of the rig."""

    near: str
    """Such as "leaf0/3"."""
    far: str
    """A port of a switch, or of the rig ("h3/p0")."""
    rate_mbps: int
    delay_ns: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    """More keys of its entry in the topology."""

    @property
    def ends(self) -> frozenset[str]:
        """Return the names of both ends."""
        return frozenset((self.near, self.far))


@dataclass(frozen=True, slots=True)
class Fabric:
    """A network, its rig and the settings of its switches."""

    shape: str
    switches: Mapping[str, Mapping[str, Any]]
    """Settings by name of the switch."""
    links: tuple[Cable, ...]
    attachments: tuple[Cable, ...]
    seed: int
    stated_mbps: int
    """Rate of the hosts' links by the rig."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """More keys of the topology, such as outages."""
    rails: int = 1
    """Ports of a host."""
    port_keys: Mapping[str, Any] = field(default_factory=dict)
    """More keys of every port of the rig."""

    @property
    def hosts(self) -> tuple[str, ...]:
        """Return the ports of the rig, in the order of ranks."""
        return tuple(cable.far for cable in self.attachments)

    def switch_of(self, host: str) -> str:
        """Return the switch that a port of the rig is attached to."""
        return next(cable.near for cable in self.attachments if cable.far == host).partition("/")[0]

    def hosts_by_switch(self) -> dict[str, list[str]]:
        """Return the ports of the rig of each switch that has any."""
        by_switch: dict[str, list[str]] = {}
        for host in self.hosts:
            by_switch.setdefault(self.switch_of(host), []).append(host)
        return by_switch

    def with_settings(self, switches: Sequence[str], settings: Mapping[str, Any]) -> Fabric:
        """Return the fabric with settings merged into those of some switches."""
        changed = {name: _merged(self.switches[name], settings) for name in switches}
        return replace(self, switches={**self.switches, **changed})

    def with_cable(self, cable: Cable, **changes: Any) -> Fabric:
        """Return the fabric with one cable changed."""

        def changed(cables: tuple[Cable, ...]) -> tuple[Cable, ...]:
            return tuple(replace(row, **changes) if row == cable else row for row in cables)

        return replace(self, links=changed(self.links), attachments=changed(self.attachments))

    def topology(self) -> dict[str, Any]:
        """Return the content of topology.yaml."""
        return {
            "seed": self.seed,
            "switches": [{"name": name, **settings} for name, settings in self.switches.items()],
            **(
                {
                    "links": [
                        {"from": cable.near, "to": cable.far, **_cable_keys(cable)} for cable in self.links
                    ]
                }
                if self.links
                else {}
            ),
            "attach": [
                {"port": cable.far, "to": cable.near, **_cable_keys(cable)} for cable in self.attachments
            ],
            **self.extra,
        }

    def rig(self) -> dict[str, Any]:
        """Return the content of rig.yaml."""
        agents: dict[str, list[dict[str, Any]]] = {}
        for number, host in enumerate(self.hosts):
            agent, _, port = host.partition("/")
            address = f"10.{number // 200}.{number % 200}.1"
            agents.setdefault(agent, []).append(
                {"name": port, "addresses": address, "link": f"{self.stated_mbps}Mbps", **self.port_keys}
            )
            if self.rails > 1:
                agents[agent][-1]["rail"] = number % self.rails
        return {"agents": [{"name": name, "ports": ports} for name, ports in agents.items()]}


def _cable_keys(cable: Cable) -> dict[str, Any]:
    return {"rate": f"{cable.rate_mbps}Mbps", "delay": f"{cable.delay_ns}ns", **cable.settings}


def _merged(settings: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(settings)
    for key, value in more.items():
        known = result.get(key)
        if isinstance(known, Mapping) and isinstance(value, Mapping):
            value = _merged(known, value)  # noqa: PLW2901
        result[key] = value
    return result


@dataclass(frozen=True, slots=True)
class Wish:
    """What a case needs of its fabric."""

    shapes: tuple[str, ...] = SHAPES
    ranks: tuple[int, ...] = (8, 12, 16, 24, 32)
    oversubscribed: bool = False
    """Whether links between switches carry less than the hosts of a leaf can send."""
    lossless: bool = True


def draw_fabric(rng: Draw, wish: Wish) -> Fabric:
    """Draw a healthy fabric."""
    shape = rng.choice(wish.shapes)
    most = min(rng.size.most_ranks, 16 if shape == "single" else 32)
    ranks = rng.choice([count for count in wish.ranks if count <= most] or [most])
    rate = rng.choice(rng.size.rates_mbps)
    delay = rng.choice((100, 300, 500, 1_000))
    names = rng.choice((("leaf", "spine", "h"), ("tor", "sp", "gpu"), ("l", "s", "node")))
    draw = {"single": _single, "leaf_spine": _leaf_spine, "dumbbell": _dumbbell, "rail": _rail}[shape]
    plan = draw(rng, ranks, names, oversubscribed=wish.oversubscribed)
    settings: dict[str, Any] = {} if wish.lossless else {"preset": "lossy"}
    if rng.random() < 0.5:
        settings["queues"] = {DATA_QUEUE: {"ecn": _drawn_ecn(rng, rate)}}
    ports = _PortNumbers()
    return Fabric(
        shape=shape,
        switches={name: dict(settings) for name in plan.switches},
        links=tuple(Cable(ports.next_of(a), ports.next_of(b), rate, delay) for a, b in plan.links),
        attachments=tuple(Cable(ports.next_of(switch), host, rate, delay) for host, switch in plan.hosts),
        seed=rng.randrange(1, 1 << 31),
        stated_mbps=rate,
        rails=plan.rails,
    )


def _drawn_ecn(rng: Draw, rate_mbps: int) -> dict[str, str]:
    """Return thresholds as an operator may state them: near those of the preset."""
    kmin_kb = max(60, int(rate_mbps / 25_000 * rng.uniform(70, 130)))
    return {"kmin": f"{kmin_kb}kB", "kmax": f"{kmin_kb * rng.choice((3, 4))}kB", "pmax": "20%"}


@dataclass(frozen=True, slots=True)
class _Plan:
    """Names and edges of a fabric."""

    switches: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    hosts: tuple[tuple[str, str], ...]
    """Port of the rig and its switch, in the order of ranks."""
    rails: int = 1


_Names = tuple[str, str, str]


def _single(rng: Draw, ranks: int, names: _Names, *, oversubscribed: bool) -> _Plan:
    del rng, oversubscribed
    return _Plan(("switch",), (), tuple((f"{names[2]}{rank}/p0", "switch") for rank in range(ranks)))


def _leaf_spine(rng: Draw, ranks: int, names: _Names, *, oversubscribed: bool) -> _Plan:
    leaf_count = rng.choice([count for count in (2, 4) if ranks // count >= 2 and ranks % count == 0])
    hosts_of_leaf = ranks // leaf_count
    spine_count = max(2, hosts_of_leaf // 2 if oversubscribed else hosts_of_leaf)
    spine_count = min(spine_count, 8)
    leaves = [f"{names[0]}{number}" for number in range(leaf_count)]
    spines = [f"{names[1]}{number}" for number in range(spine_count)]
    return _Plan(
        (*leaves, *spines),
        tuple((leaf, spine) for leaf in leaves for spine in spines),
        tuple((f"{names[2]}{rank}/p0", leaves[rank // hosts_of_leaf]) for rank in range(ranks)),
    )


def _dumbbell(rng: Draw, ranks: int, names: _Names, *, oversubscribed: bool) -> _Plan:
    del rng
    trunks = max(2, ranks // 4 if oversubscribed else ranks // 2)
    hosts = tuple((f"{names[2]}{rank}/p0", "left" if rank < ranks // 2 else "right") for rank in range(ranks))
    return _Plan(("left", "right"), (("left", "right"),) * trunks, hosts)


def _rail(rng: Draw, ranks: int, names: _Names, *, oversubscribed: bool) -> _Plan:
    rails = rng.choice((2, 4))
    per_rail = ranks // rails
    spine_count = max(2, per_rail // 2 if oversubscribed else per_rail)
    rail_switches = [f"rail{number}" for number in range(rails)]
    spines = [f"{names[1]}{number}" for number in range(spine_count)]
    return _Plan(
        (*rail_switches, *spines),
        tuple((rail, spine) for rail in rail_switches for spine in spines),
        tuple(
            (f"{names[2]}{host}/p{rail}", rail_switches[rail])
            for host in range(per_rail)
            for rail in range(rails)
        ),
        rails,
    )


def fat_tree(rng: Draw, ranks: int, rate_mbps: int) -> Fabric:
    """Return a fabric of three tiers with two ways up at each, whose switches hash apart."""
    pods = 4
    below = ranks // (pods * 2)
    edges = [f"edge{pod}{number}" for pod in range(pods) for number in range(2)]
    tiers = (*edges, *(f"agg{pod}{number}" for pod in range(pods) for number in range(2)))
    switches = (*tiers, *(f"core{number}" for number in range(4)))
    pairs = [
        (f"edge{pod}{lower}", f"agg{pod}{upper}")
        for pod in range(pods)
        for lower in range(2)
        for upper in range(2)
    ]
    pairs += [
        (f"agg{pod}{upper}", f"core{2 * upper + core}")
        for pod in range(pods)
        for upper in range(2)
        for core in range(2)
    ]
    ports = _PortNumbers()
    seed = rng.randrange(1, 1 << 20)
    return Fabric(
        shape="fat_tree",
        switches={name: {"seed": seed * 64 + number} for number, name in enumerate(switches)},
        links=tuple(Cable(ports.next_of(a), ports.next_of(b), rate_mbps, 500) for a, b in pairs),
        attachments=tuple(
            Cable(ports.next_of(edges[rank // below]), f"h{rank}/p0", rate_mbps, 500) for rank in range(ranks)
        ),
        seed=seed,
        stated_mbps=rate_mbps,
    )


def ring(rng: Draw, switches: int, hosts_of_switch: int, rate_mbps: int) -> Fabric:
    """Return switches in a ring, each linked to the next, with hosts on each."""
    names = [f"r{number}" for number in range(switches)]
    ports = _PortNumbers()
    return Fabric(
        shape="ring",
        switches={name: {} for name in names},
        links=tuple(
            Cable(ports.next_of(name), ports.next_of(names[(number + 1) % switches]), rate_mbps, 500)
            for number, name in enumerate(names)
        ),
        attachments=tuple(
            Cable(ports.next_of(name), f"h{number * hosts_of_switch + host}/p0", rate_mbps, 500)
            for number, name in enumerate(names)
            for host in range(hosts_of_switch)
        ),
        seed=rng.randrange(1, 1 << 31),
        stated_mbps=rate_mbps,
    )


class _PortNumbers:
    """Counts the ports of each switch."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def next_of(self, switch: str) -> str:
        """Return the name of the next port of a switch."""
        number = self._next.get(switch, 0)
        self._next[switch] = number + 1
        return f"{switch}/{number}"


def links_between_switches(fabric: Fabric) -> Iterator[Cable]:
    """Yield the cables that a leaf's own traffic crosses: those of switches with hosts."""
    with_hosts = set(fabric.hosts_by_switch())
    for cable in fabric.links:
        if cable.near.partition("/")[0] in with_hosts:
            yield cable
