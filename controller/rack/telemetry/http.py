"""The rack over HTTP: listens, and logs the library's errors. A gateway to the rack; a shell around aiohttp.

`ConditionPages` and `exchange` define the paths and their answers; `exchange` also decides who may request what.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Middleware

from etloop.controller.rack.telemetry.connections import Connections
from etloop.controller.rack.transfers.admission import HttpAdmission
from etloop.controller.rack.transfers.page_protection import protect

if TYPE_CHECKING:
    from etloop.controller.rack.log import RackLog

_BACKLOG: Final = 16
"""Connections that wait to be accepted, and that are accepted at once: each takes a descriptor."""
_GRACE_S: Final = 2.0
_LONGEST_TROUBLE: Final = 500


class HttpGateway:
    """Serves a rack over HTTP until cancelled."""

    def __init__(
        self,
        bind: tuple[str, int],
        routes: Sequence[web.AbstractRouteDef],
        admission: HttpAdmission,
        log: RackLog,
    ) -> None:
        self._bind = bind
        self._log = log
        self._library_log = logging.Logger("http", logging.ERROR)  # noqa: LOG001 - of this gateway alone
        self._library_log.addFilter(self._hear_library)
        self._routes = routes
        self._admission = admission
        self._connections = Connections()

    async def serve(self) -> None:
        """Listen and serve. See `Gateway`."""
        middlewares: list[Middleware] = [self._connections.middleware, self._admission.middleware]
        app = web.Application(client_max_size=0, middlewares=middlewares)
        app.on_response_prepare.append(protect)
        app.add_routes(self._routes)
        runner = web.AppRunner(app, access_log=None, logger=self._library_log, shutdown_timeout=_GRACE_S)
        await runner.setup()
        assert runner.server is not None, "set up"
        host, port = self._bind
        protocols = self._connections.factory(runner.server)
        try:
            server = await asyncio.get_running_loop().create_server(protocols, host, port, backlog=_BACKLOG)
            try:
                self._log.rack("http listens", address=f"{host}:{port}")
                await asyncio.Event().wait()
            finally:
                server.close()
        finally:
            await runner.cleanup()

    async def farewell(self) -> None:
        """Do nothing: /healthz shows that the rack drains. See `Gateway`."""

    def _hear_library(self, record: logging.LogRecord) -> bool:
        """Log an error that aiohttp reports, except for malformed requests.

        Those are answered with 400 and not logged, so that a flood of them does not become one of log lines.
        """
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, HttpProcessingError):
            self._log.rack("http trouble", what=f"{record.getMessage()}: {error!r}"[:_LONGEST_TROUBLE])
        return False
