"""One axis for all: rates within their links, colours that mean the same port everywhere, thresholds of the described switch."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from etloop.results.artifacts import kpi_input
from etloop.results.html.blocks import Plot
from etloop.results.html.distribution import traffic_matrix
from etloop.results.html.lanes import COLOURS, lanes_of, port_colours, sampled_lanes
from etloop.results.html.network import network_picture, speed_words
from etloop.results.html.timeline import timeline
from etloop.results.kpis.input import KpiInput
from etloop.results.report.queues import natural
from etloop.results.schema.device_facts import NO_FACTS, DeviceFacts
from etloop.results.schema.kpis import KpiBasis
from etloop.results.tables.frames import frame_by_hand
from etloop.results.verdict.evaluation import Frame
from etloop.traffic.topology.topology_file import parse_topology
from tests.support.runs.records_by_hand import run_by_hand

LINK_BPS = 10**9
FACTS = DeviceFacts(topology=parse_topology(b"single: {ports: [a/p0, b/p0], rate: 1Gbps}", "topology.yaml"))


def queues(peers: tuple[str, ...] = ("a/p0", "b/p0"), jump_bytes: int = 400) -> Frame:
    """A lane a peer, sampled at every microsecond of a run of 140: the second half sends and is deep."""
    times = np.tile(np.arange(0, 140_000, 1000), len(peers))
    lane = np.repeat(np.arange(len(peers)), 140)
    late = times >= 70_000
    columns = {
        "time_ns": times,
        "switch": np.full(len(times), "switch", object),
        "port": lane.astype(str).astype(object),
        "peer": np.array(peers, object)[lane],
        "cos": np.full(len(times), 3),
        "queued_bytes": late * (lane + 1) * 40_000,
        "group_bytes": late * 1000,
        "tx_bytes": np.where(late, (times - 69_000) // 1000 * jump_bytes, 0),
        "marked_packets": late * 5,
    }
    zeros = (
        "headroom_bytes",
        "tx_packets",
        "dropped_packets",
        "trimmed_packets",
        "pfc_rx",
        "pfc_tx",
        "paused_ns",
    )
    columns |= {name: np.zeros(len(times), np.int64) for name in zeros}
    return frame_by_hand("queues", columns, dict.fromkeys(columns, ""))


def given(frame: Frame | None = None) -> KpiInput:
    """The run by hand, with queues."""
    found = kpi_input(run_by_hand(), KpiBasis({"a/p0": LINK_BPS, "b/p0": LINK_BPS}, None, 4096))
    return found if frame is None else replace(found, frames={**found.frames, "queues": frame})


def plot_of(found: KpiInput, facts: DeviceFacts = FACTS) -> Plot:
    """The timeline of a run that has one."""
    lanes = sampled_lanes(found)
    plot = timeline(found, facts, lanes, port_colours(found, lanes))
    assert plot is not None
    return plot


def test_panels_share_the_axis_and_iterations_are_grounds() -> None:
    plot = plot_of(given(queues()))
    assert [panel.title.partition(" (")[0] for panel in plot.narrow.panels] == [
        "sent to the device",
        "received from it",
        "in the fullest queues",
        "ingress buffer by port and priority group",
        "ECN marks of the device",
    ]
    assert plot.wide.axis == "time of the run (us)"
    assert all([one.name for one in panel.spans] == ["iteration 1"] for panel in plot.wide.panels)
    assert [entry.name for entry in plot.legend] == ["a/p0", "b/p0"]


def test_no_rate_is_drawn_above_its_link_and_the_page_says_so() -> None:
    plot = plot_of(given(queues(jump_bytes=100_000)))
    received = plot.wide.panels[1]
    (link,) = received.limits
    assert link.label == "link 1 Gbit/s"
    heights = [float(one) for line in received.lines for one in re.findall(r"V([\d.]+)", line.path)]
    assert heights
    assert min(heights) >= link.place
    assert "the records make more than the link carries; the link's rate is drawn there" in plot.note


def test_one_colour_is_one_port_in_every_panel() -> None:
    plot = plot_of(given(queues()))
    colours = {entry.name: entry.colour for entry in plot.legend}
    for panel in plot.wide.panels:
        for line in (*panel.lines, *panel.bars):
            assert line.colour == colours[line.name.partition(",")[0]], panel.title


def test_thresholds_are_those_of_the_topology() -> None:
    depth = plot_of(given(queues())).wide.panels[2]
    assert any(one.label.startswith("Kmin ") for one in depth.limits), depth.limits
    assert plot_of(given(queues()), NO_FACTS).wide.panels[2].limits == ()


def test_a_rate_of_0_is_no_limit_and_not_drawn_and_every_port_comes_before_a_second_pair() -> None:
    pair = np.repeat(np.arange(20), 3)
    columns = {
        "time_ns": np.tile([0, 50_000, 100_000], 20),
        "src_rank": (pair % 10 == 0) * 3,
        "dst_rank": np.full(60, 1),
        "local_qpn": pair,
        "rate_bps": np.tile([0, 10**9, 5 * 10**8], 20),
        "window_bytes": np.zeros(60, np.int64),
        "acked_bytes": 100 - pair,
    }
    found = given()
    found = replace(
        found, frames={**found.frames, "cc": frame_by_hand("cc", columns, dict.fromkeys(columns, ""))}
    )
    panel = plot_of(found).wide.panels[-1]
    assert panel.title == "rate that congestion control allows (Gbit/s)", "no window has no panel"
    assert [line.name for line in panel.lines[:4]] == [
        "rank 3 to 1, queue pair 0",
        "rank 0 to 1, queue pair 1",
        "rank 0 to 1, queue pair 2",
        "rank 3 to 1, queue pair 10",
    ]
    heights = {
        float(one) for line in panel.lines for one in re.findall(r"(?:V|^M[\d.]+ )([\d.]+)", line.path)
    }
    assert heights == {panel.top, panel.top + panel.height / 2}


def test_a_run_that_did_not_begin_has_no_timeline() -> None:
    found = given()
    job = replace(found.summary.job, start_ns=None)
    assert timeline(replace(found, summary=replace(found.summary, job=job)), FACTS, (), {}) is None


def test_more_ports_than_colours_leave_the_quiet_ones_grey() -> None:
    found = given(queues(tuple(f"h{number}/p0" for number in range(40))))
    lanes = sampled_lanes(found)
    colours = port_colours(found, lanes)
    assert len(colours) == COLOURS == len(set(colours.values()))
    assert {"h39/p0", "h38/p0"} <= colours.keys(), "the fullest queues"
    assert list(colours) == sorted(colours, key=natural)


def test_lanes_are_named_by_what_is_at_their_other_end() -> None:
    first, second = lanes_of(queues(("a/p0", "")))
    assert (first.port, first.place, first.cos, len(first.rows)) == ("a/p0", "switch/0", 3, 140)
    assert second.port == "switch/1", "nobody knows what is there"


@pytest.mark.parametrize(("bps", "words"), [(4e11, "400 Gbit/s"), (2e8, "200 Mbit/s"), (999, "999 bit/s")])
def test_speeds_in_words(bps: float, words: str) -> None:
    assert speed_words(bps) == words


def test_the_network_has_a_box_for_each_agent_and_a_wire_for_each_port() -> None:
    picture = network_picture(given(), FACTS, {"a/p0": 0})
    assert [box.lines[0] for box in picture.drawing.boxes] == ["switch", "a", "b"]
    assert [(wire.name, wire.colour) for wire in picture.drawing.wires] == [("a/p0", 0), ("b/p0", None)]
    assert picture.title == "2 agents with 2 ports on 1 switch; links of 1 Gbit/s."


def test_spines_stand_above_leaves() -> None:
    text = b"leaf_spine: {leaves: [{ports: [a/p0]}, {ports: [b/p0]}], spines: 2, rate: 1Gbps}"
    picture = network_picture(given(), DeviceFacts(topology=parse_topology(text, "t.yaml")), {})
    heights = {box.lines[0]: box.y for box in picture.drawing.boxes}
    assert heights["spine0"] == heights["spine1"] < heights["leaf0"] == heights["leaf1"] < heights["a"]
    joined = {wire.name for wire in picture.drawing.wires if " to " in wire.name}
    assert joined == {f"leaf{leaf} to spine{spine}: 1 link" for leaf in (0, 1) for spine in (0, 1)}


def test_switches_too_many_to_draw_are_one_box_and_are_counted() -> None:
    text = b"leaf_spine: {leaves: [{ports: [a/p0]}, {ports: [b/p0]}], spines: 22, rate: 1Gbps}"
    picture = network_picture(given(), DeviceFacts(topology=parse_topology(text, "t.yaml")), {})
    assert [box.lines[0] for box in picture.drawing.boxes] == ["24 switches", "a", "b"]
    assert picture.title == "2 agents with 2 ports on 24 switches; links of 1 Gbit/s."


def test_a_matrix_has_a_field_for_each_pair_that_sends_and_groups_of_ports_where_ranks_are_many() -> None:
    small = traffic_matrix(given())
    assert small is not None
    assert [one.text for one in small.drawing.rows] == ["0", "1", "2", "3"]
    assert max(one.share for one in small.drawing.squares) == 1
    assert small.drawing.names[0].text == "rows send, columns receive: ranks"
    found = given()
    ports = tuple(f"p{number}" for number in range(40))
    many = replace(found.plan, rank_agent=("a",) * 40, rank_port=ports, rank_host=(0,) * 40)
    grouped = traffic_matrix(replace(found, plan=many))
    assert grouped is not None
    assert [one.text for one in grouped.drawing.rows][:3] == ["a/p0", "a/p2", "a/p4"], (
        "in their natural order"
    )
    assert grouped.drawing.names[0].text == "rows send, columns receive: groups of 2 ports from the one named"
