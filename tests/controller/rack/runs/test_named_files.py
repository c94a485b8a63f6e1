"""What a submitter hears at once of files that his scenario names and that are not there."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from etloop.controller.inputs.scenario.scenario import parse_scenario
from etloop.controller.rack.runs.named_files import named_file_problems

NONE = 'no file "none" below the rack\'s scenario root; copy it there, or submit with --upload'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A scenario root with a directory, a prefix, an archive and a pair; beside it a file that is nobody's business."""
    place = tmp_path / "root"
    (place / "job").mkdir(parents=True)
    for name in (
        "set/w.0.et",
        "set/w.1.et",
        "all.tar",
        "host.json",
        "kineto.json",
        "flows.csv",
        "topology.yaml",
    ):
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).touch()
    (tmp_path / "outside").touch()
    return place


@pytest.mark.parametrize(
    ("sentence", "text", "said"),
    [
        ("a directory", "workload: {trace: job}", ()),
        ("what its files begin with", "workload: {trace: set/w}", ()),
        ("an archive", "workload: {trace: all.tar}", ()),
        ("a prefix inside an archive", "workload: {trace: all.tar/gpt/w}", ()),
        ("two places", "workload: {trace: host.json+kineto.json}", ()),
        ("one that was uploaded is looked for elsewhere", f"workload: {{trace: 'sha256:{'0' * 64}'}}", ()),
        ("no file at all", "workload: {collective: {kind: barrier, ranks: 2}}", ()),
        ("a topology", "workload: {trace: job}\ntwin: topology.yaml", ()),
        ("no trace", "workload: {trace: none}", (f"workload.trace: {NONE}",)),
        ("no such prefix", "workload: {trace: set/x}", (f"workload.trace: {NONE.replace('none', 'set/x')}",)),
        (
            "the beginning of a name is no prefix",
            "workload: {trace: ho}",
            (f"workload.trace: {NONE.replace('none', 'ho')}",),
        ),
        (
            "no topology",
            "workload: {trace: job}\ntwin: t.yaml",
            ('twin: no file "t.yaml" below the rack\'s scenario root; copy it there',),
        ),
        (
            "no file of flows",
            "workload: {flows: {file: none, hosts: 2}}",
            ('workload.flows.file: no file "none" below the rack\'s scenario root; copy it there',),
        ),
        (
            "what lies outside is that, whether it is there or not",
            "workload: {trace: ../outside}\ntwin: ../nothing",
            tuple(
                f"{key}: lies outside the rack's scenario root; copy it below the root and name it relative to that"
                for key in ("workload.trace", "twin")
            ),
        ),
    ],
)
def test_what_is_not_there_is_said(root: Path, sentence: str, text: str, said: tuple[str, ...]) -> None:
    scenario = parse_scenario(text.encode(), "scenario", root)
    assert tuple(map(str, named_file_problems(scenario, root))) == said, sentence


def test_a_pipe_is_not_opened(root: Path) -> None:
    os.mkfifo(root / "pipe")
    scenario = parse_scenario(b"workload: {trace: pipe}", "scenario", root)
    assert named_file_problems(scenario, root) == (), "the run's process refuses it"


def test_a_failed_look_up_is_no_absence(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Path) -> bool:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    scenario = parse_scenario(b"workload: {trace: job}", "scenario", root)
    monkeypatch.setattr(Path, "exists", fail)
    (problem,) = named_file_problems(scenario, root)
    assert problem.what == '"job" cannot be looked up: Input/output error'


def test_a_name_too_long_is_one_of_no_file(root: Path) -> None:
    scenario = parse_scenario(f"workload: {{trace: {'x' * 300}}}".encode(), "scenario", root)
    (problem,) = named_file_problems(scenario, root)
    assert problem.what.startswith('no file "xxx')
