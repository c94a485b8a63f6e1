"""Recorded ranks that stand for others: their groups and peers follow, and what contradicts them is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from etloop.cli.main import main
from etloop.contract.base.errors import ConfigError, TraceError
from etloop.contract.base.units import QuantityError
from etloop.workload.chakra.nodes import et_nodes
from etloop.workload.graph.derived_ranks import group_of
from etloop.workload.job import build_job
from etloop.workload.lint.report import lint
from etloop.workload.readers.et_writer import write_trace
from etloop.workload.readers.files import files_of_trace, read_trace
from etloop.workload.trace.rank_aliases import StandIn, recorded_ranks
from etloop.workload.trace.settings import WorkloadSettings
from etloop.workload.trace.trace import Trace
from tests.support.traces.traces_by_hand import all_reduce, recv, send, trace_of


def settings(*texts: str) -> WorkloadSettings:
    return WorkloadSettings(stand_ins=tuple(map(StandIn.parse, texts)))


GROUPS = [
    ((0, 1, 2, 3), 0, 6, 8, (4, 5, 6, 7), "neighbours are followed by neighbours"),
    ((0, 1, 2, 3), 0, 2, 8, (0, 1, 2, 3), "a rank of the same group stays in it"),
    ((0, 4), 0, 3, 8, (3, 7), "ranks that lie a node apart"),
    ((1, 3), 1, 6, 8, (4, 6), "strides fill a block before the next begins"),
    ((0, 1, 2), 0, 3, 8, None, "groups of three do not fill eight ranks"),
    ((0, 1, 3), 0, 2, 8, None, "ranks at uneven distances say nothing of others"),
    ((1, 2), 1, 4, 8, None, "nor does a group that begins within a block"),
]


@pytest.mark.parametrize(
    ("members", "recorded", "rank", "world", "found", "why"), GROUPS, ids=[one[5] for one in GROUPS]
)
def test_groups_like_the_recorded_one_fill_the_job(
    members: tuple[int, ...], recorded: int, rank: int, world: int, found: tuple[int, ...] | None, why: str
) -> None:
    assert group_of(members, recorded, rank, world) == found, why


def stages() -> Trace:
    """Ranks 0 and 4 of two stages of four: a tensor-parallel sum each, then a send to the next stage."""
    trace = trace_of(
        [all_reduce(1, group="a"), send(2, 4).after(1)],
        [],
        [],
        [],
        [all_reduce(1, group="b"), recv(2, 0)],
    )
    ranks = tuple(
        replace(rank, groups={key: members})
        for rank, key, members in ((trace.ranks[0], "a", (0, 1)), (trace.ranks[4], "b", (4, 5)))
    )
    return replace(trace, ranks=ranks)


def test_one_rank_a_stage_stands_for_its_stage() -> None:
    job = build_job(stages(), settings("0-3=0", "4-7=4"))
    assert [(one.name, one.members) for one in job.communicators] == [
        ("a", (0, 1)),
        ("a", (2, 3)),
        ("b", (4, 5)),
        ("b", (6, 7)),
    ]
    assert [rank.peers for rank in job.ranks] == [(4,), (5,), (6,), (7,), (0,), (1,), (2,), (3,)]
    assert job.notes[0] == (
        "ranks-replicated: hand: expected the traces of all 8 ranks, found 2 recorded ranks; other ranks replay these traces "
        "(workload.stand_ins): 0-3=0, 4-7=4"
    )


def test_a_group_file_names_the_groups_of_the_others() -> None:
    nodes = [[all_reduce(1, group="tp0"), all_reduce(2, group=f"dp{rank}").after(1)] for rank in range(2)]
    groups: dict[str, tuple[int, ...]] = {"tp0": (0, 1), "tp1": (2, 3), "dp0": (0, 2), "dp1": (1, 3)}
    job = build_job(trace_of(*nodes, groups=groups), settings("0-3=0-1"))
    assert [(one.name, one.members) for one in job.communicators] == list(groups.items())
    del groups["tp1"]
    report = lint(trace_of(*nodes, groups=groups), settings("0-3=0-1"))
    assert 'the group file has 0 groups of ranks 2, 3, but 1 with the members of "tp0"' in str(
        report.errors[0].problems()[0]
    )


def test_groups_that_do_not_fill_the_job_are_refused() -> None:
    report = lint(stages(), settings("0-3=0", "4-6=4"))
    assert 'group "a" of ranks 0, 1, which does not tile 7 ranks' in str(report.errors[0].problems()[0])


def test_other_recordings_than_those_named_are_refused() -> None:
    report = lint(trace_of([all_reduce(1)], [all_reduce(1)]), settings("0-3=0"))
    assert "expected the traces of ranks 0, found the traces of ranks 0, 1" in str(
        report.errors[0].problems()[0]
    )


def test_files_of_the_recorded_ranks_alone_are_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = [et_nodes(rank) for rank in trace_of([all_reduce(1)], [], [], [all_reduce(1)]).ranks]
    write_trace(tmp_path / "job", nodes)
    for rank in (1, 2):
        next((tmp_path / "job").glob(f"*.{rank}.et")).unlink()
    with pytest.raises(TraceError, match="2 ranks are missing"):
        read_trace(tmp_path / "job")
    words = ["lint", str(tmp_path / "job"), "--stand-ins", "0-2=0,3-5=3"]
    assert main(words) == 0
    assert "6 ranks" in capsys.readouterr().out
    assert main([*words, "--fix", str(tmp_path / "fixed")]) == 65
    assert "repair the recordings without --stand-ins" in capsys.readouterr().err


def test_ranks_are_taken_in_turn() -> None:
    assert recorded_ranks((StandIn.parse("0-3=0-1"), StandIn.parse("4-6 = 4"))) == (0, 1, 0, 1, 4, 4, 4)
    assert str(StandIn.parse("4=4")) == "4=4"


WRONG = [
    (("0-3=0", "3=3"), "lists a rank twice"),
    (("0-3=0", "5=5"), "rank 4 has no recorded rank"),
    (("0-3=0", "4-7=0"), None),
    (("0-3=4", "4-7=5"), "recorded rank 4 is used for other ranks but not for itself"),
]


@pytest.mark.parametrize(("texts", "what"), WRONG, ids=[str(one[1]) for one in WRONG])
def test_stand_ins_that_are_no_job_are_refused(texts: tuple[str, ...], what: str | None) -> None:
    if what is None:
        assert settings(*texts).stand_ins
        return
    with pytest.raises(ConfigError, match=what):
        settings(*texts)


@pytest.mark.parametrize("text", ["", "0", "0-3", "3-0=0", "0-3=0-2", "0=1=2", "0-70000=0"])
def test_text_that_says_not_who_stands_for_whom_is_refused(text: str) -> None:
    with pytest.raises(QuantityError, match=r"is not RANKS=RECORDED|not an ascending range|not a multiple"):
        StandIn.parse(text)


def test_a_rank_a_stage_makes_the_job_that_all_ranks_make(tmp_path: Path) -> None:
    assert main(["synth", str(tmp_path / "job"), "--tp", "2", "--dp", "4", "--pp", "2", "--layers", "1"]) == 0
    whole = build_job(read_trace(tmp_path / "job"), WorkloadSettings())
    for file in (tmp_path / "job").glob("*.et"):
        if file.name.split(".")[1] not in ("0", "8"):
            file.unlink()
    job = build_job(read_trace(tmp_path / "job", world=16), settings("0-7=0", "8-15=8"))
    assert job.communicators == whole.communicators
    assert [(rank.communicators, rank.peers) for rank in job.ranks] == [
        (rank.communicators, rank.peers) for rank in whole.ranks
    ]


def test_a_case_of_recordings_of_some_ranks_keeps_those(tmp_path: Path) -> None:
    write_trace(
        tmp_path / "job", [et_nodes(rank) for rank in trace_of([all_reduce(1)], [], [all_reduce(1)]).ranks]
    )
    next((tmp_path / "job").glob("*.1.et")).unlink()
    (found,) = files_of_trace(tmp_path / "job", gaps=True)
    assert len([name for name in found.names if name.endswith(".et")]) == 2
    with pytest.raises(TraceError, match="is missing"):
        files_of_trace(tmp_path / "job")
