"""Readings of a device's counters for people and programs: a table of what is not 0, or one JSON object. Pure."""

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
from etloop.results.text.layout import us

Values = dict[tuple["CountedObject", str], int]
MOST_LINES: Final = 2000


def values_of(batch: CounterBatch) -> Values:
    """What a reading told, by object and counter."""
    return {(reading.object, reading.counter): reading.value for reading in batch.readings}


def reading_text(
    name: str, result: CounterBatch | CounterFailure, peers: Mapping[str, str], before: Values | None
) -> str:
    """One reading of one source. With `before`, the reading before it: what moved since; else all that is not 0."""
    if isinstance(result, CounterFailure):
        return f"{name}: {result}\n"
    now = values_of(result)
    shown = now if before is None else _moved(now, before)
    shown = {key: value for key, value in shown.items() if value}
    what = "that are not 0" if before is None else "that moved"
    known = f"their moment known to {us(result.error_ns)} us"
    lines = [f"{name}: {len(now)} counters, {len(shown)} {what}; {known}"]
    objects = sorted(
        {one for one, _ in shown}, key=lambda one: (one.name, list(CounterObject).index(one.kind), one.number)
    )
    width = max((len(_title(one, peers)) for one in objects), default=0)
    for one in objects:
        values_text = ", ".join(f"{counter} {value}" for (at, counter), value in shown.items() if at == one)
        lines.append(f"  {_title(one, peers):<{width}}  {values_text}")
    if len(lines) > MOST_LINES:
        lines[MOST_LINES:] = [f"  and {len(lines) - MOST_LINES} more; --json tells all"]
    lines += [f"  left out: {complaint}" for complaint in result.complaints]
    return "\n".join(lines) + "\n"


def _title(one: CountedObject, peers: Mapping[str, str]) -> str:
    peer = peers.get(one.name)
    return f"{one} ({peer})" if peer else str(one)


def _moved(now: Values, before: Values) -> Values:
    """Amounts as increases, moments as they are; what was set back, is told as it is."""
    found: Values = {}
    for key, value in now.items():
        one, counter = key
        known = BY_OBJECT_AND_NAME.get((one.kind, counter))
        if known is not None and known.nature is CounterNature.CUMULATIVE:
            past = before.get(key, 0)
            found[key] = value - past if value >= past else value
        elif value != before.get(key):
            found[key] = value
    return found


def reading_json(
    name: str, result: CounterBatch | CounterFailure, peers: Mapping[str, str]
) -> dict[str, Any]:
    """The same for programs: all values, with units."""
    if isinstance(result, CounterFailure):
        return {"source": name, "failure": {"kind": result.kind, "what": result.what}}
    return {
        "source": name,
        "at_ns": result.at_ns,
        "error_ns": result.error_ns,
        "counters": [
            {
                "object": str(one),
                "kind": one.kind,
                "port": one.name,
                "number": one.number,
                "peer": peers.get(one.name),
                "counter": counter,
                "unit": unit.unit if (unit := BY_OBJECT_AND_NAME.get((one.kind, counter))) else "",
                "value": value,
            }
            for (one, counter), value in values_of(result).items()
        ],
        "complaints": result.complaints,
    }
