"""ServeGen's clients: rates, lengths and windows of the requests that are drawn, and files that are refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from etloop.contract.base.errors import ConfigError
from etloop.workload.serving.client_profiles import draw_client_requests
from etloop.workload.serving.requests import since

ROWS = "0,0.5,2.9,Weibull,0.48,1.1\n600,0,0,,0,0\n1200,2,1,Gamma,1.1,0.45\n"
LENGTHS = {
    "0": {"input_tokens": "{5: 0.25, 40: 0.75}", "output_tokens": "{7: 1.0}", "reason_ratio": "{0.5: 1.0}"},
    "1200": {"input_tokens": "{9: 1.0}", "output_tokens": "{7: 0.5, 8: 0.5}", "reason_ratio": "{0.5: 1.0}"},
}


def client(folder: Path, name: str, rows: str = ROWS, lengths: object = LENGTHS) -> Path:
    (folder / f"{name}-trace.csv").write_text(rows)
    (folder / f"{name}-dataset.json").write_text(lengths if isinstance(lengths, str) else json.dumps(lengths))
    return folder


def test_windows_have_their_rates_and_lengths(tmp_path: Path) -> None:
    found = draw_client_requests(client(tmp_path, "chunk-1"), seed=3)
    first_s = 600 - found.requests[299].arrival_ns / 1e9
    at_s = np.array([request.arrival_ns for request in found.requests]) / 1e9 + first_s
    # The gaps of a window fill it: its last request arrives at its end.
    assert [(at_s <= 600).sum(), ((at_s > 600) & (at_s <= 1200)).sum(), (at_s > 1200).sum()] == [300, 0, 1200]
    early = found.requests[:300]
    late = found.requests[300:]
    assert sum(request.input_tokens == 40 for request in early) == pytest.approx(225, rel=0.15)
    assert {request.output_tokens for request in early} == {7}
    assert {request.input_tokens for request in late} == {9}
    assert sum(request.output_tokens == 8 for request in late) == pytest.approx(600, rel=0.1)
    assert draw_client_requests(tmp_path, seed=3) == found
    assert draw_client_requests(tmp_path, seed=4) != found


def test_clients_are_merged_by_time_and_do_not_change_each_other(tmp_path: Path) -> None:
    alone = draw_client_requests(client(tmp_path, "chunk-1"), seed=3)
    both = draw_client_requests(client(tmp_path, "chunk-2", "0,1,1,Gamma,1,1\n"), seed=3)
    times = [request.arrival_ns for request in both.requests]
    assert times == sorted(times)
    assert len(times) == len(alone.requests) + 600
    assert [request.number for request in both.requests] == list(range(len(times)))
    # A window of equal gaps would have a variation of 0; those of the first client are bursts.
    gaps = np.diff([request.arrival_ns for request in alone.requests[:300]])
    assert gaps.std() / gaps.mean() == pytest.approx(2.3, rel=0.3)


def test_requests_from_a_time_of_the_trace_on(tmp_path: Path) -> None:
    found = draw_client_requests(client(tmp_path, "chunk-1"), seed=3)
    later = since(found, 700 * 10**9, "here")
    assert len(later.requests) == 1200
    assert later.requests[0].number == 300
    assert later.requests[0].arrival_ns == found.requests[300].arrival_ns - 700 * 10**9
    with pytest.raises(ConfigError, match="no request arrives from 9000 s on"):
        since(found, 9000 * 10**9, "here")


@pytest.mark.parametrize(
    ("rows", "lengths", "where", "problem"),
    [
        ("0,1,1,Gamma,1\n", LENGTHS, "csv:1", "5 values"),
        ("0,1,1,Gamma,1,1\n0,1,1,Gamma,1,1\n", LENGTHS, "csv:2", "no later than"),
        ("0,-1,1,Gamma,1,1\n", LENGTHS, "csv:1", 'the rate is "-1"'),
        ("0,nan,1,Gamma,1,1\n", LENGTHS, "csv:1", 'the rate is "nan"'),
        ("0,1,1,Pareto,1,1\n", LENGTHS, "csv:1", '"Pareto" is not a pattern'),
        ("0,1,1,Gamma,0,1\n", LENGTHS, "csv:1", 'the shape is "0"'),
        ("\n", LENGTHS, "csv", "has no window"),
        ("0,0,0,,0,0\n", LENGTHS, "", "no client sends anything"),
        ("0,900000,1,Gamma,1,1\n", LENGTHS, "", "540000000 requests"),
        (ROWS, "{broken", "json", "is not JSON"),
        (ROWS, [], "json", "is not an object of windows"),
        (ROWS, {"x": {}}, "json: x", 'the start is "x"'),
        (ROWS, {"0": {"input_tokens": "{1: 1}"}}, "0.output_tokens", "is missing"),
        (
            ROWS,
            {"0": {"input_tokens": "{1: 0.5}", "output_tokens": "{1: 1}"}},
            "0.input_tokens",
            "add up to 0.5",
        ),
        (
            ROWS,
            {"0": {"input_tokens": "{0: 1}", "output_tokens": "{1: 1}"}},
            "0.input_tokens",
            "has 0 tokens",
        ),
        (
            ROWS,
            {"0": {"input_tokens": "{__import__('os'): 1}", "output_tokens": "{1: 1}"}},
            "0.input_tokens",
            "is not a distribution",
        ),
    ],
)
def test_refusals_name_the_place(
    tmp_path: Path, rows: str, lengths: object, where: str, problem: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        draw_client_requests(client(tmp_path, "chunk-1", rows, lengths), seed=1)
    (found,) = refused.value.problems
    assert where in found.where
    assert problem in found.what
    assert found.remedy


def test_a_client_without_lengths_and_a_folder_without_clients_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has 0 files NAME-trace\.csv"):
        draw_client_requests(tmp_path, seed=1)
    client(tmp_path, "chunk-1")
    (tmp_path / "chunk-1-dataset.json").unlink()
    with pytest.raises(ConfigError, match="No such file"):
        draw_client_requests(tmp_path, seed=1)
