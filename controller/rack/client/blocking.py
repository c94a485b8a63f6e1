"""The rack's client for programs without an event loop: test suites, notebooks, scripts. A shell: a loop in a thread.

    with BlockingRack(BrokerSettings("rack-broker", 1883), "rack1") as rack:
        result = rack.run(Path("scenario.yaml").read_text(), ports=["a/p0", "b/p0"], limit_s=600)
        assert result.exit_code == 0, result.reason

The loop keeps running between the calls, so that the connection to the broker stays alive while the client is idle.
Calls and their errors are those of `client.RackClient`; not for use by several threads at once.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from etloop.controller.rack.client.client import RESPONSE_TIMEOUT_S, RackClient, RackUnreachable
from etloop.controller.rack.mqtt.messages import (
    ControllerStatus,
    InventoryResponse,
    JobChange,
    JobStatus,
    PortStatus,
    ResultStatus,
)
from etloop.controller.rack.mqtt.reservation_messages import ReservationStatus
from etloop.runtime.broker_settings import BrokerSettings

T = TypeVar("T")


class BlockingRack:
    """One connection to a rack; every call waits for its answer."""

    def __init__(
        self, settings: BrokerSettings, rack: str, *, response_timeout_s: float = RESPONSE_TIMEOUT_S
    ) -> None:
        self._client = RackClient(settings, rack, response_timeout_s=response_timeout_s)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="etloop-rack", daemon=True)

    def __repr__(self) -> str:
        """Return the client below it."""
        return f"<BlockingRack by {self._client!r}>"

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._wait_for(self._client.__aenter__())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._wait_for(self._client.__aexit__(kind, error, trace))
        finally:
            self._end()

    def submit(self, scenario: str, **request: Any) -> JobStatus:
        """Submit a job. See `RackClient.submit`, also for the keywords."""
        return self._wait_for(self._client.submit(scenario, **request))

    def result(self, job_id: str, limit_s: float | None = None) -> ResultStatus:
        """Wait for a job's result. See `RackClient.result`."""
        return self._wait_for(self._client.result(job_id, limit_s))

    def run(self, scenario: str, *, limit_s: float | None = None, **request: Any) -> ResultStatus:
        """Submit a job and return its result.

        A job that takes longer than `limit_s`, including its wait in the queue, is cancelled, and `RackUnreachable` is
        raised. Also raises what `submit` raises.
        """
        job = self.submit(scenario, **request)
        try:
            return self.result(job.job_id, limit_s)
        except RackUnreachable:
            self.cancel(self._wait_for(self._client.newest(job.job_id)))
            raise

    def cancel(self, job_id: str, submitter: str = "") -> JobStatus | None:
        """Cancel a job. See `RackClient.cancel`."""
        return self._wait_for(self._client.cancel(job_id, submitter))

    def change(self, job_id: str, change: JobChange, **words: Any) -> JobStatus | None:
        """Hold, release, reorder or requeue a job. See `RackClient.change`, also for the keywords."""
        return self._wait_for(self._client.change(job_id, change, **words))

    def service(self, ports: Sequence[str], **words: Any) -> tuple[PortStatus, ...]:
        """Drain ports or return them to service. See `RackClient.service`, also for the keywords."""
        return self._wait_for(self._client.service(ports, **words))

    def reserve(self, ports: Sequence[str], ends_at: str, **wishes: Any) -> ReservationStatus:
        """Reserve ports. See `RackClient.reserve`, also for the keywords."""
        return self._wait_for(self._client.reserve(ports, ends_at, **wishes))

    def unreserve(self, reservation_id: str, **words: Any) -> ReservationStatus | None:
        """Withdraw a reservation. See `RackClient.unreserve`."""
        return self._wait_for(self._client.unreserve(reservation_id, **words))

    def pause(self, **words: Any) -> str:
        """Pause or resume the queue. See `RackClient.pause`, also for the keywords."""
        return self._wait_for(self._client.pause(**words))

    def jobs(self, limit: int = 100) -> tuple[JobStatus, ...]:
        """Return the newest jobs. See `RackClient.jobs`."""
        return self._wait_for(self._client.jobs(limit))

    def inventory(self) -> InventoryResponse:
        """Return agents and ports. See `RackClient.inventory`."""
        return self._wait_for(self._client.inventory())

    def controller(self) -> ControllerStatus:
        """Return the controller's state. See `RackClient.controller`."""
        return self._wait_for(self._client.controller())

    # ---- inside

    def _wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            # Ctrl-C, or a test's time limit: cancel the request, which must not continue without its caller.
            future.cancel()
            raise

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()
