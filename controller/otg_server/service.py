"""Operations of the OTG API on the held test: decoded JSON in, JSON values out. HTTPS and gRPC both answer through it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from enum import Enum, auto
from typing import Any, Final

from etloop.contract.base.errors import InputError, RigError
from etloop.contract.base.printable import printable
from etloop.controller.inputs.rig import Rig
from etloop.controller.otg.answers import Row
from etloop.controller.otg.collective_model import Proposal
from etloop.controller.otg.requests import read_capture, read_control, read_metrics, read_states
from etloop.controller.otg_server.held_test import HeldTest, ServeOptions
from etloop.runtime.version import installed_version

API_VERSION: Final = "~1.62"
"""A range: snappi's check of versions refuses plain ones of another patch level."""


CAPTURE: Final = "response_bytes"
"""Field of the answer to GET_CAPTURE with the bytes of a pcap file."""


class Operation(Enum):
    """Operation of the API."""

    SET_CONFIG = auto()
    GET_CONFIG = auto()
    SET_CONTROL_STATE = auto()
    GET_METRICS = auto()
    GET_STATES = auto()
    GET_CAPTURE = auto()
    GET_VERSION = auto()


class OtgService:
    """The one test of a server, as its operations."""

    def __init__(self, rig: Rig, options: ServeOptions, report: Callable[[str], None]) -> None:
        self._test = HeldTest(rig, options, report)
        self._answers: Mapping[Operation, Callable[[Any], Awaitable[Row]]] = {
            Operation.SET_CONFIG: self._set_config,
            Operation.GET_CONFIG: self._get_config,
            Operation.SET_CONTROL_STATE: self._set_control_state,
            Operation.GET_METRICS: self._get_metrics,
            Operation.GET_STATES: self._get_states,
            Operation.GET_CAPTURE: self._get_capture,
            Operation.GET_VERSION: self._get_version,
        }

    async def answer(self, operation: Operation, body: Any) -> tuple[int, Row]:
        """Return the HTTP status and the answer to a decoded request; other statuses than 200 have an `Error` of the API."""
        try:
            return 200, await self._answers[operation](body)
        except RigError as error:
            return 500, error_value(500, _texts(error), kind="internal")
        except InputError as error:
            return 400, error_value(400, _texts(error))

    async def close(self) -> None:
        """Stop the traffic."""
        await self._test.close()

    async def _set_config(self, body: Any) -> Row:
        return {"warnings": [*await self._test.configure(body)]}

    async def _get_config(self, _: Any) -> Row:
        config: Row = self._test.config
        return config

    async def _set_control_state(self, body: Any) -> Row:
        return {"warnings": [*await self._test.control(read_control(body))]}

    async def _get_metrics(self, body: Any) -> Row:
        return self._test.metrics(read_metrics(body))

    async def _get_states(self, body: Any) -> Row:
        choice = read_states(body)
        if choice == Proposal.COMMUNICATIONS:
            return {"choice": choice, choice: self._test.collective_state()}
        return {"choice": choice, choice: []}

    async def _get_capture(self, body: Any) -> Row:
        return {CAPTURE: await self._test.capture(read_capture(body))}

    async def _get_version(self, _: Any) -> Row:
        version = f"etloop {installed_version()}"
        return {"api_spec_version": API_VERSION, "sdk_version": "", "app_version": version}


def error_value(status: int, errors: list[str], kind: str = "validation") -> Row:
    """Return an `Error` of the API."""
    return {"code": status, "kind": kind, "errors": errors}


def _texts(error: InputError) -> list[str]:
    return [printable(str(problem)) for problem in error.problems]
