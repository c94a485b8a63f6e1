"""What can be made besides the plain training step: skewed experts, sharded parameters, sweeps; checked and replayable."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from etloop.cli.main import main
from etloop.contract.base.errors import ConfigError
from etloop.workload.chakra.nodes import SPLIT_ATTRIBUTE
from etloop.workload.inspect.inspection import inspect
from etloop.workload.lint.report import LintReport, lint
from etloop.workload.readers.et_writer import write_trace
from etloop.workload.readers.files import read_trace
from etloop.workload.synthetic.spec import SWEPT, SweepSpec, SyntheticSpec
from etloop.workload.synthetic.sweep import sweep
from etloop.workload.synthetic.training_step import SyntheticJob, synthesize
from etloop.workload.trace.findings import Check
from etloop.workload.trace.ideal_network import IdealNetwork
from etloop.workload.trace.settings import WorkloadSettings
from etloop.workload.trace.trace import CollectiveKind, Parallelism, Trace
from tests.workload.lint.test_fix import official_messages

SMALL = SyntheticSpec(
    layers_per_stage=1, micro_batches=2, hidden_size=64, sequence_tokens=128, data_parallel=4
)


def read(tmp_path: Path, job: SyntheticJob) -> Trace:
    write_trace(tmp_path, job.ranks, job.groups)
    return read_trace(tmp_path)


def checked(tmp_path: Path, job: SyntheticJob) -> LintReport:
    report = lint(read(tmp_path, job), WorkloadSettings())
    assert report.errors == ()
    assert report.warnings == ()
    return report


SKEWED = replace(SMALL, expert_skew_percent=100, seed=5)


def made(spec: SyntheticSpec) -> SyntheticJob:
    return synthesize(spec, random.Random(spec.seed))


def test_a_seed_makes_the_same_job_again() -> None:
    assert made(SKEWED) == made(SKEWED)
    assert made(SKEWED).ranks != made(replace(SKEWED, seed=6)).ranks


def test_a_stronger_skew_gives_the_most_popular_more() -> None:
    def most(skew_percent: int) -> int:
        return max(
            int(one)
            for node in made(replace(SKEWED, expert_skew_percent=skew_percent)).ranks[0]
            for attribute in node.attributes
            if attribute.name == SPLIT_ATTRIBUTE and isinstance(attribute.value, tuple)
            for one in attribute.value
        )

    assert most(10) < most(100) < most(400)


def test_skewed_experts_exchange_what_they_state(tmp_path: Path) -> None:
    report = checked(tmp_path, made(SKEWED))
    assert Check.UNEVEN in {finding.check for finding in report.findings}
    messages = official_messages((tmp_path / "w.0.et").read_bytes())[1:]
    splits = {
        node.name: list(one.int64_list.values)
        for node in messages
        for one in node.attr
        if one.name == "in_split_bytes"
    }
    sizes = {node.name: one.int64_val for node in messages for one in node.attr if one.name == "comm_size"}
    assert splits
    assert all(sum(row) == sizes[name] for name, row in splits.items())


def test_the_way_back_is_the_way_there_turned_around(tmp_path: Path) -> None:
    trace = read(tmp_path, made(replace(SKEWED, tensor_parallel=1, pipeline_parallel=1)))

    def row(rank: int, name: str) -> list[int]:
        ranks = trace.ranks[rank]
        assert ranks.send_splits is not None
        at = next(i for i in range(len(ranks)) if ranks.name(i) == name)
        found: list[int] = ranks.send_splits[at].tolist()
        return found

    there = [row(rank, "mb0.layer0.dispatch") for rank in range(4)]
    back = [row(rank, "mb0.layer0.combine") for rank in range(4)]
    assert back == [list(column) for column in zip(*there, strict=True)]


def test_sharded_parameters_are_gathered_for_every_pass(tmp_path: Path) -> None:
    spec = replace(SMALL, sharded_parameters=True, experts=False, tensor_parallel=1, pipeline_parallel=1)
    job = synthesize(spec)
    kinds = [
        attribute.value
        for node in job.ranks[0]
        for attribute in node.attributes
        if attribute.name == "comm_type"
    ]
    assert kinds.count(CollectiveKind.ALL_GATHER) == 2 * spec.micro_batches * spec.layers_per_stage
    assert kinds.count(CollectiveKind.REDUCE_SCATTER) == spec.layers_per_stage
    checked(tmp_path, job)
    reported = inspect(read_trace(tmp_path), WorkloadSettings(), IdealNetwork())
    assert {one.role for one in reported.communicators} == {Parallelism.SHARDED_DATA, Parallelism.EVERYONE}


def test_a_skew_without_experts_is_refused() -> None:
    with pytest.raises(ConfigError, match="the job has no all-to-all between experts"):
        synthesize(replace(SMALL, experts=False, expert_skew_percent=50))


@pytest.mark.parametrize("kind", SWEPT, ids=lambda kind: kind.name.lower())
def test_every_kind_can_be_swept(tmp_path: Path, kind: CollectiveKind) -> None:
    spec = SweepSpec((kind,), 1 << 10, 1 << 13, ranks=4, repeats=2)
    report = checked(tmp_path, sweep(spec))
    expected = 2 if kind is CollectiveKind.BARRIER else 8
    assert (report.ranks, report.collectives, report.communicators) == (4, expected, 1)
    first, *nodes = official_messages((tmp_path / "w.3.et").read_bytes())
    assert first.version == "1.0.0"
    assert [list(node.data_deps) for node in nodes] == [[], *([at] for at in range(1, expected))]
    assert {one.int64_val for node in nodes for one in node.attr if one.name == "comm_type"} == {int(kind)}


SIZES = [((1024, 8192), (1024, 2048, 4096, 8192)), ((5, 12), (5, 10, 12)), ((7, 7), (7,))]


@pytest.mark.parametrize(("bounds", "sizes"), SIZES)
def test_sizes_double_up_to_the_last(bounds: tuple[int, int], sizes: tuple[int, ...]) -> None:
    assert SweepSpec((CollectiveKind.ALL_REDUCE,), *bounds).sizes() == sizes


REFUSED = [
    (SweepSpec(()), "nothing cannot be swept"),
    (SweepSpec((CollectiveKind.REDUCE_SCATTER_BLOCK,)), "reduce_scatter_block cannot be swept"),
    (SweepSpec((CollectiveKind.ALL_REDUCE,), 10, 5), "sizes 10 to 5 bytes"),
    (SweepSpec((CollectiveKind.ALL_REDUCE,), ranks=1), "1, expected 2 to 65536"),
    (SweepSpec((CollectiveKind.ALL_REDUCE,), ranks=60_000, repeats=100), "would have 102000000 nodes"),
    (SweepSpec((CollectiveKind.ALL_REDUCE,), repeats=0), "would have 0 nodes"),
]


@pytest.mark.parametrize(("spec", "what"), REFUSED)
def test_a_sweep_that_cannot_be_is_refused(spec: SweepSpec, what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        sweep(spec)


def test_the_command_makes_a_sweep(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "sweep"
    options = ["--sweep", "all_reduce,all_to_all", "--sizes", "1KiB-4KiB", "--ranks", "4"]
    assert main(["synth", str(out), *options]) == 0
    assert "4 ranks (all_reduce, all_to_all in 3 sizes), 24 nodes, 1 communicators" in capsys.readouterr().out
    assert main(["lint", str(out)]) == 0
    assert main(["synth", str(tmp_path / "no"), "--sweep", "no_such"]) == 65
    assert '"no_such" cannot be swept' in capsys.readouterr().err


def test_the_command_makes_a_skewed_job(tmp_path: Path) -> None:
    out = tmp_path / "job"
    options = [
        "--dp",
        "4",
        "--tp",
        "1",
        "--layers",
        "1",
        "--hidden",
        "64",
        "--expert-skew",
        "0.8",
        "--seed",
        "9",
        "--fsdp",
    ]
    assert main(["synth", str(out), *options]) == 0
    assert read_trace(out).ranks[0].send_splits is not None
