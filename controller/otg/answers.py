"""Answers to metrics requests: rows of the OTG API from the counts of the last run. Pure.

64-bit integers are JSON strings, as OpenAPI's format uint64 has them. Columns that ETLoop does not measure, such as the
latency of RoCEv2 flows, are absent.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, TypeAlias

from etloop.contract.base.clock import NS_PER_MS
from etloop.controller.otg.counts import RunCounts
from etloop.controller.otg.model import OtgTest, QueuePair
from etloop.controller.otg.requests import MetricsRequest

Row: TypeAlias = dict[str, object]
_GBPS: Final = 1e9
_CONNECTION_COUNTERS: Final = (
    "connect_request_tx",
    "connect_request_rx",
    "connect_reply_tx",
    "connect_reply_rx",
    "ready_tx",
    "ready_rx",
    "disconnect_request_tx",
    "disconnect_request_rx",
    "disconnect_reply_tx",
    "disconnect_reply_rx",
    "reject_tx",
    "unknown_msg_rx",
)
"""Messages of a connection manager, which ETLoop's queue pairs do without."""


def metrics_answer(
    request: MetricsRequest,
    test: OtgTest,
    counts: RunCounts,
    *,
    is_connected: bool,
    now_ns: int,
    capturing: Collection[str] = (),
) -> Row:
    """Return the answer to a metrics request; in `idle_counts` all counters are 0."""
    match request.choice:
        case "port":
            choice, rows = "port_metrics", port_rows(test, counts, now_ns, capturing)
        case "flow":
            choice, rows = "flow_metrics", flow_rows(counts, now_ns) + raw_flow_rows(counts, now_ns)
        case "rocev2_flow":
            choice, rows = "rocev2_flow_per_qp_metrics", queue_pair_rows(counts, now_ns)
        case _:
            choice = f"{request.choice}_per_peer_metrics"
            rows = peer_rows(test, request, is_connected=is_connected)
    if request.choice in ("port", "flow") and request.names:
        rows = [row for row in rows if row["name"] in request.names]
    return {"choice": choice, choice: rows}


def queue_pair_rows(counts: RunCounts, now_ns: int) -> list[Row]:
    """Return a row for each flow: its counters, rates in Gb/s on the link, and completion time in milliseconds."""
    return [_queue_pair_row(counts, index, now_ns) for index in range(len(counts.flows))]


def _queue_pair_row(counts: RunCounts, index: int, now_ns: int) -> Row:
    run, columns = counts.flows[index], counts.columns(index)
    sender, receiver = counts.ends[index]
    tx_bps, rx_bps = counts.rates_bps(index, now_ns)
    src_number, dest_number = counts.queue_pair_numbers[index]
    row: Row = {
        "flow_name": run.flow.name,
        "port_tx": run.queue_pair.port,
        "port_rx": run.rx_port,
        "src_qp": src_number,
        "dest_qp": dest_number,
        "data_tx_rate": tx_bps / _GBPS,
        "data_rx_rate": rx_bps / _GBPS,
        "frame_delta": str(max(columns["data_frames_tx"] - columns["data_frames_rx"], 0)),
        "message_tx": str(sender.messages),
        "message_complete_rx": str(receiver.messages),
        "message_fail": str(int(bool(counts.failure) and sender.messages < counts.messages)),
        "flow_completion_time": str(max(sender.last_ns - sender.first_ns, 0) // NS_PER_MS),
    }
    if ":" not in run.queue_pair.source:
        row |= {"src_ipv4": run.queue_pair.source, "dest_ipv4": run.queue_pair.destination}
    return row | {name: str(value) for name, value in columns.items()}


def flow_rows(counts: RunCounts, now_ns: int) -> list[Row]:
    """Return a row for each stateful flow, as OTG has them for raw flows; loss is that of frames, in percent."""
    rows: list[Row] = []
    for index, run in enumerate(counts.flows):
        columns = counts.columns(index)
        tx_frames, rx_frames = columns["data_frames_tx"], columns["data_frames_rx"]
        tx_rate, rx_rate = counts.frames_per_s(index, now_ns)
        row: Row = {
            "name": run.flow.name,
            "transmit": "started" if counts.is_sending(index) else "stopped",
            "port_tx": run.queue_pair.port,
            "port_rx": run.rx_port,
            "frames_tx": str(tx_frames),
            "frames_rx": str(rx_frames),
            "bytes_tx": str(columns["tx_bytes"]),
            "bytes_rx": str(columns["rx_bytes"]),
            "frames_tx_rate": tx_rate,
            "frames_rx_rate": rx_rate,
            "loss": max(tx_frames - rx_frames, 0) * 100 / tx_frames if tx_frames and counts.is_over else 0.0,
        }
        rows.append(row)
    return rows


def raw_flow_rows(counts: RunCounts, now_ns: int) -> list[Row]:
    """Return a row for each raw flow. Bytes count the FCS; loss is that of frames, in percent."""
    rows: list[Row] = []
    for flow in counts.raw.flows:
        tx, rx = counts.raw.totals_of_flow(flow, now_ns)
        is_sending = counts.raw.is_sending(flow)
        row: Row = {
            "name": flow.name,
            "transmit": "started" if is_sending else "stopped",
            "port_tx": flow.tx_port,
            "port_rx": ",".join(flow.rx_ports),
            "frames_tx": str(tx.frames),
            "frames_rx": str(rx.frames),
            "bytes_tx": str(tx.frame_bytes),
            "bytes_rx": str(rx.frame_bytes),
            "frames_tx_rate": tx.frames_per_s,
            "frames_rx_rate": rx.frames_per_s,
            "loss": max(tx.frames - rx.frames, 0) * 100 / tx.frames if tx.frames and not is_sending else 0.0,
        }
        if flow.has_latency and (latency := counts.raw.latency_ns(flow)) is not None:
            least_ns, most_ns, mean_ns = latency
            row["latency"] = {
                "minimum_ns": float(least_ns),
                "maximum_ns": float(most_ns),
                "average_ns": float(mean_ns),
            }
        if (times := counts.raw.times_ns(flow)) is not None:
            first_ns, last_ns = times
            row["timestamps"] = {"first_timestamp_ns": float(first_ns), "last_timestamp_ns": float(last_ns)}
        rows.append(row)
    return rows


def port_rows(test: OtgTest, counts: RunCounts, now_ns: int, capturing: Collection[str] = ()) -> list[Row]:
    """Return a row for each port. Its link is up once a run has used it; before, ETLoop does not know."""
    names = ("frames_tx_rate", "frames_rx_rate", "bytes_tx_rate", "bytes_rx_rate")
    used_ports = {
        port for run in counts.flows for port in (run.queue_pair.port, run.rx_port) if counts.messages
    } | counts.raw.used_ports()
    rows: list[Row] = []
    for port, label in test.ports.items():
        raw_tx, raw_rx = counts.raw.totals_of_port(port, now_ns)
        raw_rates = (raw_tx.frames_per_s, raw_rx.frames_per_s, raw_tx.bytes_per_s, raw_rx.bytes_per_s)
        raw_totals = (raw_tx.frames, raw_rx.frames, raw_tx.frame_bytes, raw_rx.frame_bytes)
        rates = [sum(pair) for pair in zip(counts.port_rates(port, now_ns), raw_rates, strict=True)]
        totals = [sum(pair) for pair in zip(counts.port_totals(port, label), raw_totals, strict=True)]
        row: Row = {
            "name": port,
            "location": label,
            "capture": "started" if port in capturing else "stopped",
            "transmit": "started" if rates[0] else "stopped",
        }
        if port in used_ports:
            row["link"] = "up"
        row |= {name.removesuffix("_rate"): str(total) for name, total in zip(names, totals, strict=True)}
        rows.append(row | dict(zip(names, rates, strict=True)))
    return rows


def peer_rows(test: OtgTest, request: MetricsRequest, *, is_connected: bool) -> list[Row]:
    """Return a row for each peer of the family; it is named by its own name or that of its device."""
    wants_ipv6 = request.choice == "rocev2_ipv6"
    peers: dict[str, list[QueuePair]] = {}
    for queue_pair in test.queue_pairs.values():
        is_named = not request.names or queue_pair.peer in request.names or queue_pair.device in request.names
        if (":" in queue_pair.source) == wants_ipv6 and is_named:
            peers.setdefault(queue_pair.peer, []).append(queue_pair)
    no_messages: Row = dict.fromkeys(_CONNECTION_COUNTERS, "0")
    return [
        no_messages
        | {
            "name": name,
            "qp_configured": str(len(queue_pairs)),
            "qp_up": str(len(queue_pairs) if is_connected else 0),
            "qp_down": str(0 if is_connected else len(queue_pairs)),
        }
        for name, queue_pairs in peers.items()
    ]
