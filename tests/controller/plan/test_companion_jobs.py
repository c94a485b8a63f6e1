"""Checkpoints, weight updates and offloaded KV caches: bytes of every rank, order, files that are refused, and one scenario with
all of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from etloop.cli.main import main
from etloop.contract.base.errors import ConfigError
from etloop.controller.inputs.companion_files import (
    TransformerCheckpoint,
    read_checkpoint,
    read_kv_log,
)
from etloop.controller.inputs.scenario.companions import (
    CheckpointLoad,
    KvOffloadLoad,
    UpdateWay,
    WeightUpdateLoad,
)
from etloop.controller.plan.companion_jobs import companion_job
from etloop.workload.trace.program import Job, OpKind
from tests.support.companion_files import DLIO, LOG

if TYPE_CHECKING:
    from pathlib import Path


def bytes_sent(job: Job) -> dict[tuple[int, int], int]:
    """Return the bytes of all sends by source and destination."""
    found: dict[tuple[int, int], int] = {}
    for rank in job.ranks:
        program = job.programs[rank.program]
        for op in np.flatnonzero(program.kind == OpKind.SEND).tolist():
            pair = (rank.rank, rank.peers[int(program.slot[op])])
            found[pair] = found.get(pair, 0) + int(program.message_bytes[op])
    return found


@pytest.fixture
def dlio(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(DLIO)
    return path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.csv"
    path.write_text(LOG)
    return path


LLAMA_8B = (32, 128256, 4096, 14336, 32, 8)
LLAMA_70B = (80, 128256, 8192, 28672, 128, 8)
LLAMA_405B = (126, 128256, 16384, 53248, 128, 8)


@pytest.mark.parametrize(
    ("shape", "tensor", "pipeline", "zero", "ranks", "expected", "total_bytes"),
    [
        (LLAMA_8B, 1, 1, 3, 8, {0: (2_007_565_312, 12_045_637_632)}, 112_425_623_552),
        (LLAMA_70B, 8, 1, 3, 64, {63: (2_184_120_320, 13_103_482_368)}, 978_406_572_032),
        (
            LLAMA_405B,
            8,
            32,
            1,
            512,
            {
                0: (3_713_269_760, 9_513_171_840),
                8: (3_187_933_184, 9_513_171_840),
                255: (2_916_319_232, 9_513_171_840),
                256: (0, 9_513_171_840),
            },
            None,
        ),
    ],
    ids=["8B", "70B", "405B"],
)
def test_ranks_save_what_dlio_computes(
    shape: tuple[int, int, int, int, int, int],
    tensor: int,
    pipeline: int,
    zero: int,
    ranks: int,
    expected: dict[int, tuple[int, int]],
    total_bytes: int | None,
) -> None:
    checkpoint = TransformerCheckpoint(*shape, tensor, pipeline, zero, 2, 4, 1, 0, 0)
    assert {rank: checkpoint.rank_bytes(rank, ranks) for rank in expected} == expected
    if total_bytes is not None:
        assert sum(sum(checkpoint.rank_bytes(rank, ranks)) for rank in range(ranks)) == total_bytes


def test_a_workload_file_is_read_and_keys_without_effect_on_bytes_are_passed_over(dlio: Path) -> None:
    checkpoint = read_checkpoint(dlio, "workload.checkpoint")
    assert checkpoint.parameters == 3_791_616
    by_rank = [checkpoint.rank_bytes(rank, 8) for rank in range(8)]
    assert by_rank[0] == by_rank[1] == (2_225_152, 5_702_784)
    assert by_rank[2] == (1_569_280, 5_702_784)
    assert by_rank[4] == (0, 5_702_784)
    assert sum(map(sum, by_rank)) == 53_211_136


def test_a_checkpoint_writes_stripes_to_servers_in_turn_and_reads_them_back(dlio: Path) -> None:
    load = CheckpointLoad(dlio, 8, 2, stripe_bytes=1_000_000)
    job = companion_job(load, "workload.checkpoint")
    sent = bytes_sent(job)
    data_bytes = 53_211_136
    to_servers = sum(count for (src, _), count in sent.items() if src < 8)
    from_servers = sum(count for (src, _), count in sent.items() if src >= 8)
    stripes = sum(
        -(-part // 1_000_000) for rank in range(8) for part in read_checkpoint(dlio, "").rank_bytes(rank, 8)
    )
    assert to_servers == 2 * data_bytes + stripes * 64
    assert from_servers == data_bytes + 2 * stripes * 16
    by_server = [sum(count for (_, dst), count in sent.items() if dst == server) for server in (8, 9)]
    assert by_server[0] == pytest.approx(by_server[1], rel=0.1)
    program = job.programs[job.ranks[0].program]
    assert program.delay_ns[program.kind == OpKind.DELAY].tolist() == [5_000_000_000] * 2
    assert (program.kind == OpKind.COLLECTIVE).sum() == 3


def test_a_share_moves_that_part_of_every_file(dlio: Path) -> None:
    load = CheckpointLoad(dlio, 8, 1, share_per_million=10_000, writes=1, reads=0, interval_ns=0)
    sent = bytes_sent(companion_job(load, ""))
    assert sent[0, 8] == 22_251 + 57_027


@pytest.mark.parametrize(("trainers", "workers"), [(1, 1), (2, 3), (3, 2)])
def test_a_broadcast_update_has_every_bucket_once_from_its_trainer(trainers: int, workers: int) -> None:
    job = companion_job(WeightUpdateLoad(trainers, workers, 1000, bucket_bytes=300, count=2), "")
    received = [
        int(job.programs[job.ranks[trainers + worker].program].message_bytes.sum())
        for worker in range(workers)
    ]
    assert received == [2000] * workers
    sent = [int(job.programs[job.ranks[trainer].program].message_bytes.sum()) for trainer in range(trainers)]
    assert sum(sent) == 2000
    assert [group.members[0] for group in job.communicators] == list(range(trainers))


@pytest.mark.parametrize(("trainers", "workers"), [(1, 1), (2, 3), (3, 2)])
def test_a_point_to_point_update_sends_all_weights_to_every_worker(trainers: int, workers: int) -> None:
    load = WeightUpdateLoad(trainers, workers, 1000, UpdateWay.POINT_TO_POINT, 300, 2)
    sent = bytes_sent(companion_job(load, ""))
    for worker in range(trainers, trainers + workers):
        assert sum(count for (_, dst), count in sent.items() if dst == worker) == 2000


def test_offloaded_entries_move_once_at_the_times_of_the_log(log: Path) -> None:
    job = companion_job(KvOffloadLoad(log, 2, 2), "")
    sent = bytes_sent(job)
    # Client 0 has key a on server 2 and b on server 3, client 1 the other way round.
    assert sent[0, 2] == 4000 + 64
    assert sent[0, 3] == 7000
    assert sent[2, 0] == 16 + 4000
    assert sent[1, 3] == 4000 + 64
    program = job.programs[job.ranks[0].program]
    assert program.delay_ns[program.kind == OpKind.DELAY].tolist() == [1_500_000, 500_000, 2_000_000]
    only_disk = bytes_sent(companion_job(KvOffloadLoad(log, 1, 1, ("Tier-2",)), ""))
    assert only_disk == {(0, 1): 7000, (1, 0): 16}


def test_times_of_a_log_are_read_to_the_nanosecond(log: Path) -> None:
    log.write_text(LOG.replace("1790000000.004000", "1790000000.123456789"))
    assert read_kv_log(log, "")[-1].at_ns == 123_456_789


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("Time,Op\n", "log.csv:1: its columns are Time, Op"),
        (LOG + "1790000000.1,Read,1,Tier-1\n", "log.csv:7: 4 values for 6 columns"),
        (LOG + "1790000000.1,Move,1,Tier-1,a,x\n", 'log.csv:7: "Move" is not an operation'),
        (LOG + "1790000000.1,Read,-1,Tier-1,a,x\n", 'log.csv:7: "-1" is not a size'),
        (LOG + "1790000000.1,Read,99999999999999,Tier-1,a,x\n", "is not a size"),
        (LOG + "NaN,Read,1,Tier-1,a,x\n", '"NaN" is not a time'),
        (LOG + "1e999999,Read,1,Tier-1,a,x\n", "is not a time"),
        (LOG + "1780000000.1,Read,1,Tier-1,a,x\n", "log.csv:7: its time is before the row above"),
        (LOG.splitlines()[0], "lists no operation"),
        (LOG.replace("Tier-1", "Tier-0").replace("Tier-2", "Tier-0"), "has no operation on Tier-1 or Tier-2"),
    ],
)
def test_a_log_that_cannot_be_used_is_refused_with_its_line(log: Path, text: str, problem: str) -> None:
    log.write_text(text)
    with pytest.raises(ConfigError, match=problem):
        companion_job(KvOffloadLoad(log, 1, 1), "workload.kv_offload")


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("num_layers: 5", "num_layers: many", "num_layers"),
        ("hidden_size: 256", "hidden: 256", "hidden_size: is missing"),
        ("zero_stage: 1", "zero_stage: 4", "zero_stage"),
        ("pipeline: 2", "pipeline: 6", "more stages than layers"),
        ("num_attention_heads: 8", "num_attention_heads: 7", "does not divide hidden_size"),
        ("tensor: 2", "tensor: 3", "8 ranks, but tiny.yaml has 3 x 2 per copy"),
    ],
)
def test_a_workload_that_cannot_be_used_is_refused(dlio: Path, old: str, new: str, problem: str) -> None:
    assert old in DLIO
    dlio.write_text(DLIO.replace(old, new))
    with pytest.raises(ConfigError, match=problem):
        companion_job(CheckpointLoad(dlio, 8, 1), "workload.checkpoint")


@pytest.mark.parametrize(
    ("load", "problem"),
    [
        (lambda path: CheckpointLoad(path / "none.yaml", 8, 1), "cannot be read"),
        (lambda path: CheckpointLoad(path, 8, 1), "not a regular file"),
        (
            lambda path: CheckpointLoad(path / "tiny.yaml", 8, 1, stripe_bytes=4096, writes=1000),
            "stripes; at most",
        ),
        (
            lambda path: CheckpointLoad(path / "tiny.yaml", 8, 1, writes=0, reads=0),
            "no checkpoint is written",
        ),
        (lambda path: WeightUpdateLoad(1, 2000, 1 << 40, bucket_bytes=4096), "buckets of all workers"),
        (lambda path: WeightUpdateLoad(1024, 1025, 1), "2049 ranks in all"),
    ],
)
def test_a_load_that_is_too_large_or_empty_is_refused(dlio: Path, load: object, problem: str) -> None:
    assert callable(load)
    with pytest.raises(ConfigError, match=problem):
        companion_job(load(dlio.parent), "workload")


def test_training_companions_and_background_run_in_one_scenario(
    dlio: Path, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = dlio.parent
    ports = [f"h{number}/p" for number in range(10)]
    (folder / "topology.yaml").write_text(f"single: {{ports: [{', '.join(ports)}], rate: 100Gbps}}\n")
    (folder / "scenario.yaml").write_text(
        "mapping: {ranks_per_host: 1, placement: round_robin}\n"
        "jobs:\n"
        "  - name: training\n"
        "    workload: {collective: {kind: all_reduce, ranks: 4, size: 1MiB, count: 3}}\n"
        "  - name: saving\n"
        "    workload: {checkpoint: {file: tiny.yaml, ranks: 8, servers: 2, share: 10%, writes: 1, reads: 1, interval: 1us}}\n"
        "  - name: weights\n"
        "    workload: {weight_update: {trainers: 2, workers: 3, size: 2MiB, bucket: 300KiB, count: 2}}\n"
        "  - name: pulled\n"
        "    workload: {weight_update: {trainers: 2, workers: 3, size: 2MiB, bucket: 300KiB, way: point_to_point}}\n"
        "  - name: caches\n"
        f"    workload: {{kv_offload: {{file: {log.name}, clients: 2, servers: 1, tiers: [Tier-1, Tier-2]}}}}\n"
        "background:\n"
        "  - {name: bursts, incast: {senders: 2, size: 16KiB, period: 100us}}\n"
    )
    files = [str(folder / name) for name in ("scenario.yaml", "topology.yaml")]
    code = main(["twin", files[0], "--topology", files[1], "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert code == 0, answer["summary"]["result"]
    assert [job["name"] for job in answer["summary"]["jobs"]] == [
        "training",
        "saving",
        "weights",
        "pulled",
        "caches",
        "bursts",
    ]
