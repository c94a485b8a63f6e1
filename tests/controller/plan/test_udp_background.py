"""What plain UDP beside the jobs put on cables, by port: so that a device's counts can be held against it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from etloop.contract.base.errors import ConfigError, PlanError
from etloop.contract.model.records import StreamCount, StreamForm
from etloop.controller.inputs.scenario.jobs import StreamEntry
from etloop.controller.inputs.scenario.scenario import parse_scenario
from etloop.controller.plan.jobs import build_jobs
from etloop.controller.plan.plan import plan_jobs
from etloop.controller.plan.udp_streams import plain_datagrams
from etloop.results.device.reconcile import PlainDatagrams
from tests.support.runs.plan_by_hand import rig_of
from tests.support.runs.records_by_hand import outcome_by_hand

if TYPE_CHECKING:
    from etloop.contract.model.assignment import UdpStream
    from etloop.contract.model.run import AgentRecords

THERE: Final = StreamEntry("there", "a/p0", "b/p0", 1_000_000, 1000, dscp=8, where="s.yaml:1")
BACK: Final = replace(THERE, name="back", from_port="b/p0", to_port="a/p0")
ALSO: Final = replace(THERE, name="also")


def agents(**streams: tuple[StreamCount, ...]) -> tuple[AgentRecords, ...]:
    return tuple(replace(one, streams=streams.get(one.agent, ())) for one in outcome_by_hand().agents)


def count(name: str, datagrams: int, *, sends: bool) -> StreamCount:
    return StreamCount(name, sends, datagrams, datagrams * 1000, 5)


BOTH: Final = agents(
    a=(count("there", 9, sends=True), count("also", 2, sends=True), count("back", 3, sends=False)),
    b=(count("there", 7, sends=False), count("also", 1, sends=False), count("back", 4, sends=True)),
)


@pytest.mark.parametrize(
    ("what", "entries", "at_a", "at_b"),
    [
        ("one way", (THERE,), PlainDatagrams(9, 9000, 0, 0), PlainDatagrams(0, 0, 7, 7000)),
        ("several, both ways", (THERE, BACK, ALSO), PlainDatagrams(11, 11_000, 3, 3000), PlainDatagrams(4, 4000, 8, 8000)),
    ],
)  # fmt: skip
def test_every_end_counts_for_its_port(
    what: str, entries: tuple[StreamEntry, ...], at_a: PlainDatagrams, at_b: PlainDatagrams
) -> None:
    assert plain_datagrams(entries, BOTH, 4096) == {"a/p0": at_a, "b/p0": at_b}, what


def test_probes_are_on_the_cable_of_both_ends() -> None:
    sent = replace(count("there", 9, sends=True), probes_sent=3, probes_received=2)
    received = replace(count("there", 7, sends=False), probes_sent=2, probes_received=2)
    found = plain_datagrams((THERE,), agents(a=(sent,), b=(received,)), 4096)
    assert found["a/p0"] == PlainDatagrams(9 + 3, 9000 + 3 * 26, 2, 2 * 26)
    assert found["b/p0"] == PlainDatagrams(2, 2 * 26, 7 + 2, 7000 + 2 * 26)


def test_what_may_have_been_cut_is_not_counted_as_frames() -> None:
    long = replace(THERE, datagram_bytes=4097)
    assert "may have been cut" in plain_datagrams((long,), BOTH, 4096)["a/p0"].unknown
    assert not plain_datagrams((replace(THERE, datagram_bytes=1400),), BOTH, 1024)["a/p0"].unknown


def test_an_agent_that_told_nothing_of_it_is_told() -> None:
    found = plain_datagrams((THERE,), agents(a=(count("there", 9, sends=True),)), 4096)
    assert found["a/p0"] == PlainDatagrams(9, 9000, 0, 0)
    assert found["b/p0"].unknown == "its agent did not report the counters of there"


def planned(*udp: str, transport: str = "dscp: 26") -> dict[str, UdpStream]:
    """Streams of a file by their names; each of `udp` is what its entry says beside the rate."""
    entries = ", ".join(f"{{name: s{n}, udp: {{rate: 1Mbps, {one}}}}}" for n, one in enumerate(udp))
    workload = "workload: {collective: {kind: all_reduce, ranks: 3, size: 1KiB}}"
    text = f"{{{workload}, transport: {{{transport}}}, background: [{entries}]}}"
    scenario = parse_scenario(text.encode(), "s.yaml", Path())
    found = plan_jobs(scenario, rig_of({"a": 1, "b": 1, "c": 1}), build_jobs(scenario))
    return {one.stream.name: one.stream for one in found.parts.streams}


def test_uud_goes_to_uet_s_port_from_a_port_for_each_stream() -> None:
    plain, one, other = planned(
        "from: a/p0, to: b/p0", "from: a/p0, to: b/p0, as: uud", "from: b/p0, to: c/p0, as: uud, size: 64B"
    ).values()
    assert (plain.form, plain.src_udp_port, plain.udp_port) == (StreamForm.UDP, 47910, 47910)
    assert (one.form, one.src_udp_port, one.udp_port) == (StreamForm.UUD, 47911, 4793)
    assert (other.src_udp_port, other.datagram_bytes) == (47912, 64)


@pytest.mark.parametrize(
    ("what", "transport", "udp", "message"),
    [
        ("two to one port", "dscp: 26", ("from: a/p0, to: c/p0, as: uud", "from: b/p0, to: c/p0, as: uud"),
            "s.yaml:1: background[1].udp: s0 also sends to UDP port 4793 of c/p0; send one of them to another port of the rig"),
        ("to jobs of UET", "kind: uet", ("from: a/p0, to: b/p0, as: uud",), ("s.yaml:1: background[0].udp: jobs at b/p0 use "
            "UET, which listens on UDP port 4793; send it to another port of the rig, or write "
            "uet: {udp_port: 49150} for the jobs")),
        ("shorter than its headers", "dscp: 26", ("from: a/p0, to: b/p0, as: uud, size: 63B",), ("s.yaml:1: background[0]"
            ".udp.size: a UUD message is one packet of 48 bytes of headers and at most path MTU (4096 bytes); "
            "write a size from 64B to 4144B")),
        ("longer than a packet", "path_mtu: 1024", ("from: a/p0, to: b/p0, as: uud",), ("s.yaml:1: background[0].udp.size: "
            "a UUD message is one packet of 48 bytes of headers and at most path MTU (1024 bytes); "
            "write a size from 64B to 1072B")),
        ("another word", "dscp: 26", ("from: a/p0, to: b/p0, as: rud",), ('s.yaml:1: background[0].udp.as: "rud" is not one of '
            "the choices; write udp or uud (did you mean uud?)")),
    ],
)  # fmt: skip
def test_what_uud_cannot_be_is_refused(what: str, transport: str, udp: tuple[str, ...], message: str) -> None:
    with pytest.raises((ConfigError, PlanError)) as caught:
        planned(*udp, transport=transport)
    assert message in str(caught.value).splitlines(), what


def test_jobs_of_uet_that_listen_elsewhere_leave_the_port_to_uud() -> None:
    (stream,) = planned(
        "from: a/p0, to: b/p0, as: uud", transport="kind: uet, uet: {udp_port: 49150}"
    ).values()
    assert stream.udp_port == 4793
