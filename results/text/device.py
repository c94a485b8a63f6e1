"""What the device counted, as lines of the printed table. Decides wording and rounding only; figures are `device_set`'s."""

from __future__ import annotations

from typing import Final

from etloop.contract.model.counters import CounterObject, CounterUse, counters_of
from etloop.results.schema.device import (
    Agreement,
    DeviceGap,
    DeviceSource,
    DeviceSummary,
    Direction,
    ReconciledPort,
)
from etloop.results.text.layout import aligned, us, wrapped

MOST_ROWS: Final = 16
MOST_GAPS_SHOWN: Final = 8
WAYS: Final = {Direction.TO_DEVICE: "to the device", Direction.FROM_DEVICE: "from the device"}
_HEADINGS: Final = ("port", "on", "way", "agent", "device", "difference", "share")
_COUNTED: Final = (CounterObject.QUEUE, CounterObject.GROUP, CounterObject.PRIORITY, CounterObject.PORT)
"""A port's counter stands in for those of its queues and groups that are called the same."""
_ALWAYS: Final = ("marked", "dropped", "pauses sent", "pauses received")


def device_lines(device: DeviceSummary) -> list[str]:
    """Sources, totals, agreement with the agents, gaps and notes."""
    lines = [line for source in device.sources for line in wrapped("counters of", source_words(source))]
    if totals := total_words(device):
        lines += wrapped("device", totals)
    lines += wrapped("agreement", agreement_words(device)) if device.reconciliation else []
    lines += _differences(device.reconciliation)
    for gap in device.gaps[:MOST_GAPS_SHOWN]:
        lines += wrapped("gap", gap_words(gap))
    if device.gaps_total > MOST_GAPS_SHOWN:
        lines += wrapped(
            "gap", f"and {device.gaps_total - MOST_GAPS_SHOWN} more, see dut.gaps in summary.json"
        )
    return lines + [line for note in device.notes for line in wrapped("note", note)]


def source_words(source: DeviceSource) -> str:
    """How a source was read."""
    if not source.readings:
        return f"{source.name}: NONE READ"
    whole = (
        "before, during and after the run"
        if source.whole
        else "NOT ALL OF THEM BEFORE AND AFTER THE RUN, so their increases are not known"
    )
    return (
        f"{source.name}, by {source.reader}: {source.series} counters, {source.readings} readings, {whole}; "
        f"every {source.interval_ns / 1e9:g} s, moments known to {us(source.error_ns)} us"
    )


def total_words(device: DeviceSummary) -> str:
    """What tells of congestion and loss; "" where the device counts none of it."""
    parts: dict[str, int] = {}
    for owner in _COUNTED:
        for counter in counters_of(owner, CounterUse.SUMMED):
            value = device.counters.get(f"{owner}_{counter.name}")
            if counter.words and value is not None:
                parts.setdefault(counter.words, value)
    return ", ".join(f"{value} {words}" for words, value in parts.items() if value or words in _ALWAYS)


def agreement_words(device: DeviceSummary) -> str:
    """How many directions of cables agree."""
    rows = device.reconciliation
    counts = {one: sum(row.agreement is one for row in rows) for one in Agreement}
    tolerance = f"{device.tolerance_per_million / 10_000:g}%"
    words = {
        Agreement.EXACT: "frame for frame",
        Agreement.WITHIN: f"within {tolerance}",
        Agreement.BEYOND: f"BEYOND {tolerance}",
        Agreement.UNKNOWN: "cannot be told",
    }
    counts_text = ", ".join(f"{counts[one]} {words[one]}" for one in Agreement if counts[one])
    return f"of agents and device, {len(rows)} directions of cables: {counts_text}"


def _differences(rows: tuple[ReconciledPort, ...]) -> list[str]:
    """A line for every direction that does not agree exactly, the worst first."""
    order = list(Agreement)
    shown = sorted(
        (row for row in rows if row.agreement is not Agreement.EXACT),
        key=lambda row: (-order.index(row.agreement), -(row.difference_share or 0)),
    )
    if not shown:
        return []
    cells = [_HEADINGS, *(_row(row) for row in shown[:MOST_ROWS])]
    lines = [f"  {line}" for line in aligned(cells)]
    reasons = dict.fromkeys(row.why for row in shown if row.why)
    lines += [line for reason in reasons for line in wrapped("", reason)]
    if len(shown) > MOST_ROWS:
        lines += wrapped("", f"and {len(shown) - MOST_ROWS} more, see reconciliation.parquet")
    return lines


def _row(row: ReconciledPort) -> tuple[str, ...]:
    return (
        row.port,
        row.device_port,
        WAYS[row.direction],
        _count(row.agent_frames),
        _count(row.device_frames),
        "-" if row.difference_frames is None else f"{row.difference_frames:+d}",
        share_text(row.difference_share),
    )


def share_text(share: float | None) -> str:
    """Of a difference; never 0 for what is a little more."""
    if share is None:
        return "-"
    return "0" if share == 0 else f"{share:.2%}" if share >= 0.0001 else f"{share * 1e6:.1f} ppm"


def _count(value: int | None) -> str:
    return "-" if value is None else str(value)


def gap_words(gap: DeviceGap) -> str:
    """When and why."""
    return f"{gap.source}: from {gap.begin_ns / 1e9:.2f} to {gap.end_ns / 1e9:.2f} s of the run: {gap.why}"
