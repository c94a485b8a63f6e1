"""Losses and the device's own counters as sections of a report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etloop.results.html.blocks import Block, Fold, Text, listing, table_blocks
from etloop.results.report.device import (
    agreement_words,
    gap_words,
    reconciliation_table,
    source_words,
    total_words,
)
from etloop.results.report.losses import loss_words, losses_table
from etloop.results.report.values import first_upper
from etloop.results.schema.device import Agreement

if TYPE_CHECKING:
    from etloop.results.schema.device import DeviceSummary
    from etloop.results.schema.summary import Summary

_MOST_ROWS = 256


def loss_blocks(summary: Summary) -> tuple[Block, ...]:
    """Return every loss figure; () for a run of an earlier version."""
    losses = summary.losses
    if losses is None:
        return ()
    return (
        Text(first_upper(loss_words(losses))),
        *table_blocks(losses_table(losses)),
        *listing(losses.notes),
    )


def device_blocks(summary: Summary) -> tuple[Block, ...]:
    """Return the device's counters; () if the rig names no source of counters."""
    device = summary.dut
    if device is None:
        return ()
    return (
        *listing(tuple(map(source_words, device.sources))),
        *(Text(first_upper(words)) for words in (total_words(device), agreement_words(device)) if words),
        *_reconciliation(device),
        *listing(gap_words(device), "Gaps in the readings:"),
        *listing(device.notes),
    )


def _reconciliation(device: DeviceSummary) -> tuple[Block, ...]:
    """Return the counts of every cable; folded unless some disagree."""
    blocks = table_blocks(reconciliation_table(device), _MOST_ROWS)
    if not blocks or any(row.agreement is Agreement.BEYOND for row in device.reconciliation):
        return blocks
    return (Fold(f"All {len(device.reconciliation)} directions of cables", blocks),)
