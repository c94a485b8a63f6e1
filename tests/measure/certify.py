"""Whether `etloop certify` names planted parts of a fabric, and nothing else: 64 ports in virtual time, or 16 of a lab.

    python -m tests.measure.certify [--seeds 20] [--first 1] [--healthy N] [--lab] [--check]

The fabric has 8 leaves of 8 hosts and 8 spines. Each seed plants a slow cable (50 to 90 % of the rate), a lossy one
(0.05 to 1 %), a leaf whose hash ignores fields, a switch that maps data to another class, and a port that ignores the pauses of
its host, at random positions. Bar: all five are named and nothing else, in every seed; a healthy fabric names nothing.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.controller.run.pipeline import InputFile, SilentWatcher
from etloop.experiments.certify.run import CertifyRequest, certify
from etloop.results.schema.findings import FindingKind, Place, PlaceKind
from etloop.results.schema.sweep import Mode
from tests.measure.harness import Bar, Options, Row, Values, measure, table

LEAVES: Final = 8
HOSTS: Final = 8
"""Of a leaf."""
SPINES: Final = 8
LAB_PORTS: Final = 16
LAB_MBPS: Final = 100
LAB_LIMIT_S: Final = 300
RATE_GBPS: Final = 100
HASHES: Final = (
    ["src_ip", "dst_ip"],
    ["dst_ip"],
    ["src_ip"],
    ["src_ip", "dst_ip", "protocol"],
    ["src_ip", "dst_ip", "dst_port"],
)

Part = tuple[FindingKind, frozenset[str]]
"""Kind, and the ends of the cable or the name of the switch."""


@dataclass(frozen=True, slots=True)
class Fabric:
    """Files of a fabric, and the parts planted in it."""

    topology: dict[str, Any]
    rig: dict[str, Any] | None
    """None: a lab, which makes its own."""
    parts: tuple[Part, ...]


def fabric_of(seed: int, *, planted: bool = True) -> Fabric:
    """Return the fabric of a seed."""
    draw = random.Random(seed)
    switches: dict[str, dict[str, Any]] = {f"leaf{number}": {} for number in range(LEAVES)}
    switches |= {f"spine{number}": {} for number in range(SPINES)}
    cables = [
        [f"h{leaf * HOSTS + host}/p0", f"leaf{leaf}/p{host}", float(RATE_GBPS)]
        for leaf in range(LEAVES)
        for host in range(HOSTS)
    ]
    cables += [
        [f"leaf{leaf}/u{spine}", f"spine{spine}/d{leaf}", float(RATE_GBPS)]
        for leaf in range(LEAVES)
        for spine in range(SPINES)
    ]
    parts = _planted(draw, switches, cables) if planted else ()
    links, attached = cables[LEAVES * HOSTS :], cables[: LEAVES * HOSTS]
    topology = {
        "seed": seed,
        "switches": [{"name": name} | keys for name, keys in switches.items()],
        "links": [{"from": a, "to": b, "rate": f"{rate}Gbps"} for a, b, rate in links],
        "attach": [{"port": a, "to": b, "rate": f"{rate}Gbps"} for a, b, rate in attached],
    }
    rig = {
        "agents": [
            {
                "name": str(port).partition("/")[0],
                "ports": [
                    {
                        "name": "p0",
                        "addresses": f"10.0.{number}.1",
                        "link": f"{RATE_GBPS}Gbps",
                        "backend": "packet",
                        "interface": "eth0",
                    }
                ],
            }
            for number, (port, _, _) in enumerate(attached)
        ]
    }
    return Fabric(topology, rig, parts)


def _planted(
    draw: random.Random, switches: dict[str, dict[str, Any]], cables: list[list[Any]]
) -> tuple[Part, ...]:
    wrong = draw.choice(list(switches))
    switches[wrong]["maps"] = {"dscp_to_class": {26: draw.choice([0, 1, 2, 4, 5])}}
    mishashed = draw.choice([name for name in switches if name.startswith("leaf") and name != wrong])
    switches[mishashed]["hash"] = draw.choice(HASHES)
    slow, lossy = draw.sample(cables, 2)
    slow[2] = round(RATE_GBPS * draw.uniform(0.5, 0.9), 1)
    ends = [str(end) for end in lossy[:2]]
    switch, _, port = draw.choice([end for end in ends if end.partition("/")[0] in switches]).partition("/")
    chance = 10 ** draw.uniform(-3.3, -2)
    deaf = draw.choice(
        [
            cable
            for cable in cables[: LEAVES * HOSTS]
            if cable is not slow and cable is not lossy and not str(cable[1]).startswith(f"{wrong}/")
        ]
    )
    deaf_switch, _, deaf_port = str(deaf[1]).partition("/")
    switches[deaf_switch]["pfc"] = {"ignored_at": [deaf_port]}
    switches[switch]["faults"] = [{draw.choice(["in", "out"]): port, "chance": f"{chance:.4%}"}]
    return (
        (FindingKind.DATA_CLASS, frozenset({wrong})),
        (FindingKind.HASH_COLLAPSE, frozenset({mishashed})),
        (FindingKind.SLOW_LINK, frozenset(slow[:2])),
        (FindingKind.LOSSY_LINK, frozenset(lossy[:2])),
        (FindingKind.PFC_IGNORED, frozenset(map(str, deaf[:2]))),
    )


def lab_fabric_of(seed: int, *, planted: bool = True) -> Fabric:
    """Return the fabric of a lab for a seed."""
    draw = random.Random(seed)
    leaves = 1 + seed % 2
    spines = 2 if leaves > 1 else 0
    switches: dict[str, dict[str, Any]] = {f"leaf{number}": {} for number in range(leaves)}
    switches |= {f"spine{number}": {} for number in range(spines)}
    hosts = LAB_PORTS // leaves
    cables = [
        [f"h{number}/p0", f"leaf{number // hosts}/p{number % hosts}", float(LAB_MBPS)]
        for number in range(LAB_PORTS)
    ]
    parts: tuple[Part, ...] = ()
    if planted:
        slow, lossy, deaf = draw.sample(cables, 3)
        slow[2] = round(LAB_MBPS * draw.uniform(0.5, 0.8), 1)
        switch, _, port = str(lossy[1]).partition("/")
        faults = [{draw.choice(["in", "out"]): port, "chance": f"{draw.uniform(0.3, 2):.3}%"}]
        switches[switch]["faults"] = faults
        parts = (
            (FindingKind.SLOW_LINK, frozenset(map(str, slow[:2]))),
            (FindingKind.LOSSY_LINK, frozenset(map(str, lossy[:2]))),
        )
        if leaves == 1:
            switches["leaf0"]["pfc"] = {"ignored_at": [str(deaf[1]).partition("/")[2]]}
            parts += ((FindingKind.PFC_IGNORED, frozenset(map(str, deaf[:2]))),)
        else:
            wrong = draw.choice(["leaf0", "leaf1"])
            switches[wrong]["maps"] = {"dscp_to_class": {26: draw.choice([0, 1, 2, 4, 5])}}
            parts += ((FindingKind.DATA_CLASS, frozenset({wrong})),)
    topology = {
        "seed": seed,
        "switches": [{"name": name} | keys for name, keys in switches.items()],
        "links": [
            {"from": f"leaf{leaf}/u{spine}", "to": f"spine{spine}/d{leaf}", "rate": f"{4 * LAB_MBPS}Mbps"}
            for leaf in range(leaves)
            for spine in range(spines)
        ],
        "attach": [{"port": a, "to": b, "rate": f"{rate}Mbps"} for a, b, rate in cables],
    }
    return Fabric(topology, None, parts)


def named_parts(fabric: Fabric, directory: Path) -> dict[Part, str]:
    """Return the parts that a certification of the fabric's twin or lab names, each with its sentence."""
    topology = InputFile(directory / "topology.yaml", json.dumps(fabric.topology).encode())
    steps = directory / "steps"
    if fabric.rig is None:
        topology.path.write_bytes(json.dumps(fabric.topology).encode())
        request = CertifyRequest(None, topology, Mode.LAB, None, steps, allow_overcommit=True)
    else:
        rig = InputFile(directory / "rig.yaml", json.dumps(fabric.rig).encode())
        request = CertifyRequest(rig, topology, Mode.TWIN, None, steps)
    certificate = certify(request, SilentWatcher())
    return {
        (
            finding.kind,
            _ends(finding.places[0]) if len(finding.places) == 1 else frozenset(),
        ): finding.sentence
        for finding in certificate.findings
    }


def _ends(place: Place) -> frozenset[str]:
    return frozenset({place.name} if place.kind is PlaceKind.SWITCH else {place.name, place.peer})


def run(chosen: argparse.Namespace) -> Iterator[Values]:
    """Yield a row for each fabric."""
    seeds = range(chosen.first, chosen.first + chosen.seeds)
    healthy = range(chosen.first, chosen.first + chosen.healthy)
    for seed, planted in [*((seed, True) for seed in seeds), *((seed, False) for seed in healthy)]:
        fabric = (lab_fabric_of if chosen.lab else fabric_of)(seed, planted=planted)
        start = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="certify-") as directory:
            named = named_parts(fabric, Path(directory))
        elapsed_s = time.monotonic() - start
        missed = [_words(part) for part in fabric.parts if part not in named]
        more = [sentence for part, sentence in named.items() if part not in fabric.parts]
        yield (
            seed,
            len(fabric.parts),
            len(fabric.parts) - len(missed),
            len(more),
            elapsed_s,
            LAB_LIMIT_S if chosen.lab else None,
            "; ".join([*(f"missed {words}" for words in missed), *more]),
        )


def _words(part: Part) -> str:
    return f"{part[0].value} {' - '.join(sorted(part[1]))}"


def bars(rows: Sequence[Row]) -> Iterator[Bar]:
    """Yield whether every fabric had its parts named and nothing else."""
    right = sum(row["planted"] == row["named"] and not row["more"] for row in rows)
    yield (
        f"{right} of {len(rows)} fabrics: every planted part and nothing else (bar: all)",
        right == len(rows),
    )
    longest_s = max(row["seconds"] for row in rows)
    if (limit_s := rows[0]["limit"]) is not None:
        yield f"the longest took {longest_s:.0f} s (bar: {limit_s:.0f})", longest_s <= limit_s


OPTIONS: Final[Options] = {
    "--seeds": {"type": int, "default": 20, "help": "fabrics with five planted parts"},
    "--first": {"type": int, "default": 1, "help": "first seed"},
    "--healthy": {"type": int, "default": 2, "help": "fabrics without any"},
    "--lab": {"action": "store_true", "help": "labs of 16 ports, in real time (root)"},
}
COLUMNS: Final = table("seed|6d; planted|7d; named|5d; more|4d; seconds|7.0f; limit|5.0f; remarks|<40s")

if __name__ == "__main__":
    raise SystemExit(measure(__doc__, run, COLUMNS, bars, OPTIONS))
