"""Plots over time keep what matters of long runs: the highest queue, every mark, and the busiest lines."""

from __future__ import annotations

import numpy as np
import pytest

from etloop.results.html.curves import MOST_LINES, MOST_POINTS, control_figure, queue_figure, timeline_figure
from etloop.results.tables.frames import frame_by_hand
from etloop.results.verdict.evaluation import Frame

SAMPLES = 10_000
SPIKE = 7_777


def queues(lanes: int = 1, samples: int = SAMPLES) -> Frame:
    """Lanes that hold 1 kB times their number, the last one 1 MB once; a mark at every sample."""
    rows = lanes * samples
    lane = np.arange(rows) % lanes
    number = np.arange(rows) // lanes
    queued = (lane + 1) * 1000
    queued[(lane == lanes - 1) & (number == SPIKE)] = 1_000_000
    columns = {
        "time_ns": number * 1000,
        "switch": np.full(rows, "leaf<0>", object),
        "port": lane.astype(str).astype(object),
        "cos": np.full(rows, 3),
        "queued_bytes": queued,
        "marked_packets": number,
        "dropped_packets": np.zeros(rows, np.int64),
    }
    return frame_by_hand("queues", columns, dict.fromkeys(columns, ""))


def test_a_long_run_is_thinned_and_keeps_its_peak_and_its_marks() -> None:
    depth, marks = queue_figure(queues()).data
    assert len(depth.x) == MOST_POINTS
    assert max(depth.y) == pytest.approx(1000), "kB"
    assert sum(marks.y) == pytest.approx(SAMPLES - 1, rel=0.001)
    assert depth.name == "leaf&lt;0&gt;/0 class 3", "names are text"


def test_the_fullest_queues_are_shown() -> None:
    lines = [one for one in queue_figure(queues(20, SPIKE + 1)).data if "marks" not in one.name]
    assert len(lines) == MOST_LINES
    assert {one.name.split("/")[1].split()[0] for one in lines} == {str(number) for number in range(12, 20)}


def rates(pairs: int) -> Frame:
    """Queue pairs of which each pair of ranks has two; all moved, the later more."""
    number = np.repeat(np.arange(pairs), 3)
    columns = {
        "time_ns": np.tile(np.arange(3), pairs) * 1000,
        "src_rank": number // 2,
        "dst_rank": number // 2 + 100,
        "local_qpn": number,
        "rate_bps": np.full(len(number), 10**9),
        "window_bytes": np.zeros(len(number), np.int64),
        "acked_bytes": number * 10 + 1,
        "rtt_ns": np.full(len(number), np.nan),
    }
    return frame_by_hand("cc", columns, dict.fromkeys(columns, ""))


def test_only_what_a_congestion_control_has_is_drawn_and_every_pair_of_ranks_before_a_second_queue_pair() -> (
    None
):
    figure = control_figure(rates(20))
    assert [one.text for one in figure.layout.annotations] == ["rate allowed (Gbit/s)"], (
        "no window, no round trip"
    )
    assert len({one.name.partition(",")[0] for one in figure.data}) == MOST_LINES == len(figure.data)


def test_ops_are_bars_from_issue_to_completion() -> None:
    columns = {
        "rank": np.array([0.0, 1.0, 0.0]),
        "kind": np.array(["collective", "collective", "send"], object),
        "collective": np.array(["all_reduce", "all_reduce", None], object),
        "issued_ns": np.array([0.0, 1e6, 2e6]),
        "completed_ns": np.array([3e6, 4e6, 5e6]),
    }
    first, second = timeline_figure(frame_by_hand("ops", columns, dict.fromkeys(columns, ""))).data
    assert (first.name, list(first.base), list(first.x), list(first.y)) == (
        "all_reduce",
        [0.0, 1.0],
        [3.0, 3.0],
        ["rank 0", "rank 1"],
    )
    assert (second.name, list(second.y)) == ("send", ["rank 0"])
