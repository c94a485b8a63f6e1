"""Four ranks on two agents at the ends of a cable that loses packets: every algorithm completes, every byte is accounted for."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest

from tests import first_light
from tests.first_light import Place
from tests.first_light_cable import cable_agents, cabled, for_root
from traffic.collectives.algorithms import ALGORITHMS

pytestmark = [pytest.mark.e2e, for_root]

KINDS: Final = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "send_recv",
)
TWO_LEVEL: Final = ("hierarchical", "pxn")
ONE_CHANNEL: Final = ("gloo_ring",)
LOSS_PERCENT: Final = "0.5%"
SCENARIO: Final = f"""\
workload: {{trace: none}}
mapping: {{ranks_per_host: HOSTS, placement: round_robin}}
transport: {{timeout: 2ms}}
faults: {{drop: {LOSS_PERCENT}}}
limits: {{gather_timeout: 30s}}
"""


def measured(place: Place, per_host: int, *options: str) -> list[dict[str, Any]]:
    """The tests that a sweep over the cable leaves."""
    name = f"s{per_host}.yaml"
    place.write(name, SCENARIO.replace("HOSTS", str(per_host)))
    common = (
        "--rig",
        "rig.yaml",
        "--scenario",
        name,
        "--ranks",
        "4",
        "-b",
        "96K",
        "-e",
        "96K",
        "-n",
        "1",
        "-w",
        "0",
    )
    ended = first_light.etloop(place, "collective", *common, *options, "--json", "-")
    found: list[dict[str, Any]] = json.loads(ended.out)["tests"] if ended.out else []
    errors = [error for test in found for error in test["errors"]]
    assert ended.exit_code == 0, "\n".join((*errors, ended.err[-400:]))
    return found


def assert_exact(tests: list[dict[str, Any]], wanted: dict[str, set[str]]) -> None:
    """Every algorithm carried out each of its collectives, no byte is missing or too many, and packets were lost."""
    ran: dict[str, set[str]] = {}
    for test in tests:
        name = test["etloop"]["collective"]
        assert test["out_of_bounds"] == {"count": 0, "okay": "true"}, name
        assert test["errors"] == []
        (row,) = test["results"]
        assert row["out_of_place"]["time"] > 0
        assert row["etloop"]["fabric_bytes"] > 0, "it crossed the cable"
        for choice in test["etloop"]["choices"]:
            ran.setdefault(choice["algorithm"], set()).add(name)
    for algorithm, collectives in wanted.items():
        assert ran.get(algorithm, set()) >= collectives, algorithm
    assert sum(test["etloop"]["retransmitted_packets"] for test in tests) > 0, "packets were lost"


def served(names: list[str]) -> dict[str, set[str]]:
    return {
        name: {kind for kind in KINDS if kind.replace("_", "-") in ALGORITHMS[name].collectives}
        for name in names
    }


def test_every_algorithm_is_exact_under_loss(tmp_path: Path) -> None:
    place = first_light.free_place(tmp_path)
    flat = [name for name in ALGORITHMS if name not in (*TWO_LEVEL, *ONE_CHANNEL)]
    with cabled(place) as cable, cable_agents(place, cable):
        kinds = ",".join(KINDS)
        tests = measured(place, 1, kinds, "--algorithm", ",".join(flat), "--channels", "2")
        assert_exact(tests, served(flat))
        assert Counter(test["etloop"]["collective"] for test in tests)["all_reduce"] == 6
        inside = measured(place, 2, "all_reduce,all_to_all", "--algorithm", ",".join(TWO_LEVEL))
        assert_exact(inside, served(list(TWO_LEVEL)))
        alone = measured(place, 1, "all_reduce", "--algorithm", ",".join(ONE_CHANNEL), "-n", "8")
        assert_exact(alone, served(list(ONE_CHANNEL)))
