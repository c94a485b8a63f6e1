"""The shape of kpis.json: the key figures of a run by which a device is evaluated, each with its unit or why it is absent.

This is the only list of them: conditions of a verdict may use no other names, and a test compares docs/metrics.md with
it. Formulas are in `results/kpis/job.py`, `network.py` and `rates.py`.
"""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import Final

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.empty_network import LoneNetwork
from etloop.results.schema.network_needs import FlowWays, Needs

KPI_SCHEMA: Final = "etloop-kpis/1"
KPI_FILE: Final = "kpis.json"


class Nature(StrEnum):
    """Subject of a figure, which decides which weaknesses of the emulator can affect it."""

    TIME = "time"
    """Lateness and losses of the emulator make it worse."""
    TRANSPORT = "transport"
    """Losses of the emulator make it worse."""
    DEVICE = "device"
    """From the device's own counters."""
    OWN = "own"
    """About the emulator itself."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One key figure: its name in conditions, its unit, and its description."""

    name: str
    unit: str
    nature: Nature
    words: str


_T, _N, _D, _O = Nature.TIME, Nature.TRANSPORT, Nature.DEVICE, Nature.OWN

FIGURES: Final = (
    Figure("jct_min_ns", "ns", _T, "iteration, shortest"),
    Figure("jct_avg_ns", "ns", _T, "iteration, mean (JCT)"),
    Figure("jct_p50_ns", "ns", _T, "iteration, median"),
    Figure("jct_p99_ns", "ns", _T, "iteration, 99th percentile"),
    Figure("jct_max_ns", "ns", _T, "iteration, longest"),
    Figure("jct_cv", "ratio", _T, "variation of iterations (standard deviation / mean)"),
    Figure("compute_ns", "ns", _O, "compute of the busiest rank in an iteration"),
    Figure("network_ns", "ns", _O, "least time of the busiest port in an iteration"),
    Figure("roofline_ns", "ns", _O, "roofline: compute, then network, nothing at once"),
    Figure("jct_ratio", "ratio", _T, "JCT / roofline"),
    Figure("jct_per_ideal", "ratio", _T, "JCT / ideal network"),
    Figure("jct_per_twin", "ratio", _T, "JCT / twin"),
    Figure("comm_overhead_ns", "ns", _T, "JCT - compute"),
    Figure("overlap_fraction", "ratio", _T, "share of the network time hidden behind compute"),
    Figure("interference_max", "ratio", _T, "several jobs: greatest mean of time together / time alone"),
    Figure("goodput_bps", "bit/s", _T, "payload through the device per time"),
    Figure("busiest_port_share", "ratio", _T, "network_ns / JCT: load of the busiest port"),
    Figure("share_of_ideal", "ratio", _T, "collectives: least time of their bytes through the device / time"),
    Figure("start_skew_p50_ns", "ns", _T, "collectives: last member's issue - first's, median"),
    Figure("start_skew_p99_ns", "ns", _T, "the same, 99th percentile"),
    Figure("start_skew_max_ns", "ns", _T, "the same, greatest"),
    Figure("transfer_p50_ns", "ns", _T, "a rank's op from its first packet to completion, median"),
    Figure("transfer_p99_ns", "ns", _T, "the same, 99th percentile"),
    Figure("transfer_p999_ns", "ns", _T, "the same, 99.9th percentile"),
    Figure("transfer_max_ns", "ns", _T, "the same, longest"),
    Figure("one_way_min_ns", "ns", _T, "messages of one packet, first packet to arrival, least"),
    Figure("one_way_p50_ns", "ns", _T, "the same, median"),
    Figure("one_way_p99_ns", "ns", _T, "the same, 99th percentile"),
    Figure("one_way_error_ns", "ns", _O, "bound on the error of the clocks in it"),
    Figure("fct_p50_ns", "ns", _T, "flow completion, due to arrived, median"),
    Figure("fct_p99_ns", "ns", _T, "the same, 99th percentile"),
    Figure("fct_slowdown_p50", "ratio", _T, "flow completion / that on an empty network, median"),
    Figure("fct_slowdown_p95", "ratio", _T, "the same, 95th percentile"),
    Figure("fct_slowdown_p99", "ratio", _T, "the same, 99th percentile"),
    Figure("rtt_min_ns", "ns", _T, "round trip of packets, least"),
    Figure("rtt_p50_ns", "ns", _T, "round trip of packets, median"),
    Figure("rtt_p99_ns", "ns", _T, "round trip of packets, 99th percentile"),
    Figure("convergence_p50_ns", "ns", _T, "until a queue pair's rate has settled, median"),
    Figure("convergence_max_ns", "ns", _T, "the same, longest"),
    Figure("rates_jain", "ratio", _T, "Jain's index over settled rates of queue pairs"),
    Figure("ports_jain", "ratio", _N, "Jain's index over bytes sent by ports"),
    Figure("ports_max_to_mean", "ratio", _N, "busiest port's bytes / mean"),
    Figure("uplinks_jain", "ratio", _D, "Jain's index over bytes on links between switches"),
    Figure("uplinks_max_to_mean", "ratio", _D, "busiest link's bytes / mean"),
    Figure("tx_packets", "packets", _N, "data packets sent"),
    Figure("lost_packets", "packets", _N, "data packets sent, never received, and not lost by us"),
    Figure("lost_share", "ratio", _N, "lost_packets / tx_packets"),
    Figure("lost_control_packets", "packets", _N, "acknowledgements, NAKs and CNPs sent and never received"),
    Figure(
        "not_received_packets", "packets", _N, "packets of every kind that our ports sent and none received"
    ),
    Figure(
        "unexplained_packets", "packets", _N, "not received, and counted as lost by neither device nor us"
    ),
    Figure("retransmitted_packets", "packets", _T, "data packets sent again"),
    Figure("retransmitted_share", "ratio", _T, "retransmitted_packets / tx_packets"),
    Figure("retransmissions_per_s", "1/s", _T, "retransmitted_packets per second of the job"),
    Figure("timeouts", "events", _T, "retransmission timeouts"),
    Figure("trimmed_packets", "packets", _T, "arrived cut down by a switch, and known for it"),
    Figure(
        "discarded_packets",
        "packets",
        _T,
        "arrived and were discarded by an end, never acted on, for every reason",
    ),
    Figure("out_of_order_share", "ratio", _N, "packets received ahead of a missing one / received"),
    Figure("ecn_marked_share", "ratio", _N, "packets received with Congestion Experienced / received"),
    Figure("cnps", "packets", _N, "congestion notifications received"),
    Figure("pause_frames", "frames", _N, "PFC pause frames that ports received"),
    Figure("paused_ns", "ns", _N, "time that ports' priorities were paused, added up"),
    Figure("paused_share", "ratio", _N, "the most paused port's time / time of the job"),
    Figure(
        "dut_dropped_packets",
        "packets",
        _D,
        "dropped by the device, as it counts: of every kind, for every reason",
    ),
    Figure("dut_ecn_marked_packets", "packets", _D, "marked by the device, as it counts"),
    Figure("dut_pfc_tx_frames", "frames", _D, "PFC pause frames that the device sent"),
    Figure("dut_pfc_rx_frames", "frames", _D, "PFC pause frames that the device received"),
    Figure("dut_paused_ns", "ns", _D, "time that queues of the device were paused, added up"),
    Figure(
        "dut_difference_share", "ratio", _N, "greatest difference of device's and agents' counts of a cable"
    ),
    Figure("slip_p50_ns", "ns", _O, "our lateness of an op, median"),
    Figure("slip_p99_ns", "ns", _O, "our lateness of an op, 99th percentile"),
    Figure("slip_max_ns", "ns", _O, "our lateness of an op, greatest"),
    Figure(
        "slip_share", "ratio", _O, "lateness of the latest rank's ops of an iteration added up / JCT, median"
    ),
    Figure("own_lost_packets", "packets", _O, "lost by our own receive buffers"),
    Figure("needless_share", "ratio", _O, "packets sent again that the receiver already had / sent"),
    Figure("busy_share", "ratio", _O, "turns of the engine's loop that had work, busiest port"),
)
BY_NAME: Final = {figure.name: figure for figure in FIGURES}


@dataclass(frozen=True, slots=True)
class Kpi:
    """One figure of one run."""

    name: str
    unit: str
    value: float | None
    absent: str
    """Why there is no value; "" if there is one."""


@dataclass(frozen=True, slots=True)
class KindKpis:
    """Times of complete collectives of one kind, algorithm and group size, as percentiles."""

    kind: str
    algorithm: str
    ranks: int
    count: int
    size_bytes: int
    fabric_bytes: int
    time_avg_ns: float
    time_p50_ns: float
    time_p90_ns: float
    time_p95_ns: float
    time_p99_ns: float
    time_p999_ns: float
    time_max_ns: float
    joined_avg_ns: float
    skew_p99_ns: float
    busbw_bytes_per_s: float | None
    busbw_p50_bytes_per_s: float | None
    least_ns: float | None
    """Mean of the time that the busiest port needs at line rate for the bytes that cross the device."""
    share_of_ideal: float | None


@dataclass(frozen=True, slots=True)
class Curve:
    """A distribution: the share `shares[i]` of the values is at most `time_ns[i]`."""

    name: str
    count: int
    shares: tuple[float, ...]
    time_ns: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class KpiBasis:
    """Inputs of the figures in addition to the run's own tables; stored so that the verdict of a run can be
    decided again from its directory alone."""

    port_bps: dict[str, int]
    """Link speed by `AGENT/PORT`, as the rig states it."""
    compute_ns: tuple[int, ...] | None
    """Per rank: all its compute in one iteration, scaled."""
    mtu_bytes: int
    """Payload of a packet."""
    port_backends: dict[str, str] = field(default_factory=dict)
    """Packet backend of each port by `AGENT/PORT`: udp, packet, xdp or verbs. Empty in files of earlier versions."""
    lone_network: LoneNetwork | None = None
    """The empty network as a single transfer sees it; None for runs that are not of sends and receives alone, and in
    files of earlier versions."""
    needs: Needs = Needs()
    """Needs of the transport, for the diagnosis."""
    ways: FlowWays | None = None
    """Ports of the device that each connection crosses; None if they are not known."""


@dataclass(frozen=True, slots=True)
class KpiSet:
    """The content of kpis.json."""

    schema: str
    run_id: str
    figures: tuple[Kpi, ...]
    kinds: tuple[KindKpis, ...]
    curves: tuple[Curve, ...]
    basis: KpiBasis

    def value(self, name: str) -> float | None:
        """Return the value of the figure of that name; None if it does not exist."""
        return next((kpi.value for kpi in self.figures if kpi.name == name), None)
