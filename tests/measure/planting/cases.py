"""The form of a case, and the loads that cases draw from."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Final

import yaml

from etloop.contract.base.late_dataclass import dataclass
from etloop.results.schema.findings import Diagnosis, Finding, FindingKind, Place, PlaceKind
from tests.measure.planting.fabric import Fabric

RUN_BYTES: Final = 384 << 20
"""Payload that a job sends in all, about: 100,000 packets."""


class _PlainDumper(yaml.SafeDumper):
    """Writes values again where they appear again: the product refuses anchors."""

    def ignore_aliases(self, data: object) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Expected:
    """What the first finding is to be."""

    kinds: tuple[FindingKind, ...]
    """Any of them."""
    names: frozenset[str] = frozenset()
    """Places, any of them: a port, either end of a cable, or a switch with all its ports and queues; empty: anywhere."""

    def holds(self, finding: Finding) -> bool:
        """Return whether a finding has an expected kind and place."""
        if finding.kind not in self.kinds:
            return False
        return not self.names or any(self._has(place) for place in finding.places)

    def _has(self, place: Place) -> bool:
        if place.name in self.names:
            return True
        if place.kind in (PlaceKind.LINK, PlaceKind.PORT, PlaceKind.QUEUE) and place.peer in self.names:
            return True
        return place.name.partition("/")[0] in self.names


@dataclass(frozen=True, slots=True)
class Case:
    """A run with one known cause, or none."""

    cause: str
    seed: int
    fabric: Fabric
    scenario: Mapping[str, Any]
    expected: Expected | None
    """None: healthy."""
    planted: str
    """The planted value in words, such as "leaf0/3 at 71 % of its rate"."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Further files by name, such as traces."""

    def contents(self) -> dict[str, bytes]:
        """Return scenario.yaml, topology.yaml, rig.yaml and further files by name."""
        documents = {
            "scenario.yaml": self.scenario,
            "topology.yaml": self.fabric.topology(),
            "rig.yaml": self.fabric.rig(),
        }
        texts = {
            name: yaml.dump(document, Dumper=_PlainDumper, sort_keys=False, width=120).encode()
            for name, document in documents.items()
        }
        return {**texts, **self.files}

    def write(self, directory: Path) -> None:
        """Write all files."""
        for name, content in self.contents().items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_bytes(content)

    def is_written(self, directory: Path) -> bool:
        """Return whether `directory` has exactly these files."""
        return all(
            (directory / name).is_file() and (directory / name).read_bytes() == content
            for name, content in self.contents().items()
        )


def is_listed_first(case: Case, diagnosis: Diagnosis) -> bool:
    """Return whether the first finding is what the case expects."""
    return (
        case.expected is not None and bool(diagnosis.findings) and case.expected.holds(diagnosis.findings[0])
    )


def is_found(case: Case, diagnosis: Diagnosis) -> bool:
    """Return whether any finding is what the case expects."""
    return case.expected is not None and any(map(case.expected.holds, diagnosis.findings))


def scenario(
    fabric: Fabric, workload: Mapping[str, Any], transport: Mapping[str, Any], **more: object
) -> dict[str, Any]:
    """Return a scenario on a fabric, with a rank a port."""
    mapping: dict[str, Any] = {"placement": "round_robin"}
    if fabric.rails > 1:
        mapping = {"ranks_per_host": fabric.rails, "nics_per_host": fabric.rails}
    return {"workload": dict(workload), "mapping": mapping, "transport": dict(transport), **more}


def size_text(size_bytes: int) -> str:
    """Return a size in whole KiB."""
    return f"{max(size_bytes >> 12, 1) * 4}KiB"


def dcqcn(**more: object) -> dict[str, Any]:
    """Return a transport that reacts to marks."""
    return {"cc": {"algorithm": "dcqcn"}, **more}


def no_control(**more: object) -> dict[str, Any]:
    """Return a transport that relies on PFC alone."""
    return {"cc": {"algorithm": "none"}, **more}


def collective(
    rng: random.Random, ranks: int, kinds: Sequence[str], run_bytes: int = RUN_BYTES
) -> dict[str, Any]:
    """Return a collective over all ranks that sends about this many bytes in all."""
    kind = rng.choice(kinds)
    count = rng.choice((2, 3, 4))
    per_byte = {"all_to_all": ranks, "all_reduce": 2 * ranks, "all_gather": ranks, "reduce_scatter": ranks}
    size = max(run_bytes // (per_byte[kind] * count), 65_536)
    return {"collective": {"kind": kind, "size": size_text(size), "ranks": ranks, "count": count}}


def incast(rng: random.Random, ranks: int, run_bytes: int = RUN_BYTES) -> dict[str, Any]:
    """Return bursts of many senders to rank 0."""
    senders = rng.randint(max(4, ranks // 2), ranks - 1)
    bursts = rng.choice((1, 2, 3, 4))
    size = run_bytes // (senders * bursts)
    return {"incast": {"senders": senders, "size": size_text(size), "bursts": bursts}}


def flows(rng: random.Random, hosts: int, pattern: str, count: int = 400) -> dict[str, Any]:
    """Return single transfers of sizes of a published distribution."""
    return {
        "flows": {
            "hosts": hosts,
            "processes": 1,
            "sizes": rng.choice(("web_search", "hadoop")),
            "rate": f"{rng.randint(8, 15)}Gbps",
            "count": count,
            "pattern": pattern,
            "seed": rng.randrange(1 << 20),
        }
    }
