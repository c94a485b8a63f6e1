"""What the device counted, as a part of the report page: how it was read, agreement with the agents cable by cable, gaps.

Decides order and bounds; words and figures are those of the printed table (`device_text`).
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

from etloop.results.html.page import listed, table
from etloop.results.schema.device import Agreement, DeviceSummary, ReconciledPort
from etloop.results.text.device import (
    WAYS,
    agreement_words,
    count_text,
    difference_text,
    share_text,
    source_words,
    total_words,
)
from etloop.results.text.losses import HEADINGS, loss_cells, loss_words

if TYPE_CHECKING:
    from etloop.results.schema.summary import Summary

MOST_ROWS: Final = 256
_NUMBERS: Final = range(3, 9)
_WORDS: Final = {
    Agreement.EXACT: "exact",
    Agreement.WITHIN: "within the tolerance",
    Agreement.BEYOND: "<b>beyond the tolerance</b>",
    Agreement.UNKNOWN: "cannot be told",
}


def losses_section(summary: Summary) -> str:
    """Every figure of a loss; "" of a run of an earlier version."""
    losses = summary.losses
    if losses is None:
        return ""
    words = loss_words(losses)
    cells = [] if losses.is_quiet else loss_cells(losses)
    rows = [tuple(escape(cell) for cell in row) for row in cells]
    return (
        f"<h2>Losses</h2><p>{escape(words[:1].upper() + words[1:])}.</p>{table(HEADINGS, rows, numbers=(1, 2, 3))}"
        + listed(losses.notes)
    )


def device_section(summary: Summary) -> str:
    """The section; "" where the rig names no source of counters."""
    device = summary.dut
    if device is None:
        return ""
    totals = total_words(device)
    agree = f"<p>{escape(agreement_words(device).capitalize())}.</p>" if device.reconciliation else ""
    return (
        f"<h2>Counters of the device</h2>{listed(map(source_words, device.sources))}"
        + (f"<p>{escape(totals.capitalize())}.</p>" if totals else "")
        + agree
        + _reconciliation(device)
        + _gaps(device)
        + listed(device.notes)
    )


def _reconciliation(device: DeviceSummary) -> str:
    heads = (
        *("port", "on", "way", "agent, frames", "device, frames", "difference"),
        *("agent, bytes", "device, bytes", "share", "agreement"),
    )
    rows = [_row(row) for row in device.reconciliation[:MOST_ROWS]]
    more = len(device.reconciliation) - len(rows)
    rest = f"<p class=dim>And {more} more in reconciliation.parquet.</p>" if more > 0 else ""
    return table(heads, rows, numbers=_NUMBERS) + rest


def _row(row: ReconciledPort) -> tuple[str, ...]:
    why = f"<br><span class=dim>{escape(row.why)}</span>" if row.why else ""
    return (
        escape(row.port),
        escape(f"{row.source} {row.device_port}"),
        WAYS[row.direction],
        count_text(row.agent_frames),
        count_text(row.device_frames),
        difference_text(row.difference_frames),
        count_text(row.agent_bytes),
        count_text(row.device_bytes),
        share_text(row.difference_share),
        f"{_WORDS[row.agreement]}{why}",
    )


def _gaps(device: DeviceSummary) -> str:
    if not device.gaps:
        return ""
    rows = [
        (escape(gap.source), f"{gap.begin_ns / 1e6:.1f}", f"{gap.end_ns / 1e6:.1f}", escape(gap.why))
        for gap in device.gaps
    ]
    more = device.gaps_total - len(rows)
    rest = f"<p class=dim>And {more} more.</p>" if more > 0 else ""
    heads = ("not read", "from (ms)", "to (ms)", "why")
    return f"<p><b>Gaps</b></p>{table(heads, rows, numbers=(1, 2))}{rest}"
