"""Counters of a run so far, by flow and port: op records and progress while it runs, counters of queue pairs at its end. Pure.

While a run goes on, the counters of a flow are those of its completed messages. At the end they are those of its queue pair.
Rates are on the link: frames with preamble and gap. Times of records are of the agents' clocks; `now_ns` is the controller's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from etloop.contract.base.clock import NS_PER_S
from etloop.contract.model.run import RunEnd, RunOutcome
from etloop.controller.otg.model import RawFlow
from etloop.controller.otg.plan import FlowRun
from etloop.controller.otg.raw_counts import RawCounts

_RATE_MESSAGES: Final = 64
"""Messages that a rate is averaged over."""
_STALE_NS: Final = 2 * NS_PER_S
_LINK_BYTES: Final = 24 + 14 + 8 + 12 + 4
"""Link bytes of a frame without IP header and payload: preamble, gap and FCS, Ethernet, UDP, BTH, ICRC."""
_RETH_BYTES: Final = 16
_IMMEDIATE_BYTES: Final = 4
_SENDER_COUNTERS: Final = {
    "tx_packets": "data_frames_tx",
    "retransmitted_packets": "data_frames_retransmitted",
    "tx_payload_bytes": "tx_bytes",
    "acks_rx": "ack_rx",
    "naks_rx": "nak_rx",
    "rp_cnp_handled": "cnp_rx",
    "rp_cnp_ignored": "cnp_rx",
}
"""Counter of the sending end -> column of OTG's per-QP metrics."""
_RECEIVER_COUNTERS: Final = {
    "rx_packets": "data_frames_rx",
    "rx_payload_bytes": "rx_bytes",
    "out_of_sequence": "frame_sequence_error",
    "np_ecn_marked_roce_packets": "ecn_ce_rx",
    "np_cnp_sent": "cnp_tx",
    "acks_tx": "ack_tx",
    "naks_tx": "nak_tx",
}
COLUMNS: Final = tuple(dict.fromkeys((*_SENDER_COUNTERS.values(), *_RECEIVER_COUNTERS.values())))


def message_frames(message_bytes: int, path_mtu_bytes: int) -> int:
    """Return the frames of a message."""
    return max(1, -(-message_bytes // path_mtu_bytes))


def message_link_bytes(message_bytes: int, path_mtu_bytes: int, *, is_ipv6: bool) -> int:
    """Return the link bytes of a WRITE with immediate, preamble and gap included."""
    frames = message_frames(message_bytes, path_mtu_bytes)
    headers_bytes = frames * (_LINK_BYTES + (40 if is_ipv6 else 20)) + _RETH_BYTES + _IMMEDIATE_BYTES
    return message_bytes + headers_bytes


@dataclass(slots=True)
class End:
    """Completed messages of one end of a flow."""

    messages: int = 0
    first_ns: int = 0
    """When the first message was issued."""
    last_ns: int = 0
    """When the last one was completed."""
    seen_ns: int = 0
    """When the last record arrived, by the controller's clock."""
    recent: deque[int] = field(default_factory=lambda: deque(maxlen=_RATE_MESSAGES))
    """Completion times."""

    def take(self, issued_ns: int, completed_ns: Sequence[int], now_ns: int) -> None:
        """Count completed messages, with the earliest time at which one was issued."""
        self.first_ns = issued_ns if not self.messages else min(self.first_ns, issued_ns)
        self.messages += len(completed_ns)
        self.last_ns = max(self.last_ns, *completed_ns)
        self.seen_ns = now_ns
        self.recent.extend(completed_ns)

    def messages_per_s(self, now_ns: int) -> float:
        """Return the rate over the recent messages; 0 once no message completed for 2 s and three times their interval."""
        if not self.messages:
            return 0.0
        if len(self.recent) > 1:
            span_ns, count = max(self.recent) - min(self.recent), len(self.recent) - 1
        else:
            span_ns, count = self.last_ns - self.first_ns, 1
        span_ns = max(span_ns, 1)
        is_stale = now_ns - self.seen_ns > max(_STALE_NS, 3 * span_ns // count)
        return 0.0 if is_stale else count * NS_PER_S / span_ns


class RunCounts:
    """Counts of one run, until the next one begins."""

    def __init__(
        self,
        flows: tuple[FlowRun, ...],
        messages: int,
        path_mtu_bytes: int,
        raw: RawCounts | None = None,
    ) -> None:
        self.flows = flows
        self.raw = raw or RawCounts()
        self.messages = messages
        self.path_mtu_bytes = path_mtu_bytes
        self.ends = tuple((End(), End()) for _ in flows)
        """Sender and receiver of each flow."""
        self.counters: list[dict[str, int]] = []
        """Counters of each flow's queue pair; empty until the run is over."""
        self.queue_pair_numbers: list[tuple[int, int]] = [(0, 0)] * len(flows)
        self._ports: dict[str, tuple[int, int, int, int]] = {}
        """Frames and bytes, sent and received, by "agent/port"; empty until the run is over."""
        self.failure = ""
        """Why the run was aborted; empty if it was not."""
        self.is_over = False

    def take(self, records: NDArray[np.void], now_ns: int) -> None:
        """Count op records (`OP_RECORD`) of one agent."""
        for rank in np.unique(records["rank"]).tolist():
            if not 0 <= rank < 2 * len(self.flows):
                continue
            rows = records[records["rank"] == rank]
            end = self.ends[rank // 2][rank % 2]
            end.take(int(rows["issued_ns"].min()), rows["completed_ns"].tolist(), now_ns)

    def finish(
        self,
        outcome: RunOutcome,
        connection_rows: Mapping[str, NDArray[np.int32]],
        src_rank: NDArray[np.int32],
        port_names: Mapping[str, Sequence[str]],
    ) -> None:
        """Take the counters of the end of a run.

        Row i of an agent's connections is row `connection_rows[agent][i]` of the plan, whose sending ranks are `src_rank`.
        """
        self.is_over = True
        self.failure = outcome.reason if outcome.state is RunEnd.ABORTED else ""
        self.raw.take({agent.agent: agent.frames for agent in outcome.agents}, 0)
        self.raw.is_running = False
        counters = [dict.fromkeys(COLUMNS, 0) for _ in self.flows]
        for agent in outcome.agents:
            for record in agent.flows:
                flow = int(src_rank[connection_rows[agent.agent][record["connection"]]]) // 2
                names = _SENDER_COUNTERS if record["sends_data"] else _RECEIVER_COUNTERS
                for name, column in names.items():
                    counters[flow][column] += int(record[name])
                if record["sends_data"]:
                    self.queue_pair_numbers[flow] = int(record["local_qpn"]), int(record["remote_qpn"])
            names_and_totals = zip(port_names.get(agent.agent, ()), agent.ports, strict=False)
            self._ports |= {
                f"{agent.agent}/{name}": _port_totals(totals) for name, totals in names_and_totals
            }
        self.counters = counters

    def is_sending(self, index: int) -> bool:
        """Return whether a flow still has messages to send."""
        return not self.is_over and self.ends[index][0].messages < self.messages

    def link_bytes(self, index: int) -> int:
        """Return the link bytes of a message of a flow."""
        run = self.flows[index]
        is_ipv6 = ":" in run.queue_pair.source
        return message_link_bytes(run.flow.message_bytes, self.path_mtu_bytes, is_ipv6=is_ipv6)

    def columns(self, index: int) -> dict[str, int]:
        """Return the counters of a flow: of its completed messages, or at the end of its queue pair."""
        if self.counters:
            return dict(self.counters[index])
        sender, receiver = self.ends[index]
        message_bytes = self.flows[index].flow.message_bytes
        frames = message_frames(message_bytes, self.path_mtu_bytes)
        return dict.fromkeys(COLUMNS, 0) | {
            "data_frames_tx": sender.messages * frames,
            "data_frames_rx": receiver.messages * frames,
            "tx_bytes": sender.messages * message_bytes,
            "rx_bytes": receiver.messages * message_bytes,
        }

    def rates_bps(self, index: int, now_ns: int) -> tuple[float, float]:
        """Return the link rates at which a flow is sent and received; 0 once the run is over."""
        if self.is_over:
            return 0.0, 0.0
        bits = 8 * self.link_bytes(index)
        sender, receiver = self.ends[index]
        return sender.messages_per_s(now_ns) * bits, receiver.messages_per_s(now_ns) * bits

    def frames_per_s(self, index: int, now_ns: int) -> tuple[float, float]:
        """Return the data frames that a flow sends and receives in a second."""
        frames = message_frames(self.flows[index].flow.message_bytes, self.path_mtu_bytes)
        frame_bits = 8 * self.link_bytes(index) / frames
        tx_bps, rx_bps = self.rates_bps(index, now_ns)
        return tx_bps / frame_bits, rx_bps / frame_bits

    def port_rates(self, port: str, now_ns: int) -> tuple[float, float, float, float]:
        """Return the data frames and link bytes that an OTG port sends and receives in a second."""
        totals = [0.0] * 4
        for index, run in enumerate(self.flows):
            rates = self.frames_per_s(index, now_ns), self.rates_bps(index, now_ns)
            for side, own_port in enumerate((run.queue_pair.port, run.rx_port)):
                if own_port == port:
                    totals[side] += rates[0][side]
                    totals[2 + side] += rates[1][side] / 8
        return totals[0], totals[1], totals[2], totals[3]

    def port_totals(self, port: str, label: str) -> tuple[int, int, int, int]:
        """Return frames and bytes of an OTG port, sent and received: of completed messages, or at the end of all packets."""
        if self.is_over:
            return self._ports.get(label, (0, 0, 0, 0))
        totals = [0] * 4
        for index, run in enumerate(self.flows):
            columns = self.columns(index)
            for side, (own_port, way) in enumerate(((run.queue_pair.port, "tx"), (run.rx_port, "rx"))):
                if own_port == port:
                    totals[side] += columns[f"data_frames_{way}"]
                    totals[2 + side] += columns[f"{way}_bytes"]
        return totals[0], totals[1], totals[2], totals[3]


def _port_totals(totals: np.void) -> tuple[int, int, int, int]:
    """Return frames and bytes, sent and received, of a record of a port; bytes are UDP payload."""
    names = ("tx_datagrams", "rx_datagrams", "tx_bytes", "rx_bytes")
    frames_tx, frames_rx, bytes_tx, bytes_rx = (int(totals[name]) for name in names)
    return frames_tx, frames_rx, bytes_tx, bytes_rx


def idle_counts(flows: tuple[FlowRun, ...], raw_flows: Sequence[RawFlow] = ()) -> RunCounts:
    """Return the counts of a test before its first run."""
    counts = RunCounts(flows, 0, 1, RawCounts(raw_flows))
    counts.is_over = True
    return counts
