"""Traces of requests in the public formats, what is refused in them, and drawn requests."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from etloop.contract.base.errors import ConfigError
from etloop.contract.base.units import QuantityError
from etloop.workload.serving.arrivals import Arrivals, DrawnRequests, drawn_requests, parse_length
from etloop.workload.serving.prefix_cache import PrefixCache
from etloop.workload.serving.requests import RequestSet, scale, spread
from etloop.workload.serving.trace_formats import read_requests

MOONCAKE = '{"timestamp": %s, "input_length": %s, "output_length": %s, "hash_ids": %s}'
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens"
BURSTGPT = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type"


def read(tmp_path: Path, *lines: str) -> RequestSet:
    path = tmp_path / "trace"
    path.write_text("\n".join(lines))
    return read_requests(path, "here")


def test_mooncake(tmp_path: Path) -> None:
    found = read(tmp_path, MOONCAKE % (27_000, 1025, 5, [0, 1, 2]), MOONCAKE % (30_001, 1, 2, [3]))
    assert [(r.number, r.arrival_ns, r.input_tokens, r.output_tokens) for r in found.requests] == [
        (0, 0, 1025, 5),
        (1, 3_001_000_000, 1, 2),
    ]
    assert found.block_tokens == 512
    assert found.requests[0].blocks == (0, 1, 2)


def test_qwen_bailian(tmp_path: Path) -> None:
    line: dict[str, object] = {
        "chat_id": 1,
        "parent_chat_id": -1,
        "timestamp": 61.114,
        "input_length": 40,
        "output_length": 20,
    }
    line |= {"type": "text", "turn": 1, "hash_ids": [1, 2, 3]}
    found = read(tmp_path, json.dumps(line), json.dumps(line | {"timestamp": 62.5}))
    assert found.requests[1].arrival_ns == 1_386_000_000
    assert found.block_tokens == 16


def test_azure_keeps_100_ns(tmp_path: Path) -> None:
    rows = ["2023-11-16 18:59:59.9799600,4808,10", "2023-11-16 19:00:00.0319601,3180,8"]
    found = read(tmp_path, AZURE, *rows)
    assert found.requests[1].arrival_ns == 52_000_100


def test_burstgpt_leaves_failures_out_and_counts_them(tmp_path: Path) -> None:
    rows = [
        "0.5,ChatGPT,480,20,500,Conversation log",
        "12,ChatGPT,1000,0,1000,API log",
        "12,GPT-4,2,3,5,API log",
    ]
    found = read(tmp_path, BURSTGPT, *rows)
    assert [(request.number, request.arrival_ns) for request in found.requests] == [
        (0, 0),
        (2, 11_500_000_000),
    ]
    assert found.failed == 1


@pytest.mark.parametrize(
    ("lines", "where", "problem"),
    [
        ([MOONCAKE % (5, 1, 1, []), MOONCAKE % (4, 1, 1, [])], ":2", "before the line before"),
        ([MOONCAKE % (5, -1, 1, [])], ":1", "input_length is -1"),
        ([MOONCAKE % (5, 1, 0, [])], ":1", "without tokens"),
        ([MOONCAKE % (5, 512, 1, [1, 2])], ":1", "2 block ids for 512 tokens"),
        ([MOONCAKE % (5, 512, 1, [-2])], ":1", "hash_ids"),
        ([MOONCAKE % ("true", 512, 1, [])], ":1", "the time is True"),
        ([MOONCAKE % ("NaN", 512, 1, [])], ":1", "the time is nan"),
        ([MOONCAKE % (5, 1e3, 1, [])], ":1", "input_length is 1000.0"),
        (['{"timestamp": 1, "input_length": 1}'], ":1", "output_length is missing"),
        (
            ['{"timestamp": 1, "input_length": 1, "output_length": 1, "speed": 2}'],
            ":1",
            '"speed" is not a key',
        ),
        (["{broken"], ":1", "is not JSON"),
        ([AZURE, "2023-11-16 18:17:03.9,1"], ":2", "2 values for 3 columns"),
        ([AZURE, "yesterday,1,1"], ":2", "is not a time"),
        ([AZURE, "2023-11-16 18:17:03.9,-5,1"], ":2", 'ContextTokens is "-5"'),
        ([AZURE + ",Model"], ":1", "is not a header"),
        ([AZURE], "trace", "has no request"),
        ([""], "trace", "is not a header"),
        ([MOONCAKE % ("1e999999", 512, 1, [])], ":1", "the time is 1E+999999"),
        ([MOONCAKE % ("1" + "0" * 5000, 512, 1, [])], ":1", "is not JSON"),
        ([BURSTGPT, "1e999999999,ChatGPT,480,20,500,log"], ":2", "the time is 1E+999999999"),
        ([AZURE, "2023-11-16 18:17:03.9," + "1" * 200_000 + ",1"], ":2", "is not CSV"),
        ([AZURE, "2023-11-16 18:17:03.\u00b2,1,1"], ":2", "is not a time"),
        ([AZURE, "2023-11-16 18:17:03.9,\u00b2,1"], ":2", "ContextTokens is"),
        ([BURSTGPT, "x,ChatGPT,480,20,500,log"], ":2", "is not a time in seconds"),
    ],
)
def test_refusals_name_the_line(tmp_path: Path, lines: list[str], where: str, problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(tmp_path, *lines)
    (found,) = refused.value.problems
    assert where in found.where
    assert problem in found.what
    assert found.remedy


def test_a_compressed_trace_is_refused_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "trace").write_bytes(b"\x28\xb5\x2f\xfd1234")
    with pytest.raises(ConfigError, match="zstd -d"):
        read_requests(tmp_path / "trace", "here")


def test_scaling_keeps_ids_order_and_blocks(tmp_path: Path) -> None:
    found = read(tmp_path, *[MOONCAKE % (1000 * n, 1000 + n, 10, [n, n + 1]) for n in range(4)])
    small = scale(found, Fraction(1, 10), 100, 3)
    assert [request.arrival_ns for request in small.requests] == [0, 100_000_000, 200_000_000]
    assert [(request.input_tokens, request.output_tokens) for request in small.requests] == [
        (10, 1),
        (11, 1),
        (11, 1),
    ]
    assert small.block_tokens == 6
    assert len(small.notes) == 3


def test_arrivals_of_one_time_are_spread_up_to_the_next(tmp_path: Path) -> None:
    found = read(tmp_path, *[MOONCAKE % (at, 1, 1, []) for at in (0, 0, 0, 0, 2000, 2000)])
    times = [request.arrival_ns // 10**6 for request in spread(found, 3_000_000_000).requests]
    assert times == [0, 500, 1000, 1500, 2000, 3500]


@pytest.mark.parametrize(
    ("drawn", "cv"),
    [
        (DrawnRequests(20_000_000, 20_000), 1.0),
        (DrawnRequests(20_000_000, 20_000, Arrivals.GAMMA, cv_per_million=3_000_000), 3.0),
        (DrawnRequests(20_000_000, 20_000, Arrivals.GAMMA, cv_per_million=500_000), 0.5),
        (DrawnRequests(20_000_000, 20_000, Arrivals.WEIBULL, shape_per_million=500_000), 5**0.5),
        (DrawnRequests(20_000_000, 20_000, Arrivals.CONSTANT), 0.0),
    ],
    ids=lambda value: str(getattr(value, "arrivals", value)),
)
def test_gaps_have_the_rate_and_the_variation_of_their_process(drawn: DrawnRequests, cv: float) -> None:
    found = drawn_requests(drawn)
    gaps = np.diff([request.arrival_ns for request in found.requests])
    assert gaps.mean() == pytest.approx(5e7, rel=0.07)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.1, abs=1e-6)
    assert drawn_requests(drawn) == found


def test_bursts_keep_the_mean_rate_and_are_silent_in_between() -> None:
    drawn = DrawnRequests(100_000_000, 20_000, Arrivals.BURSTS, on_ns=10**8, off_ns=3 * 10**8)
    times = np.array([request.arrival_ns for request in drawn_requests(drawn).requests])
    assert len(times) / times[-1] * 1e9 == pytest.approx(100, rel=0.05)
    assert (times % (4 * 10**8) <= 10**8).all()


def test_lengths() -> None:
    found = drawn_requests(
        DrawnRequests(10**6, 20_000, input=parse_length("zipf 1 128-8192"), output=parse_length("1-3"))
    )
    lengths = np.array([request.input_tokens for request in found.requests])
    assert (lengths.min(), lengths.max()) >= (128, 4000)
    harmonic = sum(1 / rank for rank in range(1, 8066))
    assert (lengths == 128).mean() == pytest.approx(1 / harmonic, rel=0.05)
    assert np.bincount([r.output_tokens for r in found.requests])[1:] == pytest.approx(20_000 / 3, rel=0.05)
    logs = drawn_requests(DrawnRequests(10**6, 20_000, input=parse_length("lognormal 1000 0.5 1-99999")))
    assert np.mean([request.input_tokens for request in logs.requests]) == pytest.approx(1000, rel=0.03)


@pytest.mark.parametrize(
    "text", ["0", "5-4", "zipf 1", "zipf x 1-2", "lognormal 5 1", "12k", "-3", str(1 << 25)]
)
def test_lengths_out_of_form_are_refused(text: str) -> None:
    with pytest.raises(QuantityError):
        parse_length(text)


def test_a_share_of_the_prompts_has_the_common_prefix() -> None:
    drawn = DrawnRequests(10**6, 4000, prefix_share_per_million=250_000, prefix_tokens=256)
    found = drawn_requests(drawn)
    shared = [request for request in found.requests if request.blocks]
    assert len(shared) == pytest.approx(1000, rel=0.1)
    assert {request.blocks for request in shared} == {tuple(range(16))}
    other = drawn_requests(DrawnRequests(10**6, 4000))
    assert [r.arrival_ns for r in other.requests] == [r.arrival_ns for r in found.requests]


def test_a_cache_counts_leading_blocks_and_drops_the_least_recent() -> None:
    cache = PrefixCache(3)
    cache.put([1, 2, 3])
    assert cache.hits([1, 2, 9, 3]) == 2
    cache.put([1])
    cache.put([4])
    assert cache.hits([1]) == 1
    assert cache.hits([2]) == 0
    assert len(cache) == 3
