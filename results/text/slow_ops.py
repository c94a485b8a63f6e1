"""What made a job slow, as people read it. Decides wording, rounding and how many names there are."""

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
    """Return the table of names that lost most, ended by an empty line; nothing where there is none."""
    if slow is None:
        return []
    rows = [
        (
            _shortened(one.name),
            one.kind[:20],
            str(one.count),
            us(one.joined_avg_ns),
            us(one.least_avg_ns),
            us(one.beyond_ns),
            f"iteration {one.worst_iteration}",
        )
        for one in slow.first[:SHOWN]
    ]
    lines = aligned([*HEADINGS, *rows])
    left = slow.total - len(rows)
    if left > 0:
        lines.append(f"And {left} more in collectives.parquet, column name.")
    return [*lines, ""]


def _shortened(name: str) -> str:
    """Return a name in one cell: the end of a long one tells layers apart."""
    shown = printable(name)
    return shown if len(shown) <= _LONGEST else "..." + shown[3 - _LONGEST :]
