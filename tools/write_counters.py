"""Write the files other than Python that follow from the table of counters: `python tools/write_counters.py`.

Writes the fields of the native records, the schema of `transport` in results/summary.schema.json, and the counters of
docs/metrics.md, from `COUNTERS` of contract/model/counters.py. A test checks that the three files are current.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, Final

from etloop.contract.model.counters import (
    COUNTERS,
    NO_USE,
    AgentObject,
    CounterObject,
    CounterUse,
    counters_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from etloop.contract.model.counters import Counter, Owner

    Table = tuple[Counter, ...]

ROOT: Final = Path(__file__).resolve().parent.parent
_NATIVE: Final[tuple[tuple[str, Owner, CounterUse], ...]] = (
    ("QUEUE_PAIR", AgentObject.QUEUE_PAIR, NO_USE),
    ("PORT", AgentObject.PORT, NO_USE),
    ("SWITCH_PORT", CounterObject.PORT, CounterUse.MODELLED),
    ("PRIORITY", CounterObject.PRIORITY, CounterUse.MODELLED),
    ("QUEUE", CounterObject.QUEUE, CounterUse.MODELLED),
    ("GROUP", CounterObject.GROUP, CounterUse.MODELLED),
)
_HEAD: Final = """// Fields of counter records in their order: ETLOOP_..._COUNTERS(FIELD) is FIELD(name) for each.
// Written by tools/write_counters.py from contract/model/counters.py, which says what each counts.
#pragma once
"""


def native_header(table: Table) -> str:
    """Return traffic/native/base/counter_fields.h."""
    macros = []
    for name, owner, uses in _NATIVE:
        fields = " \\\n".join(f"  FIELD({counter.name})" for counter in counters_of(owner, uses, table))
        macros.append(f"#define ETLOOP_{name}_COUNTERS(FIELD) \\\n{fields}\n")
    return "\n".join([_HEAD, *macros])


def summary_schema(text: str, table: Table) -> str:
    """Return results/summary.schema.json with the counters of `table` in `transport`."""
    schema: dict[str, Any] = json.loads(text)
    summed = [counter for owner in AgentObject for counter in counters_of(owner, CounterUse.SUMMED, table)]
    schema["properties"]["transport"] |= {
        "required": [counter.name for counter in summed],
        "properties": {
            counter.name: {"description": f"{_sentence(counter.meaning)}.", "type": "integer"}
            for counter in summed
        },
    }
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _sentence(meaning: str) -> str:
    return meaning[0].upper() + meaning[1:]


def metrics_page(text: str, table: Table) -> str:
    """Return docs/metrics.md with the counters of `table` in its sections of flows, ports and `transport`."""
    text = _with_rows(text, "flows.parquet", counters_of(AgentObject.QUEUE_PAIR, table=table))
    text = _with_rows(text, "ports.parquet", counters_of(AgentObject.PORT, table=table))
    sums = []
    for owner, file in ((AgentObject.QUEUE_PAIR, "flows.parquet"), (AgentObject.PORT, "ports.parquet")):
        names = ", ".join(f"`{counter.name}`" for counter in counters_of(owner, CounterUse.SUMMED, table))
        sums.append(fill(f"Sums over {file}: {names}.", 100, break_on_hyphens=False) + "\n\n")
    pattern = r"Sums over flows\.parquet: .*?(?=An agent that was lost)"
    page_text, places = re.subn(pattern, lambda _: "".join(sums), text, count=1, flags=re.DOTALL)
    assert places == 1, "docs/metrics.md has no paragraph on transport"
    return page_text


def _with_rows(text: str, section: str, counters: tuple[Counter, ...]) -> str:
    """Replace the rows from the first counter of the section to the last by a row for each counter."""
    lines = text.split("\n")
    begin_line = next(index for index, line in enumerate(lines) if re.fullmatch(rf"## \d+\. {section}", line))
    end_line = next(
        (index for index, line in enumerate(lines) if index > begin_line and line.startswith("## ")),
        len(lines),
    )
    names = {counter.name for counter in counters}
    rows = [
        index
        for index in range(begin_line, end_line)
        if names
        & set(re.findall(r"`(\w+)`", lines[index].split("|", 2)[1] if lines[index].startswith("| `") else ""))
    ]
    lines[rows[0] : rows[-1] + 1] = [
        f"| `{counter.name}` | {counter.unit} | {counter.meaning} |" for counter in counters
    ]
    return "\n".join(lines)


def _header(_: str, table: Table) -> str:
    return native_header(table)


FILES: Final[dict[str, Callable[[str, Table], str]]] = {
    "traffic/native/base/counter_fields.h": _header,
    "results/summary.schema.json": summary_schema,
    "docs/metrics.md": metrics_page,
}
"""File -> function that makes its new text from the present one and the table."""


def main() -> None:
    """Rewrite every file of `FILES`."""
    for name, text_of in FILES.items():
        path = ROOT / name
        path.write_text(
            text_of(path.read_text(encoding="utf-8") if path.exists() else "", COUNTERS), encoding="utf-8"
        )


if __name__ == "__main__":
    main()
