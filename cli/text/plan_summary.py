"""The text of `etloop plan --summary`: a job laid out without a full plan, on one screen however many ranks it has.

Communicators, hosts and ports with equal figures share a row; --json has each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, TypeVar

from etloop.cli.text.plan import rank_ranges, share_text, table_lines
from etloop.contract.base.units import approximate_bytes, approximate_duration, format_rate
from etloop.results.report.run import local_traffic_warning

if TYPE_CHECKING:
    from etloop.controller.plan.summary import PlanSummary

Row = TypeVar("Row")

_MOST_NOTES: Final = 8


def render_summary(summary: PlanSummary) -> str:
    """Return the summary in words and tables; it ends with a newline."""
    local_warning = local_traffic_warning(summary.fabric_bytes, summary.payload_bytes)
    lines = [f"warning: {text}" for text in (local_warning, *summary.warnings) if text]
    lines += [*_headlines(summary), ""]
    heading = ("communicators", "ranks", "ops each", "connections each", "payload each", "through DUT each")
    lines += [*table_lines((*heading, "first ranks"), _communicator_rows(summary)), ""]
    lines += [*table_lines(("hosts", "ranks", "sent", "received", "which"), _host_rows(summary)), ""]
    port_heading = ("ports", "link", "ranks", "QP ends", "tx", "rx", "at link speed", "first")
    lines += [*table_lines(port_heading, _port_rows(summary)), ""]
    lines += [f"note: {note}" for note in summary.notes[:_MOST_NOTES]]
    if len(summary.notes) > _MOST_NOTES:
        lines.append(f"... and {len(summary.notes) - _MOST_NOTES} more notes (--json has all)")
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _headlines(summary: PlanSummary) -> tuple[str, ...]:
    total, crossing = approximate_bytes(summary.payload_bytes), approximate_bytes(summary.fabric_bytes)
    paths = ", ".join(f"{count} {path.replace('_', '-')}" for path, count in summary.connections.items())
    places = f"{len(summary.hosts)} hosts and {len(summary.ports)} ports"
    share = share_text(summary.fabric_bytes, summary.payload_bytes)
    ends = f"{summary.queue_pair_ends} queue pair ends of {summary.most_queue_pair_ends}"
    scales = f"{summary.iterations} iterations, bytes x {summary.bytes_scale}, time x {summary.time_scale}"
    least = approximate_duration(summary.ideal_ns)
    return (
        f"on paper: {summary.source}: {summary.ranks} ranks on {places}, {summary.operations} network ops an iteration",
        f"{scales}, dependencies {summary.policy}{f', shaped as {summary.shaping}' if summary.shaping else ''}",
        f"payload an iteration: S {total}, of which S_fabric {crossing} ({share}) crosses the device under test",
        f"connections: {paths}; {ends}",
        f"no iteration can be shorter than {least}: the busiest port's payload at link speed, and nothing else",
    )


def _group_rows(
    rows: Iterable[Row], figures: Callable[[Row], tuple[str, ...]]
) -> dict[tuple[str, ...], list[Row]]:
    """Group rows by their displayed figures, in the order of first occurrence."""
    rows_by_figures: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        rows_by_figures.setdefault(figures(row), []).append(row)
    return rows_by_figures


def _communicator_rows(summary: PlanSummary) -> list[tuple[str, ...]]:
    rows_by_figures = _group_rows(
        summary.communicators,
        lambda communicator: (
            "sends" if communicator.point_to_point else "",
            str(communicator.ranks),
            str(communicator.operations),
            str(communicator.connections),
            approximate_bytes(communicator.payload_bytes),
            approximate_bytes(communicator.fabric_bytes),
        ),
    )
    return [
        (
            figures[0] or str(len(rows)),
            *figures[1:],
            rank_ranges([row.first_rank for row in rows]),
        )
        for figures, rows in rows_by_figures.items()
    ]


def _host_rows(summary: PlanSummary) -> list[tuple[str, ...]]:
    rows_by_figures = _group_rows(
        summary.hosts,
        lambda host: (
            str(host.ranks),
            approximate_bytes(host.sent_bytes),
            approximate_bytes(host.received_bytes),
        ),
    )
    return [
        (str(len(rows)), *figures, rank_ranges([row.host for row in rows]))
        for figures, rows in rows_by_figures.items()
    ]


def _port_rows(summary: PlanSummary) -> list[tuple[str, ...]]:
    rows_by_figures = _group_rows(
        summary.ports,
        lambda port: (
            format_rate(port.link_bps),
            str(port.ranks),
            str(port.queue_pairs),
            approximate_bytes(port.tx_bytes),
            approximate_bytes(port.rx_bytes),
            approximate_duration(port.link_time_ns),
        ),
    )
    return [
        (str(len(rows)), *figures, f"{rows[0].agent}/{rows[0].port}")
        for figures, rows in rows_by_figures.items()
    ]
