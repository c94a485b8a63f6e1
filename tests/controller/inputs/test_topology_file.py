"""Topology files: what they may say, their defaults, and every mistake told at once at its line."""

from __future__ import annotations

import textwrap
from dataclasses import replace

import pytest

from etloop.contract.base.errors import ConfigError
from etloop.contract.model.switch_presets import preset
from etloop.contract.model.topology import (
    FIVE_TUPLE,
    FOREVER_NS,
    HashField,
    LoadBalancing,
    Marking,
    Routing,
    SwitchEnd,
    SwitchPort,
    Topology,
    Trimming,
    Watchdog,
    WatchdogAction,
)
from etloop.traffic.topology.routes import routes
from etloop.traffic.topology.topology_file import parse_topology

GBPS = 1_000_000_000


def parsed(text: str) -> Topology:
    return parse_topology(textwrap.dedent(text).encode(), "t.yaml")


def mistakes(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parsed(text)
    return [str(problem) for problem in caught.value.problems]


SINGLE = """
    single:
      ports: [a/p0, b/p0]
      rate: 100Gbps
"""
LEAF_SPINE = """
    leaf_spine:
      rate: 100Gbps
      uplink_rate: 400Gbps
      spines: 2
      uplinks: 2
      leaves:
        - {ports: [a/p0, b/p0]}
        - {ports: [c/p0]}
"""


def test_a_single_switch_has_its_ports_in_order_and_the_lossless_preset() -> None:
    topology = parsed(SINGLE)
    assert [(a.rig_port, a.end) for a in topology.attachments] == [
        ("a/p0", SwitchEnd(0, 0)),
        ("b/p0", SwitchEnd(0, 1)),
    ]
    ports = (SwitchPort("0", 100 * GBPS, 100), SwitchPort("1", 100 * GBPS, 100))
    assert topology.switches == (preset("switch", ports, lossless=True),)
    assert routes(topology) == (((0,), (1,)),)


def test_a_leaf_spine_joins_every_leaf_with_every_spine() -> None:
    topology = parsed(LEAF_SPINE)
    assert [switch.name for switch in topology.switches] == ["leaf0", "leaf1", "spine0", "spine1"]
    assert [len(switch.ports) for switch in topology.switches] == [2 + 4, 1 + 4, 4, 4]
    table = routes(topology)
    assert table[0] == ((0,), (1,), (2, 3, 4, 5)), "four ways of equal length from leaf0 to c/p0"
    assert table[2] == ((0, 1), (0, 1), (2, 3))
    assert topology.port_of(SwitchEnd(0, 2)).rate_bps == 400 * GBPS
    assert len({switch.seed for switch in topology.switches}) == 4, "switches that hash alike would polarise"


def test_a_fat_tree_joins_pods_by_cores_above_spines_of_one_number() -> None:
    topology = parsed("""
        fat_tree:
          rate: 100Gbps
          uplink_rate: 200Gbps
          core_rate: 400Gbps
          leaves: [{ports: [a/p0]}, {ports: [b/p0]}, {ports: [c/p0]}, {ports: [d/p0]}]
          pods: 2
          spines: 2
          cores: 3
    """)
    names = [switch.name for switch in topology.switches]
    assert names[:8] == [f"leaf{leaf}" for leaf in range(4)] + [
        "spine0.0",
        "spine0.1",
        "spine1.0",
        "spine1.1",
    ]
    assert names[8:] == [f"core{core}" for core in range(6)]
    linked = {(names[link.a.switch], names[link.b.switch]) for link in topology.links}
    assert {b for a, b in linked if a == "leaf2"} == {"spine1.0", "spine1.1"}
    assert {a for a, b in linked if b == "core3"} == {"spine0.1", "spine1.1"}
    assert len(linked) == len(topology.links) == 4 * 2 + 2 * 2 * 3
    rates = {(names[link.a.switch][:4], topology.port_of(link.a).rate_bps // GBPS) for link in topology.links}
    assert rates == {("leaf", 200), ("spin", 400)}
    assert len(routes(topology)[0][2]) == 2, "both spines of its pod lead to another pod"
    assert len(routes(topology)[4][2]) == 3


def test_rails_without_spines_are_networks_of_their_own() -> None:
    topology = parsed("""
        rail:
          rate: 100Gbps
          rails:
            - ports: [a/p0, b/p0]
            - ports: [a/p1, b/p1]
    """)
    assert [attachment.rail for attachment in topology.attachments] == [0, 0, 1, 1]
    assert routes(topology)[0] == ((0,), (1,), (), ())


def test_ports_may_have_groups_queues_and_pauses_of_their_own() -> None:
    topology = parsed("""
        single:
          rate: 100Gbps
          ports: [a/p0, b/p0, c/p0]
          switch:
            groups: {3: {headroom: 100KiB}}
            port_settings:
              - {ports: [b/p0], groups: {3: {headroom: 60KiB}}, queues: {3: {ecn: {kmin: 1MiB, kmax: 2MiB}}}}
              - {ports: ["2"], pfc: false, queues: {3: {ecn: {enabled: false}}}}
    """)
    switch = topology.switches[0]
    assert [port.rules for port in switch.ports] == [0, 1, 2]
    usual, of_b, of_c = (switch.rules_at(port) for port in range(3))
    assert [rules.groups[3].headroom_bytes for rules in (usual, of_b, of_c)] == [102400, 61440, 102400]
    assert of_b.groups[0] == usual.groups[0]
    usual_marking = usual.queues[3].marking
    assert usual_marking is not None
    assert of_b.queues[3].marking == replace(usual_marking, kmin_bytes=1 << 20, kmax_bytes=2 << 20)
    assert (of_b.pfc, of_c.pfc, of_c.queues[3].marking) == (True, False, None)
    reserved = sum(group.reserved_bytes for group in usual.groups)
    assert switch.set_aside_bytes == 3 * reserved + 102400 + 61440 + 102400
    assert switch.rules_of("1") == of_b
    assert switch.rules_of("none") == usual


PLANES = [
    ("single: {planes: 2, rate: 1Gbps, ports: [a/p0, b/p0]}", ["switch"]),
    (
        "leaf_spine: {planes: 2, rate: 1Gbps, leaves: [{ports: [a/p0]}, {ports: [b/p0]}]}",
        ["leaf0", "leaf1", "spine0"],
    ),
    (
        "fat_tree: {planes: 2, rate: 1Gbps, leaves: [{ports: [a/p0]}, {ports: [b/p0]}]}",
        ["leaf0", "leaf1", "spine0.0", "spine1.0", "core0"],
    ),
]


@pytest.mark.parametrize(("text", "names"), PLANES, ids=[text.partition(":")[0] for text, _ in PLANES])
def test_planes_are_copies_of_a_network_with_the_next_port_of_each_card(text: str, names: list[str]) -> None:
    topology = parsed(text)
    own = [f"plane{plane}.{name}" for plane in range(2) for name in names]
    assert [switch.name for switch in topology.switches] == own
    assert [(a.rig_port, a.rail) for a in topology.attachments] == [
        ("a/p0", 0),
        ("b/p0", 0),
        ("a/p1", 1),
        ("b/p1", 1),
    ]
    plane_of = [topology.switches[a.end.switch].name.partition(".")[0] for a in topology.attachments]
    assert plane_of == ["plane0", "plane0", "plane1", "plane1"]
    assert routes(topology)[0][2:] == ((), ()), "no way leads to another plane"


def test_rails_in_planes_number_each_network_of_a_host() -> None:
    topology = parsed("""
        rail:
          planes: 2
          spines: 1
          rate: 100Gbps
          rails: [{ports: [a/p0, b/p0]}, {ports: [a/p2, b/p2]}]
    """)
    rails = {a.rig_port: a.rail for a in topology.attachments if a.rig_port.startswith("a/")}
    assert rails == {"a/p0": 0, "a/p1": 1, "a/p2": 2, "a/p3": 3}


@pytest.mark.parametrize("links", ["", "links: []"])
def test_single_switch_needs_no_links(links: str) -> None:
    topology = parsed(f"""
        switches: [{{name: s0, preset: lossless}}]
        {links}
        attach: [{{port: a/p0, to: s0, rate: 100Gbps}}, {{port: b/p0, to: s0, rate: 25Gbps}}]
    """)
    assert [port.rate_bps for port in topology.switches[0].ports] == [100 * GBPS, 25 * GBPS]


def test_a_dumbbell_has_one_trunk_that_every_flow_from_side_to_side_takes() -> None:
    topology = parsed("""
        dumbbell: {left: [a/p0, b/p0], right: [c/p0], rate: 100Gbps, trunk_rate: 25Gbps, trunk_delay: 5us}
    """)
    assert [switch.name for switch in topology.switches] == ["left", "right"]
    assert [len(switch.ports) for switch in topology.switches] == [2 + 1, 1 + 1]
    (trunk,) = topology.links
    assert topology.port_of(trunk.a) == SwitchPort("2", 25 * GBPS, 5_000)
    assert routes(topology) == (((0,), (1,), (2,)), ((1,), (1,), (0,)))


def test_a_parking_lot_is_a_row_of_switches() -> None:
    topology = parsed("""
        parking_lot:
          hops: [{ports: [a/p0]}, {ports: [b/p0]}, {ports: [c/p0]}]
          rate: 100Gbps
          trunks: 2
          switch: {preset: lossy}
    """)
    assert [switch.name for switch in topology.switches] == ["hop0", "hop1", "hop2"]
    assert [len(switch.ports) for switch in topology.switches] == [1 + 2, 1 + 4, 1 + 2]
    assert [(link.a.switch, link.b.switch) for link in topology.links] == [(0, 1), (0, 1), (1, 2), (1, 2)]
    assert routes(topology)[0] == ((0,), (1, 2), (1, 2)), (
        "both links of the first trunk lead on to the last hop"
    )


def test_seeds_of_single_draws_are_kept_by_their_kind() -> None:
    topology = parsed("""
        seed: 5
        seeds: {hash: 100, faults: 7}
        leaf_spine: {spines: 1, rate: 100Gbps, leaves: [{ports: [a/p0]}]}
    """)
    seeds = [(switch.hash_seed, switch.mark_seed, switch.fault_seed) for switch in topology.switches]
    assert seeds == [(100, 5, 7), (101, 6, 8)]


def test_parts_one_by_one_with_everything_that_a_switch_may_say() -> None:
    topology = parsed("""
        seed: 5
        switches:
          - name: s0
            preset: lossy
            buffer: 32MiB
            latency: 1us
            seed: 9
            balancing: flowlet
            flowlet_gap: 20us
            hash: [src_ip, dst_ip, dest_qp]
            weights: rate
            port_weights: {up: 6}
            pfc: {enabled: true, pause_quanta: 1000, watchdog: {detect: 200ms, restore: 100ms, action: forward}}
            maps: {dscp_to_class: {10: 4}, class_to_queue: {4: 5}}
            groups: {4: {lossless: true, reserved: 8KiB, alpha: 1/8, headroom: 64KiB, resume_offset: 4KiB}}
            queues:
              5: {weight: 7, alpha: 4, trim: false, ecn: {kmin: 100KiB, kmax: 200KiB, pmax: 5%, at: enqueue}}
              3: {ecn: {enabled: false}}
            trimming: {size: 128B, dscp: 48, last_hop_dscp: 16, queue: 5, exempt: [0, 46]}
            faults: [{in: a/p0, out: up, every: 100, from: 1ms, until: 2ms}, {chance: 0.1%, corrupt: true}]
          - name: s1
        links:
          - {from: s0/up, to: s1, rate: 400Gbps, delay: 1us}
        attach:
          - {port: a/p0, to: s0, rate: 100Gbps, addresses: 10.0.0.1-10.0.0.2, honours_pause: false}
          - {port: b/p0, to: s1/x, rate: 200Gbps}
        outages: [{port: s0/up, from: 5ms, until: 6ms}, {port: b/p0, from: 1s}]
    """)
    first, second = topology.switches
    assert (first.pfc, first.pause_quanta, first.seed, second.seed) == (True, 1000, 9, 6)
    assert first.watchdog == Watchdog(200_000_000, 100_000_000, WatchdogAction.FORWARD)
    assert first.balancing is LoadBalancing.FLOWLET
    assert first.hash_fields == (HashField.SRC_IP, HashField.DST_IP, HashField.DEST_QP)
    assert first.hash_bits == 0b100011
    assert [port.weight for port in first.ports] == [6, 1]
    assert first.trimming == Trimming(128, 48, 16, 5, (0, 46))
    assert [queue.trims for queue in first.queues] == [True] * 5 + [False] + [True] * 2
    assert first.queues[5].marking == Marking(102_400, 204_800, 50_000, at_dequeue=False)
    assert first.queues[3].marking is None
    assert first.groups[4].alpha_log2 == -3
    assert first.dscp_to_class[10] == 4
    assert first.buffer_bytes == 32 << 20
    assert (first.faults[0].in_port, first.faults[0].out_port) == (1, 0)
    assert topology.attachments[0].addresses == ("10.0.0.1", "10.0.0.2")
    assert not topology.attachments[0].honours_pause
    assert [outage.end for outage in topology.outages] == [SwitchEnd(0, 0), SwitchEnd(1, 1)]
    assert topology.port_name(SwitchEnd(0, 0)) == "s0/up"


@pytest.mark.parametrize(
    ("rates", "weights", "why"),
    [
        ("100Gbps 100Gbps", [1, 1], "alike"),
        ("100Gbps 400Gbps", [1, 4], "in proportion"),
        ("40Gbps 100Gbps", [102, 256], "not multiples of each other: to a part of 256"),
        ("1Mbps 3200Gbps", [1, 256], "no port is left out, however slow"),
    ],
)
def test_weights_follow_the_rates(rates: str, weights: list[int], why: str) -> None:
    slow, fast = rates.split()
    topology = parsed(f"""
        switches: [{{name: s0, weights: rate}}, {{name: s1}}]
        links: [{{from: s0, to: s1, rate: {slow}}}, {{from: s0, to: s1, rate: {fast}}}]
        attach: [{{port: a/p0, to: s1, rate: 1Gbps}}, {{port: b/p0, to: s1, rate: 1Gbps}}]
    """)
    assert [port.weight for port in topology.switches[0].ports] == weights, why
    assert {port.weight for port in topology.switches[1].ports} == {1}


def test_without_a_word_ways_are_alike_and_the_hash_is_that_of_the_five_tuple() -> None:
    (switch,) = parsed(SINGLE).switches
    assert (switch.hash_fields, switch.hash_bits) == (FIVE_TUPLE, 0b11111)
    assert (switch.entropy_shift, switch.entropy_bits) == (0, 8)
    assert {port.weight for port in switch.ports} == {1}


MISTAKES = (
    (
        "settings of ports",
        """
        single:
          rate: 1Gbps
          ports: [a/p0, b/p0]
          switch:
            port_settings:
              - {ports: [], pfc: false}
              - {ports: [a/p0]}
              - {ports: [a/p0, "7"], queues: {3: {ecn: {kmin: 2MiB, kmax: 1MiB}}}}
              - {ports: ["0"], groups: {0: {headroom: 1KiB}}}
        """,
        [
            "port_settings[0].ports: names no port",
            "port_settings[1].ports: have no settings of their own",
            'port_settings[2].ports[1]: the switch has no port "7"',
            "port_settings[2].queues.3.ecn.kmin: kmin 2MiB is above kmax 1MiB",
            "port_settings[2].ports: port 0 is in port_settings[1] too",
            "port_settings[3].ports: port 0 is in port_settings[2] too",
            "port_settings[3].groups.0.headroom: only a lossless group pauses its senders",
        ],
    ),
    (
        "planes without ports for them",
        "single: {planes: 2, rate: 1Gbps, ports: [a/x, b/x]}",
        ["single.planes: port a/x has no number at its end"],
    ),
    (
        "a port that two planes have",
        "single: {planes: 2, rate: 1Gbps, ports: [a/p0, a/p1]}",
        ["a/p1 is attached twice"],
    ),
    (
        "too many planes",
        "leaf_spine: {planes: 64, spines: 100, rate: 1Gbps, leaves: [{ports: [a/p0, b/p0]}]}",
        ["leaf_spine.planes: 64 planes of 101 switches"],
    ),
    (
        "too many rails in planes",
        "rail: {planes: 64, rate: 1Gbps, rails: [{ports: [a/p0, b/p0]}, {ports: [a/p100, b/p100]}]}",
        ["rail.rails: 2 rails in 64 planes; write at most 1"],
    ),
    (
        "ways that cannot be chosen so",
        SINGLE
        + """      switch:
        balancing: spray
        hash: [src_ip, qp]
        entropy: {shift: 10, bits: 8}
        port_weights: {7: 2, a/p0: 0}
        trimming: {size: 128B, dscp: 48, exempt: [48], queue: 8}
        """,
        [
            "no field is hashed; remove it, or write balancing: ecmp, flowlet or adaptive_flowlet",
            '"qp" is not one of the choices',
            "bits 10 to 17 of a UDP port of 16 bits",
            "no bits select a path; remove it, or write balancing: structured",
            'the switch has no port "7"; write one of',
            "0 is out of range",
            "DSCP 48 is that of trimmed packets, which are not trimmed again",
            "8 is out of range",
        ],
    ),
    (
        "a network without ports: what follows from it is not told beside it",
        "    single: {ports: [], rate: 1Gbps}",
        ["t.yaml:1: single.ports: is missing or empty"],
    ),
    (
        "a switch with nothing on it",
        """
    switches: [{name: s0}, {name: s1}]
    attach: [{port: a/p0, to: s0, rate: 1Gbps}]
        """,
        ["t.yaml: switch s1 has no ports; give it 1 to 1024 links, or remove it"],
    ),
    (
        "keys of spines that there are not",
        "    rail: {rails: [{ports: [a/p0]}], rate: 1Gbps, spine: {buffer: 1MB}}",
        ["t.yaml:1: rail.spine: there are no spines; write spines: 1 or more, or remove the key"],
    ),
    (
        "outages that overlap, at one end of a link and at its other end, and one that follows",
        """
    switches: [{name: s0}, {name: s1}]
    links: [{from: s0/up, to: s1/down, rate: 1Gbps}]
    attach: [{port: a/p0, to: s0, rate: 1Gbps}, {port: b/p0, to: s1, rate: 1Gbps}]
    outages:
      - {port: s1/down, from: 2ms, until: 3ms}
      - {port: s0/up, from: 1ms, until: 5ms}
      - {port: s0/up, from: 4ms, until: 6ms}
      - {port: s0/up, from: 6ms}
      - {port: a/p0, from: 1ms, until: 5ms}
        """,
        [
            "t.yaml:6: outages[0].from: the link is down since 1ms by another outage; write one outage instead of both",
            "t.yaml:8: outages[2].from: the link is down since 1ms by another outage",
        ],
    ),
    (
        "routing that is sooner than detection, and times that are none",
        SINGLE + "    routing: {detection: 10ms, convergence: 5ms}\n",
        [
            (
                "t.yaml:5: routing.convergence: 5ms is less than the detection of 10ms; switches cannot route around a link "
                "before its ends have noticed; write as much or more, or never"
            ),
        ],
    ),
    (
        "routing in words that are no times",
        SINGLE + "    routing: {detection: never, convergence: ever, recovery: 1ms}\n",
        [
            't.yaml:5: routing.detection: "never" is not a duration',
            't.yaml:5: routing.convergence: "ever" is not a duration; write a duration with its unit, such as "10us", or never',
            "t.yaml:5: routing.recovery",
        ],
    ),
    (
        "nothing is described",
        "seed: 1",
        [
            "t.yaml: describes no network; write exactly one of single, leaf_spine, fat_tree, rail, dumbbell, parking_lot"
        ],
    ),
    (
        "a fat tree of pods of different sizes",
        "    fat_tree: {leaves: [{ports: [a/p0]}, {ports: [b/p0]}, {ports: [c/p0]}], pods: 2, rate: 100Gbps}",
        ["t.yaml:1: fat_tree.pods: 3 leaves in 2 pods; give all pods as many leaves"],
    ),
    (
        "a fat tree with more switches than there may be",
        "    fat_tree: {leaves: [{ports: [a/p0]}, {ports: [b/p0]}], spines: 1000, cores: 10, rate: 100Gbps}",
        [
            "t.yaml:1: fat_tree.spines: 12002 switches, and 11 links of a spine; keep them within 4096 switches"
        ],
    ),
    (
        "a dumbbell with an empty side",
        "    dumbbell: {left: [a/p0], rate: 100Gbps}",
        ['t.yaml:1: dumbbell.right: is missing or empty; list the rig\'s ports on it, as "agent/port"'],
    ),
    (
        "a parking lot of one switch, with a key that it has not",
        "    parking_lot: {hops: [{ports: [a/p0], name: x}], rate: 100Gbps}",
        [
            "t.yaml:1: parking_lot.hops: 1 switches; list two or more, each with its ports",
            "t.yaml:1: parking_lot.hops[0].name: unknown key",
        ],
    ),
    (
        "several mistakes are told together, each at its line",
        SINGLE + "      switch: {latency: 5, alpha: 1, buffer: 4KiB, faults: [{in: 7}]}\n",
        [
            't.yaml:5: single.switch.latency: "5" has no unit; write a duration with its unit, such as "10us"',
            "t.yaml:5: single.switch.alpha: unknown key",
            "t.yaml:5: single.switch.buffer: 4KiB is less than",
            't.yaml:5: single.switch.faults[0].in: the switch has no port "7"; write one of 0, a/p0, 1, b/p0',
            "t.yaml:5: single.switch.faults[0].chance: hits no packet",
        ],
    ),
    (
        "a section that describes four switches is complained about once",
        LEAF_SPINE + "      leaf: {colour: red}\n",
        ["t.yaml:10: leaf_spine.leaf.colour: unknown key"],
    ),
    (
        "two ports of the same name, and one that is attached twice",
        "    single: {ports: [a/p0, a/p0, a], rate: 100Gbps}",
        ['t.yaml:1: single.ports[2]: "a" is not a port of a rig', "t.yaml:1: single: a/p0 is attached twice"],
    ),
    (
        "switches that nothing joins",
        """
    switches: [{name: s0}, {name: s1}]
    attach: [{port: a/p0, to: s0, rate: 1Gbps}, {port: b/p0, to: s1, rate: 1Gbps}]
        """,
        ["t.yaml: there is no way from a/p0 to b/p0; add links that join their switches"],
    ),
    (
        "links to nowhere, to themselves, and on a port that is taken",
        """
    switches: [{name: s0}, {name: s0}]
    links: [{from: s0/1, to: s2, rate: 1Gbps}, {from: s0/1, to: s0/2, rate: 1Gbps}]
    attach: [{port: a/p0, to: s0, rate: 1Gbps}]
        """,
        [
            't.yaml:2: switches[1].name: two switches are called "s0"',
            't.yaml:3: links[0].to: there is no switch "s2"; write one of s0',
            "t.yaml:3: links[1].from: s0/1 has a link already",
        ],
    ),
    (
        "pauses that are watched and timed where there are none",
        SINGLE + "      switch: {preset: lossy, pfc: {watchdog: {detect: 1ms}, pause_quanta: 9}}\n",
        [
            "single.switch.pfc.watchdog: a switch without pauses has no use for it",
            "single.switch.pfc.pause_quanta: a switch without pauses has no use for it",
        ],
    ),
    (
        "what contradicts itself in a switch",
        SINGLE
        + """      switch:
        preset: lossy
        pfc: {enabled: true}
        flowlet_gap: 1us
        groups: {0: {headroom: 1KiB, alpha: 3}}
        queues: {6: {weight: 2}, 3: {ecn: {kmin: 2MiB, kmax: 1MiB}}}
    outages: [{port: c/p0, from: 2ms, until: 1ms}]
        """,
        [
            "no group is lossless, so no sender is ever paused",
            "only flowlets have a gap",
            "only a lossless group pauses its senders",
            '"3" is not a power of two from 1/256 to 256',
            "a strict queue has no weight",
            "kmin 2MiB is above kmax 1MiB",
            'there is no port "c/p0"',
            "it ends before it begins",
        ],
    ),
)


@pytest.mark.parametrize(
    ("text", "expected"), [row[1:] for row in MISTAKES], ids=[row[0] for row in MISTAKES]
)
def test_mistakes_are_told_together(text: str, expected: list[str]) -> None:
    reported = mistakes(text)
    for one in expected:
        assert any(one in problem for problem in reported), reported
    assert len(reported) == len(expected), reported


@pytest.mark.parametrize(
    ("text", "expected", "sentence"),
    [
        ("", Routing(1_000_000, 100_000_000), "what holds where nothing is said"),
        ("routing: {detection: 50us, convergence: 20ms}", Routing(50_000, 20_000_000), "both"),
        ("routing: {convergence: never}", Routing(1_000_000, FOREVER_NS), "nobody hears of others' links"),
        ("routing: {detection: 0s, convergence: 0s}", Routing(0, 0), "all at once"),
        ("routing: {detection: 2s}", Routing(2_000_000_000, 2_000_000_000), "not before anybody has noticed"),
    ],
)
def test_how_soon_switches_act_on_links(text: str, expected: Routing, sentence: str) -> None:
    assert parsed(f"{SINGLE}    {text}\n").routing == expected, sentence


def test_a_topology_beyond_all_bounds_is_refused_at_once() -> None:
    (problem, *_) = mistakes(
        LEAF_SPINE.replace("spines: 2", "spines: 4000").replace("uplinks: 2", "uplinks: 1024")
    )
    assert "4000 spines with 1024 links to each" in problem
