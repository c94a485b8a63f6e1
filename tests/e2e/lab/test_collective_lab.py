"""Four ranks on two agents of a lab (`etloop lab up`) whose switch loses packets, at random and by count: every algorithm, every
shaping and schedules of one's own complete, and every byte is accounted for. ETLOOP_FULL=1: more sizes and iterations.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest

from etloop.lab.client import lab_counters, lab_down
from etloop.traffic.collectives.algorithms.registry import ALGORITHMS
from etloop.workload.chakra.nodes import et_nodes
from etloop.workload.readers.et_writer import write_trace
from tests.lab.test_lab_truths import NO_NAMESPACES, namespaces_are_allowed
from tests.support.first_light.commands import FULL, PATIENCE_S, Place, etloop, free_place
from tests.support.traces.traces_by_hand import recv, send, trace_of
from tests.support.traffic.msccl_by_hand import direct_all_gather, direct_all_to_all, ring_reduce_scatter

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(2 * PATIENCE_S),
    pytest.mark.skipif(not namespaces_are_allowed(), reason=NO_NAMESPACES),
]

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
KIB: Final = 1024
SIZES: Final = (
    ("-b", "3K", "-e", "3M", "-f", "8", "-n", "3") if FULL else ("-b", "98765", "-e", "98765", "-n", "1")
)
"""Of one rank; the odd one fills no chunk, no block and no packet."""
TOPOLOGY: Final = """\
single:
  rate: 300Mbps
  ports: [a/p0, b/p0]
  switch: {preset: lossy, faults: [{chance: 0.5%}, {every: 151}]}
"""
# Lost packets come again soon, but nobody is given up for being silent: the engines share their processors with whatever else
# runs here, and are not heard of for tens of milliseconds.
SCENARIO: Final = """\
workload: {trace: none}
mapping: {ranks_per_host: HOSTS, placement: round_robin}
transport: {timeout_floor: 2ms}
limits: {gather_timeout: 30s}
"""


@dataclass(frozen=True, slots=True)
class LossyLab:
    """A lab that is up, with its agents."""

    place: Place

    def lost(self) -> int:
        """Packets that the faults of its switch have lost so far. On a busy machine overload may lose others."""
        rows = [port.counters for port in lab_counters("lab").switches[0].ports]
        received, sent, lost = (
            sum(int(row[name]) for row in rows)
            for name in ("rx_packets", "tx_packets", "fault_dropped_packets")
        )
        assert received >= sent + lost, "what it lost did not go out"
        return lost


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LossyLab]:
    place = free_place(tmp_path_factory.mktemp("lab"))
    place.write("topology.yaml", TOPOLOGY)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_RUNTIME_DIR", str(place.directory))
        asked = (
            "--unmeasured",
            "--agents",
            "--addresses",
            "2",
            "--bind",
            place.endpoint,
            "--rig-out",
            "rig.yaml",
        )
        up = etloop(place, "lab", "up", "topology.yaml", *asked)
        assert up.exit_code == 0, up.err
        try:
            yield LossyLab(place)
        finally:
            lab_down("lab")


def measured(
    lab: LossyLab, per_host: int, *options: str, sizes: tuple[str, ...] = SIZES, collectives: str = ""
) -> list[dict[str, Any]]:
    """The tests that a sweep through the lab leaves; packets of it were lost on the way."""
    name = f"s{per_host}.yaml"
    lab.place.write(name, SCENARIO.replace("HOSTS", str(per_host)) + collectives)
    common = ("--rig", "rig.yaml", "--scenario", name, "--ranks", "4", "-d", "int8", "-w", "0")
    lost = lab.lost()
    ended = etloop(lab.place, "collective", *common, *sizes, *options, "--json", "-")
    found: list[dict[str, Any]] = json.loads(ended.out)["tests"] if ended.out else []
    errors = [error for test in found for error in test["errors"]]
    assert ended.exit_code == 0, "\n".join((*errors, ended.err[-400:]))
    assert lab.lost() > lost
    return found


def assert_exact(tests: list[dict[str, Any]], wanted: dict[str, set[str]]) -> None:
    """Every algorithm carried out each of its collectives, no byte is missing or too many, and packets were lost."""
    ran: dict[str, set[str]] = {}
    for test in tests:
        name = test["etloop"]["collective"]
        assert test["out_of_bounds"] == {"count": 0, "okay": "true"}, name
        assert test["errors"] == []
        for row in test["results"]:
            assert row["out_of_place"]["time"] > 0
            assert row["etloop"]["fabric_bytes"] > 0, "it crossed the switch"
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


def test_every_algorithm_is_exact_under_loss(lab: LossyLab) -> None:
    flat = [name for name in ALGORITHMS if name not in (*TWO_LEVEL, *ONE_CHANNEL)]
    tests = measured(lab, 1, ",".join(KINDS), "--algorithm", ",".join(flat), "--channels", "2")
    assert_exact(tests, served(flat))
    assert Counter(test["etloop"]["collective"] for test in tests)["all_reduce"] == 6
    inside = measured(lab, 2, "all_reduce,all_to_all", "--algorithm", ",".join(TWO_LEVEL))
    assert_exact(inside, served(list(TWO_LEVEL)))
    alone = measured(lab, 1, "all_reduce", "--algorithm", ",".join(ONE_CHANNEL))
    assert_exact(alone, served(list(ONE_CHANNEL)))
    assert {*flat, *TWO_LEVEL, *ONE_CHANNEL} == set(ALGORITHMS)


def test_every_shaping_is_exact_under_loss(lab: LossyLab) -> None:
    """With NCCL's the tuning model chooses, as it does for a job; the barrier is of each shaping's own."""
    shapings = ("nccl", "gloo", "mpi", "plain")
    tests = measured(lab, 1, ",".join(KINDS), "--shaping", ",".join(shapings))
    ran = {(test["etloop"]["shaping"].split()[0], test["etloop"]["collective"]) for test in tests}
    assert {kind for _, kind in ran} == set(KINDS)
    assert len(tests) == len(ran) == len(shapings) * len(KINDS)
    algorithms = {choice["algorithm"] for test in tests for choice in test["etloop"]["choices"]}
    assert {"gloo_ring", "halving_doubling", "scattered", "p2p", "chain", "binomial"} <= algorithms
    assert_exact(tests, {})


STAR: Final = """\
from etloop.traffic.collectives.core.draft import ADD, FINISH, KEEP, SEND, TableDraft, schedule_of


def schedule(request):
    last = request.size - 1
    root = TableDraft()
    added = []
    for peer in range(1, request.size):
        added = [root.lane(recv_from=peer).add(FINISH if peer == last else ADD, after=added)]
    for peer in range(1, request.size):
        root.lane(send_to=peer).add(SEND, after=added)
    tables = [root.lanes()]
    for _ in range(last):
        table = TableDraft()
        lane = table.lane(send_to=0, recv_from=0)
        lane.add(SEND)
        lane.add(KEEP)
        tables.append(table.lanes())
    return schedule_of(request, "star", tuple(tables))
"""
OWN: Final = """\
collectives:
  all_reduce: {schedule: star.py}
  all_gather: {schedule: gather.xml}
  reduce_scatter: {schedule: [scatter.xml]}
  all_to_all: {schedule: exchange.xml}
  broadcast: {schedule: relay.et, recorded: 1KiB}
"""


def test_schedules_of_one_s_own_are_exact_under_loss(lab: LossyLab) -> None:
    place = lab.place
    place.write("star.py", STAR)
    place.write("gather.xml", direct_all_gather(4))
    place.write("scatter.xml", ring_reduce_scatter(4))
    place.write("exchange.xml", direct_all_to_all(4))
    chain = [
        [send(0, 1, KIB)],
        *([recv(0, r - 1, KIB), send(1, r + 1, KIB).after(0)] for r in (1, 2)),
        [recv(0, 2, KIB)],
    ]
    write_trace(place.directory, [et_nodes(rank) for rank in trace_of(*chain).ranks], prefix="relay")
    own = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
    tests = measured(lab, 1, ",".join(own), sizes=("-b", "2560K", "-e", "2560K", "-n", "1"), collectives=OWN)
    wanted = {
        "file:star": {"all_reduce"},
        "msccl:by_hand": {"all_gather", "reduce_scatter", "all_to_all"},
        "custom:relay": {"broadcast"},
    }
    assert_exact(tests, wanted)
