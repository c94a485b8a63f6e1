"""What a scenario asks of a rack: a table of scenarios."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from etloop.controller.inputs.scenario.scenario import parse_scenario
from etloop.controller.racks.needs import Needs
from etloop.controller.racks.scenario_needs import needs_of

FRAMING = ("packet", "xdp")
FOUR = "workload: {collective: {kind: all_reduce, ranks: 4, size: 1MiB}}\n"
TRACE = "workload: {trace: job}\n"


def hosts(count: int, **more: Any) -> Needs:
    """The needs of so many hosts."""
    key = f"a port for each of {count} hosts"
    return replace(Needs(least_ports=2, port_count=count, count_key=key), **more)


@pytest.mark.parametrize(
    ("sentence", "text", "needs"),
    [
        ("a host for each rank, a port for each host", FOUR, hosts(4)),
        ("two ranks a host", FOUR + "mapping: {ranks_per_host: 2}\n", hosts(2)),
        (
            "hosts as they are written",
            FOUR + "mapping: {hosts: [[0, 1, 2], [3]]}\n",
            hosts(2),
        ),
        (
            "nothing need cross the device",
            FOUR + "allow_local: true\n",
            hosts(4, least_ports=1),
        ),
        (
            "hosts of several cards take ports of one agent: nobody counts",
            FOUR + "mapping: {ranks_per_host: 2, nics_per_host: 2}\n",
            Needs(least_ports=2),
        ),
        ("the ranks of a trace that is here", TRACE, hosts(8)),
        ("one that is elsewhere", "workload: {trace: other}\n", Needs(least_ports=2)),
        ("one rank made many", "workload: {trace: other, replicate_ranks: 16}\n", hosts(16)),
        (
            "ports by name",
            FOUR + "mapping: {ports: [b/p0, a/p0]}\n",
            Needs(ports=("b/p0", "a/p0"), ports_key="mapping.ports"),
        ),
        (
            "rank by rank",
            FOUR + "mapping: {placement: explicit, explicit: {0-1: a/p0, 2-3: b/p0}}\n",
            Needs(ports=("a/p0", "b/p0"), ports_key="mapping.explicit"),
        ),
        (
            "plain UDP between named ports, and a job on any",
            FOUR + "background: [{name: u, udp: {from: a/p0, to: b/p1, rate: 2Gbps}}]\n",
            hosts(
                4,
                among=("a/p0", "b/p1"),
                ports_key="background",
                least_link_bps=2 * 10**9,
                link_key="background u: udp.rate",
            ),
        ),
        (
            "what one sender sends on average",
            "workload: {flows: {hosts: 4, processes: 2, sizes: web_search, rate: 3Gbps}}\n",
            hosts(4, least_link_bps=3 * 10**9, link_key="workload: flows.rate"),
        ),
        (
            "the larger share of what a client of storage moves",
            "workload: {storage: {clients: 1, servers: 1, sizes: 4KiB, rate: 10Gbps, read: 70%}}\n",
            hosts(2, least_link_bps=7 * 10**9, link_key="workload: storage.rate"),
        ),
        (
            "bursts every so often",
            "workload: {incast: {senders: 1, size: 125KB, period: 1ms}}\n",
            hosts(2, least_link_bps=10**9, link_key="workload: incast.rate"),
        ),
        (
            "bursts without a gap have no rate",
            "workload: {incast: {senders: 1, size: 125KB}}\n",
            hosts(2),
        ),
        (
            "UET writes whole frames",
            FOUR + "transport: {kind: uet}\n",
            hosts(4, backends=FRAMING, backend_key="transport.kind uet"),
        ),
        (
            "MRC does",
            FOUR + "transport: {kind: mrc}\n",
            hosts(4, backends=FRAMING, backend_key="transport.kind mrc"),
        ),
        (
            "several jobs: the larger one's hosts",
            (
                "jobs:\n  - {name: a, workload: {collective: {kind: all_reduce, ranks: 2, size: 1KiB}}}\n"
                "  - {name: b, workload: {collective: {kind: all_reduce, ranks: 6, size: 1KiB}}}\n"
            ),
            hosts(6),
        ),
        (
            "one of several names its ports",
            (
                "jobs:\n  - {name: a, workload: {collective: {kind: all_reduce, ranks: 2, size: 1KiB}},\n"
                "     mapping: {ports: [a/p0, b/p0]}}\n"
                "  - {name: b, workload: {collective: {kind: all_reduce, ranks: 6, size: 1KiB}}}\n"
            ),
            hosts(6, among=("a/p0", "b/p0"), ports_key="mapping.ports"),
        ),
    ],
)
def test_what_a_scenario_asks_for(sentence: str, text: str, needs: Needs) -> None:
    scenario = parse_scenario(text.encode(), "scenario.yaml", Path("/"))
    assert needs_of(scenario, lambda trace: 8 if trace.name == "job" else 0) == needs, sentence


def test_needs_are_listed_with_what_asks_for_them() -> None:
    needs = Needs(
        among=("a/p0",),
        ports_key="background",
        port_count=4,
        count_key="a port for each of 4 hosts",
        least_link_bps=10**9,
        link_key="workload: flows.rate",
        backends=FRAMING,
        backend_key="transport.kind uet",
    )
    assert list(map(str, needs.requirements())) == [
        "ports a/p0 (background)",
        "4 ports (a port for each of 4 hosts)",
        "at least 1Gbps (workload: flows.rate)",
        "backend packet or xdp (transport.kind uet)",
    ]
    assert list(Needs().requirements()) == []
