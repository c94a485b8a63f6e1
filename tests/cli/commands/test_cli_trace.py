"""The commands about traces alone, as a user calls them: what they print, write and end with."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from etloop.cli.main import main
from etloop.workload.chakra.encoder import EtAttribute, EtNode, ValueCase
from etloop.workload.readers.et_writer import write_trace
from etloop.workload.trace.trace import NodeKind


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
    assert f"{source}: repaired in {out}\n  drop-self-dependency: a dependency of a node on itself" in printed
    assert 'rank 0 node 7 "grads": a dependency on itself -> none' in printed
    assert "what is left after that:" in printed
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
    assert "parallelism, guessed by shape: TP 2 x DP 2 x EP 2 x PP 2\n" in printed
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
