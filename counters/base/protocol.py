"""The interface of every reader of a device's counters: opened, read repeatedly, closed. A reader can never end a run.

Decides the interface and its bounds. Each source is a file in `readers` with a class that satisfies `DeviceCounters`; the rig
decides which sources a run uses, `sampling` when they are read.

A reader
* answers with a value, a batch or a `CounterFailure`, and raises only `asyncio.CancelledError`: all input from a device is
  hostile, and any part of it can be missing;
* may be cancelled in any `await`, after which only `close` is called; the caller reports a late reading as LATE, so a reader
  needs no timeouts of its own, except to report more precisely what was late;
* does not block the event loop: sockets are asyncio's, blocking calls run in a thread and are bounded there;
* reads at most `MOST_READINGS` values, gives canonical names only (contract/model/counters.py), and never writes credentials
  into its output;
* may be opened again after it was closed, which is how a lost connection is restored.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from etloop.contract.model.counters import CounterBatch, CounterFailure, CounterReading, reading_mistake

MOST_COMPLAINTS: Final = 8
"""Per batch."""


class DeviceCounters(Protocol):
    """One source of the counters of one device."""

    async def open(self) -> CounterFailure | None:
        """Connect, sign in and find the objects to read. Return None when ready to read."""

    async def read(self) -> CounterBatch | CounterFailure:
        """Return the current values of all requested objects. Call it only after an `open` that succeeded.

        Within one batch an object's counter appears once. After a failure the caller may read again or close.
        """

    async def close(self) -> None:
        """Release all resources, in any state. Repeated calls are harmless."""


def sift(
    readings: Iterable[CounterReading], complaints: Iterable[str] = ()
) -> tuple[tuple[CounterReading, ...], tuple[str, ...]]:
    """Return the valid readings, and the complaints extended by one for each invalid reading; at most `MOST_COMPLAINTS`."""
    valid = []
    noted_complaints = dict.fromkeys(complaints)
    for reading in readings:
        mistake = reading_mistake(reading)
        if not mistake:
            valid.append(reading)
        elif len(noted_complaints) < MOST_COMPLAINTS:
            noted_complaints.setdefault(mistake)
    return tuple(valid), tuple(noted_complaints)[:MOST_COMPLAINTS]
