"""Cases that ETLoop and other simulators both run: scenario, topology and flows as files of the product.

Switches are those of uet-htsim: no latency, a static queue for each port of one bandwidth-delay product, marks from 21 % to
81 % of it. Round trips of these fat trees are those of htsim's defaults: 1 us a link.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

Flows = tuple[tuple[int, int], ...]
_SHARE_LOG2: Final = 8
"""A queue may hold this share of a buffer that is never used up: it has a limit of its own."""
TRIMMED_DSCP: Final = 50
QUEUE_PACKETS: Final = {100: 43, 200: 86, 400: 172, 800: 344}
"""By the rate in Gbit/s: one bandwidth-delay product of 14 us."""
PACKET_BYTES: Final = 4_160
ROCE: Final = "roce"
"""Kind of a case over RoCEv2 with PFC, without congestion control."""
ROCE_SWITCH: Final[dict[str, object]] = {
    "preset": "lossless",
    "latency": "0ns",
    "buffer": "32MiB",
    "groups": {3: {"alpha": 0.125}},
}
"""32 MiB, of which a port's priority group may have an eighth of what is free."""


@dataclass(frozen=True)
class SimulatorCase:
    """One case; `pods` of 0: two tiers, of 1 leaf: a single switch."""

    name: str
    hosts: int
    leaves: int
    spines: int
    """Switches above each leaf."""
    flows: Flows
    flow_bytes: int
    gbps: int = 100
    pods: int = 0
    trims: bool = True
    budget: float = 0.10
    """Largest accepted deviation of the last completion."""

    def write(self, directory: Path, kind: str) -> tuple[Path, Path]:
        """Write scenario, flows and topology; return scenario and topology."""
        directory.mkdir(parents=True, exist_ok=True)
        rows = [f"{source},{target},{self.flow_bytes},0" for source, target in self.flows]
        (directory / "flows.csv").write_text("\n".join(["from,to,bytes,start_ns", *rows]) + "\n")
        trimming = f", trimming: {{dscp: [{TRIMMED_DSCP}]}}" if self.trims else ", timeout_floor: 101us"
        transport = f"kind: {kind}, cc: {{algorithm: nscc}}, ack: {{dscp: 48}}{trimming}"
        if kind == ROCE:
            transport = "cc: {algorithm: none}"
        scenario = directory / f"scenario.{kind}.yaml"
        scenario.write_text(
            f"workload: {{flows: {{file: flows.csv, hosts: {self.hosts}, processes: 1}}}}\n"
            f"collectives: {{shaping: plain}}\ntransport: {{{transport}}}\n"
        )
        topology = directory / f"topology.{'roce.' if kind == ROCE else ''}yaml"
        topology.write_text(
            json.dumps(self._topology(ROCE_SWITCH if kind == ROCE else self._switch()), indent=1)
        )
        return scenario, topology

    def untrimmed(self) -> SimulatorCase:
        """Return the case on switches that drop."""
        return replace(self, trims=False)

    def _switch(self) -> dict[str, object]:
        queue_bytes = QUEUE_PACKETS[self.gbps] * PACKET_BYTES
        settings: dict[str, object] = {
            "preset": "lossy",
            "latency": "0ns",
            "buffer": f"{queue_bytes << _SHARE_LOG2}B",
            "groups": {number: {"reserved": "0B", "alpha": 128} for number in (0, 3, 6)},
            "queues": {number: {"alpha": 1 / (1 << _SHARE_LOG2)} for number in (0, 3, 6)},
            "maps": {"dscp_to_class": {TRIMMED_DSCP: 6}},
        }
        mark = {"kmin": f"{queue_bytes * 21 // 100}B", "kmax": f"{queue_bytes * 81 // 100}B", "pmax": "100%"}
        queues = settings["queues"]
        assert isinstance(queues, dict)
        queues[3]["ecn"] = mark
        if self.trims:
            settings["trimming"] = {"size": "84B", "dscp": TRIMMED_DSCP}
        return settings

    def _topology(self, switch: dict[str, object]) -> dict[str, object]:
        ports = [f"a{host}/p" for host in range(self.hosts)]
        rate = f"{self.gbps}Gbps"
        below = self.hosts // self.leaves
        if self.leaves == 1:
            return {"single": {"ports": ports, "rate": rate, "delay": "1us", "switch": switch}}
        if not self.pods:
            leaves = [{"ports": ports[leaf * below : (leaf + 1) * below]} for leaf in range(self.leaves)]
            tree = {"rate": rate, "delay": "1us", "spines": self.spines, "leaf": switch, "spine": switch}
            return {"leaf_spine": {**tree, "leaves": leaves}}
        low = self.leaves // self.pods
        names = [f"leaf{leaf}" for leaf in range(self.leaves)]
        names += [f"middle{pod}.{number}" for pod in range(self.pods) for number in range(self.spines)]
        cores = self.spines * low
        names += [f"core{number}" for number in range(cores)]
        link = {"rate": rate, "delay": "1us"}
        links = [
            {"from": f"leaf{pod * low + leaf}/u{number}", "to": f"middle{pod}.{number}/d{leaf}", **link}
            for pod in range(self.pods)
            for leaf in range(low)
            for number in range(self.spines)
        ]
        links += [
            {"from": f"middle{pod}.{number}/u{up}", "to": f"core{number * low + up}/d{pod}", **link}
            for pod in range(self.pods)
            for number in range(self.spines)
            for up in range(low)
        ]
        attach = [{"port": port, "to": f"leaf{host // below}", **link} for host, port in enumerate(ports)]
        return {
            "switches": [{"name": name, **switch} for name in names],
            "links": links,
            "attach": attach,
        }


def permutation(hosts: int, seed: int) -> Flows:
    """Return flows from each host to another, drawn so that none sends to itself."""
    draw: Callable[[list[int]], None] = random.Random(seed).shuffle
    while True:
        targets = list(range(hosts))
        draw(targets)
        if all(host != target for host, target in enumerate(targets)):
            return tuple(enumerate(targets))


def incast(senders: int) -> Flows:
    """Return flows from hosts 1 and up to host 0."""
    return tuple((sender, 0) for sender in range(1, senders + 1))


def all_to_all(hosts: int) -> Flows:
    """Return a flow for each ordered pair of hosts."""
    return tuple((a, b) for a in range(hosts) for b in range(hosts) if a != b)


_MB: Final = 1_000_000
_TREE: Final = (16, 8, 2)
CASES: Final = (
    SimulatorCase("one flow, 100G", *_TREE, ((0, 13),), 2 * _MB, pods=4, budget=0.05),
    SimulatorCase("one flow, 800G", *_TREE, ((0, 13),), 8 * _MB, 800, pods=4, budget=0.05),
    SimulatorCase("one flow of 32 MB, 800G", *_TREE, ((0, 13),), 32 * _MB, 800, pods=4, budget=0.05),
    SimulatorCase("permutation 16, 100G", *_TREE, permutation(16, 1), 2 * _MB, pods=4),
    SimulatorCase("permutation 64, 1:1, 100G", 64, 8, 8, permutation(64, 1), 2 * _MB),
    SimulatorCase("permutation 64, 2:1, 100G", 64, 8, 4, permutation(64, 1), 2 * _MB),
    SimulatorCase("permutation 64, 4:1, 100G", 64, 8, 2, permutation(64, 1), 2 * _MB),
    SimulatorCase("permutation 64, 1:1, 400G", 64, 8, 8, permutation(64, 1), 4 * _MB, 400),
    SimulatorCase("permutation 64, 1:1, 800G", 64, 8, 8, permutation(64, 1), 8 * _MB, 800),
    SimulatorCase("permutation 64, no trimming, 100G", 64, 8, 8, permutation(64, 1), 2 * _MB, trims=False),
    SimulatorCase("permutation 128, fat tree, 100G", 128, 32, 4, permutation(128, 1), 2 * _MB, pods=8),
    SimulatorCase("incast 15:1, 100G", *_TREE, incast(15), 2 * _MB, pods=4),
    SimulatorCase("incast 15:1, 400G", *_TREE, incast(15), 2 * _MB, 400, pods=4),
    SimulatorCase("incast 15:1, 800G", *_TREE, incast(15), 4 * _MB, 800, pods=4),
    SimulatorCase("incast 15:1, no trimming, 100G", *_TREE, incast(15), 2 * _MB, pods=4, trims=False),
    SimulatorCase("incast 63:1, 500 kB, 100G", 64, 8, 8, incast(63), 500_000),
    SimulatorCase("incast 63:1, 64 kB, 100G", 64, 8, 8, incast(63), 64_000),
    SimulatorCase("incast 32:1, fat tree, 100G", 128, 32, 4, incast(32), _MB, pods=8),
    SimulatorCase("incast 7:1 next to a victim, 100G", 64, 8, 8, (*incast(7), (8, 1)), 2 * _MB),
    SimulatorCase("all-to-all 16, 100G", *_TREE, all_to_all(16), 200_000, pods=4),
    SimulatorCase("all-to-all 16, 800G", *_TREE, all_to_all(16), 400_000, 800, pods=4),
    SimulatorCase("all-to-all 16, no trimming, 100G", *_TREE, all_to_all(16), 200_000, pods=4, trims=False),
)

_RATES: Final = ((100, 2 * _MB), (400, 8 * _MB), (800, 16 * _MB))
"""Rates in Gbit/s, each with the bytes of a flow, which take 160 us."""
SWITCH_CASES: Final = tuple(
    SimulatorCase(
        f"{name} at one switch, {gbps}G", hosts, 1, 0, flows, flow_bytes // parts, gbps, budget=budget
    )
    for name, hosts, flows, parts, budget in (
        ("one flow", 2, ((0, 1),), 1, 0.05),
        ("permutation 16", 16, permutation(16, 1), 1, 0.10),
        ("incast 15:1", 16, incast(15), 2, 0.10),
        ("all-to-all 16", 16, all_to_all(16), 8, 0.10),
    )
    for gbps, flow_bytes in _RATES
)
"""Hosts at one switch, for simulators without other networks."""
