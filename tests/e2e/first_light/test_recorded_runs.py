"""Real recordings of GPU jobs, replayed through both commands over real sockets: compute as recorded, collectives as they
come, and the recorded last-arriver time of every collective beside its replay."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.support.first_light import commands
from tests.support.first_light.commands import Place
from tests.support.traces.shared_traces import SHARED_TRACES, known_sets

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not known_sets(), reason="the real trace sets are not beside the repository"),
    pytest.mark.timeout(2 * commands.PATIENCE_S),
]

DLRM: Final = SHARED_TRACES / "param-dlrm-8gpu"
CONVERTED: Final = SHARED_TRACES / "derived-resnet-rank0" / "resnet_nccl"
LINKED: Final = SHARED_TRACES / "derived-resnet-rank0" / "linked"

LAST_START_TO_LAST_END_US: Final = [11, 8, 8, 8, 87, 11, 23, 69]
"""Of the operations of the DLRM step, in their order."""


def scenario(trace: Path, workload: str, scale: str = "", iterations: int = 2) -> str:
    return (
        f"workload: {{trace: {trace}, {workload}}}\n"
        f"iterations: {iterations}\n"
        f"scale: {{{scale}}}\n"
        "limits: {gather_timeout: 30s}\n"
    )


@pytest.fixture
def place(tmp_path: Path) -> Place:
    found = commands.free_place(tmp_path)
    found.rig(ranks_per_agent=8)
    return found


def test_eight_gpus_step_with_their_recorded_compute(place: Place) -> None:
    with commands.agents(place):
        ended = commands.run_to_end(place, scenario(DLRM, "dependencies: recorded+communicator"))
    assert ended.exit_code == 0, ended.err
    left = commands.left_by(place)
    assert left.summary["workload"]["policy"] == "data+stream+communicator+recorded"
    assert left.summary["workload"]["edges"]["stream"] == 2212
    for iteration in (0, 1):
        rows = [row for row in left.rows("collectives") if row["iteration"] == iteration]
        rows.sort(key=lambda row: row["sequence"])
        assert [row["recorded_ns"] // 1000 for row in rows] == LAST_START_TO_LAST_END_US
        assert all(row["complete"] for row in rows)
    assert [
        one["recorded_ns"] // 1000 for one in left.summary["baselines"]["first"]
    ] == LAST_START_TO_LAST_END_US
    assert "recorded" in ended.out


def test_one_rank_of_a_converted_job_stands_for_both(place: Place) -> None:
    workload = "dependencies: data+stream, replicate_ranks: 2"
    with commands.agents(place):
        ended = commands.run_to_end(place, scenario(CONVERTED, workload, "bytes: 1/64, time: 1/64"))
    assert ended.exit_code == 0, ended.err
    left = commands.left_by(place)
    kinds = {one["kind"]: one["count"] for one in left.summary["kinds"]}
    assert kinds == {"all_reduce": 2 * 15, "broadcast": 2 * 6}
    # One of the two ranks was recorded, so what it says of a collective is an upper bound.
    assert {(one["ranks"], one["recorded_ranks"]) for one in left.summary["baselines"]["first"]} == {(2, 1)}
    assert left.summary["baselines"]["total"] == 21
    assert "<= " in ended.out
    assert any(note.startswith("ranks-replicated: ") for note in left.summary["notes"])
    # Every all-reduce but the first waits for the one before it on its stream.
    assert left.summary["workload"]["edges"]["stream"] == 2 * 3658


def test_a_linked_trace_keeps_its_recorded_pace(place: Place) -> None:
    workload = "dependencies: recorded, replicate_ranks: 2"
    with commands.agents(place):
        ended = commands.run_to_end(place, scenario(LINKED, workload, "bytes: 1/64, time: 1/8", iterations=1))
    assert ended.exit_code == 0, ended.err
    left = commands.left_by(place)
    assert left.summary["workload"]["edges"]["recorded"] > 0
    assert {one["kind"]: one["count"] for one in left.summary["kinds"]} == {"all_reduce": 15, "broadcast": 6}
