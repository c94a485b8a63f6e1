"""What is shown of a run while it goes on: where it stands, what its ports do, and whether we ourselves are late."""

from __future__ import annotations

import pytest

from etloop.cli.text.live import LiveRun
from etloop.contract.model.counters import CountedObject, CounterBatch, CounterObject, CounterReading
from etloop.contract.protocol.machine import RunState
from etloop.controller.session.actions import PortProgress, RunProgress

MS = 1_000_000
LINKS = {"a/p0": 10_000_000_000, "b/p0": 10_000_000_000}


def at(ops: int, moved_bytes: int, slip_ns: int = 20_000, total: int = 100) -> RunProgress:
    """How far a run of two ports is, the first of which only sends."""
    ports = (PortProgress("a/p0", moved_bytes, 0), PortProgress("b/p0", 0, moved_bytes))
    return RunProgress(RunState.RUN, ops, total, moved_bytes, moved_bytes, ports, slip_ns)


def shown(live: LiveRun) -> list[str]:
    return [one.text for one in live.lines()]


def test_a_run_shows_iterations_time_and_rates() -> None:
    live = LiveRun(10, LINKS)
    live.take(at(1, 0), 0)
    live.take(at(26, 500_000_000), 500 * MS)
    head, first, second, late = shown(live)
    assert head == (
        "running  [######..................] 26%, iteration 3 of 10, 192 ms each, 500 ms so far, 1.42 s left, 500 MB sent"
    )
    assert first == "  a/p0  sends     8 Gb/s  receives     0 Mb/s  [########..]  80% of its link"
    assert second == "  b/p0  sends     0 Mb/s  receives     8 Gb/s  [########..]  80% of its link"
    assert late == "  our own lateness 20 us (99 of 100 ops begin sooner)"
    assert live.line() == (
        "running  26%, iteration 3 of 10, 192 ms each, 500 ms so far, 1.42 s left, 500 MB sent; "
        "a/p0 sends 8 Gb/s, receives 0 Mb/s; b/p0 sends 0 Mb/s, receives 8 Gb/s; "
        "our own lateness 20 us (99 of 100 ops begin sooner)"
    )


def test_rates_are_those_of_the_last_second() -> None:
    live = LiveRun(1, LINKS)
    for tenth in range(35):  # fast for two seconds, then half as fast
        moved = 100_000_000 * min(tenth, 20) + 50_000_000 * max(tenth - 20, 0)
        live.take(at(1 + tenth, moved), tenth * 100 * MS)
    assert "sends     4 Gb/s" in shown(live)[1]


@pytest.mark.parametrize(
    ("slip_ns", "mood"), [(99_000, "good"), (100_000, "doubtful"), (999_999, "doubtful"), (1_000_000, "bad")]
)
def test_our_own_lateness_is_a_light(slip_ns: int, mood: str) -> None:
    live = LiveRun(1, {})
    live.take(at(1, 0, slip_ns), 0)
    assert live.lines()[-1].mood == mood


def test_before_the_first_op_there_is_a_state_only() -> None:
    live = LiveRun(10, LINKS)
    assert live.lines() == ()
    assert live.line() == ""
    live.take(RunProgress(RunState.GATHER, 0, 100, 0, 0, missing_agents=("a", "b")), 0)
    assert shown(live) == ["waits for agents: a, b"]


def test_many_ports_are_counted_not_listed() -> None:
    live = LiveRun(1, {})
    ports = tuple(PortProgress(f"a/p{number}", number, 0) for number in range(40))
    live.take(RunProgress(RunState.RUN, 1, 2, 1, 1, ports, -1), 0)
    lines = shown(live)
    assert len(lines) == 1 + 16 + 1
    assert lines[1].startswith("  a/p24"), "the busiest, in the order of their names"
    assert lines[-1] == "  and 24 ports more"


def test_view_has_drops_and_marks_of_all_sources_since_their_first_reading() -> None:
    live = LiveRun(1, LINKS)
    live.take(at(1, 0), 0)
    assert (live.view().dropped, live.view().marked) == (None, None)

    def batch(dropped: int, marked: int) -> CounterBatch:
        counts = {"dropped_packets": dropped, "ecn_marked_packets": marked}
        queue = CountedObject(CounterObject.QUEUE, "1", 3)
        return CounterBatch(0, 0, tuple(CounterReading(queue, name, value) for name, value in counts.items()))

    for source in ("leaf", "spine"):
        live.take_counters(source, batch(5, 10))
        live.take_counters(source, batch(6, 30))
    assert (live.view().dropped, live.view().marked) == (2, 40)


def test_finished_run_has_no_time_left() -> None:
    live = LiveRun(1, LINKS)
    live.take(at(1, 0), 0)
    live.take(at(100, 5), 500 * MS)
    assert " left" not in live.line()
