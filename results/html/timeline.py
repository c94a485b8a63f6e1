"""The plot over time with one axis: rates of ports, depth of queues, marks, drops and pauses, and congestion control.

Decides which panels exist and which lines each has. No rate is drawn above its port's link rate: whole packets between
two readings, and bytes spread over an op, can seem to exceed it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.topology import PRIORITIES
from etloop.results.html.blocks import LegendEntry, Plot
from etloop.results.html.drawing import (
    NARROW,
    WIDE,
    Axis,
    Limit,
    Moment,
    Plotted,
    Steps,
    Stretch,
    draw,
)
from etloop.results.html.lanes import Lane
from etloop.results.html.series import Line, port_rates
from etloop.results.kpis.port_series import port_series
from etloop.results.measure.timeline import event_words
from etloop.results.report.queues import natural

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etloop.contract.model.topology import PortRules, SwitchSettings
    from etloop.results.kpis.input import KpiInput
    from etloop.results.schema.device_facts import DeviceFacts

MOST_LANES: Final = 6
MOST_PAIRS: Final = 8
_BINS: Final = 240
_LEAST_BINS: Final = 24
_PACKETS_A_BIN: Final = 24
"""Packets of a link at full rate in a bin: with so many, a single packet makes no spike."""
_TIME_UNITS: Final = ((1e9, "s"), (1e6, "ms"), (1e3, "us"))
_RATE_UNITS: Final = ((1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"))
_BYTE_UNITS: Final = ((1e6, "MB"), (1e3, "kB"))
_SIGNALS: Final = (
    ("marked_packets", "ECN marks of the device"),
    ("dropped_packets", "packets dropped by the device"),
    ("trimmed_packets", "packets trimmed by the device"),
    ("pfc_tx", "pause frames sent by the device"),
    ("pfc_rx", "pause frames received by the device"),
)


@dataclass(frozen=True, slots=True)
class Scale:
    """A unit and its size in the base unit."""

    size: float
    name: str


@dataclass(frozen=True, slots=True)
class Scene:
    """Inputs that all panels share."""

    inputs: KpiInput
    facts: DeviceFacts
    lanes: tuple[Lane, ...]
    colours: Mapping[str, int]
    begin_ns: float
    end_ns: float
    time: Scale
    values: Mapping[str, NDArray[np.float64]]
    """Columns of queues.parquet; the rows of a lane index them."""

    def at(self, times_ns: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return times in the unit of the axis (float64)."""
        return np.asarray(times_ns / self.time.size)


def timeline(
    inputs: KpiInput, facts: DeviceFacts, lanes: tuple[Lane, ...], colours: Mapping[str, int]
) -> Plot | None:
    """Return the plot; None if no op completed or there is nothing to draw."""
    job = inputs.summary.job
    if job.start_ns is None or job.end_ns is None or job.end_ns <= job.start_ns:
        return None
    margin_ns = (job.end_ns - job.start_ns) / 50
    begin_ns, end_ns = job.start_ns - margin_ns, job.end_ns + margin_ns
    unit = scale_of(end_ns - begin_ns, _TIME_UNITS, "ns", 5)
    names = ("time_ns", "tx_bytes", "queued_bytes", "group_bytes", *(name for name, _ in _SIGNALS))
    values = {name: np.nan_to_num(inputs.column("queues", name)) for name in names} if lanes else {}
    scene = Scene(inputs, facts, lanes, colours, begin_ns, end_ns, unit, values)
    rates, notes = _rates(scene)
    panels = (*rates, *_depths(scene), *_signals(scene), *_control(scene))
    if not panels:
        return None
    begin, end = begin_ns / unit.size, end_ns / unit.size
    axis = Axis(f"time of the run ({unit.name})", begin, end, False, _stretches(scene), _moments(scene))
    used_colours = {line.colour for panel in panels for line in panel.steps}
    legend = tuple(LegendEntry(name, colour) for name, colour in colours.items() if colour in used_colours)
    titles = "; ".join(panel.title for panel in panels)
    return Plot(
        name="timeline-plot",
        title="Everything on one axis of time; shaded bands are iterations, one colour is one port",
        description=f"Panels above each other over the time of the run: {titles}.",
        wide=draw(panels, axis, WIDE),
        narrow=draw(panels, axis, NARROW),
        legend=legend,
        note=" ".join(notes),
    )


def scale_of(most: float, units: Sequence[tuple[float, str]], base: str, least: float = 1) -> Scale:
    """Return the first unit of which `most` is at least `least`."""
    return next((Scale(size, name) for size, name in units if most >= least * size), Scale(1, base))


def _stretches(scene: Scene) -> tuple[Stretch, ...]:
    """Return the iterations, and the gaps in which the device was not read."""
    passes = scene.inputs.summary.job.per_iteration
    stretches = [
        Stretch(
            f"iteration {iteration.iteration + 1}",
            f"iteration {iteration.iteration + 1}" if len(passes) <= 12 else str(iteration.iteration + 1),
            (iteration.end_ns - iteration.jct_ns) / scene.time.size,
            iteration.end_ns / scene.time.size,
            "band" if iteration.iteration % 2 == 0 else "",
        )
        for iteration in passes[:256]
    ]
    device = scene.inputs.summary.dut
    stretches += [
        Stretch(
            f"not read: {gap.why}", "", gap.begin_ns / scene.time.size, gap.end_ns / scene.time.size, "gap"
        )
        for gap in (device.gaps if device is not None else ())
    ]
    return tuple(stretches)


def _moments(scene: Scene) -> tuple[Moment, ...]:
    return tuple(
        Moment(event_words(event), event.done_ns / scene.time.size, "up" if event.up else "down")
        for event in scene.inputs.summary.timeline
        if event.done_ns >= 0
    )


def _rates(scene: Scene) -> tuple[tuple[Plotted, ...], tuple[str, ...]]:
    """Return the panels of sent and received rates, and notes on them."""
    inputs, notes = scene.inputs, []
    links = {
        f"{agent}/{port}" if "/" not in port else port: bps for (agent, port), bps in inputs.port_bps.items()
    }
    sent, received = port_rates(inputs, "rx"), port_rates(inputs, "tx")
    by_sent = by_received = "counted by the device"
    if not received:
        received, by_received = _rates_of_queues(scene), "by the device's queues"
    estimated = _rates_from_ops(inputs)
    if not sent:
        sent, by_sent = estimated[0], "payload, from the records of ops"
        notes.append("What a rank sends for an op is spread evenly over the op's time.")
    if not received:
        received, by_received = estimated[1], "payload, from the records of ops"
    clipped = 0
    panels = []
    for lines, title, source_words in (
        (sent, "sent to the device", by_sent),
        (received, "received from it", by_received),
    ):
        rate_panels, clipped_values = _rate_panel(scene, lines, links, title, source_words)
        clipped += clipped_values
        panels += rate_panels
    if clipped:
        notes.append(
            f"In {clipped} places the records make more than the link carries; the link's rate is drawn there."
        )
    hidden = len(set(inputs.plan.port_names)) - len(scene.colours.keys() & set(inputs.plan.port_names))
    if hidden > 0:
        notes.append(f"{hidden} less busy ports are not drawn; tables and files have them.")
    return tuple(panels), tuple(notes)


def _rate_panel(
    scene: Scene, lines: Sequence[Line], links: Mapping[str, float], title: str, by_whom: str
) -> tuple[list[Plotted], int]:
    """Return a panel of rates (none without lines), and how many values were limited to the link's rate."""
    shown_lines = [line for line in lines if line.name in scene.colours and line.values.any()]
    if not shown_lines:
        return [], 0
    clipped = 0
    speeds = [links[line.name] for line in shown_lines if links.get(line.name)]
    unit = scale_of(max(speeds or [float(line.values.max()) for line in shown_lines]), _RATE_UNITS, "bit/s")
    steps = []
    for line in shown_lines:
        most = links.get(line.name) or np.inf
        clipped += int((line.values > most * 1.000001).sum())
        values = np.minimum(line.values, most) / unit.size
        steps.append(Steps(line.name, scene.colours[line.name], scene.at(line.times_ns), values))
    limits = tuple(
        Limit(f"link {speed / unit.size:g} {unit.name}", speed / unit.size)
        for speed in sorted(set(speeds))[:3]
    )
    return [Plotted(f"{title} ({unit.name})", tuple(steps), by_whom, limits)], clipped


def _rates_from_ops(inputs: KpiInput) -> tuple[list[Line], list[Line]]:
    """Return sent and received rates of ports from the records of ops; empty if no traffic crossed the device."""
    series = port_series(inputs)
    if series is None:
        return [], []
    sent, received = (
        [Line(name, series.edges_ns, np.append(rates[row], 0.0)) for row, name in enumerate(series.ports)]
        for rates in (series.tx_bps, series.rx_bps)
    )
    return sent, received


def _rates_of_queues(scene: Scene) -> list[Line]:
    """Return the rate at which queues of the device sent to each port of the rig, as means over equal time bins."""
    ports = set(scene.inputs.plan.port_names)
    bins = _bins_of_packets(scene)
    edges = np.linspace(scene.begin_ns, scene.end_ns, bins + 1)
    bytes_by_port: dict[str, NDArray[np.float64]] = {}
    for lane in scene.lanes:
        if lane.port in ports:
            parts = np.diff(_values_at(scene, lane, "tx_bytes", edges), append=np.nan)
            bytes_by_port[lane.port] = bytes_by_port.get(lane.port, np.zeros(bins + 1)) + np.nan_to_num(parts)
    width_ns = edges[1] - edges[0]
    return [Line(name, edges, values * 8e9 / width_ns) for name, values in bytes_by_port.items()]


def _bins_of_packets(scene: Scene) -> int:
    """Return the number of time bins, such that a link at full rate carries several packets in each."""
    speeds = [float(bps) for bps in scene.inputs.port_bps.values() if bps]
    if not speeds:
        return _BINS
    packets = (scene.end_ns - scene.begin_ns) * min(speeds) / 8e9 / scene.inputs.mtu_bytes
    return int(min(max(packets / _PACKETS_A_BIN, _LEAST_BINS), _BINS))


def _values_at(scene: Scene, lane: Lane, column: str, edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the value of a lane's counter in the last sample before each moment (float64), 0 before the first."""
    times, values = scene.values["time_ns"][lane.rows], scene.values[column][lane.rows]
    place = np.searchsorted(times, edges, side="right") - 1
    return np.where(place >= 0, values[np.maximum(place, 0)], 0.0)


def _depths(scene: Scene) -> Iterator[Plotted]:
    """Yield the depth of the fullest queues with their marking thresholds, and the bytes of their priority groups with
    the pause limit."""
    for column, words, limits in (
        ("queued_bytes", "in the fullest queues", _marking_limits),
        ("group_bytes", "ingress buffer by port and priority group", _pause_limits),
    ):
        fullest = _fullest(scene, column)
        if not fullest:
            continue
        values = scene.values[column]
        most = max(float(values[lane.rows].max()) for lane in fullest)
        unit = scale_of(most, _BYTE_UNITS, "bytes")
        drawn_ports: set[str] = set()
        steps = []
        for lane in fullest:
            times = scene.at(scene.values["time_ns"][lane.rows])
            name = f"{lane.port}, class {lane.cos}"
            depth = values[lane.rows] / unit.size
            steps.append(
                Steps(name, scene.colours[lane.port], times, depth, is_dashed=lane.port in drawn_ports)
            )
            drawn_ports.add(lane.port)
        limit_lines = tuple(
            Limit(f"{name} {size / unit.size:.4g} {unit.name}", size / unit.size)
            for name, size in limits(scene, fullest)
        )
        yield Plotted(
            f"{words} ({unit.name})",
            tuple(steps),
            "as sampled; the table below has the greatest",
            limit_lines,
        )


def _fullest(scene: Scene, column: str) -> list[Lane]:
    """Return the lanes with the greatest values of a column, of ports that have a colour."""
    if not scene.lanes:
        return []
    values = scene.values[column]
    depth = {lane: float(values[lane.rows].max()) for lane in scene.lanes if lane.port in scene.colours}
    lanes = sorted((lane for lane in depth if depth[lane] > 0), key=lambda lane: -depth[lane])[:MOST_LANES]
    return sorted(lanes, key=lambda lane: (natural(lane.port), lane.cos))


def _marking_limits(scene: Scene, lanes: Sequence[Lane]) -> list[tuple[str, float]]:
    """Return Kmin and Kmax if all lanes have the same."""
    thresholds = {
        (queue.marking.kmin_bytes, queue.marking.kmax_bytes)
        for lane in lanes
        for switch in scene.facts.switches_of(lane.place)
        if (queue := _rules(switch, lane).queues[lane.cos % PRIORITIES]).marking is not None
    }
    if len(thresholds) != 1:
        return []
    kmin, kmax = thresholds.pop()
    return [("Kmin", kmin), ("Kmax", kmax)] if kmax > kmin else [("K", kmin)]


def _pause_limits(scene: Scene, lanes: Sequence[Lane]) -> list[tuple[str, float]]:
    """Return the xoff threshold of a lossless group that is alone in the buffer; if several share it, they pause earlier."""
    thresholds_bytes = set()
    for lane in lanes:
        for switch in scene.facts.switches_of(lane.place):
            rules = _rules(switch, lane)
            group = rules.groups[lane.cos % PRIORITIES]
            if rules.pfc and group.lossless:
                factor = 2.0**group.alpha_log2
                shared = max(switch.buffer_bytes - switch.set_aside_bytes, 0)
                thresholds_bytes.add(group.reserved_bytes + shared * factor / (1 + factor))
    return [("xoff of one group alone", thresholds_bytes.pop())] if len(thresholds_bytes) == 1 else []


def _rules(switch: SwitchSettings, lane: Lane) -> PortRules:
    """Return the rules of the lane's port."""
    return switch.rules_of(lane.port.rpartition("/")[2])


def _signals(scene: Scene) -> Iterator[Plotted]:
    """Yield marks, drops, trims and pauses per time bin, by port."""
    edges = np.linspace(scene.begin_ns, scene.end_ns, _BINS + 1)
    for column, words in _SIGNALS if scene.lanes else ():
        by_port: dict[str, NDArray[np.float64]] = {}
        for lane in scene.lanes:
            counts = np.maximum(np.diff(_values_at(scene, lane, column, edges), append=np.nan), 0)
            by_port[lane.port] = by_port.get(lane.port, np.zeros(_BINS + 1)) + np.nan_to_num(counts)
        steps = tuple(
            Steps(name, scene.colours[name], scene.at(edges), counts, is_bars=True)
            for name, counts in sorted(
                by_port.items(), key=lambda port_and_counts: natural(port_and_counts[0])
            )
            if counts.any() and name in scene.colours
        )
        if steps:
            width = (edges[1] - edges[0]) / scene.time.size
            yield Plotted(f"{words} (in {width:.2g} {scene.time.name})", steps)


def _control(scene: Scene) -> Iterator[Plotted]:
    """Yield rates and windows of the queue pairs that carried most, in the colour of their port."""
    rates = scene.inputs.frames.get("cc")
    if rates is None or not rates.rows:
        return
    columns = rates.columns
    ports = scene.inputs.plan.port_names
    pairs: dict[tuple[int, int, int], list[int]] = {}
    ends = (columns[name].astype(np.int64).tolist() for name in ("src_rank", "dst_rank", "local_qpn"))
    for row, key in enumerate(zip(*ends, strict=True)):
        if ports[key[0]] in scene.colours:
            pairs.setdefault(key, []).append(row)
    most = _busiest_pairs(pairs, columns["acked_bytes"].astype(np.float64), ports)
    times = columns["time_ns"].astype(np.float64)
    for column, words, units, base in (
        ("rate_bps", "rate that congestion control allows", _RATE_UNITS, "bit/s"),
        ("window_bytes", "window of congestion control", _BYTE_UNITS, "bytes"),
    ):
        values = np.nan_to_num(columns[column].astype(np.float64))
        if not most or not any((values[pairs[key]] > 0).any() for key in most):
            continue
        unit = scale_of(max(float(values[pairs[key]].max()) for key in most), units, base)
        steps = tuple(
            Steps(f"rank {src} to {dst}, queue pair {qpn}", scene.colours[ports[src]], scene.at(times[rows]),
                  values[rows] / unit.size)
            for src, dst, qpn in most
            for rows in (np.array(pairs[src, dst, qpn])[values[pairs[src, dst, qpn]] > 0],)  # 0: not limited
            if rows.size
        )  # fmt: skip
        yield Plotted(f"{words} ({unit.name})", steps)


def _busiest_pairs(
    pairs: Mapping[tuple[int, int, int], list[int]], moved: NDArray[np.float64], ports: Sequence[str]
) -> list[tuple[int, int, int]]:
    """Return the queue pairs that carried most, one of every port before the second of any port."""
    last_turn: dict[str, int] = {}
    turn_by_pair = {}
    for key in sorted(pairs, key=lambda key: -float(moved[pairs[key]].max())):
        port = ports[key[0]]
        turn_by_pair[key] = last_turn[port] = last_turn.get(port, -1) + 1
    return sorted(turn_by_pair, key=lambda key: turn_by_pair[key])[:MOST_PAIRS]
