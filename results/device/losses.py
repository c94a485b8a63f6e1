"""Reconciles the agents' and the device's counts of lost packets: sent, received, dropped by whom, and unexplained. Pure.

Every packet that a port of an agent sends is received by a port of an agent, dropped by the device, or lost by our own
hosts. Decides which counters are used for each figure, so that both sides count the same packets: the ports count every
packet from the first probe on (the twin: from the start of the job on), and so does the device; queue pairs count by kind
of packet. Rules of the scenario drop and duplicate packets between queue pair and port, at either end: these count as
sent, and as lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.assignment import PortBackend
from etloop.contract.model.run import RunEnd
from etloop.results.schema.device import Direction
from etloop.results.schema.losses import (
    NEVER_SENT,
    OWN_FIGURES,
    SENT_FIGURES,
    SOFT_SWITCH,
    UNEXPLAINED,
    LossFigure,
    LossRow,
    LossSummary,
    device_drops,
    dropped_by_device,
)
from etloop.results.schema.summary import VIRTUAL_TIME, Summary

if TYPE_CHECKING:
    from etloop.results.schema.device import ReconciledPort
    from etloop.results.verdict.evaluation import Frame

SOFT_SWITCH_READER: Final = "soft_switch"
_UDP: Final = PortBackend.UDP.name.lower()
_VERBS: Final = PortBackend.VERBS.name.lower()
_KINDS: Final = {
    "data": (("tx_packets",), ("rx_packets",)),
    "data_again": (("retransmitted_packets",), ("duplicate_request",)),
    "acknowledgements": (("acks_tx",), ("acks_rx",)),
    "naks": (("naks_tx",), ("naks_rx",)),
    "cnps": (("np_cnp_sent",), ("rp_cnp_handled", "rp_cnp_ignored")),
}
"""Columns of flows.parquet that count packets sent and received of a kind."""
_UNCLAIMED: Final = {
    "data": "unclaimed_requests",
    "acknowledgements": "unclaimed_acks",
    "naks": "unclaimed_naks",
}
"""Columns of ports.parquet that count, by kind, packets that arrived after the end of their queue pair: received by the
port, not by a queue pair."""
_UNASKED: Final = {"naks": ("injected_naks", "injected_rnr_naks"), "cnps": ("injected_cnps",)}
"""Columns of packets sent by a rule of the scenario and not counted by a queue pair."""
_OWN: Final = {
    "lost_in_receive_buffers": "receive_overflows",
    "came_damaged": "rx_icrc_encapsulated",
    "came_trimmed": "trimmed_datagrams",
    "dropped_on_purpose": "injected_drops",
    "lost_on_purpose": "injected_losses",
    "repeated_on_purpose": "injected_duplicates",
}
"""Columns of ports.parquet, by figure."""


@dataclass(frozen=True, slots=True)
class LossInput:
    """Sums over a run that the losses are computed from."""

    flows: Mapping[str, int]
    """Sums over all queue pair ends, by column."""
    ports: Mapping[str, int]
    """Sums over all ports of agents, by column."""
    damaged_among_received: int
    """Part of `rx_icrc_encapsulated` that `rx_datagrams` includes; packets that a kernel socket dropped are not in it."""
    device: Mapping[str, int] | None
    """`dut.counters`; None if the device was not read."""
    streams_sent: int | None
    """Datagrams of plain UDP; None if an end did not report them."""
    streams_received: int | None
    streams_among_ports: bool
    """Whether port counters include the streams; those of a twin do."""
    stages: tuple[int, int] | None
    """Packets lost between agents and device, before the device and after it; None unless every cable was counted at both
    ends."""
    unknown: str
    """Why port counters cannot be compared; "" if they can."""
    has_others_traffic: bool
    notes: tuple[str, ...]
    """Other possible causes of unexplained packets."""
    never_sent: int = 0
    """Packets that queue pairs received and no agent sent (`measure.never_sent`)."""


def loss_input(summary: Summary, frames: Mapping[str, Frame], port_backends: Mapping[str, str]) -> LossInput:
    """Return the counts of a run. `port_backends`: packet backend of each AGENT/PORT, from the rig."""
    is_twin = summary.started_at == VIRTUAL_TIME
    ports, streams = frames["ports"], summary.streams
    # The host model of a twin counts packets like an agent's own port, whatever backend the rig states for the real one.
    backends = [
        "" if is_twin else port_backends.get(f"{agent}/{port}", "")
        for agent, port in zip(ports.columns["agent"], ports.columns["port"], strict=True)
    ]
    damaged = ports.columns["rx_icrc_encapsulated"].astype(np.float64)
    kinds = (name for ways in _KINDS.values() for columns in ways for name in columns)
    unasked = (name for names in _UNASKED.values() for name in names)
    return LossInput(
        flows=_sums(frames["flows"], kinds),
        ports=_sums(
            ports,
            (
                "tx_datagrams",
                "rx_datagrams",
                "foreign_datagrams",
                *_OWN.values(),
                *_UNCLAIMED.values(),
                *unasked,
            ),
        ),
        damaged_among_received=int(damaged[[backend != _UDP for backend in backends]].sum()),
        device=device_counts(summary, frames),
        streams_sent=_total([stream.sent_datagrams for stream in streams]),
        streams_received=_total([stream.received_datagrams for stream in streams]),
        streams_among_ports=is_twin,
        stages=None if summary.dut is None else _stages(summary.dut.reconciliation),
        unknown=_unknown(summary, frames["flows"].rows, backends),
        has_others_traffic=_has_others_traffic(summary),
        never_sent=sum(check.mismatches for check in summary.checks if check.name == NEVER_SENT),
        notes=_suspects(summary),
    )


def device_counts(summary: Summary, frames: Mapping[str, Frame]) -> Mapping[str, int] | None:
    """Return the device's counts over the whole run as KIND_COUNTER: `dut.counters`, or for a twin those of its switches.
    None if there are none."""
    if summary.dut is not None:
        return summary.dut.counters
    counters = frames.get("counters")
    if counters is None:
        return None
    columns = counters.columns
    increase = columns["increase"].astype(np.float64)
    number: dict[tuple[str, str], int] = {}
    keys = zip(columns["kind"].tolist(), columns["counter"].tolist(), strict=True)
    rows = np.array([number.setdefault(key, len(number)) for key in keys], np.int64)
    is_known = ~np.isnan(increase)
    rows, whole = rows[is_known], increase[is_known].astype(np.int64)
    totals = np.zeros(len(number), np.int64)
    np.add.at(totals, rows, whole)
    is_counted = np.bincount(rows, minlength=len(number)) > 0
    counts: dict[str, int] = {}
    for (kind, name), total, counted in zip(number, totals.tolist(), is_counted.tolist(), strict=True):
        if counted:
            counts[f"{kind}_{name}"] = counts.get(f"{kind}_{name}", 0) + total
    return counts


def reconcile_losses(inputs: LossInput) -> LossSummary:
    """Return every loss figure, and how many of the packets that were not received none of them explains."""
    sent = _sent_rows(inputs)
    drops = device_drops(inputs.device)
    overload = (inputs.device or {}).get(SOFT_SWITCH.device_counters[0])
    device = (*drops, *(() if overload is None else (_loss_row(SOFT_SWITCH, overload),)))
    own_rows = tuple(
        _loss_row(
            figure,
            -inputs.ports[_OWN[figure.name]] if figure is _REPEATED else inputs.ports[_OWN[figure.name]],
        )
        for figure in OWN_FIGURES
        if figure is not _NEVER_SENT
    )
    own_rows += (_loss_row(_NEVER_SENT, -inputs.never_sent),)
    missing = sent[-1].packets
    dropped = dropped_by_device(inputs.device)
    unexplained = None
    if missing is not None and dropped is not None:
        unexplained = missing - dropped - (overload or 0) - sum(row.packets or 0 for row in own_rows)
    return LossSummary(
        rows=(*sent, *device, *own_rows, _loss_row(UNEXPLAINED, unexplained)),
        dropped_packets=dropped,
        unexplained_packets=unexplained,
        has_others_traffic=inputs.has_others_traffic,
        why=_why(inputs, dropped is not None),
        notes=_notes(inputs, unexplained),
    )


def _why(inputs: LossInput, is_counted: bool) -> str:
    """Return why a loss figure is not known; "" if all are."""
    if inputs.unknown:
        return inputs.unknown
    if None in (inputs.streams_sent, inputs.streams_received):
        return "an end of the background of plain UDP did not report what it sent or received"
    if inputs.device is None:
        return "nothing counted what the device dropped"
    return "" if is_counted else "the device did not count its drops over the whole run"


_REPEATED, _NEVER_SENT = OWN_FIGURES[-2:]


def _loss_row(figure: LossFigure, packets: int | None) -> LossRow:
    """Return a row that has only a loss."""
    return LossRow(figure.name, figure.counted_by, None, None, packets)


def _sent_rows(inputs: LossInput) -> tuple[LossRow, ...]:
    """Return the rows of packets sent and received, by kind and in total."""
    ports, flows = inputs.ports, inputs.flows
    counts: dict[str, tuple[int | None, int | None]] = {
        name: (sum(flows[column] for column in sends), sum(flows[column] for column in receives))
        for name, (sends, receives) in _KINDS.items()
    }
    for name, column in _UNCLAIMED.items():
        sends, receives = counts[name]
        counts[name] = (sends, (receives or 0) + ports.get(column, 0))
    for name, columns in _UNASKED.items():
        sends, receives = counts[name]
        counts[name] = ((sends or 0) + sum(ports[column] for column in columns), receives)
    counts["streams"] = (inputs.streams_sent, inputs.streams_received)
    on_purpose = ports["injected_losses"] - ports["injected_duplicates"]
    all_sent: int | None = ports["tx_datagrams"] + on_purpose
    all_received: int | None = (
        ports["rx_datagrams"]
        - ports["injected_drops"]
        - (
            0 if inputs.streams_among_ports else ports["foreign_datagrams"]
        )  # A twin has only packets of the run.
        - inputs.damaged_among_received
        - ports["trimmed_datagrams"]
    )
    if not inputs.streams_among_ports:
        all_sent, all_received = (
            _sum(all_sent, inputs.streams_sent),
            _sum(all_received, inputs.streams_received),
        )
    if inputs.unknown:
        counts = dict.fromkeys(counts, (None, None))
        all_sent = all_received = None
    parts = [pair for name, pair in counts.items() if name != "data_again"]
    counts["others"] = (
        _remainder(all_sent, [pair[0] for pair in parts]),
        _remainder(all_received, [pair[1] for pair in parts]),
    )
    counts["all"] = (all_sent, all_received)
    return tuple(_sent_row(figure, *counts[figure.name]) for figure in SENT_FIGURES)


def _sent_row(figure: LossFigure, sent: int | None, received: int | None) -> LossRow:
    missing = None if sent is None or received is None else sent - received
    if figure.name == "data_again":
        missing = None  # Retransmissions sent and duplicates received do not count the same packets.
    return LossRow(figure.name, figure.counted_by, sent, received, missing)


def _sum(first: int | None, second: int | None) -> int | None:
    """Return the sum; None if either is unknown."""
    return None if first is None or second is None else first + second


def _remainder(whole: int | None, parts: Sequence[int | None]) -> int | None:
    """Return `whole` minus all `parts`; None if one of them is unknown."""
    known_parts = [part for part in parts if part is not None]
    return None if whole is None or len(known_parts) < len(parts) else whole - sum(known_parts)


def _sums(frame: Frame, names: Iterable[str]) -> dict[str, int]:
    """Return the sums of columns of a frame, by name."""
    return {name: int(frame.columns[name].astype(np.float64).sum()) for name in names}


def _total(values: Sequence[int | None]) -> int | None:
    """Return the sum of the values; None if one of them is unknown."""
    known_values = [value for value in values if value is not None]
    return sum(known_values) if len(known_values) == len(values) else None


def _unknown(summary: Summary, flow_rows: int, backends: Sequence[str]) -> str:
    """Return why port counters cannot be compared; "" if they can."""
    silent = [agent.name for agent in summary.agents if not agent.complete]
    if summary.started_at != VIRTUAL_TIME and (silent or not flow_rows):
        names = f"agents {', '.join(silent)}" if silent else "any agent"
        return f"no counters came from {names}"
    if _VERBS in backends:
        return "network cards send packets of this run, and agents count messages there: read the cards (reader linux)"
    return ""


def _has_others_traffic(summary: Summary) -> bool:
    """Return whether the device may carry other traffic: only a soft switch of the lab carries the run alone."""
    return summary.dut is not None and any(
        source.reader != SOFT_SWITCH_READER for source in summary.dut.sources
    )


def _stages(rows: Sequence[ReconciledPort]) -> tuple[int, int] | None:
    """Return the packets lost before and after the device, from the reconciled cables; None unless all were counted at
    both ends."""
    if not rows or any(row.difference_frames is None for row in rows):
        return None
    more = {way: sum(row.difference_frames or 0 for row in rows if row.direction is way) for way in Direction}
    return -more[Direction.TO_DEVICE], more[Direction.FROM_DEVICE]


def _suspects(summary: Summary) -> tuple[str, ...]:
    """Return possible causes of unexplained packets that follow from the summary."""
    causes = []
    if summary.started_at == VIRTUAL_TIME:
        causes.append("what the network of a twin cannot pass on stays in it")
    elif summary.state is not RunEnd.DONE:
        causes.append("the run ended early with packets in flight")
    if summary.streams and summary.started_at != VIRTUAL_TIME:
        causes.append("sockets that receive plain UDP do not count what they lose")
    return tuple(causes)


def _notes(inputs: LossInput, unexplained: int | None) -> tuple[str, ...]:
    """Describe unexplained packets and their possible causes; empty if there are none."""
    if not unexplained:
        return ()
    words = [
        f"{unexplained} packets were not received, and neither the device nor our hosts count them as lost"
        if unexplained > 0
        else f"the device dropped {-unexplained} packets more than were not received"
    ]
    if unexplained > 0:
        words += inputs.notes
        foreign = inputs.ports["foreign_datagrams"]
        if foreign:
            words.append(f"{foreign} datagrams came that are of no queue pair of the run (foreign_datagrams)")
    if inputs.stages is not None:
        before, after = inputs.stages
        # Frames lost by a soft switch are explained already.
        before -= (inputs.device or {}).get(SOFT_SWITCH.device_counters[0], 0)
        words.append(
            f"{before} between our ports and the device, {unexplained - before - after} inside the device, {after} between the "
            "device and our ports"
        )
    if inputs.has_others_traffic:
        words.append("the device's counters include traffic of other users")
    return ("; ".join(words),)
