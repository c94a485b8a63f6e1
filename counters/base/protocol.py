"""What every reader of a device's counters is: opened, read again and again, closed. Nothing it does can end a run.

Decides the shape and the bounds. Each source is a file of this folder with a class that satisfies `DeviceCounters`; which ones a
run uses, is decided by the rig; when they are read, by `sampling`.

A reader
* answers with a value, a batch or a `CounterFailure`, and raises nothing but `asyncio.CancelledError`: everything that comes
  from a device is hostile, and everything can be missing;
* may be cancelled in any `await`, after which only `close` is called; what is read late is told as LATE by the caller, so a
  reader needs no timeouts of its own, except to tell more precisely what was late;
* does not block the event loop: sockets are asyncio's, calls that block are handed to a thread and bounded there;
* reads at most `MOST_READINGS` values, gives canonical names only (contract/model/counters.py), and never writes credentials
  into anything that it gives;
* may be opened again after it was closed, which is how a lost connection comes back.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from etloop.contract.model.counters import CounterBatch, CounterFailure, CounterReading, reading_mistake

MOST_COMPLAINTS: Final = 8
"""Of one batch."""


class DeviceCounters(Protocol):
    """One source of the counters of one device."""

    async def open(self) -> CounterFailure | None:
        """Gets ready to read: connects, signs in, finds the objects. None when it is."""

    async def read(self) -> CounterBatch | CounterFailure:
        """Every value of the objects that are asked for, at this moment. Only after an `open` that succeeded.

        Within one batch an object's counter appears once. A failure leaves the reader as it was; the caller may read again
        or close.
        """

    async def close(self) -> None:
        """Lets go of everything, whatever state it is in; more than once does no harm."""


def sifted(
    readings: Iterable[CounterReading], complaints: Iterable[str] = ()
) -> tuple[tuple[CounterReading, ...], tuple[str, ...]]:
    """Return those readings that can be one, and the complaints with those about the others."""
    kept = []
    noted = dict.fromkeys(complaints)
    for reading in readings:
        mistake = reading_mistake(reading)
        if not mistake:
            kept.append(reading)
        elif len(noted) < MOST_COMPLAINTS:
            noted.setdefault(mistake)
    return tuple(kept), tuple(noted)[:MOST_COMPLAINTS]
