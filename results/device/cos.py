"""A device's queues, priorities and priority groups after and during a run, in the shape of the twin's: switches.parquet and
queues.parquet (`switch_tables` has the columns). What a device does not count, or not for the whole run, is null.

CoS i of a port stands for queue i, PFC priority i and priority group i, as in a modelled switch; a device may pair them
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
    source: IndexedSource
    port: str
    number: int
    peer: str | None

    def place(self) -> tuple[object, ...]:
        switch, port = self.source.place(self.port)
        return switch, port, self.peer or "", self.number

    def place_and_number(self) -> tuple[str, str, int]:
        return (*self.source.place(self.port), self.number)

    def at(self, kind: CounterObject) -> CountedObject:
        return CountedObject(kind, self.port, self.number)


def _all_cos(sources: tuple[IndexedSource, ...]) -> list[_Cos]:
    """Every lane of which something is counted, once: by the first source that tells of it."""
    found: dict[tuple[str, str, int], _Cos] = {}
    for one in sources:
        peers = dict(one.source.peers)
        for series in one.source.series:
            at = series.object
            if at.kind in _KINDS:
                key = (*one.place(at.name), at.number)
                found.setdefault(key, _Cos(one, at.name, at.number, peers.get(at.name)))
    return [found[key] for key in sorted(found)]


def _not_counted(sources: tuple[IndexedSource, ...], counted: list[_Cos]) -> list[_Cos]:
    """Return lanes of ports that are known by what they lead to, and of which no source reports a lane."""
    numbers = sorted({cos.number for cos in counted})
    known = {cos.place_and_number()[:2] for cos in counted}
    found: list[_Cos] = []
    for one in sources:
        if one.source.is_host_side:
            continue
        for port, peer in one.source.peers:
            if one.place(port) not in known:
                known.add(one.place(port))
                found += [_Cos(one, port, number, peer) for number in numbers]
    return found


def device_cos_table(sources: tuple[IndexedSource, ...]) -> pa.Table | None:
    """Return switches.parquet: one row for every lane that a source reports, and for ports of which none reports any lane.

    Lanes of the latter are those of the other ports, without values: they are not counted, which is not zero. None where no
    source reports a lane.
    """
    all_cos = _all_cos(sources)
    all_cos += _not_counted(sources, all_cos)
    all_cos.sort(key=_Cos.place_and_number)
    if not all_cos:
        return None
    places = [cos.place() for cos in all_cos]
    columns: dict[str, list[Any]] = {
        name: [place[index] for place in places] for index, name in enumerate(_PLACE)
    }
    for name, (kind, counter) in COS_COUNTERS.items():
        columns[name] = [_final(cos, kind, counter) for cos in all_cos]
    return _table(columns, LANE_UNITS)


def _final(cos: _Cos, kind: CounterObject, counter: str) -> int | None:
    """Increase of the run; of a watermark what it was at the end."""
    if BY_OBJECT_AND_NAME[kind, counter].nature is CounterNature.CUMULATIVE:
        return cos.source.increase(cos.at(kind), counter)
    number = cos.source.numbers.get((cos.at(kind), counter))
    return None if number is None else int(cos.source.increases.last[number])


def device_samples_table(sources: tuple[IndexedSource, ...], start_ns: int) -> pa.Table | None:
    """queues.parquet: lanes on which something moved, over time; None where none did or nothing was sampled."""
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
    """Columns of one lane from the begin of the run on, `_ABSENT` where a reading lacked a value; None where nothing moved."""
    source = cos.source.source
    rows = {
        name: cos.source.rows(number)
        for name, (kind, counter) in SAMPLED.items()
        if (number := cos.source.numbers.get((cos.at(kind), counter))) is not None
    }
    values = {name: _since_begin(source.row_value[at], name) for name, at in rows.items()}
    if not any(value.any() for value in values.values()):
        return None
    longest = max(rows.values(), key=len)
    times = source.row_time_ns[longest]
    during = source.row_phase[longest] != SamplePhase.BEFORE
    table = {"time_ns": times[during]}
    for name in SAMPLED:
        known = np.full(len(times), _ABSENT, np.int64)
        if name in rows:
            own = source.row_time_ns[rows[name]]
            at = np.minimum(np.searchsorted(times, own), len(times) - 1)
            same = times[at] == own
            known[at[same]] = values[name][same]
        table[name] = known[during]
    return table


def _since_begin(values: NDArray[np.uint64], name: str) -> NDArray[np.int64]:
    """Counters as increases since the first reading; a counter that was set back goes on from there."""
    kind, counter = SAMPLED[name]
    if BY_OBJECT_AND_NAME[kind, counter].nature is not CounterNature.CUMULATIVE or not len(values):
        return values.astype(np.int64)
    steps = (values[1:] - values[:-1]).view(np.int64)
    return np.concatenate([[0], np.cumsum(np.maximum(steps, 0))]).astype(np.int64)


def _table(columns: Mapping[str, Any], units: Mapping[str, str]) -> pa.Table:
    fields, arrays = [], []
    for name, unit in units.items():
        text = unit == "name"
        kind = pa.dictionary(pa.int32(), pa.string()) if text else pa.int32() if name == "cos" else pa.int64()
        given = columns[name]
        if text:
            given = pa.array(given, pa.string()).dictionary_encode()
        array = given if isinstance(given, pa.Array) else pa.array(given, kind)
        fields.append(pa.field(name, kind, True, {"unit": unit}))
        arrays.append(array)
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))
