"""The bench: its arithmetic and wording, its loads, what its processes tell each other, and one short bench for real.

Nothing here asserts how fast anything is.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etloop.agent.host_facts import host_facts
from etloop.bench.engine.figures import (
    Bar,
    BenchReport,
    Bound,
    Ratio,
    Section,
    Series,
    Unit,
    as_json_value,
    bytes_per_s,
    percentile_of,
    ratio_of,
    render,
)
from etloop.bench.engine.load import BenchLoad, PingPong, bench_assignments
from etloop.bench.engine.measure import EngineRun, engine_run, wire_turnarounds_ns
from etloop.bench.engine.network import loopback_place
from etloop.bench.engine.open_mpi import COMPILER, LAUNCHER, AllReduceTimes, times_of
from etloop.bench.engine.protocol import (
    ORDERS,
    REPLIES,
    BlastReceive,
    Counted,
    Done,
    Load,
    Opened,
    Order,
    Probe,
    Ran,
    Start,
    Watch,
    Watched,
    WorkerReply,
)
from etloop.bench.engine.rounds import SMALL_LENGTHS, full_lengths, notes_of
from etloop.bench.engine.sizes import iterations_of
from etloop.bench.engine.suite import Benchmark, run_bench
from etloop.bench.engine.workers import answers, ask_both, bench_workers
from etloop.cli.main import main
from etloop.contract.base.errors import ProtocolError, RunAborted
from etloop.contract.model.assignment import Path
from etloop.contract.protocol.message_set import MessageSet
from etloop.workload.trace.program import OpKind
from etloop.workload.trace.trace import CollectiveKind

SECOND_NS = 1_000_000_000
AT_LEAST_HALF = Bar(Bound.AT_LEAST, 0.5)
ADDRESSES = (("127.18.9.1", "127.18.9.2"), ("127.18.9.3", "127.18.9.4"))


# ---- figures


@pytest.mark.parametrize(
    ("sentence", "bar", "ratio", "met"),
    [
        ("a rate above its bar is good", AT_LEAST_HALF, 0.51, True),
        ("the bar itself is enough", AT_LEAST_HALF, 0.5, True),
        ("a rate below it is not", AT_LEAST_HALF, 0.49, False),
        ("a time below its bar is good", Bar(Bound.AT_MOST, 2.0), 1.9, True),
        ("a time above it is not", Bar(Bound.AT_MOST, 2.0), 2.1, False),
    ],
)
def test_a_bar_has_a_side(sentence: str, bar: Bar, ratio: float, met: bool) -> None:
    assert bar.met_by(ratio) is met, sentence


def test_ratios_are_taken_turn_by_turn() -> None:
    """A machine that slows down by half in the middle slows both, and changes no ratio."""
    ratio = ratio_of("ours / bare", [800, 400, 400], [1000, 500, 500], AT_LEAST_HALF)
    assert ratio.samples == (0.8, 0.8, 0.8)
    assert ratio.met


def test_one_good_turn_does_not_meet_a_bar() -> None:
    assert not Ratio("r", (0.1, 0.2, 9.0), AT_LEAST_HALF).met


@pytest.mark.parametrize(("percent", "least"), [(1, 100), (50, 100), (51, 200), (99, 200), (100, 300)])
def test_a_percentile_is_the_bucket_that_holds_its_rank(percent: int, least: int) -> None:
    # Both ends of a run hand in their own buckets, so a bucket may come twice and in any order.
    histogram = ((200, 24), (100, 30), (300, 1), (100, 20), (200, 25))
    assert percentile_of(histogram, percent) == least


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 9)), min_size=1), st.integers(1, 100))
def test_a_percentile_equals_that_of_the_values_written_out(
    histogram: list[tuple[int, int]], percent: int
) -> None:
    values = sorted(least for least, count in histogram for _ in range(count))
    assert percentile_of(histogram, percent) == values[-(-len(values) * percent // 100) - 1]


def test_rates_are_rounded_down() -> None:
    assert bytes_per_s(10, 3 * SECOND_NS) == 3


REPORT = BenchReport(
    path="a wire",
    cores=2,
    load_average=0.25,
    repetitions=3,
    sections=(
        Section(
            "wire",
            "ours beside bare",
            (
                Series("bare", Unit.BYTES_PER_S, (4_000_000_000, 5_000_000_000, 4_500_000_000)),
                Series("one way", Unit.NANOSECONDS, (5_000, 4_000, 12_000)),
            ),
            (Ratio("ours / bare", (0.4, 0.7, 0.45), AT_LEAST_HALF),),
            ("3 packets were sent again",),
        ),
    ),
    notes=("these lengths are too short to quote",),
)


def test_a_report_reads_as_a_table() -> None:
    assert render(REPORT).splitlines() == [
        "over a wire; 2 cores, load average 0.25 at the start",
        "note: these lengths are too short to quote",
        "",
        "wire: ours beside bare",
        "                                                   median        min        max",
        "  bare                                           4.5 GB/s     4 GB/s     5 GB/s",
        "  one way                                            5 us       4 us      12 us",
        "  ours / bare                                        0.45       0.40       0.70   bar at least 0.50: NOT MET",
        "  note: 3 packets were sent again",
    ]


def test_a_report_for_programs_keeps_every_sample() -> None:
    value = json.loads(json.dumps(as_json_value(REPORT)))
    assert value["schema"] == "etloop-bench/1"
    assert value["met"] is False
    (section,) = value["sections"]
    assert section["series"][1] == {
        "name": "one way",
        "unit": "ns",
        "median": 5000,
        "min": 4000,
        "max": 12000,
        "samples": [5000, 4000, 12000],
    }
    assert section["ratios"][0]["bar"] == {"bound": "at least", "value": 0.5}
    assert section["ratios"][0]["met"] is False


# ---- loads


@pytest.mark.parametrize(
    ("sentence", "kind", "ranks", "connections"),
    [
        ("a broadcast goes from one end to the other", CollectiveKind.BROADCAST, 2, 1),
        ("two ranks send both ways", CollectiveKind.ALL_REDUCE, 2, 2),
        ("a ring over four ranks has four hops", CollectiveKind.ALL_REDUCE, 4, 4),
    ],
)
def test_every_hop_of_a_load_crosses_the_sockets(
    sentence: str, kind: CollectiveKind, ranks: int, connections: int
) -> None:
    for assignment in bench_assignments(BenchLoad(kind, ranks, 1 << 20, 7), ADDRESSES):
        assert assignment.iterations == 7
        assert assignment.connections.path.tolist() == [Path.WIRE] * connections, sentence
        assert len(assignment.ranks) == ranks // 2
        assert assignment.threads.total == 2, "both engines share this machine's cores"


def test_a_message_is_answered_before_the_next_is_thrown() -> None:
    """Rank 0 sends with its ops 0, 2, 4 and waits for each answer; rank 1 answers with its ops 1, 3, 5."""
    first, second = bench_assignments(PingPong(4096, 3, 2), ADDRESSES)
    thrower, catcher = first.programs[0], second.programs[0]
    send, recv = OpKind.SEND, OpKind.RECV
    assert thrower.kind.tolist() == [send, recv] * 3
    assert catcher.kind.tolist() == [recv, send] * 3
    assert thrower.dep_offsets.tolist() == [0, 0, 0, 1, 1, 2, 2]
    assert thrower.deps.tolist() == [1, 3], "sends 2 and 4 wait for the receives before them"
    assert catcher.dep_offsets.tolist() == [0, 0, 1, 1, 2, 2, 3]
    assert catcher.deps.tolist() == [0, 2, 4]
    assert thrower.sequence.tolist() == catcher.sequence.tolist() == [0, 0, 1, 1, 2, 2]
    assert first.connections.path.tolist() == [Path.WIRE] * 2
    assert PingPong(4096, 3, 2).ops == 2 * 3 * 4


def test_turnarounds_lie_between_arrivals_and_stay_inside_an_iteration() -> None:
    """Two iterations of two exchanges: thrown messages arrive at 10, 60, then 1010, 1060; answers 20 or 30 later."""
    thrown = np.array([10, 60, 1010, 1060], np.int64)
    caught = np.array([30, 90, 1030, 1090], np.int64)
    run = EngineRun(
        wire_bytes=1,
        duration_ns=1,
        packets=1,
        retransmitted_packets=0,
        turnarounds=(),
        received_ns=(caught, thrown),
        degraded=(),
    )
    assert wire_turnarounds_ns(PingPong(4096, 2, 2), run).tolist() == [20, 20, 30, 30, 30, 30]


def test_retransmissions_have_a_cause() -> None:
    """A thread that was absent longer than the shortest timeout explains retransmissions, unless a packet was lost."""
    run = EngineRun(
        wire_bytes=1,
        duration_ns=1,
        packets=9,
        retransmitted_packets=4,
        turnarounds=(),
        received_ns=(),
        degraded=(),
        late=(np.array([[0, 50_000_000]], np.int64),),
        timeouts=2,
    )
    explained = "4 packets were sent again after 2 timeouts; none was lost: the answers were late, because "
    absent = "a thread of the emulator did not run for up to 50 ms"
    assert notes_of([run]) == (explained + absent,)
    for change in (
        {"lost_packets": 1},
        {"timeouts": 0},
        {"late": ()},
        {"late": (np.array([[0, 19_000_000]], np.int64),)},
    ):
        (note,) = notes_of([replace(run, **change)])
        assert note.startswith("4 packets were sent again, after"), change


def test_longer_benches_move_more() -> None:
    assert full_lengths(4, 5).duration_ns == 2 * full_lengths(2, 5).duration_ns
    assert full_lengths(1, 1).duration_ns > SMALL_LENGTHS.duration_ns


# ---- orders and answers


VALUES: tuple[Order | WorkerReply, ...] = (
    Watch(3, SECOND_NS),
    Watched(b"01234567"),
    Probe(),
    Start(-5),
    BlastReceive("127.0.0.1", 4791, SECOND_NS, 1),
    Opened(("the receive buffer is small",)),
    Ran(2, 10, 20, 4096, 9, 0, (100, 110), (3, 4), b"01234567", b"76543210"),
    Counted(15, 61680, SECOND_NS),
)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_orders_and_answers_survive_the_pipe(value: Order | WorkerReply) -> None:
    messages: MessageSet[Any] = ORDERS if isinstance(value, Order) else REPLIES
    assert messages.decode(messages.encode(value)) == value


def test_an_assignment_survives_the_pipe() -> None:
    assignment = bench_assignments(BenchLoad(CollectiveKind.BROADCAST, 2, 4096, 1), ADDRESSES)[0]
    order = ORDERS.decode(ORDERS.encode(Load(assignment, True)))
    assert isinstance(order, Load)
    assert order.realtime
    assert order.assignment.ranks[0].rank == assignment.ranks[0].rank
    assert order.assignment.connections.src_qpn.tolist() == assignment.connections.src_qpn.tolist()


def test_a_worker_takes_no_answers_and_a_bench_no_orders() -> None:
    with pytest.raises(ProtocolError, match='a bench does not send "Done"'):
        ORDERS.decode(REPLIES.encode(Done()))
    with pytest.raises(ProtocolError, match='a worker does not send "Probe"'):
        REPLIES.decode(ORDERS.encode(Probe()))


# ---- real processes


@pytest.mark.e2e
def test_an_engine_that_was_not_loaded_cannot_start() -> None:
    with (
        bench_workers(loopback_place("this is a test")) as workers,
        pytest.raises(RunAborted, match=r"worker [ab]: an order for an engine came before Load"),
    ):
        ask_both(workers, (Start(0), Start(0)), (Done, Done), 20 * SECOND_NS)


@pytest.mark.e2e
def test_a_silent_worker_is_named_and_ended() -> None:
    place = loopback_place("this is a test")
    with bench_workers(place) as workers:
        workers[1].send(BlastReceive("127.18.9.9", 4791, SECOND_NS))
        with pytest.raises(RunAborted, match=r"no answer from worker b within 0\.1 s"):
            answers(workers[1:], SECOND_NS // 10)


@pytest.mark.e2e
def test_addresses_of_another_machine_are_refused_with_the_remedy() -> None:
    assignments = bench_assignments(
        BenchLoad(CollectiveKind.BROADCAST, 2, 4096, 1), (("192.0.2.1",), ("192.0.2.2",))
    )
    loads = [Load(assignment) for assignment in assignments]
    with (
        bench_workers(loopback_place("this is a test")) as workers,
        pytest.raises(RunAborted, match=r"address 192\.0\.2\.[12] is not on this host"),
    ):
        ask_both(workers, loads, (Opened, Opened), 20 * SECOND_NS)


@pytest.mark.e2e
def test_a_run_moves_exactly_the_bytes_of_its_collectives() -> None:
    place = loopback_place("this is a test")
    load = BenchLoad(CollectiveKind.ALL_REDUCE, 4, 1 << 20, 3)
    with bench_workers(place) as workers:
        run = engine_run(place, workers, load)
    assert run.wire_bytes == 3 * 2 * 3 * (1 << 20), "iterations x 2 (n - 1) x buffer"
    assert run.duration_ns > 0
    turnarounds = np.array(run.turnarounds)
    assert turnarounds[:, 1].sum() > 0
    assert (turnarounds[:, 0] >= 0).all()


def test_every_message_of_a_ping_pong_has_its_answer() -> None:
    load = PingPong(4096, 5, 3)
    with bench_workers(place := loopback_place("this is a test")) as workers:
        run = engine_run(place, workers, load)
    assert run.wire_bytes == 4096 * 2 * 5 * 3
    assert [len(received) for received in run.received_ns] == [15, 15]
    times = wire_turnarounds_ns(load, run)
    assert len(times) == 3 * (5 + 4), "five answers, and four throws that answer an answer"
    assert (times > 0).all()
    assert (np.diff(times) >= 0).all()


def namespaces_left() -> list[str]:
    """Network namespaces that this process holds by descriptors."""
    held = (each.readlink() for each in pathlib.Path("/proc/self/fd").iterdir() if each.is_symlink())
    return [str(target) for target in held if str(target).startswith("net:")]


@pytest.mark.e2e
@pytest.mark.timeout(300)
def test_a_short_bench_measures_everything_and_leaves_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--small", "--json"]) == 0
    captured = capsys.readouterr()
    report: dict[str, Any] = json.loads(captured.out)
    ports = ["wire udp", "wire packet", "wire xdp"] if os.geteuid() == 0 else ["wire udp"]
    assert [section["name"] for section in report["sections"]] == [
        *ports,
        *(port.replace("wire", "pacing") for port in ports),
        "turnaround",
        "turnaround under load",
        "collective",
        "collective 2 ranks",
        "collective 4 ranks",
        *(f"dependent {what}" for what in ("64B", "1KiB", "queue pairs")),
        *(f"messages {size}" for size in ("64B", "1KiB", "4KiB")),
        *(port.replace("wire", "scale") for port in ports if port != "wire xdp"),
    ]
    has_mpi = os.geteuid() == 0 and all(shutil.which(name) for name in (COMPILER, LAUNCHER))
    for section in (one for one in report["sections"] if one["name"].endswith(" ranks")):
        assert [one["name"] for one in section["series"] if one["name"].startswith("ETLoop")] == [
            *(
                f"ETLoop, {size}{suffix}"
                for size in ("64B", "1KiB", "64KiB", "1MiB")
                for suffix in ("", ", single, p50")
            ),
            "ETLoop, shaped as NCCL does, 64KiB, single, p50",
        ]
        assert sum(one["name"].startswith("Open MPI / ETLoop") for one in section["ratios"]) == 4 * has_mpi
        assert any("Open MPI" in note for note in section["notes"]) != has_mpi
    for section in report["sections"]:
        for series in section["series"]:
            assert len(series["samples"]) == report["repetitions"]
            assert all(sample > 0 for sample in series["samples"]), series["name"]
    for section in (one for one in report["sections"] if one["name"].startswith("wire")):
        told = {ratio["name"]: ratio for ratio in section["ratios"]}
        assert told["packets a sending call, 1 queue pair"]["min"] > 1
        assert 0 < told["answers a packet sent, 1 queue pair"]["max"] < 1
        assert 0 < told["time inside the kernel, 1 queue pair"]["max"] <= 1
        assert all(ratio["bar"] is None for name, ratio in told.items() if "call" in name)
    assert report["notes"] == ["these lengths are too short to quote"]
    assert "wire udp 1/2\nwire udp 2/2\n" in captured.err
    assert namespaces_left() == []


@pytest.mark.e2e
@pytest.mark.skipif(os.geteuid() != 0, reason="packet sockets and namespaces need root")
@pytest.mark.parametrize("kind", ["mrc", "uet"])
def test_ports_of_frames_carry_what_sprays_beside_the_bare_socket(
    kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "wire", "--kind", kind, "--queue-pairs", "1,10", "--small", "--json"]) == 0
    sections = json.loads(capsys.readouterr().out)["sections"]
    assert [section["name"] for section in sections] == [f"wire packet {kind}", f"wire xdp {kind}"]
    for section in sections:
        assert all(sample > 0 for series in section["series"] for sample in series["samples"])
        bars = [ratio["bar"] for ratio in section["ratios"] if ratio["bar"] is not None]
        assert bars == [{"bound": "at least", "value": 0.7}] * 2
        assert all(ratio["min"] > 2 for ratio in section["ratios"] if "sending call" in ratio["name"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("wire", "--backend", "udp"),
            "--kind: needs a source port per packet, which udp ports cannot set; ",
        ),
        (("pacing",), "--kind: applies only to wire; "),
    ],
)
def test_mrc_is_of_ports_that_can_carry_it(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *words, "--kind", "mrc", "--small"]) == 65
    assert said in capsys.readouterr().err


def test_what_open_mpi_prints() -> None:
    expected = {64: AllReduceTimes(1000, 90), 1024: AllReduceTimes(2000, 400)}
    assert times_of("64 1000 90\nnoise\n1024 2000 400\n", {64: 10, 1024: 5}) == expected
    with pytest.raises(RunAborted, match=r"Open MPI printed no time for \[1024\] bytes: 64 1000 90"):
        times_of("64 1000 90\n1024 2000 0\n", {64: 10, 1024: 5})


@pytest.mark.parametrize(
    ("size_bytes", "count"), [(64, 2_500), (1024, 2_403), (64 << 20, 2)], ids=["64 B", "1 KiB", "64 MiB"]
)
def test_a_turn_holds_as_many_all_reduces_as_its_time(size_bytes: int, count: int) -> None:
    assert iterations_of(size_bytes, 250_000_000) == pytest.approx(count, abs=10)


@pytest.mark.e2e
def test_pacing_with_real_time_threads_tells_when_they_were_late(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Everywhere; and what a host does to threads beside which nothing of ours runs, where they may be real-time. A core
    of their own is cleared for them where there are two."""
    usable = os.sched_getaffinity(0)
    words = ["bench", "pacing", "--backend", "udp", "--small", "--realtime", "--json"]
    assert main([*words, *(["--clear-cores"] if len(usable) > 1 else [])]) == 0
    (section,) = json.loads(capsys.readouterr().out)["sections"]
    if len(usable) > 1:
        assert f"threads were moved off core {max(usable)}" in section["notes"][0]
        assert os.sched_getaffinity(0) == usable, "given back"
    named = {ratio["name"]: ratio for ratio in section["ratios"]}
    assert named["100Mbps: worst 10 ms, % off"]["bar"] == {"bound": "at most", "value": 1.0}
    assert [name for name, ratio in named.items() if ratio["bar"]] == [
        f"{rate}: worst 10 ms, % off" for rate in ("100Mbps", "1Gbps", "5Gbps")
    ], "the worst of all windows is what counts"
    for rate in ("100Mbps", "1Gbps", "5Gbps"):
        reported = ("middle 10 ms, % off", "95 of 100, % off at most", "worst 10 ms, % off")
        spread = [named[f"{rate}: {each}"]["samples"] for each in reported]
        assert all(least <= most <= worst for least, most, worst in zip(*spread, strict=True))
    watched = [name for name in named if name.endswith("a thread was late, % of all")]
    assert all(0 <= sample <= 100 for name in watched for sample in named[name]["samples"])
    notes = " ".join(section["notes"])
    if host_facts().realtime and host_facts().host.cores >= 2:
        assert len(watched) == 4, "at each of three rates, and with no engine there"
        assert "its thread is not real-time" not in notes
    else:
        assert len(watched) == 3
        assert "its threads were ordinary ones" in notes
        assert host_facts().realtime != ("its thread is not real-time: Operation not permitted" in notes)


@pytest.mark.e2e
def test_nothing_is_left_when_a_bench_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    # No interpreter of that name: the workers cannot start, after the namespaces were made.
    monkeypatch.setattr("sys.executable", "/nonexistent/python")
    with pytest.raises((RunAborted, FileNotFoundError)):
        run_bench((Benchmark.WIRE,), SMALL_LENGTHS)
    assert namespaces_left() == []


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (["bench", "everything"], "invalid choice: 'everything'"),
        (["bench", "--seconds", "0"], "0 is not between 1 and 1000"),
        (["bench", "--repeat", "2.5"], '"2.5" is not a whole number'),
    ],
)
def test_a_wrong_command_line_is_told(
    words: list[str], printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert printed in capsys.readouterr().err
