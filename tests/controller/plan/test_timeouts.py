"""Timers outlast the queue before the slowest link, unless the scenario states its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from etloop.contract.model.topology import Topology
from etloop.controller.inputs.scenario.scenario import Scenario, parse_scenario
from etloop.controller.plan.timeouts import card_floor_ns, patient
from etloop.traffic.topology.topology_file import parse_topology

MS = 1_000_000


def scenario(transport: str = "") -> Scenario:
    text = (
        f"workload: {{collective: {{kind: all_reduce, ranks: 2, size: 1KiB}}}}\ntransport: {{{transport}}}\n"
    )
    return parse_scenario(text.encode(), "s.yaml", Path())


def device(switch: str) -> Topology:
    text = f"single: {{ports: [a/p0, b/p0], rate: 100Gbps, switch: {{{switch}}}}}\n"
    return parse_topology(text.encode(), "t.yaml")


LOSSLESS, SHALLOW = "preset: lossless", "preset: lossy, buffer: 256KiB"


@pytest.mark.parametrize(
    ("sentence", "stated", "link_bps", "switch", "floor_ns", "timeout_ns"),
    [
        ("at the rates of cards nothing changes", "", 100 * 10**9, LOSSLESS, 20 * MS, 640 * MS),
        (
            "8 MiB take 336 ms at 200 Mb/s, there and back with a quarter more",
            "",
            200 * 10**6,
            LOSSLESS,
            839 * MS,
            1678 * MS,
        ),
        ("a switch that nobody describes may queue as much", "", 200 * 10**6, "", 839 * MS, 1678 * MS),
        ("a shallow lossy buffer holds less", "", 200 * 10**6, SHALLOW, 27 * MS, 640 * MS),
        ("what is stated stands", "timeout_floor: 1ms, timeout: 9ms", 200 * 10**6, LOSSLESS, MS, 9 * MS),
        ("no floor is above a stated timeout", "timeout: 9ms", 200 * 10**6, LOSSLESS, 9 * MS, 9 * MS),
        ("also one of the two", "timeout_floor: 1ms", 200 * 10**6, LOSSLESS, MS, 1678 * MS),
    ],
)
def test_timers(
    sentence: str, stated: str, link_bps: int, switch: str, floor_ns: int, timeout_ns: int
) -> None:
    found = patient(scenario(stated), link_bps, device(switch) if switch else None).transport
    assert (found.recovery.timeout_floor_ns, found.timeout_ns) == (floor_ns, timeout_ns), sentence
    told = any("8MiB before a link of 200Mbps" in note for note in found.notes)
    assert told == (timeout_ns == 1678 * MS or floor_ns == 9 * MS), sentence


def test_a_run_is_given_up_after_a_queue_pair_would_be() -> None:
    found = patient(scenario(), 200 * 10**6, device(LOSSLESS))
    assert found.limits.stall_timeout_ns == 8 * 1678 * MS
    assert patient(scenario(), 100 * 10**9, device(LOSSLESS)).limits.stall_timeout_ns == 5000 * MS


@pytest.mark.parametrize(
    ("sentence", "switch", "floor_ns"),
    [
        ("what a lossy buffer holds at 100 Gb/s, there and back", SHALLOW, 52_428),
        ("no more than an agent waits", "preset: lossy, buffer: 512MiB", 20 * MS),
        ("a class that is paused loses nothing, and waits for its pauses", LOSSLESS, 20 * MS),
    ],
)
def test_cards_wait_as_long_as_queues_take(sentence: str, switch: str, floor_ns: int) -> None:
    assert card_floor_ns(device(switch), 20 * MS) == floor_ns, sentence
