"""Pins of some communicators: the plan carries their collectives out as pinned, and everybody else's as before."""

from __future__ import annotations

from pathlib import Path

import pytest

from etloop.cli.main import main
from etloop.contract.base.errors import ConfigError, PlanError
from etloop.contract.model.run import PlannedChoice
from etloop.controller.inputs.rig import parse_rig
from etloop.controller.inputs.scenario.scenario import parse_scenario
from etloop.controller.plan.jobs import build_jobs
from etloop.controller.plan.plan import plan_jobs

RIG = "agents:\n" + "".join(
    f"  - {{name: {name}, ports: [{{name: p0, addresses: 10.0.{number}.1-10.0.{number}.16, link: 100Gbps}}]}}\n"
    for number, name in enumerate("ab")
)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """16 ranks: tensor groups of 4 neighbours, replicas 4 apart, two stages."""
    directory = tmp_path_factory.mktemp("pins") / "job"
    assert main(["synth", str(directory), "--tp", "4", "--dp", "2", "--pp", "2", "--layers", "1"]) == 0
    return directory


def planned(job: Path, collectives: str, jobs: str = "") -> tuple[PlannedChoice, ...]:
    source = jobs or f"workload: {{trace: {job.name}}}\nmapping: {{ranks_per_host: 1}}\n"
    scenario = parse_scenario(f"{source}collectives: {collectives}".encode(), "s.yaml", job.parent)
    rig = parse_rig(RIG.encode(), "rig.yaml", job.parent)
    return plan_jobs(scenario, rig, build_jobs(scenario)).tables.choices


def ways(choices: tuple[PlannedChoice, ...], collective: str, ranks: int) -> set[tuple[str, str, int]]:
    return {
        (one.algorithm, one.protocol, one.channels)
        for one in choices
        if (one.collective, one.ranks) == (collective, ranks)
    }


@pytest.mark.parametrize(
    ("sentence", "which"),
    [
        ("by their size", "size: 4"),
        ("by how far their ranks are apart", "stride: 1, size: 4"),
        ("by what they look like", "role: tp"),
        ("by a pattern of their names", 'name: "[2-5]"'),
    ],
)
def test_pins_are_for_the_communicators_that_are_described(job: Path, sentence: str, which: str) -> None:
    pins = f"{{communicators: [{{{which}, all_reduce: {{algorithm: tree, protocol: ll, channels: 3}}}}]}}"
    choices, before = planned(job, pins), planned(job, "{}")
    assert ways(choices, "all_reduce", 4) == {("tree", "ll", 3)}, sentence
    assert all(
        one.reason.endswith("; as communicators[0] says")
        for one in choices
        if (one.collective, one.ranks) == ("all_reduce", 4)
    )
    others = [one for one in choices if one.ranks != 4]
    assert others == [one for one in before if one.ranks != 4], "nobody else is touched"


def test_the_first_entry_that_is_for_a_communicator_counts(job: Path) -> None:
    entries = "[{role: tp, channels: 2}, {size: 4, channels: 3}, {size: 2, channels: 5}]"
    with pytest.raises(PlanError) as caught:
        planned(job, f"{{communicators: {entries}}}")
    assert (
        "s.yaml:3: collectives.communicators[1].size: no communicator left by earlier entries has 4 ranks"
        in str(caught.value)
    )
    choices = planned(job, "{communicators: [{role: tp, channels: 2}, {size: 2, channels: 5}]}")
    assert {channels for _, _, channels in ways(choices, "all_reduce", 4)} == {2}
    assert {channels for _, _, channels in ways(choices, "all_gather", 2)} == {5}


def test_an_entry_goes_before_what_holds_for_all(job: Path) -> None:
    general = "algorithm: ring, all_reduce: {algorithm: ring, protocol: simple}"
    choices = planned(job, f"{{{general}, communicators: [{{role: tp, algorithm: tree}}]}}")
    assert {(one[0], one[1]) for one in ways(choices, "all_reduce", 4)} == {("tree", "simple")}
    assert {one[0] for one in ways(choices, "all_reduce", 16)} == {"ring"}


def test_a_pin_that_a_collective_cannot_follow_leaves_it_alone(job: Path) -> None:
    """As a general pin does: a tree is no way to gather."""
    choices = planned(job, "{communicators: [{role: dp, algorithm: tree}, {role: ep, algorithm: pairwise}]}")
    assert {one[0] for one in ways(choices, "all_gather", 2)} == {"ring"}
    assert {one[0] for one in ways(choices, "all_to_all", 2)} == {"pairwise"}


def test_of_several_jobs_each_has_its_own(job: Path) -> None:
    jobs = (
        f"jobs:\n  - {{name: a, workload: {{trace: {job.name}}}, collectives:"
        " {communicators: [{name: '[2-5]', channels: 3}]}}\n"
        f"  - {{name: b, workload: {{trace: {job.name}}}}}\n"
    )
    choices = planned(job, "{}", jobs)
    assert {3} < {channels for _, _, channels in ways(choices, "all_reduce", 4)}


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (
            "{channels: 2}",
            "communicators[0].name: no communicator is described; write name, role, size or stride",
        ),
        ("{size: 4}", "communicators[0].algorithm: pins no choice; write algorithm, protocol or channels"),
        ("{size: 1, channels: 2}", "communicators[0].size: "),
        ("{role: cp, channels: 2}", "communicators[0].role: "),
        ("{size: 4, algorithm: rong}", 'communicators[0].algorithm: unknown algorithm "rong"'),
        ("{size: 4, all_gather: {algorithm: tree}}", "tree does not implement all-gather"),
        ("{size: 4, send_recv: {channels: 2}}", "communicators[0].send_recv"),
    ],
)
def test_what_cannot_be_meant_is_refused(job: Path, entry: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        planned(job, f"{{communicators: [{entry}]}}")
    assert said in str(caught.value)


def test_what_is_not_there_is_named_with_what_is(job: Path) -> None:
    with pytest.raises(PlanError) as caught:
        planned(job, '{communicators: [{name: "dp_[0-9]", stride: 3, channels: 2}]}')
    assert (
        'no communicator left by earlier entries is named "dp_[0-9]" and has ranks 3 from each other; there are '
        in str(caught.value)
    )
    assert "of 4 (tp)" in str(caught.value)
