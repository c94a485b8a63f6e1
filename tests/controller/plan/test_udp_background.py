"""What plain UDP beside the jobs put on cables, by port: so that a device's counts can be held against it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest
from etloop.contract.model.records import StreamCount
from etloop.controller.inputs.scenario.jobs import StreamEntry
from etloop.controller.plan.udp_streams import plain_datagrams
from etloop.results.device.reconcile import PlainDatagrams

from tests.support.runs.records_by_hand import outcome_by_hand

if TYPE_CHECKING:
    from etloop.contract.model.run import AgentRecords

THERE: Final = StreamEntry("there", "a/p0", "b/p0", 1_000_000, 1000, 8, 0, 0, "s.yaml:1")
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
    assert found["b/p0"].unknown == "its agent did not tell what there counted"
