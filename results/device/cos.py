"""A device's queues, priorities and priority groups over time and at the end of a run, with the same columns as the
twin's: switches.parquet and queues.parquet (`switch_tables` has the columns). Values that a device does not count, or not
for the whole run, are null.

CoS i of a port means queue i, PFC priority i and priority group i, as in a modelled switch; a device may pair them
differently, which its profile's maps say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.counters import BY_OBJECT_AND_NAME, CountedObject, CounterNature, CounterObject
from etloop.contract.model.device_counts import SamplePhase
from etloop.contract.model.switch_counters import SAMPLED
from etloop.results.device.index import IndexedSource
from etloop.results.tables.switch_tables import COS_COUNTERS, LANE_UNITS, SAMPLE_UNITS

if TYPE_CHECKING:
    from numpy.typing import NDArray

_PLACE: Final = ("switch", "port", "peer", "cos")
_KINDS: Final = (CounterObject.QUEUE, CounterObject.GROUP, CounterObject.PRIORITY)
_ABSENT: Final = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True, eq=False)
class _Cos:
    """One lane of a port: queue, priority and group of one number, as one source counts them."""

    source: IndexedSource
    port: str
    number: int
    peer: str | None

    def place(self) -> tuple[object, ...]:
        """Return switch, port, peer ("" if unknown) and CoS number, the columns `_PLACE`."""
        switch, port = self.source.place(self.port)
        return switch, port, self.peer or "", self.number

    def place_and_number(self) -> tuple[str, str, int]:
        """Return device, port and CoS number, the sort key of a lane."""
        return (*self.source.place(self.port), self.number)

    def at(self, kind: CounterObject) -> CountedObject:
        """Return the queue, priority or group of the lane."""
        return CountedObject(kind, self.port, self.number)


def _all_cos(sources: tuple[IndexedSource, ...]) -> list[_Cos]:
    """Return every lane that a source counts, once each, from the first source that has it."""
    cos_by_place: dict[tuple[str, str, int], _Cos] = {}
    for source in sources:
        peers = dict(source.source.peers)
        for series in source.source.series:
            counted_object = series.object
            if counted_object.kind in _KINDS:
                key = (*source.place(counted_object.name), counted_object.number)
                cos_by_place.setdefault(
                    key,
                    _Cos(source, counted_object.name, counted_object.number, peers.get(counted_object.name)),
                )
    return [cos_by_place[key] for key in sorted(cos_by_place)]


def _uncounted_cos(sources: tuple[IndexedSource, ...], counted: list[_Cos]) -> list[_Cos]:
    """Return lanes for ports whose peer is known and for which no source reports a lane."""
    numbers = sorted({cos.number for cos in counted})
    reported_ports = {cos.place_and_number()[:2] for cos in counted}
    uncounted: list[_Cos] = []
    for source in sources:
        if source.source.is_host_side:
            continue
        for port, peer in source.source.peers:
            if source.place(port) not in reported_ports:
                reported_ports.add(source.place(port))
                uncounted += [_Cos(source, port, number, peer) for number in numbers]
    return uncounted


def device_cos_table(sources: tuple[IndexedSource, ...]) -> pa.Table | None:
    """Return switches.parquet: one row for every lane that a source reports, and for the lanes of ports without any
    count.

    Ports for which no source reports a lane get the lane numbers of the other ports, with null values: not counted is not
    zero. None if no source reports a lane.
    """
    all_cos = _all_cos(sources)
    all_cos += _uncounted_cos(sources, all_cos)
    all_cos.sort(key=_Cos.place_and_number)
    if not all_cos:
        return None
    places = [cos.place() for cos in all_cos]
    columns: dict[str, list[Any]] = {
        name: [place[index] for place in places] for index, name in enumerate(_PLACE)
    }
    for name, (kind, counter) in COS_COUNTERS.items():
        columns[name] = [_final_value(cos, kind, counter) for cos in all_cos]
    return _table(columns, LANE_UNITS)


def _final_value(cos: _Cos, kind: CounterObject, counter: str) -> int | None:
    """Return the increase over the run; for a watermark its last value. None if it is not known."""
    if BY_OBJECT_AND_NAME[kind, counter].nature is CounterNature.CUMULATIVE:
        return cos.source.increase(cos.at(kind), counter)
    number = cos.source.numbers.get((cos.at(kind), counter))
    return None if number is None else int(cos.source.increases.last[number])


def device_samples_table(sources: tuple[IndexedSource, ...], start_ns: int) -> pa.Table | None:
    """Return queues.parquet: lanes with a non-zero sample, over time; None if there is none. Times are relative to
    `start_ns`."""
    parts = [(cos, part) for cos in _all_cos(sources) if (part := _samples(cos)) is not None]
    if not parts:
        return None
    sizes = [len(part["time_ns"]) for _, part in parts]
    columns: dict[str, Any] = {"time_ns": np.concatenate([part["time_ns"] for _, part in parts]) - start_ns}
    places = [cos.place() for cos, _ in parts]
    for index, name in enumerate(_PLACE):
        columns[name] = np.repeat(np.array([place[index] for place in places], object), sizes).tolist()
    for name in SAMPLED:
        values = np.concatenate([part[name] for _, part in parts])
        columns[name] = pa.array(values, mask=values == _ABSENT)
    return _table(columns, SAMPLE_UNITS)


def _samples(cos: _Cos) -> dict[str, NDArray[np.int64]] | None:
    """Return the columns (int64) of one lane since the start of the run, `_ABSENT` where a reading has no value; None if
    all values are 0."""
    source = cos.source.source
    rows = {
        name: cos.source.rows(number)
        for name, (kind, counter) in SAMPLED.items()
        if (number := cos.source.numbers.get((cos.at(kind), counter))) is not None
    }
    values = {name: _since_begin(source.row_value[time_index], name) for name, time_index in rows.items()}
    if not any(value.any() for value in values.values()):
        return None
    longest = max(rows.values(), key=len)
    times = source.row_time_ns[longest]
    during = source.row_phase[longest] != SamplePhase.BEFORE
    table = {"time_ns": times[during]}
    for name in SAMPLED:
        aligned = np.full(len(times), _ABSENT, np.int64)
        if name in rows:
            own_times = source.row_time_ns[rows[name]]
            time_index = np.minimum(np.searchsorted(times, own_times), len(times) - 1)
            is_same = times[time_index] == own_times
            aligned[time_index[is_same]] = values[name][is_same]
        table[name] = aligned[during]
    return table


def _since_begin(values: NDArray[np.uint64], name: str) -> NDArray[np.int64]:
    """Return counters as increases since the first reading (int64); after a reset a counter continues from its last
    increase."""
    kind, counter = SAMPLED[name]
    if BY_OBJECT_AND_NAME[kind, counter].nature is not CounterNature.CUMULATIVE or not len(values):
        return values.astype(np.int64)
    steps = (values[1:] - values[:-1]).view(np.int64)
    return np.concatenate([[0], np.cumsum(np.maximum(steps, 0))]).astype(np.int64)


def _table(columns: Mapping[str, Any], units: Mapping[str, str]) -> pa.Table:
    """Return an Arrow table with the columns and types that `units` implies."""
    fields, arrays = [], []
    for name, unit in units.items():
        is_text = unit == "name"
        kind = (
            pa.dictionary(pa.int32(), pa.string()) if is_text else pa.int32() if name == "cos" else pa.int64()
        )
        column = columns[name]
        if is_text:
            column = pa.array(column, pa.string()).dictionary_encode()
        array = column if isinstance(column, pa.Array) else pa.array(column, kind)
        fields.append(pa.field(name, kind, True, {"unit": unit}))
        arrays.append(array)
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))
