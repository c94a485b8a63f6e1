"""Serves the OTG API 1.62 over HTTPS: requests as values in, JSON out. A shell around aiohttp.

Sizes, connections and times of requests are bounded; what the client may have wrong is answered as an `Error` of the API.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import web

from etloop.contract.base.errors import ConfigError, InputError, Problem, RigError
from etloop.contract.base.printable import printable
from etloop.contract.protocol.serialization import Unreadable, json_bytes, parse_json
from etloop.controller.inputs.rig import Rig
from etloop.controller.otg.requests import read_control, read_metrics, read_states
from etloop.controller.otg_server.held_test import HeldTest, ServeOptions
from etloop.controller.rack.telemetry.connections import Connections
from etloop.controller.rack.transfers.page_protection import is_own_host
from etloop.runtime.stop_signals import event_set_by_stop
from etloop.runtime.version import installed_version

API_VERSION: Final = "~1.62"
"""A range: snappi's check of versions refuses plain ones of another patch level."""
MOST_BODY_BYTES: Final = 4 << 20
MOST_BODY_VALUES: Final = 200_000
_BACKLOG: Final = 16
_HANDSHAKE_TIMEOUT_S: Final = 20.0
_REFUSED: Final = {
    "/config/append": "configurations are replaced as a whole",
    "/config/delete": "configurations are replaced as a whole",
    "/control/action": "actions are not offered",
    "/monitor/capture": "captures are not offered; the agents of a scenario capture (transport.capture)",
}
"""Path that is answered with a refusal -> why."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class OtgServer:
    """The server of one test on a rig."""

    def __init__(self, rig: Rig, options: ServeOptions) -> None:
        self._test = HeldTest(rig, options, _log)
        self._names: tuple[str, ...] = ()

    async def serve(
        self, host: str, port: int, certificate: ssl.SSLContext | None, listening: Callable[[int], None]
    ) -> None:
        """Serve until the process receives a stop signal; `listening` gets the port. Raise `ConfigError` if it cannot listen."""
        self._names = (host, socket.gethostname())
        connections, stop = Connections(), asyncio.Event()
        app = web.Application(
            client_max_size=MOST_BODY_BYTES, middlewares=[connections.middleware, self._answer]
        )
        app.add_routes(
            [
                web.post("/config", self._set_config),
                web.get("/config", self._get_config),
                web.post("/control/state", self._control),
                web.post("/monitor/metrics", self._metrics),
                web.post("/monitor/states", self._states),
                web.get("/capabilities/version", self._version),
            ]
        )
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        assert runner.server is not None, "set up"
        try:
            try:
                server = await asyncio.get_running_loop().create_server(
                    connections.factory(runner.server),
                    host,
                    port,
                    ssl=certificate,
                    backlog=_BACKLOG,
                    ssl_handshake_timeout=_HANDSHAKE_TIMEOUT_S if certificate is not None else None,
                )
            except OSError as error:
                problem = f"{host}:{port} cannot be listened on: {error.strerror or error}"
                raise ConfigError(Problem("--bind", problem, "name another address or port")) from None
            try:
                with event_set_by_stop(stop):
                    listening(server.sockets[0].getsockname()[1])
                    await stop.wait()
            finally:
                server.close()
                await self._test.close()
        finally:
            await runner.cleanup()

    @web.middleware
    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Return the answer of a handler, or the `Error` of the API for a failure."""
        if not is_own_host(request.headers.get("Host", ""), self._names):
            return _error(421, ["the server does not have the name in Host"])
        try:
            return await handler(request)
        except RigError as error:
            return _error(500, _texts(error), kind="internal")
        except InputError as error:
            return _error(400, _texts(error))
        except web.HTTPException as refusal:
            why = _REFUSED.get(request.path) or f"{request.method} {request.path[:64]}: {refusal.reason}"
            return _error(refusal.status, [why])

    async def _set_config(self, request: web.Request) -> web.Response:
        return _warnings(await self._test.configure(await _body(request)))

    async def _get_config(self, _: web.Request) -> web.Response:
        return _json(self._test.config)

    async def _control(self, request: web.Request) -> web.Response:
        return _warnings(await self._test.control(read_control(await _body(request))))

    async def _metrics(self, request: web.Request) -> web.Response:
        return _json(self._test.metrics(read_metrics(await _body(request))))

    async def _states(self, request: web.Request) -> web.Response:
        choice = read_states(await _body(request))
        return _json({"choice": choice, choice: []})

    async def _version(self, _: web.Request) -> web.Response:
        return _json(
            {
                "api_spec_version": API_VERSION,
                "sdk_version": "",
                "app_version": f"etloop {installed_version()}",
            }
        )


async def _body(request: web.Request) -> Any:
    """Return the decoded body of a request. Raise `ConfigError` for one that is not JSON within the limits."""
    text = await request.read()
    try:
        return parse_json(text, MOST_BODY_VALUES)
    except Unreadable as error:
        raise ConfigError(Problem("$", f"is not JSON: {error}", "send the JSON of the OTG API")) from None


def _warnings(warnings: tuple[str, ...]) -> web.Response:
    return _json({"warnings": [*warnings]})


def _texts(error: InputError) -> list[str]:
    return [printable(str(problem)) for problem in error.problems]


def _error(status: int, errors: list[str], kind: str = "validation") -> web.Response:
    return _json({"code": status, "kind": kind, "errors": errors}, status)


def _json(value: Any, status: int = 200) -> web.Response:
    return web.Response(body=json_bytes(value), status=status, content_type="application/json")


def _log(line: str) -> None:
    sys.stderr.write(f"{printable(line)}\n")
    sys.stderr.flush()
