"""The device's own counters: how they were read, their totals, and their agreement with the counts of the agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etloop.contract.model.counters import CounterObject, CounterUse, counters_of
from etloop.results.report.losses import drop_words
from etloop.results.report.table import Cell, Column, Table, Unit, table_of
from etloop.results.report.values import us
from etloop.results.schema.device import Agreement, Direction, ReconciledPort
from etloop.results.schema.losses import DEVICE_FIGURES, device_drops

if TYPE_CHECKING:
    from etloop.results.schema.device import DeviceSource, DeviceSummary

MOST_GAPS: Final = 8
_COUNTED: Final = (CounterObject.QUEUE, CounterObject.GROUP, CounterObject.PRIORITY, CounterObject.PORT)
"""A port's counter replaces those of its queues and groups with the same words only if they have none."""
_ALWAYS: Final = ("marked", "pauses sent", "pauses received")
_DROPS: Final = frozenset(key for figure in DEVICE_FIGURES for key in figure.device_counters)
_DIRECTIONS: Final = {Direction.TO_DEVICE: "to the device", Direction.FROM_DEVICE: "from the device"}
_AGREEMENTS: Final = {
    Agreement.EXACT: "exact",
    Agreement.WITHIN: "within the tolerance",
    Agreement.BEYOND: "beyond the tolerance",
    Agreement.UNKNOWN: "not known",
}


def difference_share(share: float | None) -> str:
    """Return the share of a difference; never "0" for a small one."""
    if share is None:
        return "-"
    return "0" if share == 0 else f"{share:.2%}" if share >= 0.0001 else f"{share * 1e6:.1f} ppm"


def _difference(row: ReconciledPort) -> str | None:
    return None if row.difference_frames is None else f"{row.difference_frames:+d}"


def _agreement(row: ReconciledPort) -> Cell:
    return Cell(_AGREEMENTS[row.agreement], is_strong=row.agreement is Agreement.BEYOND)


_COLUMNS: Final = (
    Column("port", "port"),
    Column("device_port", "on"),
    Column("direction", "direction", value=lambda row: _DIRECTIONS[row.direction]),
    Column("agent_frames", "agent", Unit.NUMBER, "frames"),
    Column("device_frames", "device", Unit.NUMBER, "frames"),
    Column("difference_frames", "difference", Unit.NUMBER, "frames", value=_difference),
    Column("agent_bytes", "agent", Unit.NUMBER, "bytes", is_detail=True),
    Column("device_bytes", "device", Unit.NUMBER, "bytes", is_detail=True),
    Column("share", "share", Unit.NUMBER, value=lambda row: difference_share(row.difference_share)),
    Column("agreement", "agreement", is_detail=True, value=_agreement),
)


def source_words(source: DeviceSource) -> str:
    """Describe how a source was read."""
    if not source.readings:
        return f"{source.name}: NO READINGS"
    span_words = (
        "before, during and after the run"
        if source.whole
        else "NOT ALL OF THEM BEFORE AND AFTER THE RUN, so their increases are not known"
    )
    return (
        f"{source.name}, by {source.reader}: {source.series} counters, {source.readings} readings, {span_words}; "
        f"every {source.interval_ns / 1e9:g} s, times known to {us(source.error_ns)} us"
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
    """Return how many directions of cables agree, in words; "" if none was compared."""
    rows = device.reconciliation
    if not rows:
        return ""
    counts = {agreement: sum(row.agreement is agreement for row in rows) for agreement in Agreement}
    tolerance = f"{device.tolerance_per_million / 10_000:g}%"
    words = {
        Agreement.EXACT: "frame for frame",
        Agreement.WITHIN: f"within {tolerance}",
        Agreement.BEYOND: f"DIFFER BY MORE THAN {tolerance}",
        Agreement.UNKNOWN: "not known",
    }
    counts_text = ", ".join(
        f"{counts[agreement]} {words[agreement]}" for agreement in Agreement if counts[agreement]
    )
    return f"of agents and device, {len(rows)} directions of cables: {counts_text}"


def reconciliation_table(device: DeviceSummary, *, is_exact_shown: bool = True) -> Table:
    """Return a row for every direction of a cable, the worst agreement first, with the reasons as notes."""
    order = list(Agreement)
    rows = sorted(
        (row for row in device.reconciliation if is_exact_shown or row.agreement is not Agreement.EXACT),
        key=lambda row: (-order.index(row.agreement), -(row.difference_share or 0)),
    )
    title = "Cable by cable, as agent and device counted"
    notes = tuple(dict.fromkeys(row.why for row in rows if row.why))
    return table_of("reconciliation", title, _COLUMNS, rows, notes, all_rows_in="reconciliation.parquet")


def gap_words(device: DeviceSummary) -> tuple[str, ...]:
    """Describe the first spans in which a source was not read, and how many more there are."""
    gaps = [
        f"{gap.source}: from {gap.begin_ns / 1e9:.2f} to {gap.end_ns / 1e9:.2f} s of the run: {gap.why}"
        for gap in device.gaps[:MOST_GAPS]
    ]
    more = device.gaps_total - len(gaps)
    return (*gaps, *((f"and {more} more, see dut.gaps in summary.json",) if more > 0 else ()))
