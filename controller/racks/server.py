"""Serves the page of several racks over HTTP. A shell around aiohttp.

The racks are queried on request, once for all requests within some seconds. The page is open to every client and
changes nothing; it shows what a viewer of each rack may see.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Final

from aiohttp import web

from etloop.contract.base.clock import NS_PER_S
from etloop.contract.base.errors import ConfigError, Problem
from etloop.controller.rack.telemetry.connections import Connections
from etloop.controller.rack.transfers.page_protection import PAGE_HEADERS, is_own_host
from etloop.controller.racks.page import PageQuery, parse_query, racks_page
from etloop.controller.racks.racks_file import RackPlace
from etloop.controller.racks.survey import RackAnswer, RackView, ask_racks, view_with
from etloop.runtime.clock import monotonic_ns, wall_time_text
from etloop.runtime.stop_signals import event_set_by_stop

_FRESH_NS: Final = 3 * NS_PER_S
_BACKLOG: Final = 16
_HEADERS: Final = {**PAGE_HEADERS, "Cache-Control": "no-store"}
_Asked = tuple[tuple[RackAnswer[RackView], ...], str]


class RacksServer:
    """Server of the page of these racks."""

    def __init__(self, places: Sequence[RackPlace], job_limit: int, deadline_s: float) -> None:
        self._places = places
        self._job_limit = job_limit
        self._deadline_s = deadline_s
        self._asking: asyncio.Task[_Asked] | None = None
        self._asked_ns = 0
        self._names: tuple[str, ...] = ()

    async def serve(self, host: str, port: int, listening: Callable[[], None]) -> None:
        """Serve until the process receives a stop signal. Raises `ConfigError` if it cannot listen there."""
        self._names = (host, socket.gethostname())
        connections, stop = Connections(), asyncio.Event()
        app = web.Application(client_max_size=0, middlewares=[connections.middleware])
        app.add_routes([web.get("/", self._page)])
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        assert runner.server is not None, "set up"
        protocols = connections.factory(runner.server)
        try:
            try:
                server = await asyncio.get_running_loop().create_server(
                    protocols, host, port, backlog=_BACKLOG
                )
            except OSError as error:
                problem = f"{host}:{port} cannot be listened on: {error.strerror or error}"
                raise ConfigError(Problem("--bind", problem, "name another address or port")) from None
            with event_set_by_stop(stop):
                listening()
                await stop.wait()
            server.close()
        finally:
            await runner.cleanup()

    async def _page(self, request: web.Request) -> web.Response:
        if not is_own_host(request.headers.get("Host", ""), self._names):
            text = "this server does not have the name in Host; name it as in --bind, or by its address\n"
            return web.Response(text=text, status=421, headers=_HEADERS)
        try:
            query: PageQuery = parse_query({key: request.query.getall(key) for key in request.query})
        except ConfigError as error:
            return web.Response(text=f"{error}\n", status=400, headers=_HEADERS)
        answers, asked_at = await self._answers()
        return web.Response(
            text=racks_page(answers, query, asked_at), content_type="text/html", headers=_HEADERS
        )

    async def _answers(self) -> _Asked:
        """Return the racks' answers of the last seconds, or query them now.

        A client that disconnects does not cancel the query for other clients.
        """
        now_ns = monotonic_ns()
        is_stale = self._asking is None or (self._asking.done() and now_ns - self._asked_ns > _FRESH_NS)
        if self._asking is None or is_stale:
            self._asked_ns = now_ns
            self._asking = asyncio.create_task(self._ask())
        return await asyncio.shield(self._asking)

    async def _ask(self) -> _Asked:
        question = view_with(self._job_limit)
        return await ask_racks(self._places, question, self._deadline_s, self._deadline_s), wall_time_text()
