"""Whether `etloop certify` names five planted parts of a fabric of 64 ports, and nothing else, in virtual time.

    python -m tests.measure.certify [--seeds 20] [--first 1] [--healthy N] [--check]

The fabric has 8 leaves of 8 hosts and 8 spines. Each seed plants a slow cable (50 to 90 % of the rate), a lossy one
(0.05 to 1 %), a leaf whose hash ignores fields, a switch that maps data to another class, and a port that ignores the pauses of
its host, at random positions. Bar: all five are named and nothing else, in every seed; a healthy fabric names nothing.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
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
    rig: dict[str, Any]
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


def named_parts(fabric: Fabric, directory: Path) -> dict[Part, str]:
    """Return the parts that a certification of the fabric's twin names, each with its sentence."""
    files = {}
    for name, content in (("rig", fabric.rig), ("topology", fabric.topology)):
        files[name] = InputFile(directory / f"{name}.yaml", json.dumps(content).encode())
    request = CertifyRequest(files["rig"], files["topology"], Mode.TWIN, None, directory / "steps")
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
        fabric = fabric_of(seed, planted=planted)
        with tempfile.TemporaryDirectory(prefix="certify-") as directory:
            named = named_parts(fabric, Path(directory))
        missed = [_words(part) for part in fabric.parts if part not in named]
        more = [sentence for part, sentence in named.items() if part not in fabric.parts]
        yield (
            seed,
            len(fabric.parts),
            len(fabric.parts) - len(missed),
            len(more),
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


OPTIONS: Final[Options] = {
    "--seeds": {"type": int, "default": 20, "help": "fabrics with five planted parts"},
    "--first": {"type": int, "default": 1, "help": "first seed"},
    "--healthy": {"type": int, "default": 2, "help": "fabrics without any"},
}
COLUMNS: Final = table("seed|6d; planted|7d; named|5d; more|4d; remarks|<40s")

if __name__ == "__main__":
    raise SystemExit(measure(__doc__, run, COLUMNS, bars, OPTIONS))
