"""Kept records of measurements (tests/measure/outcomes/*.json), and what a page prints of them.

Decides how a record reads on a page. A record says which command gave the figures, on what machine, and with which commit
they came; `rows` below `columns`, or `lines` as a command printed them. What the lab and its twin came to is kept as
`python -m tests.measure.lab_twin --json` writes it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from tests.measure.lab_twin import COUNT_PERCENT, FEW
from tests.support.places import ROOT

OUTCOMES: Final = ROOT / "tests" / "measure" / "outcomes"
LAB_TWIN: Final = "lab-twin"
_MARK: Final = re.compile(r"^<!-- record: ([a-z-]+) -->\n((?:\|.*\n)+)", re.MULTILINE)
_TABLE: Final = re.compile(r"(?:^|\n)((?:\|.*\n)+)")
_NUMBER: Final = re.compile(r"\W*\d")


def records() -> dict[str, Any]:
    """Return all kept records by their names on pages."""
    return {
        path.stem.replace("_", "-"): json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(OUTCOMES.glob("*.json"))
    }


def rendered(name: str, record: Any) -> str:
    """Return what a page shows of a record: a table, or lines."""
    if name == LAB_TWIN:
        return _table(_LAB_TWIN_COLUMNS, [_lab_twin_row(pair) for pair in record])
    if "lines" in record:
        return "".join(f"{line}\n" for line in record["lines"])
    return _table(record["columns"], record["rows"])


def marked(page: str) -> Iterator[tuple[str, str]]:
    """Yield the tables of a page that are rendered from records: name and text."""
    for found in _MARK.finditer(page):
        yield found.group(1), found.group(2)


def tables_of_figures(page: str) -> list[str]:
    """Return the tables in which most cells are figures, and which no record stands before: their first lines."""
    prose = re.sub(r"^( *)```.*?^\1```$", "", page, flags=re.MULTILINE | re.DOTALL)
    prose = _MARK.sub("", prose)
    found = []
    for table in _TABLE.finditer(prose):
        first, _, *rows = table.group(1).splitlines()
        cells = [cell.strip() for row in rows for cell in row.split("|")[2:-1]]
        if sum(bool(_NUMBER.match(cell)) for cell in cells) * 2 > len(cells):
            found.append(first)
    return found


def _table(columns: list[str], rows: list[list[str]]) -> str:
    lines = [_row(columns), "|" + "---|" * len(columns), *map(_row, rows)]
    return "".join(f"{line}\n" for line in lines)


def _row(cells: list[str]) -> str:
    return "|" + "".join(f" {cell} |" if cell else " |" for cell in cells)


_LAB_TWIN_COLUMNS: Final = [
    "job",
    "completion lab, twin (ms)",
    "marks lab, twin",
    "pauses lab, twin",
    "bars",
]


def _lab_twin_row(pair: dict[str, Any]) -> list[str]:
    lab, twin = pair["lab"], pair["twin"]
    counts, missed = [], []
    for name in ("marks", "pauses"):
        apart = abs(lab[name] - twin[name])
        share = f" ({100 * apart / twin[name]:+.1f} %)" if twin[name] else ""
        over = apart > max(FEW, twin[name] * COUNT_PERCENT / 100)
        counts.append(f"{lab[name]}, {twin[name]}" + (share if over else ""))
        missed += [name] if over else []
    late = (lab["jct_ns"] / twin["jct_ns"] - 1) * 100
    completion = f"{lab['jct_ns'] / 1e6:.1f}, {twin['jct_ns'] / 1e6:.1f} ({late:+.1f} %)"
    return [pair["name"], completion, *counts, f"**{', '.join(missed)} not met**" if missed else "met"]
