"""/metrics and /healthz of a rack, for monitoring; they need no token."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from aiohttp import web

from etloop.controller.rack.events import RackState
from etloop.controller.rack.telemetry.metrics import RackCollector, exposition

if TYPE_CHECKING:
    from etloop.controller.rack.api import Rack


class ConditionPages:
    """Metrics and readiness of one rack. `obstacles` returns what keeps all jobs from starting."""

    def __init__(
        self, rack: Rack, collector: RackCollector, obstacles: Callable[[], tuple[str, ...]]
    ) -> None:
        self._rack = rack
        self._collector = collector
        self._obstacles = obstacles

    def routes(self) -> list[web.AbstractRouteDef]:
        """Return the routes and their handlers."""
        return [web.get("/metrics", self._metrics), web.get("/healthz", self._health)]

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(
            body=exposition(self._collector), headers={"Content-Type": "text/plain; version=0.0.4"}
        )

    async def _health(self, _: web.Request) -> web.Response:
        reasons = list(self._obstacles())
        if self._rack.state is not RackState.READY:
            reasons.append(f"the controller is {self._rack.state}")
        body = {"live": True, "ready": not reasons, "reasons": reasons}
        return web.json_response(body, status=503 if reasons else 200)
