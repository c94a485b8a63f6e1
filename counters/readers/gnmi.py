"""Reads counters of a gNMI server. This part does not import gRPC, so that a rig with a gNMI source can be read without the
package."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etloop.contract.model.counters import CounterBatch, CounterFailure, FailureKind

if TYPE_CHECKING:
    from etloop.counters.readers.gnmi_session import GnmiSession
    from etloop.counters.readers.gnmi_settings import GnmiSource


class GnmiCounters:
    """The source `gnmi`; see `protocol.DeviceCounters`."""

    def __init__(self, source: GnmiSource, ports: tuple[str, ...]) -> None:
        self._source = source
        self._ports = ports
        self._session: GnmiSession | None = None

    async def open(self) -> CounterFailure | None:
        """See `DeviceCounters`."""
        try:
            from etloop.counters.readers.gnmi_session import GnmiSession
        except ImportError as error:
            problem = f"{error.name} is not installed: pip install 'etloop[gnmi]'"
            return CounterFailure(FailureKind.REFUSED, problem)
        await self.close()
        self._session = GnmiSession(self._source, self._ports)
        failure = await self._session.open()
        if failure is not None:
            await self.close()
        return failure

    async def read(self) -> CounterBatch | CounterFailure:
        """See `DeviceCounters`."""
        if self._session is None:
            return CounterFailure(FailureKind.ENDED, f"{self._source.address} is not open")
        return await self._session.read()

    async def close(self) -> None:
        """See `DeviceCounters`."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()
