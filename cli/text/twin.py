"""Twin results -> text and values for programs: the table, the switches, and the origin of their settings. Pure."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from etloop.cli.result import on_terminal, page_paths
from etloop.cli.text.plan import rank_ranges
from etloop.contract.base.units import approximate_duration
from etloop.contract.model.topology import SettingsOrigin, Topology
from etloop.controller.run.pipeline import FinishedRun
from etloop.controller.run.prepare import Prepared
from etloop.controller.run.twin import described_device
from etloop.results.tables.switch_tables import totals
from etloop.results.text.switches import render_switches
from etloop.results.text.table import render
from etloop.traffic.transfer_values import TransferFigures

_WIDTH: Final = 120
_NUMBERED: Final = re.compile(r"(groups|queues)\[(\d+)\](.*)")


def render_twin(prepared: Prepared, finished: FinishedRun, out_dir: Path | None) -> str:
    """Return the results of a twin as text: the table of the run, its switches, and their profiles."""
    outcome = finished.executed.twin
    assert outcome is not None
    topology = described_device(prepared).topology
    place_text = str(out_dir) if out_dir is not None else "not written; --out DIR writes them"
    duration_text = approximate_duration(outcome.end_ns - outcome.start_ns)
    twin_text = (
        render_switches(topology, outcome.switch_ports)
        + "".join(f"{line}\n" for line in device_lines(topology))
        + f"virtual time    {duration_text}, {outcome.packets} packets over {outcome.hops} links\n"
    )
    pages = page_paths(out_dir) if out_dir is not None else {}
    return on_terminal(render(finished.summary, place_text, pages=pages, more=twin_text))


def twin_values(prepared: Prepared, finished: FinishedRun) -> dict[str, Any]:
    """Return the results of a twin for programs."""
    outcome = finished.executed.twin
    assert outcome is not None
    return {
        "summary": asdict(finished.summary),
        "twin": {
            "start_ns": outcome.start_ns,
            "end_ns": outcome.end_ns,
            "packets": outcome.packets,
            "hops": outcome.hops,
            "bad_packets": outcome.bad_packets,
            "switches": totals(outcome.switch_ports),
            "devices": device_values(described_device(prepared).topology),
            "notes": finished.executed.notes,
        },
    }


def render_transfers(figures: TransferFigures) -> str:
    """Return the counts of a served network as text."""
    return (
        f"transfers       {figures.started}: {figures.done} done, {figures.cancelled} cancelled; "
        f"at most {figures.most_under_way} at a time\n"
        f"slowdown        {figures.slowdown_mean:.3f} mean, {figures.slowdown_max:.3f} at most, "
        "over a transfer that shares no link\n"
    )


def transfer_values(figures: TransferFigures) -> dict[str, Any]:
    """Return the counts of a served network for programs."""
    return asdict(figures)


def device_lines(topology: Topology) -> tuple[str, ...]:
    """Return the lines about every device profile of the topology's switches, none if all switches are presets."""
    lines = []
    for origin, names in _switches_by_origin(topology).items():
        lines.append(f"device          {origin.profile}: {', '.join(names)}")
        for label, entries in (
            ("profile", origin.stated),
            ("topology", origin.overridden),
            ("default", origin.defaults),
            ("left out", origin.left_out),
        ):
            lines += textwrap.wrap(
                "; ".join(_join_numbered(entries)),
                _WIDTH,
                initial_indent=f"  {label:<14}",
                subsequent_indent=" " * 16,
            )
    return tuple(lines)


def device_values(topology: Topology) -> list[dict[str, Any]]:
    """Return the device profiles of the topology's switches for programs."""
    return [{"switches": names, **asdict(origin)} for origin, names in _switches_by_origin(topology).items()]


def _switches_by_origin(topology: Topology) -> dict[SettingsOrigin, list[str]]:
    by_origin: dict[SettingsOrigin, list[str]] = {}
    for switch in topology.switches:
        if switch.origin is not None:
            by_origin.setdefault(switch.origin, []).append(switch.name)
    return by_origin


def _join_numbered(entries: Iterable[str]) -> list[str]:
    """Return the entries, with equal entries of several groups or queues joined: "groups[0-2].lossless: false"."""
    numbers: dict[tuple[str, str], list[int]] = {}
    for entry in entries:
        match = _NUMBERED.fullmatch(entry)
        if match is None:
            numbers[entry, ""] = []
        else:
            numbers.setdefault((match[1], match[3]), []).append(int(match[2]))
    return [
        f"{key}[{rank_ranges(indices)}]{suffix}" if indices else key
        for (key, suffix), indices in numbers.items()
    ]
