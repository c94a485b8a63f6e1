"""Formats readings of a device's counters: a table of values other than 0, or one JSON object. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from etloop.contract.model.counters import (
    BY_OBJECT_AND_NAME,
    CountedObject,
    CounterBatch,
    CounterFailure,
    CounterNature,
    CounterObject,
)
from etloop.results.report.values import us

Values = dict[tuple["CountedObject", str], int]
MOST_LINES: Final = 2000


def values_of(batch: CounterBatch) -> Values:
    """Return the values of a reading, by object and counter."""
    return {(reading.object, reading.counter): reading.value for reading in batch.readings}


def reading_text(
    name: str, result: CounterBatch | CounterFailure, peers: Mapping[str, str], before: Values | None
) -> str:
    """Return one reading of one source as text: the changes since `before`, or all values other than 0 if it is None."""
    if isinstance(result, CounterFailure):
        return f"{name}: {result}\n"
    now = values_of(result)
    shown_values = now if before is None else _changes_since(now, before)
    shown_values = {key: value for key, value in shown_values.items() if value}
    selection_text = "that are not 0" if before is None else "that moved"
    error_text = f"their moment known to {us(result.error_ns)} us"
    lines = [f"{name}: {len(now)} counters, {len(shown_values)} {selection_text}; {error_text}"]
    objects = sorted(
        {counted for counted, _ in shown_values},
        key=lambda counted: (counted.name, list(CounterObject).index(counted.kind), counted.number),
    )
    width = max((len(_title(counted, peers)) for counted in objects), default=0)
    for counted in objects:
        values_text = ", ".join(
            f"{counter} {value}" for (owner, counter), value in shown_values.items() if owner == counted
        )
        lines.append(f"  {_title(counted, peers):<{width}}  {values_text}")
    if len(lines) > MOST_LINES:
        lines[MOST_LINES:] = [f"  and {len(lines) - MOST_LINES} more; --json has all"]
    lines += [f"  left out: {complaint}" for complaint in result.complaints]
    return "\n".join(lines) + "\n"


def _title(counted: CountedObject, peers: Mapping[str, str]) -> str:
    peer = peers.get(counted.name)
    return f"{counted} ({peer})" if peer else str(counted)


def _changes_since(now: Values, before: Values) -> Values:
    """Return the changes: increases of cumulative counters (a reset one as it is), and the new values of the others."""
    changes: Values = {}
    for key, value in now.items():
        counted, counter = key
        definition = BY_OBJECT_AND_NAME.get((counted.kind, counter))
        if definition is not None and definition.nature is CounterNature.CUMULATIVE:
            previous = before.get(key, 0)
            changes[key] = value - previous if value >= previous else value
        elif value != before.get(key):
            changes[key] = value
    return changes


def reading_json(
    name: str, result: CounterBatch | CounterFailure, peers: Mapping[str, str]
) -> dict[str, Any]:
    """Return one reading as values for programs: all values, with units."""
    if isinstance(result, CounterFailure):
        return {"source": name, "failure": {"kind": result.kind, "what": result.text}}
    return {
        "source": name,
        "at_ns": result.at_ns,
        "error_ns": result.error_ns,
        "counters": [
            {
                "object": str(counted),
                "kind": counted.kind,
                "port": counted.name,
                "number": counted.number,
                "peer": peers.get(counted.name),
                "counter": counter,
                "unit": definition.unit
                if (definition := BY_OBJECT_AND_NAME.get((counted.kind, counter)))
                else "",
                "value": value,
            }
            for (counted, counter), value in values_of(result).items()
        ],
        "complaints": result.complaints,
    }
