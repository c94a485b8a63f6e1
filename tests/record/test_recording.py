"""Scripts become traces that can be replayed, with the traffic of real runs; what cannot be recorded is refused by name.

The tests need PyTorch, in this environment or in that of ETLOOP_TORCH_PYTHON.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path

import pytest

from etloop.cli.main import main
from etloop.workload.readers.files import read_trace
from tests.record.scripts import DDP, EXPERTS, HEAD, PIPELINE, REFUSED
from tests.support.places import ROOT
from tests.support.record.recording import HAS_TORCH, NO_TORCH, PYTHON, operations, real_run, record

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not HAS_TORCH, reason=NO_TORCH),
]


def test_ddp_with_small_buckets_no_sync_and_unused_parameters_is_as_over_gloo(tmp_path: Path) -> None:
    assert record(tmp_path, DDP, 2, "--cpu") == 0
    real = read_trace(real_run(tmp_path, "observer", tmp_path / "train.py", 2))
    recorded = read_trace(tmp_path / "job")
    assert [operations(rank) for rank in recorded.ranks] == [operations(rank) for rank in real.ranks]
    assert len(operations(recorded.ranks[0])) == 18


@pytest.mark.skipif(
    os.environ.get("ETLOOP_FULL") != "1", reason="ETLOOP_FULL=1 runs the examples over gloo at 8 ranks"
)
@pytest.mark.timeout(
    1500
)  # 250 to 290 s of processor time: 16 real ranks import PyTorch at once. Beside other work it took 412 s.
@pytest.mark.parametrize(
    ("name", "options", "counts"),
    [("ddp", (), ""), ("fsdp_tp", (), ""), ("moe_pipeline", ("--tokens", "balanced"), "+balanced")],
)
def test_an_example_is_as_over_gloo_on_every_rank(
    name: str, options: tuple[str, ...], counts: str, tmp_path: Path
) -> None:
    """A scatter's bytes are compared on roots only: over gloo its other members have no input, and no group to count."""
    script = ROOT / f"examples/record/{name}.py"
    assert record(tmp_path, script.read_text(), 8, "--cpu", *options) == 0
    recorded = read_trace(tmp_path / "job")
    real = read_trace(real_run(tmp_path, f"observer{counts}", script, 8))
    groups = real_run(tmp_path, f"groups{counts}", script, 8)
    for own, other in zip(recorded.ranks, real.ranks, strict=True):
        pairs = zip(operations(own), operations(other), strict=True)
        assert all(a == b or a[0] == b[0] == "SCATTER" for a, b in pairs)
        assert recorded.groups is not None
        names = [own.pg_names[index] for index in own.pg_name[own.pg_name >= 0]]
        members = [sorted(recorded.groups[key]) for key in names]
        assert members == [sorted(ranks) for ranks in json.loads((groups / f"w.{own.rank}.json").read_text())]


def test_pipelines_have_all_messages_of_forward_and_backward(tmp_path: Path) -> None:
    """1F1B with 8 micro-batches: 32 on an inner rank, 16 at the ends. ZBV has two stages a rank: twice as many."""
    assert record(tmp_path, PIPELINE, 4, "--cpu") == 0
    assert main(["lint", str(tmp_path / "job")]) == 0
    recorded = read_trace(tmp_path / "job")
    counts = [Counter(kind for kind, _ in operations(rank)) for rank in recorded.ranks]
    assert [count["COMM_SEND"] + count["COMM_RECV"] for count in counts] == [
        16 + 32,
        32 + 64,
        32 + 64,
        16 + 32,
    ]


def test_drawn_tokens_are_sent_as_they_are_received(tmp_path: Path) -> None:
    assert record(tmp_path, EXPERTS, 4, "--cpu", "--tokens", "drawn=0.8,seed=7") == 0
    assert main(["lint", str(tmp_path / "job")]) == 0
    ranks = read_trace(tmp_path / "job").ranks
    sizes = [[size for kind, size in operations(rank) if kind == "ALL_TO_ALL"] for rank in ranks]
    assert sizes == [[8 * 8, 512 * 16 * 4]] * 4
    rows = [rank.send_splits.values.tolist() for rank in ranks if rank.send_splits is not None]
    assert len({tuple(row) for row in rows}) == 4


def test_parts_of_a_split_group_have_their_own_ranks(tmp_path: Path) -> None:
    line = (
        "distributed.all_reduce(torch.ones(5), group=distributed.split_group(split_ranks=[[0, 2], [1, 3]]))"
    )
    assert record(tmp_path, HEAD + line, 4, "--cpu") == 0
    recorded = read_trace(tmp_path / "job")
    assert recorded.groups is not None
    members = [
        recorded.groups[rank.pg_names[index]]
        for rank in recorded.ranks
        for index in rank.pg_name[rank.pg_name >= 0]
    ]
    assert members == [(0, 2), (1, 3), (0, 2), (1, 3)]


@pytest.mark.parametrize(("words", "line"), REFUSED.items(), ids=range(len(REFUSED)))
def test_what_cannot_be_recorded_is_refused_with_its_line(
    words: str, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert record(tmp_path, HEAD + line, 2, "--cpu") == 65
    error = capsys.readouterr().err
    assert words in error
    assert f"train.py:{len((HEAD + line).splitlines())}: " in error
    assert not (tmp_path / "job").exists()


def test_undeclared_tokens_are_refused_and_not_assumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert record(tmp_path, EXPERTS, 2, "--cpu") == 65
    assert "declare expert counts with --tokens" in capsys.readouterr().err


def test_the_commands_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    script = "examples/record/fsdp_tp.py"
    options = [] if sys.executable == PYTHON else ["--python", PYTHON]
    assert main(["record", *options, "--ranks", "4", "--out", "job/", "--", script]) == 0
    for command in ("lint", "inspect"):
        assert main([command, "job/"]) == 0
