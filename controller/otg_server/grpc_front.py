"""Serves the OTG API over gRPC (service `otg.Openapi`) next to HTTPS. A shell around grpc.aio.

The messages are those of the installed `snappi` package; they become the JSON of the API, which the service answers.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any, Final

from google.protobuf import json_format, message_factory
from google.protobuf.message import Message

from etloop.contract.base.errors import ConfigError, Problem
from etloop.controller.otg_server.service import Operation, OtgService
from etloop.counters.gnmi.grpc_library import grpc

MOST_MESSAGE_BYTES: Final = 4 << 20
"""The default limit of gRPC's clients."""
MOST_CALLS: Final = 64
END_S: Final = 1
_CALLS: Final = {
    "SetConfig": (Operation.SET_CONFIG, "config", "warning"),
    "GetConfig": (Operation.GET_CONFIG, "", "config"),
    "SetControlState": (Operation.SET_CONTROL_STATE, "control_state", "warning"),
    "GetMetrics": (Operation.GET_METRICS, "metrics_request", "metrics_response"),
    "GetCapture": (Operation.GET_CAPTURE, "capture_request", ""),
    "GetStates": (Operation.GET_STATES, "states_request", "states_response"),
    "GetVersion": (Operation.GET_VERSION, "", "version"),
}
"""Call -> operation, field of the request that has its body, field of the response that has the answer, "" if the answer has
the fields of the response. Others are UNIMPLEMENTED."""


class GrpcFront:
    """The gRPC server of a service."""

    def __init__(self, service: OtgService) -> None:
        """Take the messages of `snappi`. Raise `ImportError` if it is not installed."""
        self._service = service
        self._server: grpc.aio.Server | None = None
        methods = import_module("snappi.otg_pb2").DESCRIPTOR.services_by_name["Openapi"].methods_by_name
        handlers = {}
        for name, call in _CALLS.items():
            request = message_factory.GetMessageClass(methods[name].input_type)
            response = message_factory.GetMessageClass(methods[name].output_type)
            handlers[name] = grpc.unary_unary_rpc_method_handler(
                self._answering(*call, response), request.FromString, response.SerializeToString
            )
        self._handler = grpc.method_handlers_generic_handler("otg.Openapi", handlers)

    def _answering(
        self, operation: Operation, body_field: str, answer_field: str, response: Callable[..., Message]
    ) -> Callable[[Message, Any], Awaitable[Message]]:
        """Return the function that answers one kind of call."""

        async def answer(request: Message, context: Any) -> Message:
            message = getattr(request, body_field) if body_field else request
            body = json_format.MessageToDict(message, preserving_proto_field_name=True)
            status, value = await self._service.answer(operation, body)
            if status != 200:
                code = grpc.StatusCode.INVALID_ARGUMENT if status == 400 else grpc.StatusCode.INTERNAL
                await context.abort(code, json.dumps(value))
            if not answer_field:
                return response(**value)
            # A configuration from HTTPS may have empty fields that the schema does not have.
            return json_format.ParseDict({answer_field: value}, response(), ignore_unknown_fields=True)

        return answer

    async def open(self, address: str, keys: tuple[bytes, bytes] | None) -> int:
        """Listen and return the port; `keys` are key and certificate as PEM, and None serves clear text, snappi's default.

        Raise `ConfigError` if the server cannot listen.
        """
        options = (("grpc.max_receive_message_length", MOST_MESSAGE_BYTES), ("grpc.so_reuseport", 0))
        server = grpc.aio.server(options=options, maximum_concurrent_rpcs=MOST_CALLS)
        server.add_generic_rpc_handlers((self._handler,))
        try:
            if keys is None:
                port = server.add_insecure_port(address)
            else:
                port = server.add_secure_port(address, grpc.ssl_server_credentials([keys]))
        except RuntimeError:
            problem = f"{address} cannot be listened on"
            raise ConfigError(Problem("--grpc", problem, "name another address or port")) from None
        await server.start()
        self._server = server
        return int(port)

    async def close(self) -> None:
        """End all calls."""
        if self._server is not None:
            await self._server.stop(END_S)
