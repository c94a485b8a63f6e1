"""The device's own counters, as lines of the printed table. Decides wording and rounding only; figures come from
`device/summary.py`."""

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
from etloop.results.schema.losses import DEVICE_FIGURES, device_drops
from etloop.results.text.layout import aligned, each_wrapped, us, wrapped
from etloop.results.text.losses import drop_words

MOST_ROWS: Final = 16
MOST_GAPS_SHOWN: Final = 8
WAYS: Final = {Direction.TO_DEVICE: "to the device", Direction.FROM_DEVICE: "from the device"}
_HEADINGS: Final = ("port", "on", "way", "agent", "device", "difference", "share")
_COUNTED: Final = (CounterObject.QUEUE, CounterObject.GROUP, CounterObject.PRIORITY, CounterObject.PORT)
"""A port's counter replaces those of its queues and groups with the same words only if they have none."""
_ALWAYS: Final = ("marked", "pauses sent", "pauses received")
_DROPS: Final = frozenset(key for figure in DEVICE_FIGURES for key in figure.device_counters)


def device_lines(device: DeviceSummary) -> list[str]:
    """Return the lines on sources, totals, agreement with the agents, gaps and notes."""
    lines = each_wrapped("counters of", map(source_words, device.sources))
    if totals := total_words(device):
        lines += wrapped("device", totals)
    lines += wrapped("agreement", agreement_words(device)) if device.reconciliation else []
    lines += _differences(device.reconciliation)
    lines += each_wrapped("gap", map(_gap_words, device.gaps[:MOST_GAPS_SHOWN]))
    if device.gaps_total > MOST_GAPS_SHOWN:
        more = device.gaps_total - MOST_GAPS_SHOWN
        lines += wrapped("gap", f"and {more} more, see dut.gaps in summary.json")
    return lines + each_wrapped("note", device.notes)


def source_words(source: DeviceSource) -> str:
    """Describe how a source was read."""
    if not source.readings:
        return f"{source.name}: NONE READ"
    span_words = (
        "before, during and after the run"
        if source.whole
        else "NOT ALL OF THEM BEFORE AND AFTER THE RUN, so their increases are not known"
    )
    return (
        f"{source.name}, by {source.reader}: {source.series} counters, {source.readings} readings, {span_words}; "
        f"every {source.interval_ns / 1e9:g} s, moments known to {us(source.error_ns)} us"
    )


def total_words(device: DeviceSummary) -> str:
    """Return the totals of congestion and loss in words; "" if the device counts none of them."""
    parts: dict[str, int] = {}
    drops = drop_words(device_drops(device.counters))
    for owner in _COUNTED:
        for counter in counters_of(owner, CounterUse.SUMMED):
            value = device.counters.get(f"{owner}_{counter.name}")
            if counter.words and value is not None and f"{owner}_{counter.name}" not in _DROPS:
                parts.setdefault(counter.words, value)
    other_totals = [f"{value} {words}" for words, value in parts.items() if value or words in _ALWAYS]
    return ", ".join([*filter(None, [drops]), *other_totals])


def agreement_words(device: DeviceSummary) -> str:
    """Return how many directions of cables agree, in words."""
    rows = device.reconciliation
    counts = {agreement: sum(row.agreement is agreement for row in rows) for agreement in Agreement}
    tolerance = f"{device.tolerance_per_million / 10_000:g}%"
    words = {
        Agreement.EXACT: "frame for frame",
        Agreement.WITHIN: f"within {tolerance}",
        Agreement.BEYOND: f"BEYOND {tolerance}",
        Agreement.UNKNOWN: "cannot be told",
    }
    counts_text = ", ".join(
        f"{counts[agreement]} {words[agreement]}" for agreement in Agreement if counts[agreement]
    )
    return f"of agents and device, {len(rows)} directions of cables: {counts_text}"


def _differences(rows: tuple[ReconciledPort, ...]) -> list[str]:
    """Return a line for every direction that does not agree exactly, the worst first."""
    order = list(Agreement)
    inexact_rows = sorted(
        (row for row in rows if row.agreement is not Agreement.EXACT),
        key=lambda row: (-order.index(row.agreement), -(row.difference_share or 0)),
    )
    if not inexact_rows:
        return []
    cells = [_HEADINGS, *(_row(row) for row in inexact_rows[:MOST_ROWS])]
    lines = [f"  {line}" for line in aligned(cells)]
    reasons = dict.fromkeys(row.why for row in inexact_rows if row.why)
    lines += each_wrapped("", reasons)
    if len(inexact_rows) > MOST_ROWS:
        lines += wrapped("", f"and {len(inexact_rows) - MOST_ROWS} more, see reconciliation.parquet")
    return lines


def _row(row: ReconciledPort) -> tuple[str, ...]:
    return (
        row.port,
        row.device_port,
        WAYS[row.direction],
        count_text(row.agent_frames),
        count_text(row.device_frames),
        difference_text(row.difference_frames),
        share_text(row.difference_share),
    )


def difference_text(frames: int | None) -> str:
    """Return by how many frames the device counted more."""
    return "-" if frames is None else f"{frames:+d}"


def share_text(share: float | None) -> str:
    """Return the share of a difference; never "0" for a small one."""
    if share is None:
        return "-"
    return "0" if share == 0 else f"{share:.2%}" if share >= 0.0001 else f"{share * 1e6:.1f} ppm"


def count_text(value: int | None) -> str:
    """Return a count of frames or bytes; "-" if not known."""
    return "-" if value is None else str(value)


def _gap_words(gap: DeviceGap) -> str:
    return f"{gap.source}: from {gap.begin_ns / 1e9:.2f} to {gap.end_ns / 1e9:.2f} s of the run: {gap.why}"
