"""Losses by whom counted: every packet that was sent is received, dropped, lost by us, or named as not explained."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest

from etloop.contract.model.device_counts import CountedDevice, SamplePhase
from etloop.results.artifacts import add_joint_figures
from etloop.results.device.losses import LossInput, loss_input, reconcile_losses
from etloop.results.report.losses import loss_words, losses_table
from etloop.results.schema.kpis import KpiBasis
from etloop.results.schema.losses import LOSS_FIGURES, LossSummary, device_drops, dropped_by_device
from etloop.results.text.layout import label_text, table_lines
from etloop.results.text.table import render
from tests.results.device.test_device_results import B_PORT, counted, moved, queue, source_of, with_verdict
from tests.support.runs.records_by_hand import aborted_by_hand, run_by_hand

FLOWS: Final = {
    "tx_packets": 8743,
    "rx_packets": 7669,
    "retransmitted_packets": 3847,
    "duplicate_request": 1029,
    "acks_tx": 979,
    "acks_rx": 871,
    "naks_tx": 144,
    "naks_rx": 134,
    "np_cnp_sent": 0,
    "rp_cnp_handled": 0,
    "rp_cnp_ignored": 0,
}
PORTS: Final = {
    "tx_datagrams": 9962,
    "rx_datagrams": 8770,
    "foreign_datagrams": 0,
    **dict.fromkeys(("receive_overflows", "rx_icrc_encapsulated", "trimmed_datagrams", "injected_drops"), 0),
    **dict.fromkeys(("injected_losses", "injected_duplicates"), 0),
    **dict.fromkeys(("unclaimed_requests", "unclaimed_acks", "unclaimed_naks"), 0),
    **dict.fromkeys(("injected_naks", "injected_rnr_naks", "injected_cnps"), 0),
}
DEVICE: Final = {"queue_dropped_packets": 770, "group_dropped_packets": 422, "port_link_dropped_packets": 0}
LOSSY: Final = LossInput(
    flows=FLOWS, ports=PORTS, damaged_among_received=0, device=DEVICE, streams_sent=0, streams_received=0,
    streams_among_ports=False, stages=None, unknown="", has_others_traffic=False, notes=(),
)  # fmt: skip
"""An all-to-all through two leaves and two spines with 64 KiB of buffer each, in a lab, as it counted it. Its 48 queue pairs
probed once, there and back."""


def found(**changes: Any) -> LossSummary:
    return reconcile_losses(replace(LOSSY, **changes))


def loss_lines(losses: LossSummary) -> list[str]:
    """The lines of text about these losses."""
    return [*label_text("losses", loss_words(losses)), *table_lines(losses_table(losses), 99, "  ")]


def ports(**changes: int) -> dict[str, int]:
    """What the ports counted, with these counters raised."""
    return {name: value + changes.get(name, 0) for name, value in PORTS.items()}


def test_a_lossy_run_is_explained_to_the_packet() -> None:
    """What the device drops is data and its answers; a reader who holds 1192 against 1074 lost sees the 118 between."""
    assert loss_lines(found()) == [
        "losses          1192 of 9962 packets not received: 1074 of data, 118 of their answers; 1192 dropped by the device; 0",
        "                not explained",
        "  packets                               sent  received  not received  counted by",
        "  data                                  8743      7669          1074  our queue pairs",
        "    sent again; received twice          3847      1029                our queue pairs",
        "  acknowledgements                       979       871           108  our queue pairs",
        "  NAKs                                   144       134            10  our queue pairs",
        "  probes, packets without a queue pair    96        96             0  difference",
        "  all                                   9962      8770          1192  our ports",
        "  dropped: no room at a queue                                    770  device",
        "  dropped: no room on arrival                                    422  device",
        "  not explained                                                    0  difference",
    ]


def test_packets_at_a_closed_context_count_as_received() -> None:
    """The port has received it; without its own count, 6 of 979 ACKs and 2 of 8743 packets of data would be missing."""
    flows = FLOWS | {"rx_packets": 8741, "acks_rx": 973, "naks_rx": 143, "retransmitted_packets": 0}
    late = {"unclaimed_requests": 2, "unclaimed_acks": 6, "unclaimed_naks": 1}
    losses = found(flows=flows, ports=PORTS | {"rx_datagrams": 9962} | late, device=dict.fromkeys(DEVICE, 0))
    rows = {row.name: (row.received, row.packets) for row in losses.rows}
    assert rows["data"] == (8743, 0)
    assert rows["acknowledgements"] == (979, 0)
    assert rows["naks"] == (144, 0)
    assert rows["others"] == (96, 0)
    assert (losses.packets("all"), losses.lost_control_packets, losses.unexplained_packets) == (0, 0, 0)


def test_a_late_packet_hides_no_loss() -> None:
    """One packet comes late and another is dropped without being counted: that one is missing, and not explained."""
    late = ports(rx_datagrams=-1, unclaimed_acks=1)
    flows = FLOWS | {"acks_rx": FLOWS["acks_rx"] - 2}
    losses = found(flows=flows, ports=late)
    assert (losses.packets("all"), losses.unexplained_packets) == (1193, 1)
    assert losses.packets("acknowledgements") == 109


def test_a_quiet_run_is_one_line() -> None:
    flows = FLOWS | {"rx_packets": 8743, "acks_rx": 979, "naks_rx": 144, "retransmitted_packets": 0}
    quiet = found(flows=flows, ports=PORTS | {"rx_datagrams": 9962}, device=dict.fromkeys(DEVICE, 0))
    assert loss_lines(quiet) == [
        "losses          none: 9962 packets were sent, every one was received, none was sent again"
    ]


@pytest.mark.parametrize(
    ("sentence", "changes", "unexplained"),
    [
        ("the device drops more than it counts", {"device": DEVICE | {"queue_dropped_packets": 760}}, 10),
        ("the device dropped others' packets, too", {"device": DEVICE | {"queue_dropped_packets": 775}}, -5),
        (
            "dropped for another reason is dropped",
            {"device": DEVICE | {"group_dropped_packets": 400, "port_no_route_packets": 22}},
            0,
        ),
        (
            "what our buffers lost came to our host",
            {
                "ports": ports(receive_overflows=7),
                "device": DEVICE | {"queue_dropped_packets": 763},
            },
            0,
        ),
        (
            "what came trimmed came without what it was sent for",
            {
                "ports": ports(rx_datagrams=3, trimmed_datagrams=3),
                "device": DEVICE | {"queue_dropped_packets": 767},
            },
            0,
        ),
        (
            "a packet socket counts what came damaged, and drops it",
            {
                "ports": ports(rx_datagrams=3, rx_icrc_encapsulated=3),
                "damaged_among_received": 3,
                "device": DEVICE | {"queue_dropped_packets": 767},
            },
            0,
        ),
        (
            "a kernel socket does not",
            {"ports": ports(rx_icrc_encapsulated=3), "device": DEVICE | {"queue_dropped_packets": 767}},
            0,
        ),
        (
            "dropped on receipt, on purpose",
            {"ports": ports(injected_drops=5, rx_datagrams=5), "device": DEVICE | {"queue_dropped_packets": 765}},
            0,
        ),
        ("lost by a rule before the port", {"ports": ports(injected_losses=9)}, 0),
        ("sent twice by a rule, behind the queue pair", {"ports": ports(injected_duplicates=9)}, 0),
        ("others' datagrams are none of ours", {"ports": ports(rx_datagrams=4, foreign_datagrams=4)}, 0),
        ("the soft switch itself", {"ports": ports(tx_datagrams=6), "device": DEVICE | {"port_overload_frames": 6}}, 0),
        ("plain UDP beside the job", {"streams_sent": 100, "streams_received": 98}, 2),
        ("which the ports of a twin count", {"streams_sent": 100, "streams_received": 98, "streams_among_ports": True}, 0),
    ],
)  # fmt: skip
def test_causes_explain_missing_packets(sentence: str, changes: dict[str, Any], unexplained: int) -> None:
    assert found(**changes).unexplained_packets == unexplained, sentence


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        (
            {"device": DEVICE | {"queue_dropped_packets": 760}, "stages": (3, 5)},
            (
                "10 packets were not received, and neither the device nor our hosts count them as lost; 3 between our ports "
                "and the device, 2 inside the device, 5 between the device and our ports"
            ),
        ),
        (
            {"device": DEVICE | {"queue_dropped_packets": 775}, "has_others_traffic": True},
            (
                "the device dropped 5 packets more than were not received; the device's counters include traffic of other users"
            ),
        ),
        (
            {"streams_sent": 9, "streams_received": 7, "notes": ("sockets do not count",)},
            "2 packets were not received, and neither the device nor our hosts count them as lost; sockets do not count",
        ),
        (
            {"ports": ports(rx_datagrams=1, foreign_datagrams=3)},
            (
                "2 packets were not received, and neither the device nor our hosts count them as lost; 3 datagrams came that "
                "are of no queue pair of the run (foreign_datagrams)"
            ),
        ),
    ],
)
def test_unexplained_packets_are_noted(changes: dict[str, Any], note: str) -> None:
    assert found(**changes).notes == (note,)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"device": None}, "nothing counted what the device dropped"),
        ({"device": {"priority_pfc_tx": 3}}, "the device did not count its drops over the whole run"),
        ({"streams_received": None}, "an end of the background of plain UDP did not report what it sent or received"),
        ({"unknown": "no counters came from agents b"}, "no counters came from agents b"),
    ],
)  # fmt: skip
def test_unknown_figure_has_a_reason_instead_of_a_number(changes: dict[str, Any], why: str) -> None:
    losses = found(**changes)
    assert (losses.unexplained_packets, losses.why, losses.notes) == (None, why, ())
    assert why in " ".join(" ".join(loss_lines(losses)).split())


def test_ports_stand_in_only_where_neither_queues_nor_groups_are_counted() -> None:
    ports_only = {"port_rx_dropped_packets": 4, "port_tx_dropped_packets": 6}
    assert dropped_by_device(ports_only) == 10
    assert dropped_by_device(ports_only | {"queue_dropped_packets": 6}) == 6
    assert dropped_by_device({"port_link_dropped_packets": 6}) is None
    assert [row.name for row in device_drops({"port_link_dropped_packets": 6})] == ["dropped_link_down"]


def test_every_row_has_words_and_a_place_in_the_order() -> None:
    order = [figure.name for figure in LOSS_FIGURES]
    names = [row.name for row in found(device=DEVICE | {"port_overload_frames": 0}).rows]
    assert names == sorted(names, key=order.index)
    assert len(set(order)) == len(order)


@pytest.mark.parametrize(
    ("backends", "damaged", "unknown"),
    [
        ({"a/p0": "udp", "b/p0": "udp"}, 0, ""),
        ({"a/p0": "packet", "b/p0": "udp"}, 2, ""),
        (
            {"a/p0": "verbs", "b/p0": "udp"},
            2,
            "network cards send packets of this run, and agents count messages there: read the cards (reader linux)",
        ),
        ({}, 5, ""),
    ],
)
def test_how_a_port_counts_follows_from_what_carries_its_packets(
    backends: dict[str, str], damaged: int, unknown: str
) -> None:
    run = run_by_hand(port_names={"a": ("p0",), "b": ("p0",)})
    table = run.tables["ports"]
    column = table.schema.get_field_index("rx_icrc_encapsulated")
    table = table.set_column(column, table.schema.field(column), [[2, 3]])
    given = loss_input(
        run.summary,
        {**run.frames(), **replace(run, tables={**run.tables, "ports": table}).frames()},
        backends,
    )
    assert (given.damaged_among_received, given.unknown) == (damaged, unknown)  # fmt: skip


def test_an_agent_that_was_lost_leaves_every_figure_open() -> None:
    run = add_joint_figures(run_by_hand(aborted_by_hand()), KpiBasis({}, None, 4096))
    losses = run.summary.losses
    assert losses is not None
    assert losses.packets("all") is None
    assert "losses          packets of every kind: not known; no counters came from agents b" in render(
        run.summary, "here"
    )


def test_a_device_that_others_use_says_so(tmp_path: Any) -> None:
    summary = with_verdict(tmp_path, counted())
    assert summary.losses is not None
    assert summary.losses.has_others_traffic is (
        summary.dut is not None and summary.dut.sources[0].reader != "soft_switch"
    )


def test_drops_for_every_reason_are_one_figure(tmp_path: Any) -> None:
    rows = {
        (queue("s/1", 3), "dropped_packets"): moved(3),
        (queue("s/1", 3), "watchdog_dropped_packets"): moved(187),
        (B_PORT, "fault_dropped_packets"): moved(4),
    }
    summary = with_verdict(
        tmp_path, CountedDevice("soft-switch", 1000, (source_of(rows),)), "dut_dropped_packets == 0"
    )
    assert summary.verdict is not None
    assert summary.verdict.checks[-1].value == "dut_dropped_packets = 194"


def test_a_total_of_which_a_part_is_not_known_is_absent(tmp_path: Any) -> None:
    """One of two queues was read after the run only."""
    rows = {
        (queue("s/0", 3), "dropped_packets"): moved(3),
        (queue("s/1", 3), "dropped_packets"): [(SamplePhase.DRAINED, 7)],
    }
    device = CountedDevice("soft-switch", 1000, (source_of(rows),))
    summary = with_verdict(tmp_path, device, "dut_dropped_packets == 0")
    assert summary.dut is not None
    assert "queue_dropped_packets" not in summary.dut.counters
    assert summary.verdict is not None
    assert summary.verdict.checks[-1].value == "dut_dropped_packets = absent"


def test_forged_packets_are_neither_the_devices_nor_hide_its_losses() -> None:
    """200 forged NAKs were received, and the device dropped as many packets as before."""
    ports = {**LOSSY.ports, "rx_datagrams": LOSSY.ports["rx_datagrams"] + 200}
    flows = {**LOSSY.flows, "naks_rx": LOSSY.flows["naks_rx"] + 200}
    before = reconcile_losses(LOSSY)
    after = reconcile_losses(replace(LOSSY, ports=ports, flows=flows, never_sent=200))
    assert after.packets("never_sent") == -200
    assert (after.unexplained_packets, after.dropped_packets) == (
        before.unexplained_packets,
        before.dropped_packets,
    )
