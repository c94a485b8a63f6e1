"""Serves the OTG API 1.62 over HTTPS, and gRPC next to it if asked for. A shell around aiohttp.

Sizes, connections and times of requests are bounded; what the client may have wrong is answered as an `Error` of the API.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from etloop.contract.base.errors import ConfigError, Problem
from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.base.printable import printable
from etloop.contract.protocol.serialization import Unreadable, json_bytes, parse_json
from etloop.controller.inputs.rig import Rig
from etloop.controller.otg_server.held_test import ServeOptions
from etloop.controller.otg_server.service import CAPTURE, Operation, OtgService, error_value
from etloop.controller.rack.telemetry.connections import Connections
from etloop.controller.rack.transfers.page_protection import is_own_host
from etloop.runtime.stop_signals import event_set_by_stop

if TYPE_CHECKING:
    from etloop.controller.otg_server.grpc_front import GrpcFront

MOST_BODY_BYTES: Final = 4 << 20
MOST_BODY_VALUES: Final = 200_000
_BACKLOG: Final = 16
_HANDSHAKE_TIMEOUT_S: Final = 20.0
_ROUTES: Final = {
    ("POST", "/config"): Operation.SET_CONFIG,
    ("GET", "/config"): Operation.GET_CONFIG,
    ("POST", "/control/state"): Operation.SET_CONTROL_STATE,
    ("POST", "/monitor/metrics"): Operation.GET_METRICS,
    ("POST", "/monitor/states"): Operation.GET_STATES,
    ("POST", "/monitor/capture"): Operation.GET_CAPTURE,
    ("GET", "/capabilities/version"): Operation.GET_VERSION,
}
_REFUSED: Final = {
    "/config/append": "configurations are replaced as a whole",
    "/config/delete": "configurations are replaced as a whole",
    "/control/action": "actions are not offered",
}
"""Path that is answered with a refusal -> why."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class GrpcSettings:
    """Where gRPC is served."""

    address: str
    """As HOST:PORT."""
    keys: tuple[bytes, bytes] | None = None
    """Key and certificate as PEM; None: clear text, as snappi's clients expect unless they name a certificate."""


class OtgServer:
    """The server of one test on a rig."""

    def __init__(self, rig: Rig, options: ServeOptions) -> None:
        self._service = OtgService(rig, options, _log)
        self._names: tuple[str, ...] = ()

    async def serve(
        self,
        host: str,
        port: int,
        certificate: ssl.SSLContext | None,
        listening: Callable[[int, int], None],
        grpc: GrpcSettings | None = None,
    ) -> None:
        """Serve until the process receives a stop signal; `listening` gets the ports of HTTPS and of gRPC, 0 without it.

        Raise `ConfigError` if the server cannot listen, or cannot speak gRPC.
        """
        self._names = (host, socket.gethostname())
        connections, stop = Connections(), asyncio.Event()
        app = web.Application(
            client_max_size=MOST_BODY_BYTES, middlewares=[connections.middleware, self._answer]
        )
        app.add_routes(
            [web.route(method, path, self._handler(order)) for (method, path), order in _ROUTES.items()]
        )
        front = self._grpc_front() if grpc is not None else None
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
                grpc_port = await front.open(grpc.address, grpc.keys) if front and grpc else 0
                with event_set_by_stop(stop):
                    listening(server.sockets[0].getsockname()[1], grpc_port)
                    await stop.wait()
            finally:
                server.close()
                if front is not None:
                    await front.close()
                await self._service.close()
        finally:
            await runner.cleanup()

    def _grpc_front(self) -> GrpcFront:
        """Return the gRPC server. Raise `ConfigError` without its packages."""
        try:
            from etloop.controller.otg_server.grpc_front import GrpcFront

            return GrpcFront(self._service)
        except ImportError as error:
            problem = f"gRPC cannot be served: {error}"
            raise ConfigError(Problem("--grpc", problem, "pip install snappi, or leave --grpc out")) from None

    @web.middleware
    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Return the answer of a handler, or the `Error` of the API for a failure."""
        if not is_own_host(request.headers.get("Host", ""), self._names):
            return _error(421, ["the server does not have the name in Host"])
        try:
            return await handler(request)
        except ConfigError as error:
            return _error(400, [printable(str(problem)) for problem in error.problems])
        except web.HTTPException as refusal:
            why = _REFUSED.get(request.path) or f"{request.method} {request.path[:64]}: {refusal.reason}"
            return _error(refusal.status, [why])

    def _handler(self, operation: Operation) -> Handler:
        """Return the handler of a path that carries out one operation."""

        async def handle(request: web.Request) -> web.Response:
            body = await _body(request) if request.method == "POST" else None
            status, value = await self._service.answer(operation, body)
            if isinstance(value.get(CAPTURE), bytes):
                return web.Response(body=value[CAPTURE], content_type="application/octet-stream")
            return _json(value, status)

        return handle


async def _body(request: web.Request) -> Any:
    """Return the decoded body of a request. Raise `ConfigError` for one that is not JSON within the limits."""
    text = await request.read()
    try:
        return parse_json(text, MOST_BODY_VALUES)
    except Unreadable as error:
        raise ConfigError(Problem("$", f"is not JSON: {error}", "send the JSON of the OTG API")) from None


def _error(status: int, errors: list[str]) -> web.Response:
    return _json(error_value(status, errors), status)


def _json(value: Any, status: int = 200) -> web.Response:
    return web.Response(body=json_bytes(value), status=status, content_type="application/json")


def _log(line: str) -> None:
    sys.stderr.write(f"{printable(line)}\n")
    sys.stderr.flush()
