"""The commands about traces alone, as a user calls them: what they print, write and end with."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from etloop.cli.main import main
from etloop.cli.text.inspection import covers_ranks, render_inspection
from etloop.workload.chakra.encoder import EtAttribute, EtNode, ValueCase
from etloop.workload.chakra.nodes import et_nodes
from etloop.workload.inspect.inspection import inspect
from etloop.workload.readers.et_writer import write_trace
from etloop.workload.trace.ideal_network import IdealNetwork
from etloop.workload.trace.settings import WorkloadSettings
from etloop.workload.trace.trace import NodeKind
from tests.support.traces.traces_by_hand import all_reduce, trace_of


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small synthetic job."""
    job = tmp_path_factory.mktemp("made") / "job"
    options = ["--layers", "1", "--micro-batches", "1", "--hidden", "64", "--sequence", "128"]
    assert main(["synth", str(job), *options]) == 0
    return job


def broken(directory: Path, *, mendable: bool) -> Path:
    """A job of one rank whose collective waits for itself, and perhaps lacks its type."""
    stated = (EtAttribute("comm_type", ValueCase.INT64, 0),) if mendable else ()
    attributes = (*stated, EtAttribute("comm_size", ValueCase.INT64, 64))
    node = EtNode(7, "grads", NodeKind.COMM_COLL, (7, 99), attributes=attributes)
    write_trace(directory, [[node]])
    return directory


def test_fix_writes_what_lints_clean(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = broken(tmp_path / "bad", mendable=True), tmp_path / "good"
    assert main(["lint", str(source), "--fix", str(out)]) == 0
    printed = capsys.readouterr().out
    assert (
        f"{source}: written to {out}, with these repairs\n  drop-self-dependency: a dependency of a node on itself"
        in printed
    )
    assert 'rank 0 node 7 "grads": a dependency on itself -> none' in printed
    assert "remaining after the repairs:" in printed
    assert printed.splitlines()[-1] == "can be replayed: 0 errors, 0 warnings, 1 remarks"
    assert main(["lint", str(out)]) == 0


def test_what_no_rule_fixes_is_said_with_65(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = broken(tmp_path / "bad", mendable=False), tmp_path / "good"
    assert main(["lint", str(source), "--fix", str(out), "--json"]) == 65
    answer = json.loads(capsys.readouterr().out)
    assert answer["directory"] == str(out)
    assert [repair["rule"] for repair in answer["repairs"]] == [
        "drop-self-dependency",
        "drop-dangling-dependency",
        "fill-communicator",
        "state-device-operation",
    ]
    assert not answer["left"]["replayable"]
    assert [found["check"] for found in answer["left"]["findings"]] == [
        "comm-type-absent",
        "communicator-of-one",
    ]


def test_fix_does_not_write_into_traces(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", str(made), "--fix", str(made)]) == 65
    assert "has trace files already" in capsys.readouterr().err


def test_nothing_to_repair_is_said(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(made, copy)
    assert main(["lint", str(copy), "--fix", str(tmp_path / "out")]) == 0
    assert "\n  nothing to repair\n" in capsys.readouterr().out


def test_inspect_tells_what_a_job_is(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "traffic.svg"
    assert main(["inspect", str(made), "--link", "100Gbps", "--svg", str(picture)]) == 0
    printed = capsys.readouterr().out
    assert "8 ranks; " in printed
    assert "parallelism, inferred from groups: TP 2 x DP 2 x EP 2 x PP 2\n" in printed
    assert "rows send, columns receive; " in printed
    assert "critical path " in printed
    root = ET.parse(picture).getroot()
    assert root.tag.endswith("svg")
    assert main(["inspect", str(made), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["layout"] == {"TP": 2, "DP": 2, "EP": 2, "PP": 2}
    assert sum(size for _, _, size in answer["traffic"]["pairs"]) == answer["traffic"]["total_bytes"]
    assert answer["path"]["total_ns"] == sum(answer["path"]["by_kind_ns"].values())
    assert {kind["kind"] for kind in answer["kinds"]} >= {"all_reduce", "all_to_all"}


def test_inspect_refuses_a_picture_that_cannot_be_written(
    made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", str(made), "--svg", str(made / "nowhere" / "x.svg")]) == 65
    assert "x.svg: cannot be written" in capsys.readouterr().err
    assert main(["inspect", str(made), "--link", "0bps"]) == 65


def test_a_trace_with_errors_is_inspected_all_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", str(broken(tmp_path / "bad", mendable=False))]) == 0
    assert "no critical path: the trace has 1 sorts of errors, see etloop lint" in capsys.readouterr().out


LAYOUTS = [
    (4, "TP 2 x DP 2", "", "all ranks are made up"),
    (
        8,
        "TP 2 x DP 2",
        " (product 4, 8 ranks: some parallelism was not recognised)",
        "a sort that is not recognised is not passed over",
    ),
]


@pytest.mark.parametrize(("ranks", "degrees", "said", "why"), LAYOUTS, ids=[row[3] for row in LAYOUTS])
def test_inspect_says_when_degrees_do_not_make_up_all_ranks(
    ranks: int, degrees: str, said: str, why: str
) -> None:
    groups: dict[str, tuple[int, ...]] = {f"t{first}": (first, first + 1) for first in range(0, ranks, 2)}
    groups |= {f"d{first}": (first, first + ranks // 2) for first in range(ranks // 2)}
    jobs = [
        [
            *(all_reduce(number, group=f"t{rank - rank % 2}") for number in range(1, 7)),
            all_reduce(9, group=f"d{rank % (ranks // 2)}"),
        ]
        for rank in range(ranks)
    ]
    found = inspect(trace_of(*jobs, groups=groups), WorkloadSettings(), IdealNetwork())
    assert f"parallelism, inferred from groups: {degrees}{said}\n" in render_inspection(found), why
    assert covers_ranks(found) is not bool(said)


UNREAD = [
    (
        b"HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 8\n12\n",
        "workload.txt: line 1: all_gpus is missing, expected the number of ranks",
    ),
    (
        b"DATA\n2\nlayer0 -1 1 ALLREDUCE 64\n",
        "begins like an ASTRA-sim text workload, which is not supported; convert it",
    ),
    (b"num_ranks 2\nrank 0 {\n", "workload.txt: ends inside a rank; copy or collect the file again"),
]


@pytest.mark.parametrize(("content", "text"), UNREAD, ids=["simai", "astra-sim", "goal"])
def test_formats_that_are_not_read_are_named_and_what_one_lacks(
    content: bytes, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "workload.txt").write_bytes(content)
    assert main(["lint", str(tmp_path / "workload.txt")]) == 65
    assert text in capsys.readouterr().err


def test_a_group_that_is_not_there_is_told_with_how_to_name_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_trace(tmp_path / "job", [et_nodes(rank) for rank in trace_of([all_reduce(1, group="3")]).ranks])
    (tmp_path / "job" / "comm_group.json").write_text('{"3": [0]}')
    assert main(["lint", str(tmp_path / "job")]) == 65
    assert "or give the file that contains it: workload.groups (--groups)" in capsys.readouterr().out
    assert main(["lint", str(tmp_path / "job"), "--groups", str(tmp_path / "job" / "comm_group.json")]) == 0
