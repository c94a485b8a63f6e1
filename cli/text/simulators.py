"""Exports for other simulators, and a run next to their outputs, as text. Pure."""

from __future__ import annotations

from typing import Final

from etloop.controller.export.bundle import Manifest
from etloop.controller.export.comparison import SimulatorComparison
from etloop.results.report.table import Column, Unit, table_of
from etloop.results.report.values import bytes_words
from etloop.results.text.layout import table_lines

_COLUMNS: Final = (
    Column("name", "completion"),
    Column("run_ns", "run", Unit.TIME),
    Column("simulator_ns", "simulator", Unit.TIME),
    Column("ratio", "run / simulator", Unit.FACTOR),
)


def render_manifest(about: Manifest, directory: str) -> str:
    """Return the contents of an export, and the features left out of it."""
    lines = [
        f"{directory}: {about.messages} messages of {about.ranks} ranks, {bytes_words(about.payload_bytes)}",
        f"run          {about.command}",
        *(f"approximated {text}" for text in about.approximated),
        *(f"left out     {text}" for text in about.left_out),
    ]
    return "".join(f"{line}\n" for line in lines)


def render_simulator_comparison(comparison: SimulatorComparison) -> str:
    """Return completion times of a run next to those of a simulator."""
    lines = [f"{comparison.count} {comparison.of}, next to {comparison.simulator}"]
    lines += table_lines(table_of("simulator", "Completion", _COLUMNS, comparison.figures))
    if comparison.counts:
        counts = ", ".join(f"{count} {name}" for name, count in comparison.counts.items())
        lines.append(f"packets of the simulator: {counts}")
    lines += [f"approximated {text}" for text in comparison.approximated]
    lines += [f"left out     {text}" for text in comparison.left_out]
    return "".join(f"{line.rstrip()}\n" for line in lines)
