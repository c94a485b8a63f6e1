"""Records the readings of one source during a run: batches in, columns and gaps out. Pure: times come with the batches.

Decides what is kept (all values up to a bound, then only the readings after the run), what is a gap, and whether a device has
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
"""Per source and run: 600 MB."""
MOST_GAPS: Final = 1000
MOST_NOTES: Final = 16


class SourceLog:
    """The record of one source, which grows during a run."""

    def __init__(
        self, name: str, rig_ports: frozenset[str], begin_ns: int, most_values: int = MOST_VALUES
    ) -> None:
        """Start an empty record. `rig_ports`: the device's names of its ports to the rig; if empty, all count for `at_rest`."""
        self._name = name
        self._ports = rig_ports
        self._most_values = most_values
        self._last_ns = begin_ns
        self._failing = ""
        self._numbers: dict[tuple[object, str], int] = {}
        self._series: list[Series] = []
        self._moving: list[bool] = []
        """By series: whether its counter moves with the traffic of a port to the rig."""
        self._columns: list[tuple[NDArray[np.int32], NDArray[np.uint64], int, int, SamplePhase]] = []
        self._values = 0
        self._gaps: list[CounterGap] = []
        self._notes: dict[str, None] = {}
        self._counts: list[dict[int, int]] = []
        """The last two batches: series number -> value of the counters that move on ports to the rig."""
        self.readings = 0

    def add(self, batch: CounterBatch, phase: SamplePhase) -> None:
        """Record a successful reading, which ends a gap. If the first comes after the run has started, a gap precedes it."""
        if not self.readings and phase is not SamplePhase.BEFORE and not self._failing:
            self._failing = "late: the first reading was made after the run started"
        self._end_gap(batch.at_ns)
        self._last_ns = batch.at_ns
        self.readings += 1
        for text in batch.complaints:
            self.note(text)
        counts = self._believe(batch.readings)
        traffic_values = {number: value for number, value in counts.items() if self._moving[number]}
        self._counts = [*self._counts[-1:], traffic_values]
        self._keep(list(counts), list(counts.values()), batch, phase)

    def fail(self, failure: CounterFailure) -> bool:
        """Record a failed reading or a failed attempt to open the device. Return whether it begins a gap."""
        begins = not self._failing
        if begins:
            self._failing = str(failure)
        return begins

    @property
    def at_rest(self) -> bool:
        """Return whether the last two readings have equal traffic counters on the ports to the rig."""
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
        """End the record and return it; the arguments are copied into it.

        Rows are one per value, in the order of reading: `row_series` (int32, index into `series`), `row_time_ns` and
        `row_error_ns` (int64), `row_phase` (int8) and `row_value` (uint64).
        """
        at_rest = self.at_rest
        self._end_gap(now_ns)
        known_ports = {
            series.object.name for series in self._series if series.object.kind is CounterObject.PORT
        }
        for port in sorted(self._ports - known_ports)[:MOST_NOTES] if self.readings else ():
            self.note(f"reports no counters of port {port}, which the rig connects to it")
        sizes = [len(numbers) for numbers, *_ in self._columns]

        def repeat_by_size(values: Iterable[int], kind: type[np.integer]) -> NDArray[np.integer]:
            return np.repeat(np.fromiter(values, kind, len(sizes)), sizes)

        return CountedSource(
            name=self._name,
            reader=reader,
            interval_ns=interval_ns,
            peers=peers,
            several_devices=several,
            is_host_side=host_side,
            series=tuple(self._series),
            row_series=np.concatenate([np.empty(0, np.int32), *(column[0] for column in self._columns)]),
            row_time_ns=repeat_by_size((column[2] for column in self._columns), np.int64).astype(np.int64),
            row_error_ns=repeat_by_size((column[3] for column in self._columns), np.int64).astype(np.int64),
            row_phase=repeat_by_size((int(column[4]) for column in self._columns), np.int8).astype(np.int8),
            row_value=np.concatenate([np.empty(0, np.uint64), *(column[1] for column in self._columns)]),
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
            self.note(f"more than {MOST_GAPS} gaps; later ones are not listed")
        self._failing = ""

    def _believe(self, readings: tuple[CounterReading, ...]) -> dict[int, int]:
        """Return the valid values of a batch by the number of their series, in the order of reading."""
        if len(readings) > MOST_READINGS:
            self.note(f"reported {len(readings)} values at once; the first {MOST_READINGS} are kept")
        counts: dict[int, int] = {}
        for reading in readings[:MOST_READINGS]:
            counted, counter, value, _ = reading
            number = self._numbers.get((counted, counter))
            # If a counter was valid once, check only its value: there are many, in every batch.
            if number is not None and 0 <= value < 1 << 64:
                mistake = "reported twice in one reading" if number in counts else ""
            else:
                mistake = reading_mistake(reading)
            if mistake:
                self.note(f"{counter[:64]}: {mistake}")
                continue
            if number is None:
                number = self._add_series(reading)
            counts[number] = value
        return counts

    def _add_series(self, reading: CounterReading) -> int:
        number = self._numbers[reading.object, reading.counter] = len(self._series)
        self._series.append(Series(reading.object, reading.counter, reading.width_bits))
        self._moving.append(self._moves(reading))
        return number

    def _moves(self, reading: CounterReading) -> bool:
        """Return whether a reading is a counter of a port of interest that changes with traffic (any but a watermark)."""
        counter = counter_of(reading)
        is_port_of_interest = not self._ports or reading.object.name in self._ports
        return is_port_of_interest and counter is not None and counter.nature is not CounterNature.WATERMARK

    def _keep(self, numbers: list[int], values: list[int], batch: CounterBatch, phase: SamplePhase) -> None:
        row = (
            np.array(numbers, np.int32),
            np.array(values, np.uint64),
            batch.at_ns,
            batch.error_ns,
            phase,
        )
        if self._values + len(numbers) > self._most_values and phase is SamplePhase.DURING:
            after_text = seconds_text(batch.at_ns - self._columns[0][2]) if self._columns else "at once"
            self.note(
                f"{self._most_values} values were kept; of the readings after {after_text} only the last is kept"
            )
            return
        self._values += len(numbers)
        self._columns.append(row)

    def note(self, text: str) -> None:
        """Record a remark, once; at most MOST_NOTES."""
        if len(self._notes) < MOST_NOTES:
            self._notes[text] = None
