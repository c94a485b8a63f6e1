"""What an agent needs of an engine, as types, so that its decisions are made and tested without one."""

from __future__ import annotations

from enum import Enum, auto
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class EnginePhase(Enum):
    """States of an engine, by the names that `traffic.engine.EngineState` gives them."""

    OPEN = auto()
    PROBING = auto()
    READY = auto()
    RUNNING = auto()
    DONE = auto()
    FAILED = auto()
    STOPPED = auto()


class EngineStatus(Protocol):
    """How an engine stands."""

    @property
    def state(self) -> Enum:
        """Its name is one of `EnginePhase`."""

    @property
    def ops_done(self) -> int: ...
    @property
    def ops_total(self) -> int: ...
    @property
    def wire_tx_bytes(self) -> int: ...
    @property
    def wire_rx_bytes(self) -> int: ...
    @property
    def last_progress_ns(self) -> int: ...
    @property
    def failure(self) -> str: ...


class ProbeOutcome(Protocol):
    """One queue pair probed through the device under test."""

    @property
    def connection(self) -> int: ...
    @property
    def queue_pair(self) -> int: ...
    @property
    def ok(self) -> bool: ...
    @property
    def round_trip_ns(self) -> int: ...
    @property
    def problem(self) -> str: ...


class Engine(Protocol):
    """The engine of one run, open from its construction on; see `traffic.engine.Engine`."""

    @property
    def degraded(self) -> tuple[str, ...]: ...
    def start_probe(self) -> None: ...
    def probe_outcomes(self) -> tuple[ProbeOutcome, ...] | None: ...
    def start(self, start_ns: int) -> None: ...
    def status(self) -> EngineStatus: ...
    def take_records(self) -> NDArray[np.void]: ...
    def request_waits(self) -> None: ...
    def take_waits(self) -> NDArray[np.void] | None: ...
    def flows(self) -> NDArray[np.void]: ...
    def ports(self) -> NDArray[np.void]: ...
    def rates(self) -> NDArray[np.void]: ...
    def stop(self) -> None: ...
    def close(self) -> None: ...


def phase_of(status: EngineStatus) -> EnginePhase:
    """The engine's state as the agent's decisions know it."""
    return EnginePhase[status.state.name]
