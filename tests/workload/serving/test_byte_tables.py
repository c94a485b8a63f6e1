"""Byte tables of draft-calabria-bmwg-ai-fabric-inference-bench-05 and of models, exactly."""

from __future__ import annotations

import pytest

from etloop.workload.serving.expert_exchange import (
    dispatch_bytes,
    pair_bytes,
    peers_of,
    share_of_peers,
    shares,
)
from etloop.workload.serving.kv_transfer import copied_bytes_per_token, slices
from etloop.workload.serving.model_file import model_names
from tests.support.serving.clusters import shipped


@pytest.mark.parametrize(
    ("model", "per_token", "at_4096", "at_131072"),
    [
        ("bmwg-cfg-a", 131_072, 536_870_912, 17_179_869_184),
        ("bmwg-cfg-b", 327_680, 1_342_177_280, 42_949_672_960),
        ("bmwg-cfg-c", 3_145_728, 12_884_901_888, 412_316_860_416),
        ("bmwg-cfg-d", 163_840, 671_088_640, 21_474_836_480),
        ("llama-3.1-8b", 131_072, 536_870_912, 17_179_869_184),
        ("mixtral-8x7b", 131_072, 536_870_912, 17_179_869_184),
        ("llama-3.1-70b", 327_680, 1_342_177_280, 42_949_672_960),
        ("llama-3.1-405b", 516_096, 2_113_929_216, 67_645_734_912),
        ("qwen3-8b", 147_456, 603_979_776, 19_327_352_832),
        ("qwen3-235b-a22b", 192_512, 788_529_152, 25_232_932_864),
        ("deepseek-v3", 70_272, 287_834_112, 9_210_691_584),
    ],
)
def test_kv_cache(model: str, per_token: int, at_4096: int, at_131072: int) -> None:
    found = shipped(model)
    assert found.kv_bytes_per_token == per_token
    assert (found.kv_bytes(4096), found.kv_bytes(131_072)) == (at_4096, at_131072)


@pytest.mark.parametrize(
    ("model", "pair", "egress", "to_other_nodes"),
    [
        ("bmwg-m1", 21_845.3, 2_075_307, 1_922_389),
        ("bmwg-m2", 76_458.7, 7_263_573, 6_728_363),
        ("bmwg-m3", 38_229.3, 3_631_787, 3_364_181),
        ("bmwg-m4", 152_917.3, 14_527_147, 13_456_725),
    ],
)
def test_dispatch(model: str, pair: float, egress: int, to_other_nodes: int) -> None:
    """128 tokens a GPU, 96 GPUs on 12 nodes."""
    total = dispatch_bytes(shipped(model), 128)
    assert round(float(pair_bytes(total, 96)), 1) == pair
    assert share_of_peers(total, 96, 95) == sum(shares(total, 96)) == egress
    assert sum(shares(total, 96)[:88]) == to_other_nodes
    hosts = [rank // 8 for rank in range(96)]
    assert {hosts[peer] for peer in peers_of(20, hosts)[88:]} == {2}
    assert len(peers_of(20, hosts)) == 95


def test_deep_ep_writes_7408_bytes_for_a_token_and_expert() -> None:
    """Facts of DeepEP's low-latency kernels: 7,168 + 56 * 4 + 16 bytes, eight experts a token."""
    assert dispatch_bytes(shipped("deepseek-v3"), 128) == 1024 * 7408


def test_heads_are_replicated_on_more_ranks_than_heads() -> None:
    """Mooncake's table: Qwen3-235B with tp 8 moves 12.62 GB for 32,768 tokens, twice S_KV."""
    model = shipped("qwen3-235b-a22b")
    total = sum(piece.bytes_per_token for piece in slices(model, 8, 8))
    assert total == copied_bytes_per_token(model, 8) == 385_024
    assert total * 32_768 == 12_616_466_432


def test_a_latent_goes_to_every_rank_from_one() -> None:
    pieces = slices(shipped("deepseek-v3"), 2, 4)
    assert [(piece.src, piece.dst, piece.bytes_per_token) for piece in pieces] == [
        (0, 0, 70_272),
        (0, 1, 70_272),
        (1, 2, 70_272),
        (1, 3, 70_272),
    ]


def test_every_shipped_model_can_be_read_and_has_a_source() -> None:
    assert len(model_names()) >= 15
    for name in model_names():
        assert shipped(name).sources, name
