"""The slowest operations of the trace as a printed table. Decides wording, rounding and how many names are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etloop.results.text.layout import aligned, printable, us

if TYPE_CHECKING:
    from etloop.results.schema.slow_ops import SlowNames

HEADINGS: Final = (
    ("", "", "", "joined (us)", "line rate (us)", "lost (us)", ""),
    ("slowest by name", "collective", "count", "avg", "avg", "in all", "worst in"),
)
SHOWN: Final = 5
_LONGEST: Final = 44


def slow_name_lines(slow: SlowNames | None) -> list[str]:
    """Return the table of names that lost most time, followed by an empty line; no lines if there is none."""
    if slow is None:
        return []
    rows = [
        (
            _shortened(slow_name.name),
            slow_name.kind[:20],
            str(slow_name.count),
            us(slow_name.joined_avg_ns),
            us(slow_name.least_avg_ns),
            us(slow_name.beyond_ns),
            f"iteration {slow_name.worst_iteration}",
        )
        for slow_name in slow.first[:SHOWN]
    ]
    lines = aligned([*HEADINGS, *rows])
    names_left_out = slow.total - len(rows)
    if names_left_out > 0:
        lines.append(f"And {names_left_out} more in collectives.parquet, column name.")
    return [*lines, ""]


def _shortened(name: str) -> str:
    """Return a name that fits a cell, cut at the front: layers differ at the end of their names."""
    clean_name = printable(name)
    return clean_name if len(clean_name) <= _LONGEST else "..." + clean_name[3 - _LONGEST :]
