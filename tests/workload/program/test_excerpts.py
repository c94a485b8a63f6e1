"""An excerpt of a job: what is among its ranks stays as it is, and what is not takes its time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etloop.cli.main import main
from etloop.contract.base.errors import PlanError
from etloop.contract.base.units import QuantityError
from etloop.workload.job import build_job
from etloop.workload.program.excerpts import excerpt_of
from etloop.workload.readers.files import read_trace
from etloop.workload.trace.excerpt import Excerpt, RankRange
from etloop.workload.trace.ideal_network import IdealNetwork, op_durations_ns
from etloop.workload.trace.program import Communicator, Job, OpKind, RankProgram
from etloop.workload.trace.settings import WorkloadSettings
from etloop.workload.trace.trace import CollectiveKind

NETWORK = IdealNetwork(link_bps=8_000_000_000, latency_ns=1_000)
"""A byte a nanosecond."""
WORDS = ("--tp", "4", "--dp", "2", "--pp", "2", "--layers", "1")


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """16 ranks: tensor groups of 4 neighbours, replicas 4 apart with skewed experts, two stages 8 apart."""
    directory = tmp_path_factory.mktemp("excerpts") / "job"
    assert main(["synth", str(directory), *WORDS, "--expert-skew", "0.8"]) == 0
    return build_job(read_trace(directory), WorkloadSettings())


def of(*ranges: str) -> Excerpt:
    return Excerpt(tuple(map(RankRange.parse, ranges)), NETWORK, "s.yaml:1: workload.excerpt")


def group_of(job: Job, rank: RankProgram, op: int) -> Communicator | None:
    program = job.programs[rank.program]
    if program.kind[op] != OpKind.COLLECTIVE:
        return None
    return job.communicators[rank.communicators[int(program.slot[op])]]


def test_all_ranks_are_the_job(job: Job) -> None:
    whole = excerpt_of(job, of("0-15"))
    assert [(one.name, one.members) for one in whole.communicators] == [
        (one.name, one.members) for one in job.communicators
    ]
    for old, new in zip(job.ranks, whole.ranks, strict=True):
        before, after = job.programs[old.program], whole.programs[new.program]
        for column in ("kind", "collective", "message_bytes", "delay_ns", "slot", "sequence"):
            assert np.array_equal(getattr(before, column), getattr(after, column)), column
        assert (old.communicators, old.peers) == (new.communicators, new.peers)
    assert " 0% belong to operations with the other ranks" in whole.notes[0]


@settings(deadline=None, max_examples=30)
@given(ranks=st.sets(st.integers(0, 15), min_size=2))
def test_what_is_among_real_ranks_stays_and_the_rest_takes_its_time(job: Job, ranks: set[int]) -> None:
    numbers = sorted(ranks)
    try:
        made = excerpt_of(job, of(*map(str, ranks)))
    except PlanError:
        assert not any(set(group.members) <= ranks for group in job.communicators)
        return
    for new, number in zip(made.ranks, numbers, strict=True):
        old = job.ranks[number]
        before, after = job.programs[old.program], made.programs[new.program]
        assert np.array_equal(before.deps, after.deps)
        assert np.array_equal(old.node_id, new.node_id)
        for op in range(len(before)):
            group = group_of(job, old, op)
            if before.kind[op] == OpKind.DELAY:
                assert (after.kind[op], after.delay_ns[op]) == (OpKind.DELAY, before.delay_ns[op])
                continue
            others = set(group.members) if group else {old.peers[before.slot[op]]}
            if not others <= ranks:
                assert (after.kind[op], after.message_bytes[op]) == (OpKind.DELAY, 0)
                assert after.delay_ns[op] > 0
                continue
            assert (after.kind[op], after.message_bytes[op]) == (before.kind[op], before.message_bytes[op])
            own = group_of(made, new, op)
            if group and own:
                assert tuple(numbers[member] for member in own.members) == group.members
            else:
                assert numbers[new.peers[after.slot[op]]] == old.peers[before.slot[op]]


def test_a_collective_with_others_takes_the_time_of_the_whole(job: Job) -> None:
    made = excerpt_of(job, of("0-3"))
    rank = job.ranks[0]
    old, new = job.programs[rank.program], made.programs[made.ranks[0].program]
    groups = [group_of(job, rank, op) for op in range(len(old))]
    everyone = [op for op, group in enumerate(groups) if group and len(group.members) == 16]
    for op in everyone:
        kind = np.array([old.collective[op]], np.int8)
        size, members = np.array([old.message_bytes[op]]), np.array([16])
        assert new.delay_ns[op] == op_durations_ns(kind, size, members, NETWORK)[0]
    assert {CollectiveKind(old.collective[op]) for op in everyone} == {
        CollectiveKind.ALL_REDUCE,
        CollectiveKind.BARRIER,
    }


@pytest.mark.parametrize(
    ("ranges", "said"),
    [
        (("0-16",), "rank 16 is outside the job, which has 16 ranks; choose ranks from 0 to 15"),
        (
            ("0", "5"),
            "no operation has all its members among ranks 0, 5: nothing would be replayed; choose ranks that share",
        ),
    ],
)
def test_what_cannot_be_an_excerpt_is_refused(job: Job, ranges: tuple[str, ...], said: str) -> None:
    with pytest.raises(PlanError) as caught:
        excerpt_of(job, of(*ranges))
    assert f"s.yaml:1: workload.excerpt: {said}" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a", '"a" is not a list of ranks'),
        ("3-1", '"3-1" is not an ascending range below 65536'),
        ("0-65536", '"0-65536" is not an ascending range below 65536'),
        ("", '"" is not a list of ranks'),
    ],
)
def test_ranges_that_are_none(text: str, said: str) -> None:
    with pytest.raises(QuantityError) as caught:
        RankRange.parse(text)
    assert said in str(caught.value)


def test_an_excerpt_runs_to_its_end_in_the_twin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its ranks wait for nobody outside."""
    assert main(["synth", str(tmp_path / "job"), *WORDS]) == 0
    scenario = tmp_path / "s.yaml"
    scenario.write_text(
        "workload: {trace: job, excerpt: {ranks: [0-3, 8-11], link: 100Gbps}}\nmapping: {ranks_per_host: 4}\n"
    )
    (tmp_path / "rig.yaml").write_text(
        "agents:\n"
        "  - {name: a, ports: [{name: p0, addresses: 10.0.0.1-10.0.0.4, link: 100Gbps}]}\n"
        "  - {name: b, ports: [{name: p0, addresses: 10.0.1.1-10.0.1.4, link: 100Gbps}]}\n"
    )
    (tmp_path / "topology.yaml").write_text("single: {ports: [a/p0, b/p0], rate: 100Gbps}\n")
    words = ("twin", str(scenario), "--rig", str(tmp_path / "rig.yaml"), "--out", str(tmp_path / "out"))
    code = main([*words, "--topology", str(tmp_path / "topology.yaml")])
    said = capsys.readouterr()
    assert code == 0, said.out + said.err
    assert "ranks 0-3, 8-11 of 16 are replayed, renumbered 0 to 7" in said.out + said.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{ranks: []}", "workload.excerpt.ranks: no rank is real; list the real ranks, such as [0-15]"),
        ("{link: 1Gbps}", "workload.excerpt.ranks: no rank is real"),
        ("{ranks: [0-3], link: 1bps}", "workload.excerpt.link: "),
        ("{ranks: [x]}", 'workload.excerpt.ranks[0]: "x" is not a list of ranks'),
    ],
)
def test_what_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    scenario = tmp_path / "s.yaml"
    scenario.write_text(f"workload: {{trace: job, excerpt: {text}}}\n")
    (tmp_path / "rig.yaml").write_text(
        "agents: [{name: a, ports: [{name: p0, addresses: 10.0.0.1, link: 1Gbps}]}]\n"
    )
    assert main(["plan", str(scenario), "--rig", str(tmp_path / "rig.yaml")]) == 65
    assert said in capsys.readouterr().err
