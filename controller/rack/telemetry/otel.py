"""Pushes the rack's figures to an OpenTelemetry collector over OTLP/HTTP. A gateway to the rack; a shell: a timer, a thread.

Figures are taken in the event loop, where the rack is; a thread carries them away, so that a collector that does not
answer delays nothing. What a job that ended came to is kept until one export has succeeded, at most `_MOST_ENDED` jobs.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections import deque
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Final

from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.late_dataclass import dataclass
from etloop.controller.rack.events import JobChanged
from etloop.controller.rack.job import ENDED, Job
from etloop.controller.rack.store import artifacts
from etloop.controller.rack.telemetry.otel_points import EndedJob, metrics_data
from etloop.runtime.clock import wall_ns
from etloop.runtime.version import installed_version
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import MetricExportResult

if TYPE_CHECKING:
    from etloop.controller.rack.api import Rack
    from etloop.controller.rack.config import OtelConfig
    from etloop.controller.rack.log import RackLog
    from etloop.controller.rack.telemetry.metrics import RackCollector

_MOST_ENDED: Final = 1024
_EXPORT_S: Final = 10.0
"""How long a collector may take for one export, repetitions included."""
_FAREWELL_S: Final = 2.0


class _Exports(Enum):
    """What became of the last export, as the log says it."""

    UNTRIED = ""
    ARRIVE = "figures are pushed"
    FAIL = "figures cannot be pushed"


@dataclass(frozen=True, slots=True)
class OtelTarget:
    """Where a rack's figures go, and by which name."""

    config: OtelConfig
    authorization: str
    """The value of the header `Authorization`; "": none is sent."""
    rack_name: str


class OtelGateway:
    """Pushes until it is cancelled, and once more on the way out."""

    def __init__(
        self,
        rack: Rack,
        collector: RackCollector,
        summary_of: Callable[[Job], str],
        target: OtelTarget,
        log: RackLog,
    ) -> None:
        self._collector = collector
        self._summary_of = summary_of
        self._rack_name = target.rack_name
        self._config = target.config
        self._headers = {"Authorization": target.authorization} if target.authorization else {}
        self._log = log
        self._began_ns = wall_ns()
        self._ended: deque[EndedJob] = deque(maxlen=_MOST_ENDED)
        self._subscription = rack.subscribe()
        """From before the controller serves: what an earlier one left unfinished ends first of all."""
        self._exports = _Exports.UNTRIED

    async def live(self) -> None:
        """See `Gateway`."""
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # What matters, this module says.
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._hear())
            tasks.create_task(self._push_on())

    async def farewell(self) -> None:
        """See `Gateway`: what ended since the last export still goes out, if the collector takes it at once."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FAREWELL_S):
                await self._push(_FAREWELL_S)

    async def _hear(self) -> None:
        while True:
            match await self._subscription.next():
                case JobChanged(job, summary) if job.state in ENDED:
                    read = partial(self._summary_of, job)
                    found = summary or await artifacts.summary_in_time(read, job.job_id, self._log)
                    self._ended.append(EndedJob(job, wall_ns(), json.loads(found) if found else None))

    async def _push_on(self) -> None:
        while True:
            await asyncio.sleep(self._config.interval_ns / NS_PER_S)
            await self._push(_EXPORT_S)

    async def _push(self, within_s: float) -> None:
        ended = tuple(self._ended)
        figures = metrics_data(
            self._collector.collect(), ended, self._rack_name, installed_version(), self._began_ns, wall_ns()
        )
        ca_file = self._config.ca_file
        exporter = OTLPMetricExporter(
            endpoint=f"{self._config.endpoint}/v1/metrics",
            certificate_file=None if ca_file is None else str(ca_file),
            headers=self._headers,
            timeout=within_s,
        )
        try:
            result = await asyncio.to_thread(exporter.export, figures)
        finally:
            # Wakes a thread that waits to try again: at the end nobody waits for it.
            exporter.shutdown()
        exports = _Exports.ARRIVE if result is MetricExportResult.SUCCESS else _Exports.FAIL
        if exports is _Exports.ARRIVE:
            for each in ended:
                with contextlib.suppress(ValueError):  # It made room for others meanwhile.
                    self._ended.remove(each)
        if exports is not self._exports:
            self._exports = exports
            self._log.rack(exports.value, to=self._config.endpoint)
