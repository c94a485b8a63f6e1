"""The device's own counters, as parts of the report: how they were read, agreement with the agents cable by cable, gaps.

Decides order and limits; words and figures are those of the printed table (`text/device.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etloop.results.html.blocks import Block, Cell, Fold, Text, listing, table
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
    Agreement.BEYOND: "beyond the tolerance",
    Agreement.UNKNOWN: "not known",
}


def loss_blocks(summary: Summary) -> tuple[Block, ...]:
    """Return every loss figure; () for a run of an earlier version."""
    losses = summary.losses
    if losses is None:
        return ()
    words = loss_words(losses)
    rows = [] if losses.is_quiet else loss_cells(losses)
    return (
        Text(f"{words[:1].upper()}{words[1:]}."),
        *table("Packets by what became of them", HEADINGS, list(rows), (1, 2, 3)),
        *listing(losses.notes),
    )


def device_blocks(summary: Summary) -> tuple[Block, ...]:
    """Return the device's counters; () if the rig names no source of counters."""
    device = summary.dut
    if device is None:
        return ()
    totals = total_words(device)
    agree = (Text(f"{agreement_words(device).capitalize()}."),) if device.reconciliation else ()
    return (
        *listing(tuple(map(source_words, device.sources))),
        *((Text(f"{totals.capitalize()}."),) if totals else ()),
        *agree,
        *_reconciliation(device),
        *_gaps(device),
        *listing(device.notes),
    )


def _reconciliation(device: DeviceSummary) -> tuple[Block, ...]:
    heads = (
        *("port", "on", "way", "agent, frames", "device, frames", "difference"),
        *("agent, bytes", "device, bytes", "share", "agreement"),
    )
    rows = [_row(row) for row in device.reconciliation[:MOST_ROWS]]
    more = len(device.reconciliation) - len(rows)
    rest = (Text(f"And {more} more in reconciliation.parquet.", is_dim=True),) if more > 0 else ()
    table_blocks = (*table("Cable by cable, as agent and device counted", heads, rows, _NUMBERS), *rest)
    beyond = any(row.agreement is Agreement.BEYOND for row in device.reconciliation)
    return (
        table_blocks
        if beyond or not rows
        else (Fold(f"All {len(device.reconciliation)} directions of cables", table_blocks),)
    )


def _row(row: ReconciledPort) -> tuple[str | Cell, ...]:
    return (
        row.port,
        f"{row.source} {row.device_port}",
        WAYS[row.direction],
        count_text(row.agent_frames),
        count_text(row.device_frames),
        difference_text(row.difference_frames),
        count_text(row.agent_bytes),
        count_text(row.device_bytes),
        share_text(row.difference_share),
        Cell(_WORDS[row.agreement], note=row.why, is_strong=row.agreement is Agreement.BEYOND),
    )


def _gaps(device: DeviceSummary) -> tuple[Block, ...]:
    rows = [
        (gap.source, f"{gap.begin_ns / 1e6:.1f}", f"{gap.end_ns / 1e6:.1f}", gap.why) for gap in device.gaps
    ]
    more = device.gaps_total - len(rows)
    rest = (Text(f"And {more} more.", is_dim=True),) if more > 0 else ()
    heads = ("not read", "from (ms)", "to (ms)", "why")
    return (*table("Gaps, in which the device was not read", heads, list(rows), (1, 2)), *rest)
