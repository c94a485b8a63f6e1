"""Declares streams of whole Ethernet frames: their contents as the controller laid them out, and their counts.

A frame carries a signature behind its headers, by which its receiver knows the stream and the time it was sent:

    bytes 0-3    MARK
    bytes 4-7    number of the stream, one per stream of the run
    bytes 8-15   time of sending, ns of the sender's real-time clock
    bytes 16-17  complement of the time's 16-bit words, so that a UDP or TCP checksum over the frame stays as it is

All numbers are big-endian.
"""

from __future__ import annotations

from typing import Final

from etloop.contract.base.late_dataclass import dataclass

MARK: Final = b"etlf"
SIGNATURE_BYTES: Final = 18
FCS_BYTES: Final = 4
CAPTURE_NUMBER: Final = (1 << 32) - 1
"""Number in the count of a port that only captures; no stream has it."""
MOST_FRAMES: Final = 4096
"""Distinct frames of all streams of a run."""
MOST_FRAME_BYTES: Final = 4 << 20
"""Bytes of all distinct frames of a stream."""
MOST_CAPTURED_BYTES: Final = 16 << 20
"""Bytes that an agent captures for each port in a run."""


@dataclass(frozen=True, slots=True)
class FrameStream:
    """One end of a stream of frames."""

    name: str
    number: int
    """Number in its signature: 32 bits."""
    port: int
    """Index into the ports of the assignment."""
    sends: bool
    """True if this is the sending end."""
    signature_at: int
    """Offset of the signature in its frames."""
    frames: tuple[bytes, ...] = ()
    """Frames without FCS, sent one after the other, over and over; empty at a receiving end."""
    cycle_ns: int = 0
    """Time in which all of `frames` are sent once."""
    count: int = 0
    """Frames to send; 0: until the run is stopped."""
    delay_ns: int = 0
    """Time of the first frame after the start of the run."""


@dataclass(frozen=True, slots=True)
class FrameWork:
    """Streams of frames at the ports of one agent, in addition to its ranks."""

    streams: tuple[FrameStream, ...] = ()
    captures: tuple[int, ...] = ()
    """Ports, by index, whose received frames are kept."""


@dataclass(frozen=True, slots=True)
class FrameCount:
    """Counts of one end of a stream so far. Times are of the real-time clock of the agent's host."""

    number: int
    port: int
    sends: bool
    frames: int
    frame_bytes: int
    """Without FCS."""
    first_ns: int
    """Time of the first frame; 0 before."""
    last_ns: int
    is_over: bool
    """Sending end: all its frames are sent."""
    latency_min_ns: int = 0
    """Receiving end: from the call that sends a frame to the kernel's receive stamp."""
    latency_max_ns: int = 0
    latency_sum_ns: int = 0
    behind_ns: int = 0
    """Sending end: time by which its schedule was moved back because the thread was late."""
    interruptions: int = 0
    """Receiving end: how often the interface of its port went down."""
