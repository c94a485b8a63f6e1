"""Keeps what one source tells during a run: batches in, columns and gaps out. Pure: times come with the batches.

Decides what is kept (all values up to a bound, then no more but the last reading), what is a gap, and whether a device has
come to rest.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import numpy as np
from etloop.contract.base.clock import seconds_text
from etloop.contract.model.counters import (
    MOST_READINGS,
    CounterBatch,
    CounterFailure,
    CounterNature,
    CounterObject,
    CounterReading,
    counter_of,
    reading_mistake,
)
from etloop.contract.model.device_counts import CountedSource, CounterGap, SamplePhase, Series

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_VALUES: Final = 20_000_000
"""Of one source in one run: 600 MB."""
MOST_GAPS: Final = 1000
MOST_NOTES: Final = 16


class SourceLog:
    """Grows while a run lasts."""

    def __init__(
        self, name: str, rig_ports: frozenset[str], begin_ns: int, most_values: int = MOST_VALUES
    ) -> None:
        """`rig_ports` are the device's names of the ports that lead to the rig; of none, all ports count for rest."""
        self._name = name
        self._ports = rig_ports
        self._most_values = most_values
        self._last_ns = begin_ns
        self._failing = ""
        self._numbers: dict[tuple[object, str], int] = {}
        self._series: list[Series] = []
        self._columns: list[tuple[NDArray[np.int32], NDArray[np.uint64], int, int, SamplePhase]] = []
        self._values = 0
        self._gaps: list[CounterGap] = []
        self._notes: dict[str, None] = {}
        self._counts: list[dict[int, int]] = []
        """Of the last two batches: what moves on ports that lead to the rig."""
        self.readings = 0

    def add(self, batch: CounterBatch, phase: SamplePhase) -> None:
        """A reading that succeeded; it ends a gap. A first one after the begin of the run has a gap before it."""
        if not self.readings and phase is not SamplePhase.BEFORE and not self._failing:
            self._failing = "late: the first reading came when the run had begun"
        self._end_gap(batch.at_ns)
        self._last_ns = batch.at_ns
        self.readings += 1
        for text in batch.complaints:
            self.note(text)
        numbers: list[int] = []
        values: list[int] = []
        moving: dict[int, int] = {}
        for reading in self._believed(batch.readings):
            number = self._number(reading)
            numbers.append(number)
            values.append(reading.value)
            if self._moves(reading):
                moving[number] = reading.value
        self._counts = [*self._counts[-1:], moving]
        self._keep(numbers, values, batch, phase)

    def fail(self, failure: CounterFailure) -> bool:
        """A reading that did not come about, or an attempt to get at the device. Whether it begins a gap: there may be one."""
        begins = not self._failing
        if begins:
            self._failing = str(failure)
        return begins

    @property
    def at_rest(self) -> bool:
        """Whether the last two readings told the same of what moves on the ports that lead to the rig."""
        return not self._failing and len(self._counts) == 2 and self._counts[0] == self._counts[1] != {}

    def finish(
        self,
        now_ns: int,
        reader: str,
        interval_ns: int,
        peers: tuple[tuple[str, str], ...],
        *,
        several: bool,
        host_side: bool,
    ) -> CountedSource:
        """All of it; what is not the log's own is handed in."""
        at_rest = self.at_rest
        self._end_gap(now_ns)
        known = {series.object.name for series in self._series if series.object.kind is CounterObject.PORT}
        for missing in sorted(self._ports - known)[:MOST_NOTES] if self.readings else ():
            self.note(f"tells nothing of a port {missing}, which the rig says leads to it")
        sizes = [len(numbers) for numbers, *_ in self._columns]

        def spread(values: Iterable[int], kind: type[np.integer]) -> NDArray[np.integer]:
            return np.repeat(np.fromiter(values, kind, len(sizes)), sizes)

        return CountedSource(
            name=self._name,
            reader=reader,
            interval_ns=interval_ns,
            peers=peers,
            several_devices=several,
            is_host_side=host_side,
            series=tuple(self._series),
            row_series=np.concatenate([np.empty(0, np.int32), *(one[0] for one in self._columns)]),
            row_time_ns=spread((one[2] for one in self._columns), np.int64).astype(np.int64),
            row_error_ns=spread((one[3] for one in self._columns), np.int64).astype(np.int64),
            row_phase=spread((int(one[4]) for one in self._columns), np.int8).astype(np.int8),
            row_value=np.concatenate([np.empty(0, np.uint64), *(one[1] for one in self._columns)]),
            readings=self.readings,
            gaps=tuple(self._gaps),
            notes=tuple(self._notes),
            at_rest=at_rest,
        )

    def _end_gap(self, now_ns: int) -> None:
        if not self._failing:
            return
        if len(self._gaps) < MOST_GAPS:
            self._gaps.append(CounterGap(self._name, self._last_ns, now_ns, self._failing))
        else:
            self.note(f"more than {MOST_GAPS} gaps; the later ones are not told one by one")
        self._failing = ""

    def _believed(self, readings: tuple[CounterReading, ...]) -> Iterable[CounterReading]:
        if len(readings) > MOST_READINGS:
            self.note(f"told {len(readings)} values at once; the first {MOST_READINGS} are kept")
        seen: set[tuple[object, str]] = set()
        for reading in readings[:MOST_READINGS]:
            key = (reading.object, reading.counter)
            # What has been believed once, needs only its value looked at: there are many, again and again.
            if key in self._numbers and 0 <= reading.value < 1 << 64:
                mistake = "told twice in one reading" if key in seen else ""
            else:
                mistake = reading_mistake(reading)
            seen.add(key)
            if mistake:
                self.note(f"{reading.counter[:64]}: {mistake}")
            else:
                yield reading

    def _number(self, reading: CounterReading) -> int:
        key = (reading.object, reading.counter)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._series)
            self._series.append(Series(reading.object, reading.counter, reading.width_bits))
        return number

    def _moves(self, reading: CounterReading) -> bool:
        """Whether a value tells that frames pass a port of interest."""
        counter = counter_of(reading)
        wanted = not self._ports or reading.object.name in self._ports
        return wanted and counter is not None and counter.nature is not CounterNature.WATERMARK

    def _keep(self, numbers: list[int], values: list[int], batch: CounterBatch, phase: SamplePhase) -> None:
        row = (
            np.array(numbers, np.int32),
            np.array(values, np.uint64),
            batch.at_ns,
            batch.error_ns,
            phase,
        )
        if self._values + len(numbers) > self._most_values and phase is SamplePhase.DURING:
            after = seconds_text(batch.at_ns - self._columns[0][2]) if self._columns else "at once"
            self.note(f"{self._most_values} values were kept; of what was read after {after} only the end is")
            return
        self._values += len(numbers)
        self._columns.append(row)

    def note(self, text: str) -> None:
        """Something worth knowing, once."""
        if len(self._notes) < MOST_NOTES:
            self._notes[text] = None
