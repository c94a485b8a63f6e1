"""Plain UDP beside a job in the twin: how much of it leaves and when, what it takes from the job, and where it is lost."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etloop.contract.base.errors import PlanError
from etloop.contract.model.assignment import PlannedStream, UdpStream
from etloop.contract.model.records import StreamCount, StreamForm
from etloop.traffic.flow_level import ideal_network, less_streams
from etloop.traffic.twin import TwinOutcome, TwinSettings
from tests.support.traffic.assignments_by_hand import TRANSPORT, HandOp, assignment
from tests.support.traffic.twin_by_hand import GBPS, UNCONTROLLED, pairs, star, through

BULK: Final = UdpStream("bulk", True, "10.9.0.1", "10.9.0.2", 47910, 47910, 8 << 2, GBPS, 1000, 0, 0)
"""1000 bytes at 1 Gbit/s: 125 datagrams a millisecond. DSCP 8 is in queue 0 of the presets, the job's 26 in 3."""
MS: Final = 1_000_000


def stream(source: int = 0, target: int = 1, **changes: object) -> PlannedStream:
    return PlannedStream(replace(BULK, **changes), f"r/p{source}", f"r/p{target}")  # type: ignore[arg-type]


def lasting(milliseconds: float, *streams: PlannedStream, ports: int = 2) -> TwinOutcome:
    """A job that does nothing for so long on `ports` ports, and then meets; streams beside it."""
    delay = HandOp("delay", round(milliseconds * MS))
    barrier = HandOp("send", 8, deps=(0,), peer=1), HandOp("recv", 8, deps=(0,), peer=0)
    idle = (((delay,)) for _ in range(ports - 2))
    job = assignment(((delay, barrier[0]), (delay, barrier[1]), *idle), transport=TRANSPORT)
    outcome = through(job, star(ports), TwinSettings(limit_ns=10 * GBPS, streams=streams))
    assert outcome.failure == ""
    return outcome


@pytest.mark.parametrize(
    ("sentence", "lasts_ms", "changes", "datagrams"),
    [
        ("by the clock since the begin", 10.5, {}, 10 * 125),
        ("nothing of a millisecond that is not over", 0.9, {}, 0),
        ("from its start on", 10.5, {"start_ns": 4 * MS}, 6 * 125),
        ("until its stop, at which nothing leaves any more", 10.5, {"stop_ns": 3 * MS}, 2 * 125),
        ("what is no whole datagram yet leaves with the next", 10.5, {"rate_bps": 12_000_000}, 15),
        ("one that begins after the job has nothing", 2.5, {"start_ns": 50 * MS}, 0),
    ],
)
def test_datagrams_leave_as_agents_send_them(
    sentence: str, lasts_ms: float, changes: dict[str, int], datagrams: int
) -> None:
    outcome = lasting(lasts_ms, stream(**changes))
    sent = StreamCount("bulk", True, datagrams, 1000 * datagrams, 0)
    assert outcome.streams == ((sent, replace(sent, sends=False)),), sentence


def test_uud_is_its_datagrams_and_is_counted_as_what_it_is() -> None:
    loose = stream(form=StreamForm.UUD, udp_port=4793, src_udp_port=47911)
    sent = StreamCount("bulk", True, 1250, 1_250_000, 0, form=StreamForm.UUD)
    outcome = lasting(10.5, loose)
    assert outcome.streams == ((sent, replace(sent, sends=False)),)
    assert outcome.ops.tobytes() == lasting(10.5, stream()).ops.tobytes()


@given(st.integers(1000, 10 * GBPS), st.integers(18, 8972), st.integers(1, 20))
@settings(max_examples=20, deadline=None)
def test_a_rate_is_kept_to_the_datagram(rate_bps: int, size: int, ticks: int) -> None:
    outcome = lasting(ticks + 0.5, stream(rate_bps=rate_bps, datagram_bytes=size))
    ((sent, received),) = outcome.streams
    assert sent.datagrams == received.datagrams == rate_bps * ticks * MS // (8 * size * GBPS)


def test_switches_see_it_in_its_own_queue() -> None:
    outcome = lasting(10.5, stream())
    ((sent, _),) = outcome.streams
    queues = outcome.switch_ports[0]["queues"]
    assert queues["packets"][1, 0] == sent.datagrams
    assert queues["bytes"][1, 0] == sent.datagrams * (1000 + 8 + 20 + 14 + 4)


def lasted_ns(outcome: TwinOutcome) -> int:
    assert outcome.failure == ""
    return int(outcome.ops["completed_ns"].max()) - outcome.start_ns


def test_what_it_takes_of_a_link_the_job_has_not() -> None:
    """UDP of 40 of 100 Gb/s, headers included, in a queue of its own: the job's transfer takes 1 / 0.6 of its time."""
    job = pairs(((0, 1),), 400 << 20, UNCONTROLLED)
    on_line_bps = 40 * GBPS
    settings = TwinSettings(
        limit_ns=10 * GBPS,
        streams=(stream(rate_bps=on_line_bps * 8000 // 8066, datagram_bytes=8000),),
    )
    alone = lasted_ns(through(job, star(2)))
    beside = lasted_ns(through(job, star(2), settings))
    assert beside == pytest.approx(alone / 0.6, rel=0.02)
    elsewhere = replace(settings, streams=(stream(1, 0, rate_bps=on_line_bps, datagram_bytes=8000),))
    assert lasted_ns(through(job, star(2), elsewhere)) == pytest.approx(alone, rel=0.02), "the other way"


def test_two_streams_into_one_port_lose_what_it_cannot_carry() -> None:
    """80 Gb/s each into 100 Gb/s, in a class that may drop: what is counted as lost is what the switch dropped."""
    streams = [stream(source, 2, rate_bps=80 * GBPS, datagram_bytes=8000) for source in (0, 1)]
    outcome = lasting(30.5, *streams, ports=3)
    lost = sum(sent.datagrams - received.datagrams for sent, received in outcome.streams)
    switch = outcome.switch_ports[0]
    assert lost > 0
    assert lost == switch["queues"]["dropped_packets"].sum() + switch["groups"]["dropped_packets"].sum()


def test_a_card_that_cannot_send_so_much_leaves_out_what_is_too_late() -> None:
    """200 Gb/s through a port of 100: a tenth of a second is made up for, what is older is left out."""
    outcome = lasting(300.5, stream(rate_bps=200 * GBPS, datagram_bytes=8000))
    ((sent, _),) = outcome.streams
    due = 300 * 200 * GBPS // (8 * 8000 * 1000)
    assert sent.left_out > 0
    waiting = due - sent.datagrams - sent.left_out
    most = 100 * 200 * GBPS // (8 * 8000 * 1000)
    assert 0.99 * most <= waiting <= most, "at the end a tenth of a second of it waits"
    assert sent.datagrams * 8066 * 8 <= 0.3011 * 100 * GBPS


def test_a_job_that_waits_for_itself_ends_beside_a_stream_that_never_does() -> None:
    mutual = ((HandOp("recv", 8, peer=peer), HandOp("send", 8, deps=(0,), peer=peer)) for peer in (1, 0))
    job = assignment(tuple(mutual), transport=TRANSPORT)
    outcome = through(job, star(2), TwinSettings(limit_ns=3600 * GBPS, streams=(stream(),)))
    assert outcome.failure == "no event is left: the job waits for itself"


def test_packets_of_streams_count_towards_what_is_affordable() -> None:
    outcome = lasting(10.5, stream())
    job = pairs(((0, 1),), 400 << 20, UNCONTROLLED)
    few = TwinSettings(limit_ns=10 * GBPS, streams=(stream(rate_bps=10 * GBPS),), most_packets=5_000)
    assert outcome.packets >= 1250
    assert through(job, star(2), few).too_many_packets


def test_a_port_that_is_nowhere_is_named() -> None:
    with pytest.raises(
        PlanError, match="topology: r/p7: the plan uses this port, but it is attached to no switch"
    ):
        lasting(1, stream(0, 7))


def test_the_same_streams_have_the_same_records() -> None:
    first, again = (lasting(5.5, stream(), stream(1, 0, name="back")) for _ in range(2))
    assert first.ops.tobytes() == again.ops.tobytes()
    assert first.streams == again.streams


@pytest.mark.parametrize(
    ("sentence", "streams", "left"),
    [
        ("its rate on the line is gone", (stream(rate_bps=25 * GBPS),), 100 - 25 * 1.066),
        ("two take both", (stream(rate_bps=10 * GBPS),) * 2, 100 - 20 * 1.066),
        ("half of the port is the job's", (stream(rate_bps=90 * GBPS),), 50),
        ("one with an end is not in it", (stream(rate_bps=25 * GBPS, stop_ns=MS),), 100),
    ],
)
def test_ports_without_packets_have_what_streams_leave(
    sentence: str, streams: tuple[PlannedStream, ...], left: float
) -> None:
    job = pairs(((0, 1),), 1 << 20)
    job = replace(job, ports=tuple(replace(port, name=f"r/p{i}") for i, port in enumerate(job.ports)))
    network = ideal_network(job)
    rates = dict(zip(network.link_names, less_streams(network, streams).link_bps.tolist(), strict=True))
    assert (rates["r/p0 out"], rates["r/p1 in"]) == pytest.approx((left * GBPS, left * GBPS)), sentence
    assert (rates["r/p0 in"], rates["r/p1 out"]) == (100 * GBPS, 100 * GBPS)
