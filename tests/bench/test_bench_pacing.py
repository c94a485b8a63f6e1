"""What an error of pacing is: of which windows, and which of them a thread that was late reaches into."""

from __future__ import annotations

import numpy as np
import pytest

from etloop.bench.engine.figures import Bar, Bound, Ratio
from etloop.bench.engine.pacing import CATCH_UP_NS, WINDOW_NS, windows_of
from etloop.contract.base.errors import RunAborted

MS = 1_000_000


def looks(
    hole_at_ms: int = -1, hole_ms: int = 0, packets_per_ms: int = 100
) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """A look a millisecond for 60 ms at an even rate; in the hole nothing leaves, and right after it all that was missed."""
    times = [ms for ms in range(60) if not hole_at_ms < ms < hole_at_ms + hole_ms]
    sent = [
        (hole_at_ms if hole_ms and ms == hole_at_ms + hole_ms else ms) * packets_per_ms + 1 for ms in times
    ]
    return np.stack([np.array(times) * MS, np.array(sent)], axis=1).astype(np.int64)


def test_an_even_sender_has_the_same_rate_in_every_window() -> None:
    windows = windows_of(looks(), packet_bytes=1250)
    assert np.allclose(windows.bps, 100 * 1000 * 1250 * 8)
    assert (windows.end_ns - windows.begin_ns == WINDOW_NS).all()


def test_a_hole_of_a_millisecond_shows_as_a_tenth_at_its_edge_and_not_around_it() -> None:
    windows = windows_of(looks(hole_at_ms=30, hole_ms=1), packet_bytes=1250)
    error = windows.bps / 1e9 - 1
    assert error.min() == pytest.approx(-0.1), "the window that ends in it"
    assert error.max() == pytest.approx(0.1), "the window that begins in it has what was made up for"
    assert (np.abs(error) > 0.01).sum() == 2, "one that holds all of it is even"


def test_what_a_hole_costs_for_good_shows_in_the_mean() -> None:
    even = looks(hole_at_ms=30, hole_ms=5)
    assert windows_of(even, packet_bytes=1250).mean_bps == pytest.approx(1e9), "all of it was made up for"
    lost = even.copy()
    lost[lost[:, 0] >= 35 * MS, 1] -= 500
    assert windows_of(lost, packet_bytes=1250).mean_bps == pytest.approx(1e9 * (58 - 5) / 58)


def test_windows_that_a_late_thread_reaches_into_are_those_that_overlap_it_or_begin_while_it_is_made_up_for() -> (
    None
):
    windows = windows_of(looks(), packet_bytes=1250)
    touched = windows.touched_by(np.array([[30 * MS, 31 * MS]]))
    reported = {
        (int(windows.begin_ns[row]) // MS, int(windows.end_ns[row]) // MS) for row in np.flatnonzero(touched)
    }
    assert CATCH_UP_NS == MS
    assert reported == {(begin, begin + 10) for begin in range(20, 33)}
    assert not windows.touched_by(np.empty((0, 2), np.int64)).any()


@pytest.mark.parametrize("rows", [0, 1, 12])
def test_too_little_to_tell_is_said(rows: int) -> None:
    with pytest.raises(RunAborted, match="too few packets were sent to measure evenness"):
        windows_of(looks()[:rows], packet_bytes=1250)


def test_a_figure_without_a_bar_fails_nothing() -> None:
    assert Ratio("reported", (99.0,)).met
    assert not Ratio("held", (99.0,), Bar(Bound.AT_MOST, 1.0)).met
