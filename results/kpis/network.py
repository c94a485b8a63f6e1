"""Key figures of counters: loss, retransmission, order, congestion signals, balance over ports and links, the emulator's
own part.

Decides these formulas (docs/metrics.md derives them). A counter that no agent sent is absent, never 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.model.counters import AgentObject, CounterUse, counters_of
from etloop.results.device.losses import device_counts
from etloop.results.schema.losses import dropped_by_device
from etloop.results.schema.needless import needless_packets
from etloop.results.verdict.evaluation import Frame, aggregate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.results.kpis.input import KpiInput
    from etloop.results.kpis.job import Value

NO_COUNTERS = "no agent sent its counters"
_DISCARDS: Final = [
    counter.name for owner in AgentObject for counter in counters_of(owner, CounterUse.DISCARD)
]


def transport_figures(inputs: KpiInput, connections: Frame) -> Iterator[tuple[str, Value]]:
    """Yield the figures of packets between the ends: sent, lost, retransmitted, marked, discarded."""
    counts = inputs.summary.transport
    silent = not inputs.frames["flows"].rows
    received = float(inputs.column("flows", "rx_packets").sum())
    sent = float(counts["tx_packets"])
    seconds = (inputs.summary.job.jct_ns or 0) / 1e9

    def of(value: float, whole: float, without: str) -> Value:
        return NO_COUNTERS if silent else value / whole if whole > 0 else without

    yield "tx_packets", NO_COUNTERS if silent else sent
    lost = _lost_packets(inputs, connections)
    yield "lost_packets", lost
    yield (
        "lost_share",
        lost if isinstance(lost, str) else of(lost, sent, "no packet was sent through the device"),
    )
    yield from _losses_of_every_kind(inputs)
    yield "retransmitted_packets", NO_COUNTERS if silent else float(counts["retransmitted_packets"])
    yield (
        "retransmitted_share",
        of(counts["retransmitted_packets"], sent, "no packet was sent through the device"),
    )
    yield "needless_share", of(needless_packets(counts), sent, "no packet was sent through the device")
    yield "retransmissions_per_s", of(counts["retransmitted_packets"], seconds, "nothing completed")
    yield "timeouts", NO_COUNTERS if silent else float(counts["local_ack_timeout_err"])
    yield "trimmed_packets", NO_COUNTERS if silent else float(counts["trimmed_received"])
    yield "discarded_packets", NO_COUNTERS if silent else float(sum(counts[name] for name in _DISCARDS))
    no_packets = "no packet was received"
    yield "out_of_order_share", of(counts["out_of_sequence"], received, no_packets)
    yield "ecn_marked_share", of(counts["np_ecn_marked_roce_packets"], received, no_packets)
    yield "cnps", NO_COUNTERS if silent else float(counts["rp_cnp_handled"] + counts["rp_cnp_ignored"])


def _losses_of_every_kind(inputs: KpiInput) -> Iterator[tuple[str, Value]]:
    """Yield the figures of the reconciled losses."""
    losses = inputs.summary.losses
    if losses is None:
        yield from dict.fromkeys(
            ("lost_control_packets", "not_received_packets", "unexplained_packets"), NO_COUNTERS
        ).items()
        return
    control = losses.lost_control_packets
    yield "lost_control_packets", losses.why if control is None else float(control)
    missing = losses.packets("all")
    yield "not_received_packets", (losses.why or NO_COUNTERS) if missing is None else float(missing)
    unexplained = losses.unexplained_packets
    yield "unexplained_packets", (losses.why or NO_COUNTERS) if unexplained is None else float(unexplained)


def _lost_packets(inputs: KpiInput, connections: Frame) -> Value:
    """Return the lost packets of connections that both ends counted, without those lost at our own ends or on purpose."""
    if not connections.rows:
        return "no connection was counted at both ends"
    counts = inputs.summary.transport
    missing = float(connections.columns["missing_packets"].astype(np.float64).sum())
    own_losses = (
        counts["receive_overflows"]
        + counts["injected_drops"]
        + counts["injected_losses"]
        # Damaged packets that no fault rule corrupted were lost in the network.
        + min(counts["rx_icrc_encapsulated"], counts["injected_bad_icrcs"])
        - counts["injected_duplicates"]
    )
    # Overflows also count datagrams that are not requests, so a run without losses could come out below 0.
    return max(missing - own_losses, 0.0)


def port_figures(inputs: KpiInput) -> Iterator[tuple[str, Value]]:
    """Yield pauses and balance over the agents' ports, and how busy the engine was."""
    if not inputs.frames["ports"].rows:
        names = "pause_frames paused_ns paused_share ports_jain ports_max_to_mean own_lost_packets busy_share"
        yield from dict.fromkeys(names.split(), NO_COUNTERS).items()
        return
    paused_ns = inputs.column("ports", "paused_ns")
    yield "pause_frames", float(inputs.column("ports", "rx_pause_frames").sum())
    yield "paused_ns", float(paused_ns.sum())
    whole_ns = inputs.summary.job.jct_ns
    yield "paused_share", float(paused_ns.max()) / whole_ns if whole_ns else "nothing completed"
    yield from balance("ports", inputs.column("ports", "tx_bytes"))
    yield "own_lost_packets", float(inputs.column("ports", "receive_overflows").sum())
    turns, idle = inputs.column("ports", "loop_turns"), inputs.column("ports", "idle_turns")
    has_turns = turns > 0
    yield (
        "busy_share",
        float((1 - idle[has_turns] / turns[has_turns]).max()) if has_turns.any() else "no loop turned",
    )


def balance(
    prefix: str, sent: np.ndarray[tuple[int, ...], np.dtype[np.float64]]
) -> Iterator[tuple[str, Value]]:
    """Yield Jain's index (Jain, Chiu, Hawe 1984) and the greatest load divided by the mean; both are 1 for equal loads."""
    absent = "fewer than two" if len(sent) < 2 else "no bytes were sent" if not sent.any() else ""
    yield f"{prefix}_jain", absent or aggregate("jain", sent)
    yield f"{prefix}_max_to_mean", absent or aggregate("max_to_mean", sent)


def between_switches(switches: Frame) -> NDArray[np.bool_]:
    """Return which rows of switches.parquet are of ports connected to another switch of the table (bool)."""
    columns = switches.columns
    names = tuple(f"{name}/" for name in {str(name) for name in columns["switch"]})
    is_switch_peer = {peer: str(peer).startswith(names) for peer in set(columns["peer"].tolist())}
    return np.array([is_switch_peer[peer] for peer in columns["peer"].tolist()], np.bool_)


def uplink_figures(inputs: KpiInput) -> Iterator[tuple[str, Value]]:
    """Yield the balance over the links between switches, by bytes sent through them."""
    switches = inputs.frames.get("switches")
    if switches is None:
        absent = "the run has no counters of switches"
        yield "uplinks_jain", absent
        yield "uplinks_max_to_mean", absent
        return
    columns = switches.columns
    loads: dict[tuple[str, str], float] = {}
    sent = columns["queue_bytes"].astype(np.float64)
    for row in np.flatnonzero(between_switches(switches)).tolist():
        link = str(columns["switch"][row]), str(columns["port"][row])
        loads[link] = loads.get(link, 0.0) + float(sent[row])
    carried_bytes = np.array(list(loads.values()), np.float64)
    if np.isnan(carried_bytes).any():
        absent = "a link between switches has no count of bytes over the whole run"
        yield from (("uplinks_jain", absent), ("uplinks_max_to_mean", absent))
        return
    yield from balance("uplinks", carried_bytes)


_OF_DEVICE: Final = {
    "dut_ecn_marked_packets": (("queue_ecn_marked_packets",), ("port_ecn_marked_packets",)),
    "dut_pfc_tx_frames": (("priority_pfc_tx",),),
    "dut_pfc_rx_frames": (("priority_pfc_rx",),),
    "dut_paused_ns": (("queue_paused_ns",),),
}
"""Alternative sets of keys of `dut.counters` to sum; the first set with an existing key is used."""


def device_figures(inputs: KpiInput) -> Iterator[tuple[str, Value]]:
    """Yield the device's own counts over the whole run, and their difference from the agents' counts."""
    device = inputs.summary.dut
    counters = device_counts(inputs.summary, inputs.frames)
    dropped = dropped_by_device(counters)
    absent = "not counted over the whole run"
    if counters is None:
        absent = "the rig names no source of the device's counters"
    yield "dut_dropped_packets", absent if dropped is None else float(dropped)
    for name, ways in _OF_DEVICE.items():
        counted_keys = next(
            (
                existing_keys
                for keys in ways
                if (existing_keys := [key for key in keys if key in (counters or {})])
            ),
            [],
        )
        yield name, float(sum((counters or {})[key] for key in counted_keys)) if counted_keys else absent
    shares = (
        [row.difference_share for row in device.reconciliation if row.difference_share is not None]
        if device
        else []
    )
    yield (
        "dut_difference_share",
        max(shares) if shares else "no cable was counted at both ends over the whole run",
    )


def slip_figures(inputs: KpiInput) -> Iterator[tuple[str, Value]]:
    """Yield the emulator's own lateness, and the share of an iteration that it could explain at most."""
    slip = inputs.summary.slip
    for name in ("p50", "p99", "max"):
        yield f"slip_{name}_ns", "no op completed" if slip is None else float(getattr(slip, f"{name}_ns"))
    jct = {
        summary.iteration: summary.jct_ns
        for summary in inputs.summary.job.per_iteration
        if summary.complete and summary.jct_ns > 0
    }
    late = inputs.column("ops", "slip_ns").clip(min=0)
    iteration, rank = inputs.column("ops", "iteration"), inputs.column("ops", "rank")
    ranks = int(rank.max(initial=0)) + 1
    key = (iteration * ranks + rank).astype(np.int64)
    total = np.bincount(key, late) if key.size else np.empty(0)
    shares = [
        float(total[number * ranks : (number + 1) * ranks].max(initial=0)) / jct_ns
        for number, jct_ns in jct.items()
    ]
    yield "slip_share", float(np.median(shares)) if shares else "no iteration is complete"
