"""Status and probe results of an engine, shared by the engine and the agent that decides about it."""

from __future__ import annotations

from enum import Enum

from etloop.contract.base.late_dataclass import dataclass
from etloop.contract.model.frame_streams import FrameCount


class TurnaroundPart(Enum):
    """Consecutive parts of a turnaround, numbered as in traffic/native/base/turnarounds.h."""

    RECEIVE_QUEUE = 0
    """From the arrival stamp of the released message until the port read it."""
    LOOP = 1
    """Until the loop's next turn to send."""
    ARBITRATION = 2
    """Until the queue pair of the answer was served."""
    SEND_CALL = 3
    """Until the call that sent its first packet returned."""


class EnginePhase(Enum):
    """Phase of an engine: that of its slowest port, or FAILED or STOPPED if any port is."""

    OPEN = 0
    PROBING = 1
    READY = 2
    RUNNING = 3
    DONE = 4
    FAILED = 5
    STOPPED = 6


@dataclass(frozen=True, slots=True)
class ThreadBytes:
    """Payload that one engine thread moved through the device under test so far."""

    wire_tx_bytes: int
    wire_rx_bytes: int


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """A moment of a run, summed over the ports. Bytes are payload bytes through the device under test."""

    phase: EnginePhase
    ops_done: int
    ops_total: int
    wire_tx_bytes: int
    wire_rx_bytes: int
    last_progress_ns: int
    """Monotonic clock of this machine when an op, message or packet last made progress; 0 before the run."""
    failure: str
    threads: tuple[ThreadBytes, ...] = ()
    """One entry per thread, in the order of the assignment's ports, `engine_threads` of each."""
    frames: tuple[FrameCount, ...] = ()
    """Streams of frames so far."""


@dataclass(frozen=True, slots=True)
class ProbeOutcome:
    """Result of probing the peer of one queue pair before any load."""

    connection: int
    queue_pair: int
    """Row of the queue pair columns."""
    ok: bool
    round_trip_ns: int
    problem: str
