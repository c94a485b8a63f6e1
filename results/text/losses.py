"""Lost packets as a printed table: sent, received and lost, and who counted them. Decides wording only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etloop.results.schema.losses import (
    BY_LOSS_NAME,
    COUNTED_BY_WORDS,
    DEVICE_FIGURES,
    SENT_FIGURES,
    LossRow,
    LossSummary,
)
from etloop.results.text.layout import aligned, each_wrapped, wrapped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etloop.results.schema.comparison import LossPair

HEADINGS: Final = ("packets", "sent", "received", "not received", "counted by")
OF_DEVICE: Final = frozenset(figure.name for figure in DEVICE_FIGURES)
_OF_KINDS: Final = frozenset(figure.name for figure in SENT_FIGURES)
_ALWAYS: Final = frozenset({"data", "all"})


def loss_lines(losses: LossSummary | None) -> list[str]:
    """Return the table, or one line if nothing was lost, dropped or retransmitted."""
    if losses is None:
        return []
    lines = wrapped("losses", loss_words(losses))
    if not losses.is_quiet:
        cells = [HEADINGS, *loss_cells(losses)]
        lines += [f"  {line}" for line in aligned(cells, left=(0, 4))]
    return lines + each_wrapped("note", losses.notes)


def loss_words(losses: LossSummary) -> str:
    """Return how many packets were not received and how many the device dropped, in a sentence."""
    rows = {row.name: row for row in losses.rows}
    all_row = rows["all"]
    if all_row.packets is None:
        main_clause = "packets of every kind: not known"
    elif losses.is_quiet:
        main_clause = f"none: {all_row.sent} packets were sent, every one was received, none was sent again"
    else:
        data, control = rows["data"].packets, losses.lost_control_packets or 0
        main_clause = f"{all_row.packets} of {all_row.sent} packets not received: {data} of data, {control} of their answers"
        if streams := rows["streams"].packets:
            main_clause += f", {streams} of plain UDP"
    parts = [main_clause]
    if losses.dropped_packets is not None and not losses.is_quiet:
        parts.append(f"{losses.dropped_packets} dropped by the device")
    if losses.unexplained_packets is not None and not losses.is_quiet:
        parts.append(f"{losses.unexplained_packets} not explained")
    if losses.why and not (losses.is_quiet and all_row.packets == 0):
        parts.append(losses.why)
    return "; ".join(parts)


def loss_cells(losses: LossSummary) -> list[tuple[str, ...]]:
    """Return the rows of the table that are not empty."""
    return [
        (
            row_words(row),
            _count(row.sent),
            _count(row.received),
            _count(row.packets),
            COUNTED_BY_WORDS[row.counted_by],
        )
        for row in losses.rows
        if row.name in _ALWAYS or row.sent or row.received or row.packets or row.name == "unexplained"
    ]


def row_words(row: LossRow | LossPair) -> str:
    """Return the description of a row."""
    words = BY_LOSS_NAME[row.name].words if row.name in BY_LOSS_NAME else row.name
    return f"dropped: {words}" if row.name in OF_DEVICE else words


def pair_cells(pairs: Sequence[LossPair]) -> list[tuple[str, ...]]:
    """Return a row for each difference in the losses of two sides: description, A, B, who counted it."""
    return [
        (
            _standalone_words(pair),
            *("not known" if mean is None else f"{mean:.6g}" for mean in (pair.a, pair.b)),
            COUNTED_BY_WORDS[pair.counted_by],
        )
        for pair in pairs
    ]


def _standalone_words(one: LossPair) -> str:
    """Return the description of a row for use outside the table of losses."""
    if one.name == "data_again":
        return "data sent again"
    return f"{row_words(one)}, not received" if one.name in _OF_KINDS else row_words(one)


def drop_words(rows: Sequence[LossRow]) -> str:
    """Return how many packets the device dropped, with the reasons; "" if it does not count them."""
    if not rows:
        return ""
    total = sum(row.packets or 0 for row in rows)
    reasons = ", ".join(f"{row.packets} {BY_LOSS_NAME[row.name].words}" for row in rows if row.packets)
    return f"{total} dropped{f' ({reasons})' if reasons else ''}"


def _count(value: int | None) -> str:
    return "" if value is None else str(value)
