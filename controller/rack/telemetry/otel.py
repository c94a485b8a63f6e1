"""Pushes the rack's metrics to an OpenTelemetry collector over OTLP/HTTP. A gateway to the rack; a shell: a thread.

Metrics are computed in the event loop, where the rack is, and sent by a thread, so that an unresponsive collector
delays nothing. Values of an ended job are kept until an export has succeeded, for at most `_MOST_ENDED` jobs.
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

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import MetricExportResult

from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.late_dataclass import dataclass
from etloop.controller.rack.events import JobChanged
from etloop.controller.rack.job import ENDED, Job
from etloop.controller.rack.store import artifacts
from etloop.controller.rack.telemetry.otel_points import EndedJob, metrics_data
from etloop.runtime.clock import wall_ns
from etloop.runtime.version import installed_version

if TYPE_CHECKING:
    from etloop.controller.rack.api import Rack
    from etloop.controller.rack.config import OtelConfig
    from etloop.controller.rack.log import RackLog
    from etloop.controller.rack.telemetry.metrics import RackCollector

_MOST_ENDED: Final = 1024
_EXPORT_S: Final = 10.0
"""Longest time for one export, retries included."""
_FAREWELL_S: Final = 2.0


class _Exports(Enum):
    """Result of the last export, as logged."""

    UNTRIED = ""
    ARRIVE = "figures are pushed"
    FAIL = "figures cannot be pushed"


@dataclass(frozen=True, slots=True)
class OtelTarget:
    """Destination of a rack's metrics, and the rack's name there."""

    config: OtelConfig
    authorization: str
    """Value of the `Authorization` header; "": none is sent."""
    rack_name: str


class OtelGateway:
    """Pushes metrics until cancelled, and once more at the end."""

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
        """Subscribed before the controller serves: jobs of an earlier controller end first of all."""
        self._exports = _Exports.UNTRIED

    async def serve(self) -> None:
        """Push metrics periodically. See `Gateway`."""
        logging.getLogger("opentelemetry").setLevel(
            logging.CRITICAL
        )  # This module logs failed exports itself.
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._hear())
            tasks.create_task(self._push_on())

    async def farewell(self) -> None:
        """Push the values since the last export, if the collector accepts them at once. See `Gateway`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FAREWELL_S):
                await self._push(_FAREWELL_S)

    async def _hear(self) -> None:
        while True:
            match await self._subscription.next():
                case JobChanged(job, summary) if job.state in ENDED:
                    read_summary = partial(self._summary_of, job)
                    summary_text = summary or await artifacts.summary_in_time(
                        read_summary, job.job_id, self._log
                    )
                    self._ended.append(
                        EndedJob(job, wall_ns(), json.loads(summary_text) if summary_text else None)
                    )

    async def _push_on(self) -> None:
        while True:
            await asyncio.sleep(self._config.interval_ns / NS_PER_S)
            await self._push(_EXPORT_S)

    async def _push(self, within_s: float) -> None:
        ended = tuple(self._ended)
        metrics = metrics_data(
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
            result = await asyncio.to_thread(exporter.export, metrics)
        finally:
            # Wake a thread that waits for a retry, since a cancelled push does not wait for it.
            exporter.shutdown()
        exports = _Exports.ARRIVE if result is MetricExportResult.SUCCESS else _Exports.FAIL
        if exports is _Exports.ARRIVE:
            for job in ended:
                with contextlib.suppress(ValueError):  # Already dropped by the bounded queue.
                    self._ended.remove(job)
        if exports is not self._exports:
            self._exports = exports
            self._log.rack(exports.value, to=self._config.endpoint)
