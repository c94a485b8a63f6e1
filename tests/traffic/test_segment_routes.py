"""Micro segments of a topology, the routes that they make, and jobs in the twin whose packets go by them."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest

from etloop.cli.main import main
from etloop.contract.base.errors import ConfigError, PlanError
from etloop.contract.model.topology import OtherNode, Segments, Topology
from etloop.traffic.topology.segment_routes import SegmentChoice, SegmentRoutes, ways_of
from etloop.traffic.topology.topology_file import parse_topology

TWO_TIERS = """
srv6: {block: "fc00:1::/32"}
leaf_spine:
  leaves: [{ports: [a0/p0, a1/p0]}, {ports: [a2/p0, a3/p0]}, {ports: [a4/p0]}]
  spines: 2
  uplinks: 2
  rate: 100Gbps
  leaf: {preset: lossy}
  spine: {preset: lossy}
"""
PARTS = """
srv6: {block: "fc00:1::/32", decapsulation: 0xd000}
switches: [{name: s0, usid: 0x0021, usids: {up: 0xf003}}, {name: s1, usid: 34}]
links: [{from: s0/up, to: s1, rate: 1Gbps}]
attach: [{port: a/p0, to: s0, rate: 1Gbps}, {port: b/p0, to: s1, rate: 1Gbps}]
"""


def parsed(text: str) -> Topology:
    return parse_topology(textwrap.dedent(text).encode(), "t.yaml")


def tiers(text: str, choice: SegmentChoice, source: int, target: int) -> list[list[str]]:
    routes = SegmentRoutes(parsed(text), choice)
    return [[f"{usid:04x}" for usid in tier] for tier in routes.tiers(source, target)]


def test_switches_and_ports_have_their_numbers_and_know_the_others() -> None:
    topology = parsed(TWO_TIERS)
    assert topology.segments == Segments(0xFC000001, 0xD001)
    usids = [switch.usids for switch in topology.switches]
    assert [one.node for one in usids if one] == [1, 2, 3, 4, 5]
    leaf = usids[0]
    assert leaf is not None
    assert leaf.adjacencies == tuple(0xE000 + port for port in range(6))
    assert leaf.others == (
        OtherNode(2, (2, 3, 4, 5)),
        OtherNode(3, (2, 3, 4, 5)),
        OtherNode(4, (2, 3)),
        OtherNode(5, (4, 5)),
    )


def test_what_a_file_states_holds() -> None:
    topology = parsed(PARTS)
    assert topology.segments == Segments(0xFC000001, 0xD000)
    first, second = (switch.usids for switch in topology.switches)
    assert first is not None
    assert second is not None
    assert (first.node, first.adjacencies) == (0x21, (0xF003, 0xE001))
    assert (second.node, second.others) == (0x22, (OtherNode(0x21, (0,)),))
    assert parsed("single: {ports: [a/p0, b/p0], rate: 1Gbps}").segments is None


@pytest.mark.parametrize(
    ("choice", "source", "target", "expected"),
    [
        (SegmentChoice.ADJACENCY, 0, 1, [["e001"]]),
        (SegmentChoice.ADJACENCY, 0, 2, [["e002", "e003", "e004", "e005"], ["e002", "e003"], ["e000"]]),
        (SegmentChoice.ADJACENCY, 4, 1, [["e001", "e002", "e003", "e004"], ["e000", "e001"], ["e001"]]),
        (SegmentChoice.NODE, 0, 1, [["e001"]]),
        (SegmentChoice.NODE, 0, 2, [["0004", "0005"], ["0002"], ["e000"]]),
    ],
)
def test_a_route_names_each_tier(
    choice: SegmentChoice, source: int, target: int, expected: list[list[str]]
) -> None:
    assert tiers(TWO_TIERS, choice, source, target) == expected


def test_every_path_has_its_values() -> None:
    routes = SegmentRoutes(parsed(TWO_TIERS), SegmentChoice.ADJACENCY)
    assert ways_of(routes.tiers(0, 2)) == 8
    assert ways_of(SegmentRoutes(parsed(TWO_TIERS), SegmentChoice.NODE).tiers(0, 2)) == 2


MISTAKES = (
    (
        "a prefix of another length",
        'srv6: {block: "fc00::/16"}',
        "fc00::/16 has 16 bits; write a prefix of 32",
    ),
    ("no block", "srv6: {}", "srv6.block: is missing; write the prefix of 32 bits"),
    ("no prefix", "srv6: {block: ten}", '"ten" is not an IPv6 prefix'),
)


@pytest.mark.parametrize(
    ("text", "expected"), [row[1:] for row in MISTAKES], ids=[row[0] for row in MISTAKES]
)
def test_a_block_that_is_none_is_refused(text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parsed(f"{text}\nsingle: {{ports: [a/p0, b/p0], rate: 1Gbps}}")
    assert any(expected in str(problem) for problem in caught.value.problems), caught.value.problems


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("usid: 34", "usid: 0x21", "usid 0x0021 is that of s0 and of s1; give every switch its own"),
        ("usid: 34", "usid: 0", "0 is out of range; write one from 0x0001 to 0xffff"),
        ("usid: 34", "usid: leaf", '"leaf" is not a micro segment'),
        ("{up: 0xf003}", "{up: 0x0021}", "0x0021 is used twice: by the switch, a port or hosts"),
        ("{up: 0xf003}", "{up: 0xd000}", "0xd000 is used twice: by the switch, a port or hosts"),
        ("{up: 0xf003}", "{up: 34}", "usid 0x0022 of a port of s0 is that of s1"),
        ("{up: 0xf003}", "{down: 0xf003}", 'the switch has no port "down"'),
        (
            'srv6: {block: "fc00:1::/32", decapsulation: 0xd000}',
            "seed: 1",
            "the network has no block of segments",
        ),
    ],
)
def test_numbers_that_clash_are_refused(old: str, new: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parsed(PARTS.replace(old, new))
    assert any(expected in str(problem) for problem in caught.value.problems), caught.value.problems


def test_a_switch_without_segments_and_tiers_that_differ_are_refused_by_name() -> None:
    blind = TWO_TIERS.replace("spine: {preset: lossy}", "spine: {preset: lossy, usid: none}")
    with pytest.raises(PlanError, match=r"switch spine0: has no micro segments \(usid: none\)"):
        tiers(blind, SegmentChoice.ADJACENCY, 0, 2)
    assert tiers(blind, SegmentChoice.ADJACENCY, 0, 1) == [["e001"]], "no spine is on this way"
    unlike = """
        srv6: {block: "fc00:1::/32"}
        switches: [{name: l0}, {name: l1}, {name: s0}, {name: s1}]
        links:
          - {from: l0, to: s0, rate: 1Gbps}
          - {from: l0, to: s1, rate: 1Gbps}
          - {from: l1, to: s1, rate: 1Gbps}
          - {from: s0, to: l1, rate: 1Gbps}
          - {from: s0, to: s1/spare, rate: 1Gbps}
        attach: [{port: a/p0, to: l0, rate: 1Gbps}, {port: b/p0, to: l1, rate: 1Gbps}]
    """
    assert tiers(unlike, SegmentChoice.ADJACENCY, 0, 1) == [["e000", "e001"], ["e001"], ["e002"]]
    swapped = unlike.replace("{name: s1}", "{name: s1, usids: {1: 0xe009}}")
    with pytest.raises(PlanError, match="on the way to l1, s0 offers 0xe001 and s1 0xe009"):
        tiers(swapped, SegmentChoice.ADJACENCY, 0, 1)
    assert tiers(swapped, SegmentChoice.NODE, 0, 1) == [["0003", "0004"], ["0002"], ["e002"]]


def test_more_tiers_than_an_address_holds_are_refused() -> None:
    hops = ", ".join(f"{{ports: [h{number}/p0]}}" for number in range(7))
    text = f'srv6: {{block: "fc00:1::/32"}}\nparking_lot: {{hops: [{hops}], rate: 1Gbps}}'
    assert len(tiers(text, SegmentChoice.ADJACENCY, 0, 4)) == 5
    with pytest.raises(PlanError, match="6 tiers from hop0/0 to hop5/0; an address holds 5 of them"):
        tiers(text, SegmentChoice.ADJACENCY, 0, 5)


# ---- jobs


def twin(tmp_path: Path, transport: str, topology: str = TWO_TIERS) -> int:
    (tmp_path / "t.yaml").write_text(textwrap.dedent(topology))
    (tmp_path / "s.yaml").write_text(
        f"workload: {{collective: {{kind: all_to_all, ranks: 5, size: 1MiB}}}}\ntransport: {transport}\n"
    )
    words = ["twin", str(tmp_path / "s.yaml"), "--topology", str(tmp_path / "t.yaml")]
    return main([*words, "--out", str(tmp_path / "out")])


def uplinks(tmp_path: Path) -> list[int]:
    """Packets that the leaves sent to the spines, by link."""
    import pyarrow.parquet as pq

    rows: list[dict[str, Any]] = pq.read_table(tmp_path / "out" / "switches.parquet").to_pylist()
    sent: dict[str, int] = {}
    for row in rows:
        if row["switch"].startswith("leaf") and row["peer"].startswith("spine"):
            name = f"{row['switch']}/{row['port']}"
            sent[name] = sent.get(name, 0) + row["queue_packets"]
    return list(sent.values())


@pytest.mark.parametrize("kind", ["mrc", "uet"])
@pytest.mark.parametrize("choice", SegmentChoice)
def test_a_job_goes_by_segments_and_takes_every_path(
    tmp_path: Path, kind: str, choice: SegmentChoice
) -> None:
    assert twin(tmp_path, f"{{kind: {kind}, {kind}: {{srv6: {choice}}}}}") == 0
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert (summary["state"], summary["reason"]) == ("done", ""), summary["state"]
    sent = uplinks(tmp_path)
    assert len(sent) == 12
    if choice is SegmentChoice.ADJACENCY:
        leaf0, leaf1, leaf2 = sent[:4], sent[4:8], sent[8:]
        for leaf in (leaf0, leaf1, leaf2):
            # Messages of some 50 packets, and answers: a link has one more or less of each.
            assert max(leaf) - min(leaf) <= 0.25 * max(leaf), "each value names its link"


def test_a_switch_that_hashes_says_nothing_of_the_way(tmp_path: Path) -> None:
    """With one hash for all and no entropy in the outer header, `adjacency` is as even as ever."""
    seeded = TWO_TIERS.replace("leaf: {preset: lossy}", "leaf: {preset: lossy, seed: 7, hash: [src_ip]}")
    assert twin(tmp_path, "{kind: mrc, mrc: {srv6: adjacency}}", seeded) == 0
    assert min(uplinks(tmp_path)) > 0


@pytest.mark.parametrize(
    ("transport", "topology", "message"),
    [
        (
            "{kind: mrc, mrc: {srv6: adjacency}}",
            TWO_TIERS.replace('srv6: {block: "fc00:1::/32"}\n', ""),
            "transport.mrc.srv6: the switches of the topology have no segments; write srv6: {block: fc00:1::/32} in it",
        ),
        (
            "{kind: uet, uet: {srv6: node}}",
            TWO_TIERS.replace("leaf: {preset: lossy}", "leaf: {preset: lossy, usid: none}"),
            "switch leaf0: has no micro segments (usid: none)",
        ),
        (
            "{kind: mrc, mrc: {srv6: routing_header}}",
            TWO_TIERS,
            '"routing_header" is not one of the choices; write adjacency or node',
        ),
        (
            "{kind: mrc, mrc: {srv6: adjacency}}",
            PARTS.replace("{port: a/p0,", "{addresses: 10.0.0.1-10.0.0.8, port: a/p0,").replace(
                "{port: b/p0,", "{addresses: 10.0.1.1-10.0.1.8, port: b/p0,"
            ),
            "is an IPv4 address, but SRv6 encapsulates only IPv6; give the ports of the rig IPv6",
        ),
    ],
)
def test_what_cannot_go_by_segments_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], transport: str, topology: str, message: str
) -> None:
    assert twin(tmp_path, transport, topology) in (64, 65)
    assert message in capsys.readouterr().err
